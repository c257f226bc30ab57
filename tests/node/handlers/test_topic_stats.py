import json
from typing import Any

import msgspec
import pytest

from node.handlers import topic_stats
from tandem.wire.message_properties import java_string_hash
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import QueryConsumeQueueRequestHeader, TopicRequestHeader
from tests.node.doubles import NOW_MS, Broker, Client
from tests.node.handlers.inspected import join, looking_at, put, tick


def ask(client: Client, code: RequestCode, topic: str = "T") -> Any:  # noqa: ANN401 - JSON
    answer = client.call(code, TopicRequestHeader(topic))
    assert answer.code == 0, answer.remark
    return json.loads(answer.body)


async def test_how_full_the_queues_of_a_topic_are() -> None:
    broker = Broker(topics=())
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=2))
    put(broker, 5)
    tick(broker)
    answer = looking_at(broker).call(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("T"))
    queue = '{"brokerName":"broker-a","queueId":%d,"topic":"T"}'
    assert answer.body.decode() == (
        f'{{"offsetTable":{{{queue % 0}:'
        f'{{"lastUpdateTimestamp":{NOW_MS},"maxOffset":5,"minOffset":0}},'
        f'{queue % 1}:{{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}},"topicPutTps":0.5}}'
    )


async def test_what_is_not_confirmed_is_not_in_the_queues() -> None:
    broker = Broker(is_fenced=True)
    put(broker, 5)
    answer = looking_at(broker).call(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("T"))
    assert b'"lastUpdateTimestamp":0,"maxOffset":0' in answer.body


@pytest.mark.parametrize("code", [RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_TOPIC_CONFIG])
async def test_an_unknown_topic(code: RequestCode) -> None:
    answer = looking_at(Broker()).call(code, TopicRequestHeader("other"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == "topic[other] not exist"


async def test_how_a_topic_is_set_up() -> None:
    assert ask(looking_at(Broker()), RequestCode.GET_TOPIC_CONFIG) == {
        "topicName": "T",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }


async def test_who_consumes_a_topic_and_never_the_topic_itself() -> None:
    broker = Broker()
    join(broker, "c", "online", "T")
    join(broker, "c2", "elsewhere", "U")
    broker.tables.commit("offline", "T", 0, 1)
    broker.tables.commit("online", "T", 0, 1)
    client = looking_at(broker)
    assert ask(client, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO) == {
        "groupList": ["online", "offline"]
    }


async def test_topics_of_the_system() -> None:
    topics = ask(looking_at(Broker()), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "C", "broker-a"} <= set(topics)
    assert "T" not in topics


def queue_of(client: Client, index: int, count: int, group: str | None = None) -> dict[str, Any]:
    header = QueryConsumeQueueRequestHeader("T", 0, index, count, group)
    answer = client.call(RequestCode.QUERY_CONSUME_QUEUE, header)
    assert answer.code == 0, answer.remark
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def test_the_units_of_a_queue() -> None:
    broker = Broker()
    for tag in ("a", "b", ""):
        put(broker, tag=tag)
    client = looking_at(broker)
    found = queue_of(client, 0, 10)
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
    units = found["queueData"]
    assert [unit["tagsCode"] for unit in units] == [java_string_hash("a"), java_string_hash("b"), 0]
    assert [unit["eval"] for unit in units] == [False] * 3  # nobody asks for a group
    assert units[1]["physicOffset"] == units[0]["physicSize"]
    assert len(queue_of(client, 1, 1)["queueData"]) == 1
    for nothing in ((3, 5), (10**6, 5), (0, -5), (0, 0), (-9, 9)):
        assert queue_of(client, *nothing)["queueData"] == []


async def test_what_a_group_wants_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ judges only units that have an extension."""
    broker = Broker()
    for tag in ("a", "b"):
        put(broker, tag=tag)
    client = looking_at(broker)
    assert queue_of(client, 0, 9, "g")["filterData"] == "g@T is not online!"
    join(broker, "c", "g", "T", sub_string="b")
    found = queue_of(client, 0, 9, "g")
    assert [unit["eval"] for unit in found["queueData"]] == [False, False]
    extended = msgspec.structs.replace(broker.store.config, enable_consume_queue_ext=True)
    monkeypatch.setattr(broker.store, "config", extended)
    found = queue_of(client, 0, 9, "g")
    assert [unit["eval"] for unit in found["queueData"]] == [False, True]
    assert found["subscriptionData"]["subString"] == "b"
    assert found["filterData"] == "null"
    join(broker, "c", "all", "T")
    assert [unit["eval"] for unit in queue_of(client, 0, 9, "all")["queueData"]] == [True, True]


async def test_only_so_many_units_in_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_stats, "UNITS_MAX", 2)
    broker = Broker()
    put(broker, 5)
    assert len(queue_of(looking_at(broker), 1, 2**31 - 1)["queueData"]) == 2


async def test_units_that_are_not_confirmed_are_not_shown() -> None:
    broker = Broker(is_fenced=True)
    put(broker)
    end = broker.store.max_physical_offset
    put(broker)
    client = looking_at(broker)
    assert queue_of(client, 0, 9)["queueData"] == []
    broker.store.confirm(end)
    found = queue_of(client, 0, 9)
    assert (found["maxQueueIndex"], len(found["queueData"])) == (1, 1)


async def test_a_queue_that_does_not_exist() -> None:
    header = QueryConsumeQueueRequestHeader("T", 3, 0, 1)
    answer = looking_at(Broker()).call(RequestCode.QUERY_CONSUME_QUEUE, header)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "3@T is not exist!")
