"""The end of a topic, and its second beginning."""

from unittest.mock import patch

import pytest

from node.errors import RequestError
from store import PutMessage
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client, FakeReplication, handlers_of, request_table

DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


def client_of(broker: Broker) -> Client:
    return Client(request_table(handlers_of(broker)), broker.outbox)


def put(broker: Broker, body: bytes) -> int:
    message = PutMessage("T", 0, body, b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
    result = broker.store.puts.put_message(message)
    assert result.status == 0
    broker.store.announce()
    return result.queue_offset


async def test_a_deleted_topic_takes_its_offsets_and_its_messages_with_it() -> None:
    broker = Broker()
    client = client_of(broker)
    assert [put(broker, b"old") for _ in range(3)] == [0, 1, 2]
    broker.offsets.commit("g", "T", 0, 2)
    broker.resets.put("g", "T", {0: 1})
    changes = broker.topic_changes
    assert client.call(DELETE, {"topic": "T"}).code == 0
    assert broker.topics.get("T") is None
    assert broker.topic_changes == changes + 1
    assert broker.offsets.offsets() == {}
    assert broker.resets.take("g", "T", 0) is None
    broker.tables.change_topics(TopicConfig(topic_name="T"))
    assert broker.store.reads.min_offset_in_queue("T", 0) == 3
    assert put(broker, b"new") == 3
    assert broker.topics.hidden_before("T") > 0


async def test_what_is_hidden_stays_hidden() -> None:
    """Through another change of the topic, a cleaning, and a restart."""
    broker = Broker()
    client = client_of(broker)
    put(broker, b"old")
    client.call(DELETE, {"topic": "T"})
    broker.tables.change_topics_soon(TopicConfig(topic_name="T"))
    put(broker, b"new")
    broker.tables.change_topics(TopicConfig(topic_name="T", read_queue_nums=2))
    queues = broker.store.queues
    for hidden_before, first in ((lambda _: 0, 0), (broker.topics.hidden_before, 1)):
        queues.hidden_before = hidden_before
        queues.correct_min_offset(0)
        assert broker.store.reads.min_offset_in_queue("T", 0) == first


async def test_a_topic_that_never_was_hides_nothing() -> None:
    broker = Broker()
    assert client_of(broker).call(DELETE, {"topic": "nope"}).code == 0
    broker.tables.change_topics(TopicConfig(topic_name="nope"))
    config = broker.topics.get("nope")
    assert config is not None
    assert config.attributes == {}


@pytest.mark.parametrize("topic", ["", " ", "TBW102", "rmq_sys_TANDEM_JOURNAL", "C", "broker-a"])
async def test_topics_of_the_system_stay(topic: str) -> None:
    broker = Broker()
    before = broker.topics.configs
    answer = client_of(broker).call(DELETE, {"topic": topic})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.configs == before


async def test_nothing_is_deleted_where_the_tables_take_no_change() -> None:
    broker = Broker()
    with patch.object(broker.tables, "check_change", side_effect=RequestError(14, "no master")):
        answer = client_of(broker).call(DELETE, {"topic": "T"})
    assert (answer.code, answer.remark) == (14, "no master")
    assert broker.topics.get("T") is not None


async def test_who_is_not_the_master_follows() -> None:
    """RocketMQ's tools ask every address of a broker, and stop at the first error."""
    broker, replication = Broker(), FakeReplication()
    replication.demote("another node is the master")
    client = Client(request_table(handlers_of(broker, replication)), broker.outbox)
    with patch.object(broker.tables, "check_change", side_effect=RequestError(14, "no master")):
        answer = client.call(DELETE, {"topic": "T"})
    assert (answer.code, "follows its master" in str(answer.remark)) == (0, True)
    assert broker.topics.get("T") is not None


@pytest.mark.parametrize("retry", ["%RETRY%g_T", "%RETRY%g+T"])
async def test_what_was_to_come_again_of_a_deleted_topic_goes_with_it(retry: str) -> None:
    broker = Broker()
    client = client_of(broker)
    broker.tables.change_topics(TopicConfig(topic_name="T"), TopicConfig(retry, 1, 1))
    broker.offsets.commit("g", "T", 0, 0)
    assert client.call(DELETE, {"topic": "T"}).code == 0
    assert broker.topics.get(retry) is None
