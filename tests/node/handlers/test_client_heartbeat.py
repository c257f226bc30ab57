import math
from collections import Counter

import msgspec
import pytest

import node.tables.client_table
import node.tables.producer_table
import node.tables.topic_config_table
from node.handlers.client_heartbeat import (
    GROUP_WORK,
    LARGE_BYTES,
    WORK_PER_PIECE,
    ClientHeartbeat,
)
from node.tables.client_table import Consumer
from tandem.wire.remoting_command import ONEWAY_FLAG, PROTOCOL_VERSION
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerData,
    GroupRequestHeader,
    HeartbeatData,
    SubscriptionData,
    UnregisterClientRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import Broker, Client, FakeReplication

BEAT = RequestCode.HEART_BEAT
LEAVE = RequestCode.UNREGISTER_CLIENT
LIST = RequestCode.GET_CONSUMER_LIST_BY_GROUP
CHECK = RequestCode.CHECK_CLIENT_CONFIG


JAVA = (
    b'{"clientID":"10.0.0.9@4711#83","consumerDataSet":[{"consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG",'
    b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
    b'"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
    b'"subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"T1"}],"unitMode":false}],'
    b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
)
"""The example of a heartbeat of RocketMQ 5.3.3's Java client."""


def clients_of(
    broker: Broker,
    count: int = 1,
    *,
    is_slave: bool = False,
    replication: FakeReplication | None = None,
) -> list[Client]:
    replication = replication or FakeReplication()
    if is_slave:
        replication.demote("this is a slave")
    handler = ClientHeartbeat(
        broker.clients,
        broker.producers,
        broker.tables,
        replication,
        broker.to_clients,
        broker.filters,
        broker.subscriptions,
    )
    handlers = {
        BEAT: handler.heartbeat,
        LEAVE: handler.unregister,
        LIST: handler.consumer_list,
        CHECK: handler.check_config,
    }
    codes = {int(code): handle for code, handle in handlers.items()}
    return [Client(codes, broker.outbox) for _ in range(count)]


def beat(client_id: str, group: str = "g") -> bytes:
    data = ConsumerData(group, subscription_data_set=[SubscriptionData("T")])
    return encode_json_body(HeartbeatData(client_id, consumer_data_set=[data]))


async def test_the_heartbeat_of_the_java_client_is_understood() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    answer = client.call(BEAT, {}, JAVA)
    assert answer.code == 0
    assert answer.version == PROTOCOL_VERSION
    assert answer.ext_fields() == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    subscription = broker.clients.subscription("CG", "T1")
    assert subscription is not None
    assert subscription.sub_string == "TagA || TagB"


async def test_a_consumer_group_gets_its_retry_topic() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    client.call(BEAT, {}, beat("c1"))
    config = broker.topics.get("%RETRY%g")
    assert config is not None
    assert (config.read_queue_nums, config.perm) == (1, 6)
    changes = broker.topic_changes
    client.call(BEAT, {}, beat("c1"))
    assert broker.topic_changes == changes


async def test_a_group_whose_name_is_no_topic_gets_none() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    assert client.call(BEAT, {}, beat("c1", "../etc")).code == 0
    assert broker.topics.get("%RETRY%../etc") is None


async def test_a_slave_creates_no_topics() -> None:
    broker = Broker()
    (client,) = clients_of(broker, is_slave=True)
    assert client.call(BEAT, {}, beat("c1")).code == 0
    assert broker.topics.get("%RETRY%g") is None


async def test_a_full_disk_does_not_keep_consumers_from_sharing_their_queues() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    broker.simulated_disk.capacity_bytes = broker.simulated_disk.used_bytes
    assert client.call(BEAT, {}, beat("c1")).code == 0
    assert broker.clients.client_ids("g") == ["c1"]
    assert broker.topics.get("%RETRY%g") is not None


