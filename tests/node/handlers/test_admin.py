from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest.mock import patch

import msgspec
import pytest

from node.errors import RequestError
from node.handlers.admin import Admin
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from node.tables.replicated_modes import ModesTable
from node.tables.replicated_quotas import QuotasTable
from node.tables.replicated_users import AclsTable, UsersTable
from node.tables.slave_synchronize import SlaveSynchronize
from tandem.wire.admin_headers import (
    LogicQueueMappingItem,
    TopicConfigList,
    TopicQueueMappingDetail,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body
from tests.node.doubles import Broker, Client, FakeReplication, handlers_of, request_table
from tests.node.world import SLAVE_1, cluster_config

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC

HEADER = CreateTopicRequestHeader(
    topic="New",
    default_topic="TBW102",
    read_queue_nums=2,
    write_queue_nums=3,
    perm=6,
    topic_filter_type="SINGLE_TAG",
    topic_sys_flag=0,
    order=False,
)


def client_of(
    broker: Broker, when_known: Callable[[Callable[[], None]], None] = lambda done: done()
) -> Client:
    admin = Admin(
        broker.tables, FakeReplication().runtime_info, when_known, frozenset(), timeout_seconds=3
    )
    handlers = {
        CREATE: admin.create_topic,
        RequestCode.GET_ALL_TOPIC_CONFIG: admin.topic_configs,
        RequestCode.GET_ALL_CONSUMER_OFFSET: admin.consumer_offsets,
        RequestCode.GET_BROKER_HA_STATUS: admin.ha_status,
    }
    return Client({int(code): handle for code, handle in handlers.items()}, broker.outbox)


async def test_a_topic_is_created_and_changed() -> None:
    broker = Broker()
    client = client_of(broker)
    assert client.call(CREATE, HEADER).code == 0
    config = broker.topics.get("New")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 3, 6)
    changes = broker.topic_changes
    assert client.call(CREATE, HEADER).code == 0
    assert broker.topic_changes == changes
    client.call(CREATE, msgspec.structs.replace(HEADER, perm=4))
    assert broker.topic_changes == changes + 1


async def test_a_topic_is_answered_when_it_is_known() -> None:
    broker = Broker()
    waiting: list[Callable[[], None]] = []
    client = client_of(broker, waiting.append)
    client.send(CREATE, HEADER)
    assert client.answers() == []
    (done,) = waiting
    done()
    assert [answer.code for answer in client.answers()] == [0]


async def test_attributes_are_kept_and_those_that_are_not_served_refused() -> None:
    broker = Broker()
    client = client_of(broker)
    typed = msgspec.structs.replace(HEADER, attributes="+message.type=FIFO")
    assert client.call(CREATE, typed).code == 0
    assert client.call(CREATE, msgspec.structs.replace(HEADER, perm=4)).code == 0
    config = broker.topics.get("New")
    assert config is not None
    assert (config.attributes, config.perm) == ({"message.type": "FIFO"}, 4)
    both = "+cleanup.policy=COMPACTION,+queue.type=BatchCQ"
    compact = msgspec.structs.replace(HEADER, attributes=both)
    answer = client.call(CREATE, msgspec.structs.replace(compact, topic="Compact"))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.get("Compact") is None
    compact = msgspec.structs.replace(compact, attributes="+cleanup.policy=COMPACTION")
    assert client.call(CREATE, msgspec.structs.replace(compact, topic="Compact")).code == 0
    assert broker.topics.compacted == {"Compact"}


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "a b"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"read_queue_nums": 0},
        {"write_queue_nums": -1},
        {"write_queue_nums": 65_536},
        {"perm": 16},
    ],
)
async def test_a_bad_topic_is_refused(changes: dict[str, object]) -> None:
    broker = Broker()
    answer = client_of(broker).call(CREATE, msgspec.structs.replace(HEADER, **changes))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.get("New") is None


async def test_topics_are_not_created_where_the_tables_take_no_change() -> None:
    broker = Broker()
    with patch.object(broker.tables, "check_change", side_effect=RequestError(14, "no master")):
        answer = client_of(broker).call(CREATE, HEADER)
    assert (answer.code, answer.remark) == (14, "no master")
    assert broker.topics.get("New") is None


async def test_topics_are_not_created_on_a_slave(tmp_path: Path) -> None:
    broker = Broker()
    config, network = cluster_config(tmp_path).node("a1"), SimulatedNetwork(Timeline(), Random(1))
    broker.plain._synchronize = SlaveSynchronize(
        config,
        network.machine(SLAVE_1),
        broker.topics,
        broker.tables.groups,
        broker.offsets,
        users=broker.tables.shown.of(UsersTable),
        acls=broker.tables.shown.of(AclsTable),
        quotas=broker.tables.shown.of(QuotasTable),
        modes=broker.tables.shown.of(ModesTable),
    )
    answer = client_of(broker).call(CREATE, HEADER)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "from master broker" in str(answer.remark)


async def test_a_slave_can_copy_the_topics() -> None:
    broker = Broker()
    answer = client_of(broker).call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert decode_json_body(answer.body, TopicConfigSerializeWrapper) == broker.topics.configs
    assert set(msgspec.json.decode(answer.body)) == {
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    }


