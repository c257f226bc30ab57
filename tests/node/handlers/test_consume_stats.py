import json
from typing import Any

import msgspec
import pytest

from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import (
    BrokerConsumeStatsRequestHeader,
    ConsumeStatsRequestHeader,
    ConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
)
from tandem.wire.store_layout import OFFSET_MAX
from tests.node.doubles import NOW_MS, Broker, Client
from tests.node.handlers.inspected import join, looking_at, put, tick

QUEUE = '{"brokerName":"broker-a","queueId":%d,"topic":"%s"}'


def filled() -> tuple[Broker, Client]:
    """Six messages in queue 0 of T, of which the group has consumed four and pulled five."""
    broker = Broker(topics=("T", "U"))
    client = looking_at(broker)
    put(broker, 6)
    pull = PullMessageRequestHeader("g", "T", 0, 0, 5, 4, 0, 0, 0, "*")
    assert client.call(RequestCode.PULL_MESSAGE, pull).code == 0
    broker.tables.commit("g", "T", 0, 4)
    tick(broker)
    return broker, client


def progress(broker_offset: int, consumer: int, stored_ms: int, pulled: int) -> str:
    return (
        f'{{"brokerOffset":{broker_offset},"consumerOffset":{consumer},'
        f'"lastTimestamp":{stored_ms},"pullOffset":{pulled}}}'
    )


def topics_of(body: bytes) -> set[str]:
    """Which topics an answer is about."""
    return {part.split('"')[1] for part in body.decode().split('"topic":')[1:] if part}


def ask(client: Client, group: str, **more: str) -> bytes:
    answer = client.call(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader(group, **more))
    assert answer.code == 0
    return answer.body


async def test_how_far_a_group_is_in_each_queue() -> None:
    _, client = filled()
    entries = [progress(6, 4, NOW_MS, 5)] + [progress(0, 0, 0, 0)] * 3
    table = ",".join(f"{QUEUE % (n, 'T')}:{entry}" for n, entry in enumerate(entries))
    assert ask(client, "g") == f'{{"consumeTps":0.5,"offsetTable":{{{table}}}}}'.encode()


async def test_who_has_consumed_more_than_was_pulled_here_has_pulled_as_much() -> None:
    broker, client = filled()
    broker.tables.commit("g", "T", 0, 6)
    assert progress(6, 6, NOW_MS, 6).encode() in ask(client, "g")


async def test_a_group_that_nobody_knows_has_no_queues() -> None:
    _, client = filled()
    assert ask(client, "nobody") == b'{"consumeTps":0.0,"offsetTable":{}}'
    assert ask(client, "g", topic="unknown") == b'{"consumeTps":0.0,"offsetTable":{}}'


async def test_what_clients_do_not_want_any_more_counts_only_if_it_is_asked_for() -> None:
    broker, client = filled()
    broker.tables.commit("g", "U", 0, 0)
    assert topics_of(ask(client, "g")) == {"T", "U"}
    join(broker, "c", "g", "U")
    assert topics_of(ask(client, "g")) == {"U"}
    assert topics_of(ask(client, "g", topic="T")) == set()
    assert topics_of(ask(client, "g", topic_list="T;U;")) == {"T", "U"}


async def test_only_what_is_confirmed_is_seen() -> None:
    broker = Broker(is_fenced=True)
    client = looking_at(broker)
    put(broker, 3)
    assert b'"brokerOffset":0' in ask(client, "g", topic="T")
    broker.store.confirm(broker.store.max_physical_offset)
    assert b'"brokerOffset":3' in ask(client, "g", topic="T")


async def test_all_groups_of_a_broker() -> None:
    broker, client = filled()
    broker.tables.commit("g2", "U", 1, 7)
    header = BrokerConsumeStatsRequestHeader(is_order=False)
    body = client.call(RequestCode.GET_BROKER_CONSUME_STATS, header).body.decode()
    assert body.startswith('{"brokerAddr":"127.0.0.1:10911","consumeStatsList":[{')
    assert '{"TOOLS_CONSUMER":[]}' in body  # one that is set up, and has consumed nothing
    assert '{"g":[{"consumeTps":0.5,' in body
    assert progress(6, 4, NOW_MS, 0) in body
    # Behind by 2 in one queue, ahead by 7 in another; nothing is known of pulls.
    assert body.endswith('"totalDiff":-5,"totalInflightDiff":-11}')
    ordered = BrokerConsumeStatsRequestHeader(is_order=True)
    assert b'"g":[]' in client.call(RequestCode.GET_BROKER_CONSUME_STATS, ordered).body


async def test_a_topic_with_an_order_is_among_the_ordered_ones() -> None:
    broker, client = filled()
    config = broker.tables.topics.get("T")
    assert config is not None
    broker.tables.topics.update(msgspec.structs.replace(config, order=True))
    ordered = BrokerConsumeStatsRequestHeader(is_order=True)
    assert b'"g":[{' in client.call(RequestCode.GET_BROKER_CONSUME_STATS, ordered).body


async def test_how_far_a_group_is_by_time() -> None:
    broker, client = filled()
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    header = ConsumeTimeSpanRequestHeader("T", "g")
    answer = client.call(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
    spans: list[dict[str, Any]] = json.loads(answer.body)["consumeTimeSpanSet"]
    assert [span["messageQueue"]["queueId"] for span in spans] == [0, 1]
    assert spans[0] == {
        "consumeTimeStamp": NOW_MS,
        "delayTime": 0,
        "maxTimeStamp": NOW_MS,
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
        "minTimeStamp": NOW_MS,
    }
    assert (spans[1]["consumeTimeStamp"], spans[1]["minTimeStamp"], spans[1]["delayTime"]) == (
        -1,
        -1,
        0,
    )
    answer = client.call(
        RequestCode.QUERY_CONSUME_TIME_SPAN, ConsumeTimeSpanRequestHeader("unknown", "g")
    )
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("filtered", "compared", "expected"),
    [
        (None, None, {"0": 2}),
        ("g2", None, {"0": 4}),
        (None, "g2", {"0": 2}),
        ("g2", "g2", {"0": OFFSET_MAX}),
        ("g,g2", "g", {}),
    ],
)
async def test_the_lowest_offset_of_all_groups(
    filtered: str | None, compared: str | None, expected: dict[str, int]
) -> None:
    broker, client = filled()
    broker.tables.commit("g2", "T", 0, 2)
    header = QueryCorrectionOffsetHeader("T", filtered, compared)
    answer = client.call(RequestCode.QUERY_CORRECTION_OFFSET, header)
    assert json.loads(answer.body) == {"correctionOffsets": expected}


async def test_an_offset_below_what_the_queue_holds_does_not_count() -> None:
    broker, client = filled()
    broker.store.queues.hide("T")
    broker.tables.commit("g2", "T", 0, 6)
    header = QueryCorrectionOffsetHeader("T")
    answer = client.call(RequestCode.QUERY_CORRECTION_OFFSET, header)
    assert json.loads(answer.body) == {"correctionOffsets": {"0": 6}}