async def test_a_full_table_of_topics_does_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    monkeypatch.setattr(node.tables.topic_config_table, "TOPICS_MAX", 1)
    answer = client.call(BEAT, {}, beat("c1"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.clients.client_ids("g") == ["c1"]


async def test_a_new_group_is_set_up_with_its_retry_topic() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    broker.tables.change_groups(SubscriptionGroupConfig("known", retry_queue_nums=3))
    broker.tables.change_groups(SubscriptionGroupConfig("drops", retry_queue_nums=0))
    for group in ("g", "known", "drops"):
        assert client.call(BEAT, {}, beat("c1", group)).code == 0
    assert broker.tables.groups.get("g") == SubscriptionGroupConfig("g")
    retry = broker.topics.get("%RETRY%known")
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums) == (3, 3)
    assert broker.topics.get("%RETRY%drops") is None


def beat_with_groups(count: int, *, client_id: str = "c1", subscriptions: int = 0) -> bytes:
    wanted = [SubscriptionData(f"T{number}") for number in range(subscriptions)]
    groups = [ConsumerData(f"g{number}", subscription_data_set=wanted) for number in range(count)]
    return encode_json_body(HeartbeatData(client_id, consumer_data_set=groups))


async def test_a_thousand_groups_in_one_heartbeat_are_a_few_changes_and_no_write() -> None:
    """Each of them used to be a copy of the table and two files replaced."""
    broker = Broker()
    (client,) = clients_of(broker)
    events: list[str] = []
    broker.simulated_disk.on_event = events.append
    changes = broker.topic_changes
    assert client.call(BEAT, {}, beat_with_groups(1000)).code == 0
    assert broker.topics.get("%RETRY%g999") is not None
    assert broker.topic_changes - changes == math.ceil(1000 * GROUP_WORK / WORK_PER_PIECE)
    assert events == []
    assert broker.tables.groups.get("g999") is not None
    broker.tables.save()
    replaced = [event.split()[1] for event in events if event.startswith("replace")]
    assert len(replaced) == len(set(replaced)), "each file once"
    assert {"s/config/topics.json", "s/config/subscriptionGroup.json"} < set(replaced)


@pytest.mark.parametrize(("groups", "subscriptions"), [(1024, 0), (1024, 4), (8, 500), (1, 4000)])
async def test_a_large_heartbeat_is_handled_in_pieces(
    monkeypatch: pytest.MonkeyPatch, groups: int, subscriptions: int
) -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    joined: list[int] = []
    join = broker.clients.join

    def noted(data: ConsumerData, consumer: Consumer) -> bool:
        joined.append(client.pieces)
        return join(data, consumer)

    monkeypatch.setattr(broker.clients, "join", noted)
    body = beat_with_groups(groups, subscriptions=subscriptions)
    assert client.call(BEAT, {}, body).code == 0
    of_piece = Counter(joined)
    assert sum(of_piece.values()) == groups
    work = GROUP_WORK + subscriptions
    assert max(of_piece.values()) <= math.ceil(WORK_PER_PIECE / work)
    assert min(of_piece) >= (len(body) > LARGE_BYTES), "decoded and checked in another one"


async def test_a_client_that_ends_in_the_middle_of_its_heartbeat_leaves_nothing() -> None:
    broker = Broker()
    client, other = clients_of(broker, 2)
    client.begin(BEAT, {}, beat_with_groups(1000))
    client.connection.go_on()
    client.connection.go_on()
    assert broker.clients.has_group("g200")
    client.connection.leave_unfinished()
    broker.clients.connection_closed(client.connection)
    assert not broker.clients.has_group("g0")
    assert other.call(BEAT, {}, beat_with_groups(1000, client_id="c2")).code == 0
    assert broker.clients.client_ids("g0") == broker.clients.client_ids("g999") == ["c2"]


async def test_room_that_others_take_in_the_middle_of_a_heartbeat_is_not_taken_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.client_table, "MEMBERSHIPS_MAX", 1000)
    broker = Broker()
    client, other = clients_of(broker, 2)
    client.begin(BEAT, {}, beat_with_groups(1000))
    client.connection.go_on()
    assert other.call(BEAT, {}, beat_with_groups(300, client_id="c2")).code == 0
    answer = client.end()
    assert answer.code == ResponseCode.SYSTEM_BUSY
    taken = sum("c1" in broker.clients.client_ids(f"g{number}") for number in range(1000))
    assert str(taken) in (answer.remark or ""), "it says how many were taken"
    assert 0 < taken <= 700


