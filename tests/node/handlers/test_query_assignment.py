import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.handlers import query_assignment
from node.handlers.query_assignment import averagely, by_circle, for_pop
from node.tables.plain_tables import PlainFiles, PlainTables
from node.tables.replicated_modes import ModesTable
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    MessageQueueBody,
    RegisterBrokerRequestHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client
from tests.node.handlers.inspected import join, looking_at

ASK = RequestCode.QUERY_ASSIGNMENT
SET = RequestCode.SET_MESSAGE_REQUEST_MODE
MODES = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests/assignment.json"
VECTORS = json.loads(DATA.read_text("utf-8"))
LIVE = [each for each in VECTORS if each.get("live")]
SHARES = [each for each in VECTORS if "share" in each]


def broker_with(*queues: tuple[str, int], perm: int = 6) -> Broker:
    """Brokers of these names have so many queues of T2."""
    broker = Broker()
    for number, (name, count) in enumerate(queues):
        header = RegisterBrokerRequestHeader(name, f"10.0.0.{number}:1", "C", "", 0)
        topic = TopicConfig(
            topic_name="T2", read_queue_nums=count, write_queue_nums=count, perm=perm
        )
        other = TopicConfig(topic_name="other")
        table = TopicConfigSerializeWrapper({"T2": topic, "other": other})
        broker.routes.register(header, table, connection=None, now=0)
    return broker


def request(client_id: str = "c1", **changes: object) -> bytes:
    body: dict[str, object] = {
        "clientId": client_id,
        "consumerGroup": "CG",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": "T2",
    }
    return json.dumps(body | changes).encode()


def shares(client: Client, client_id: str, **changes: object) -> list[tuple[str, int]]:
    answer = client.call(ASK, body=request(client_id, **changes))
    assert answer.code == 0, answer.remark
    found: list[dict[str, Any]] = json.loads(answer.body)["messageQueueAssignments"]
    assert all(each["mode"] == "PULL" for each in found)
    queues = (each["messageQueue"] for each in found)
    return [(queue["brokerName"], queue["queueId"]) for queue in queues]


@pytest.mark.parametrize("vector", LIVE)
async def test_answers_are_those_of_rocketmq(vector: dict[str, str]) -> None:
    broker = broker_with(("broker-a", 1))
    broker.topics.update(TopicConfig(topic_name="T2"))
    join(broker, "c1", "CG", "T2")
    client = looking_at(broker)
    assert client.call(SET, body=mode("CG", "T2", vector["mode"])).code == 0
    answer = client.call(ASK, body=request(vector["client"]))
    assert answer.body == vector["body"].encode()


@pytest.mark.parametrize("vector", SHARES)
def test_queues_of_those_who_pop_are_shared_as_rocketmq_shares_them(vector: dict[str, Any]) -> None:
    queues = [MessageQueueBody("b", number, "T") for number in range(vector["queues"])]
    clients = [f"c{number + 1}" for number in range(vector["clients"])]
    found = for_pop(vector["client"], queues, clients, averagely, vector["share"])
    # RocketMQ's list of them became a set before it was answered.
    assert {queue.queue_id for queue in found} == set(vector["queueIds"])
    assert len(found) == len({queue.queue_id for queue in found})


def test_who_is_not_of_the_group_pops_no_queues_that_are_shared_by_name() -> None:
    queues = [MessageQueueBody("b", number, "T") for number in range(4)]
    assert for_pop("nobody", queues, ["x", "y", "z"], averagely, 1) == []
    assert for_pop("x", [], ["x", "y", "z"], averagely, 1) == []


async def test_queues_of_all_brokers_are_shared_out() -> None:
    broker = broker_with(("b", 2), ("a", 3))
    for client_id in ("y", "x"):
        join(broker, client_id, "CG", "T2")
    client = looking_at(broker)
    assert shares(client, "x") == [("a", 0), ("a", 1), ("a", 2)]
    assert shares(client, "y") == [("b", 0), ("b", 1)]
    assert shares(client, "y", strategyName="AVG_BY_CIRCLE") == [("a", 1), ("b", 0)]
    assert len(shares(client, "nobody", messageModel="BROADCASTING")) == 5
    assert shares(client, "x", topic="unknown") == []