async def test_a_slave_can_copy_the_offsets() -> None:
    broker = Broker()
    broker.offsets.commit("g", "T", 0, 5)
    answer = client_of(broker).call(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert msgspec.json.decode(answer.body)["offsetTable"] == {"T@g": {"0": 5}}


async def test_the_state_of_replication_is_told_with_rocketmqs_keys() -> None:
    answer = client_of(Broker()).call(RequestCode.GET_BROKER_HA_STATUS)
    state = msgspec.json.decode(answer.body)
    assert state["master"] is True
    assert state["masterCommitLogMaxOffset"] == 77
    assert {"inSyncSlaveNums", "haConnectionInfo", "haClientRuntimeInfo"} <= set(state)


async def test_a_list_of_topics_is_created_as_a_whole() -> None:
    broker = Broker()
    client = Client(request_table(handlers_of(broker)), broker.outbox)
    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST

    def body(*configs: TopicConfig) -> bytes:
        return encode_json_body(TopicConfigList(list(configs)))

    good = TopicConfig(topic_name="A", attributes={"+message.type": "FIFO"})
    for bad in ("TBW102", "C", "broker-a", "a b", "rmq_sys_TANDEM_JOURNAL", ""):
        answer = client.call(code, None, body(good, TopicConfig(topic_name=bad)))
        assert answer.code == ResponseCode.INVALID_PARAMETER, bad
    for bad_config in (
        TopicConfig(topic_name="B", write_queue_nums=0),
        TopicConfig(topic_name="B", attributes={"+nope": "1"}),
    ):
        answer = client.call(code, None, body(good, bad_config))
        assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.get("A") is None
    assert client.call(code, None, body(good, TopicConfig(topic_name="B"))).code == 0
    made = broker.topics.get("A")
    assert made is not None
    assert made.attributes == {"message.type": "FIFO"}
    assert broker.topics.get("B") is not None


async def test_a_masters_flush_offset_is_nothing_to_reset() -> None:
    broker, replication = Broker(), FakeReplication()
    client = Client(request_table(handlers_of(broker, replication)), broker.outbox)
    code, fields = RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "0"}
    assert client.call(code, fields).code == 0
    replication.info = msgspec.structs.replace(replication.info, master=False)
    assert client.call(code, fields).code == ResponseCode.SYSTEM_ERROR


STATIC = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC


def hosted(*parts: LogicQueueMappingItem) -> TopicQueueMappingDetail:
    """Return a static topic `New` of which broker-a has these queues."""
    queues = {number: [part] for number, part in enumerate(parts)}
    return TopicQueueMappingDetail("New", len(parts), "broker-a", queues)


async def test_a_static_topic_is_an_ordinary_one_while_its_queues_do_not_move() -> None:
    broker = Broker()
    client = Client(request_table(handlers_of(broker)), broker.outbox)
    parts = [LogicQueueMappingItem(queue_id=number, bname="broker-a") for number in range(3)]
    for _ in range(2):
        assert client.call(STATIC, HEADER, encode_json_body(hosted(*parts))).code == 0
    made = broker.topics.get("New")
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums) == (2, 3)


async def test_of_a_static_topic_without_a_queue_here_nothing_is_made() -> None:
    broker = Broker()
    client = Client(request_table(handlers_of(broker)), broker.outbox)
    nothing = msgspec.structs.replace(HEADER, read_queue_nums=0, write_queue_nums=0)
    assert client.call(STATIC, nothing, encode_json_body(hosted())).code == 0
    assert broker.topics.get("New") is None


@pytest.mark.parametrize(
    "detail",
    [
        TopicQueueMappingDetail("Other", 1, "broker-a", {}),
        hosted(LogicQueueMappingItem(bname="broker-b")),
        hosted(LogicQueueMappingItem(bname="broker-a", logic_offset=7)),
        hosted(LogicQueueMappingItem(bname="broker-a", queue_id=3)),
        hosted(LogicQueueMappingItem(bname="broker-a", queue_id=-1)),
        hosted(*[LogicQueueMappingItem(bname="broker-a")] * 2),
        TopicQueueMappingDetail("New", 1, "broker-a", {0: []}),
        TopicQueueMappingDetail(
            "New", 1, "broker-a", {0: [LogicQueueMappingItem(bname="broker-a")] * 2}
        ),
    ],
)
async def test_a_static_topic_whose_queues_move_is_refused(detail: TopicQueueMappingDetail) -> None:
    broker = Broker()
    client = Client(request_table(handlers_of(broker)), broker.outbox)
    answer = client.call(STATIC, HEADER, encode_json_body(detail))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.get("New") is None


async def test_no_static_topic_has_the_name_of_the_broker() -> None:
    broker = Broker()
    client = Client(request_table(handlers_of(broker)), broker.outbox)
    header = msgspec.structs.replace(HEADER, topic="broker-a")
    body = encode_json_body(TopicQueueMappingDetail("broker-a", 0, "broker-a", {}))
    assert client.call(STATIC, header, body).code == ResponseCode.INVALID_PARAMETER