async def test_a_node_that_is_no_master_any_more_sets_up_no_more_groups_of_a_heartbeat() -> None:
    broker = Broker()
    replication = FakeReplication()
    (client,) = clients_of(broker, replication=replication)
    client.begin(BEAT, {}, beat_with_groups(1000))
    client.connection.go_on()
    replication.demote("another one is the master")
    assert client.end().code == 0
    assert broker.tables.groups.get("g0") is not None
    assert broker.tables.groups.get("g999") is None
    assert broker.clients.client_ids("g999") == ["c1"]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (HeartbeatData("c" * 256), "the name of the client has 256 bytes"),
        (
            HeartbeatData("c", consumer_data_set=[ConsumerData("\u4e2d" * 86)]),
            "the name of the consumer group has 258 bytes",
        ),
        (
            HeartbeatData(
                "c",
                consumer_data_set=[
                    ConsumerData("g", subscription_data_set=[SubscriptionData("t" * 256)])
                ],
            ),
            "the name of the topic has 256 bytes",
        ),
        (
            HeartbeatData("c", consumer_data_set=[ConsumerData(str(n)) for n in range(1_025)]),
            "1025 consumer groups, the most allowed are 1024",
        ),
        (
            HeartbeatData(
                "c",
                consumer_data_set=[
                    ConsumerData("g", subscription_data_set=[SubscriptionData("t")] * 4_097)
                ],
            ),
            "4097 subscriptions, the most allowed are 4096",
        ),
    ],
)
async def test_what_is_too_much_for_one_heartbeat_is_refused_as_a_whole(
    data: HeartbeatData, complaint: str
) -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    first = HeartbeatData(data.client_id, consumer_data_set=[ConsumerData("first")])
    whole = msgspec.structs.replace(
        first, consumer_data_set=[*first.consumer_data_set, *data.consumer_data_set]
    )
    answer = client.call(BEAT, {}, encode_json_body(data if "1025" in complaint else whole))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert complaint in (answer.remark or "")
    assert not broker.clients.has_group("first")


async def test_the_whole_group_is_told_of_a_new_member() -> None:
    first, second = clients_of(Broker(), 2)
    first.call(BEAT, {}, beat("c1"))
    second.call(BEAT, {}, beat("c2"))
    (notice,) = first.answers()
    assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert notice.flag == ONEWAY_FLAG
    assert notice.decode_header(GroupRequestHeader).consumer_group == "g"


async def test_the_members_of_a_group_are_listed() -> None:
    first, second = clients_of(Broker(), 2)
    first.call(BEAT, {}, beat("c1"))
    second.call(BEAT, {}, beat("c2"))
    answer = second.call(LIST, GroupRequestHeader("g"))
    assert msgspec.json.decode(answer.body) == {"consumerIdList": ["c1", "c2"]}


async def test_a_group_without_members_is_an_error() -> None:
    (client,) = clients_of(Broker())
    answer = client.call(LIST, GroupRequestHeader("g"))
    assert (answer.code, answer.remark) == (1, "no consumer for this group, g")


async def test_a_client_that_leaves_is_off_the_list() -> None:
    (client,) = clients_of(Broker())
    client.call(BEAT, {}, beat("c1"))
    header = UnregisterClientRequestHeader("c1", producer_group="p", consumer_group="g")
    assert client.call(LEAVE, header).code == 0
    assert client.call(LIST, GroupRequestHeader("g")).code == 1
    assert client.call(LEAVE, UnregisterClientRequestHeader("c1", "p")).code == 0


async def test_producers_are_known_by_group_and_by_client() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    client.call(BEAT, {}, JAVA)
    (producer,) = broker.producers.producers("PG")
    assert (producer.client_id, producer.language) == ("10.0.0.9@4711#83", "PYTHON")
    assert producer.version == PROTOCOL_VERSION
    assert broker.producers.connection_of("10.0.0.9@4711#83") is producer.connection


async def test_a_producer_that_leaves_is_not_asked_any_more() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    client.call(BEAT, {}, JAVA)
    header = UnregisterClientRequestHeader("10.0.0.9@4711#83", producer_group="PG")
    assert client.call(LEAVE, header).code == 0
    assert broker.producers.next_connection("PG") is None
    assert broker.clients.client_ids("CG") == ["10.0.0.9@4711#83"]


async def test_a_heartbeat_with_too_many_producers_registers_no_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.producer_table, "MEMBERSHIPS_MAX", 0)
    broker = Broker()
    (client,) = clients_of(broker)
    assert client.call(BEAT, {}, JAVA).code == ResponseCode.SYSTEM_BUSY
    assert not broker.clients.has_group("CG")