async def test_a_topic_that_cannot_be_read_has_no_queues() -> None:
    broker = broker_with(("b", 2), perm=2)
    assert shares(looking_at(broker), "x", messageModel="BROADCASTING") == []


async def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = looking_at(broker_with(("b", 2)))
    answer = client.call(ASK, body=request(strategyName="CONFIG"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    monkeypatch.setattr(query_assignment, "QUEUES_MAX", 1)
    answer = client.call(ASK, body=request())
    assert answer.code == ResponseCode.SYSTEM_ERROR


@given(queue_count=st.integers(0, 40), client_count=st.integers(1, 12))
def test_every_queue_has_one_client_and_shares_differ_by_one(
    queue_count: int, client_count: int
) -> None:
    queues = [MessageQueueBody("b", number, "T") for number in range(queue_count)]
    clients = [f"c{number:02}" for number in range(client_count)]
    for allocate in (averagely, by_circle):
        parts = [allocate(client, queues, clients) for client in clients]
        given_out = sorted(queue.queue_id for part in parts for queue in part)
        assert given_out == list(range(queue_count))
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
    joined = [queue for client in clients for queue in averagely(client, queues, clients)]
    assert joined == queues


def mode(group: str, topic: str = "T", mode: str = "PULL", share: int = 0) -> bytes:
    body = {"consumerGroup": group, "mode": mode, "popShareQueueNum": share, "topic": topic}
    return json.dumps(body).encode()


LISTED = (
    b'{"messageRequestModeMap":{"T":{"CG":'
    b'{"consumerGroup":"CG","mode":"POP","popShareQueueNum":1,"topic":"T"}}}}'
)


async def test_a_mode_that_was_set_is_listed_and_outlives_the_broker() -> None:
    broker = Broker()
    client = looking_at(broker)
    assert client.call(MODES).body == b'{"messageRequestModeMap":{}}'
    assert client.call(SET, body=mode("CG")).code == 0
    for _ in range(2):
        assert client.call(SET, body=mode("CG", mode="POP", share=1)).code == 0
    assert client.call(MODES).body == LISTED
    again = PlainTables(PlainFiles(broker.simulated_disk, "s", lambda: NOW_MS))
    found = again.shown.of(ModesTable).part.find("T", "CG")
    assert found is not None
    assert (found.mode, found.pop_share_queue_num) == ("POP", 1)


@pytest.mark.parametrize("what", ["topic", "group"])
async def test_a_mode_goes_with_its_topic_and_with_its_group(what: str) -> None:
    broker = Broker()
    client = looking_at(broker)
    assert client.call(SET, body=mode("CG", mode="POP")).code == 0
    if what == "topic":
        broker.tables.delete_topic("T")
    else:
        broker.tables.delete_group("CG", clean_offsets=True)
    assert client.call(MODES).body == b'{"messageRequestModeMap":{}}'


@pytest.mark.parametrize(
    ("topic", "mode_name", "code"),
    [
        ("%RETRY%CG", "POP", ResponseCode.NO_PERMISSION),
        ("TX", "POP", ResponseCode.TOPIC_NOT_EXIST),
        ("T", "PUSH", ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_what_cannot_be_set(topic: str, mode_name: str, code: ResponseCode) -> None:
    client = looking_at(Broker())
    assert client.call(SET, body=mode("CG", topic, mode_name)).code == code
    assert client.call(MODES).body == b'{"messageRequestModeMap":{}}'


async def test_only_so_many_modes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_assignment, "MODES_MAX", 2)
    client = looking_at(Broker())
    codes = [client.call(SET, body=mode(group)).code for group in ("a", "b", "c", "a")]
    assert codes == [0, 0, ResponseCode.SYSTEM_ERROR, 0]
    long = client.call(SET, body=mode("a" * 300))
    assert long.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