async def test_a_heartbeat_with_too_many_consumers_registers_no_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.client_table, "MEMBERSHIPS_MAX", 0)
    broker = Broker()
    (client,) = clients_of(broker)
    assert client.call(BEAT, {}, JAVA).code == ResponseCode.SYSTEM_BUSY
    assert broker.producers.groups() == []


async def test_too_many_clients_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.tables.client_table, "MEMBERSHIPS_MAX", 0)
    (client,) = clients_of(Broker())
    assert client.call(BEAT, {}, beat("c1")).code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize(
    ("text", "expression_type", "code"),
    [
        ("a >", "TAG", 0),
        ("a > 1", "SQL92", 0),
        ("a >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("(" * 5_000, "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("a > 1", "XX", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_subscription_is_checked(text: str, expression_type: str, code: int) -> None:
    (client,) = clients_of(Broker())
    data = SubscriptionData("T", text, expression_type=expression_type)
    body = msgspec.json.encode({"clientId": "c", "group": "g", "subscriptionData": data})
    assert client.call(CHECK, None, body).code == code


async def test_no_subscription_is_a_good_one() -> None:
    (client,) = clients_of(Broker())
    assert client.call(CHECK, None, b'{"clientId":"c","group":"g"}').code == 0


def sql_beat(text: str, version: int, *, without_sub: bool = False) -> bytes:
    data = ConsumerData(
        "g", subscription_data_set=[SubscriptionData("T", text, version, expression_type="SQL92")]
    )
    return encode_json_body(HeartbeatData("c1", consumer_data_set=[data], without_sub=without_sub))


async def test_every_heartbeat_registers_its_filters() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    assert client.call(BEAT, {}, sql_beat("a > 1", 5)).code == 0
    data = broker.filters.get("T", "g")
    assert data is not None
    assert (data.expression, data.client_version, data.dead) == ("a > 1", 5, False)
    client.call(BEAT, {}, sql_beat("a > 2", 6, without_sub=True))
    assert broker.filters.get("T", "g") == data
    client.call(BEAT, {}, sql_beat("a > 2", 6))
    data = broker.filters.get("T", "g")
    assert data is not None
    assert data.expression == "a > 2"
    client.call(BEAT, {}, beat("c1"))
    data = broker.filters.get("T", "g")
    assert data is not None
    assert not data.dead, "of a topic that is still subscribed to"


async def test_a_heartbeat_may_bring_so_much_of_filters() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    wanted = [
        SubscriptionData(f"T{number}", "a = 1 " + "b" * 60_000, 5, expression_type="SQL92")
        for number in range(5)
    ]
    data = ConsumerData("g", subscription_data_set=wanted)
    body = encode_json_body(HeartbeatData("c1", consumer_data_set=[data]))
    assert client.call(BEAT, {}, body).code == ResponseCode.INVALID_PARAMETER
    assert not broker.clients.has_group("g")
    data = ConsumerData("g", subscription_data_set=wanted[:4])
    body = encode_json_body(HeartbeatData("c1", consumer_data_set=[data]))
    assert client.call(BEAT, {}, body).code == 0
    assert broker.filters.get("T3", "g") is not None


async def test_filters_die_with_the_last_client_of_their_group() -> None:
    broker = Broker()
    (client,) = clients_of(broker)
    client.call(BEAT, {}, sql_beat("a > 1", 5))
    client.call(LEAVE, UnregisterClientRequestHeader("c1", consumer_group="g"))
    data = broker.filters.get("T", "g")
    assert data is not None
    assert data.dead


async def test_a_body_that_is_no_heartbeat_is_an_error() -> None:
    (client,) = clients_of(Broker())
    assert client.call(BEAT, {}, b"{").code == ResponseCode.SYSTEM_ERROR


async def test_a_group_may_not_want_to_be_told_of_its_members() -> None:
    broker = Broker()
    one, two = clients_of(broker, 2)
    broker.tables.change_groups(
        SubscriptionGroupConfig("g", notify_consumer_ids_changed_enable=False)
    )
    one.call(BEAT, {}, beat("c1"))
    two.send(BEAT, {}, beat("c2"))
    assert [notice for notice in one.answers() if not notice.is_response] == []
