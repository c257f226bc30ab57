import json
from pathlib import Path

import msgspec
import pytest

from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.route import encode_json_body
from tandem.wire.stats_requests import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    TopicOffset,
    TopicStatsTable,
    queue_map,
)

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests/stats-and-group.json"
VECTORS = {each["what"]: each.get("json") for each in json.loads(DATA.read_text("utf-8"))}

QUEUE = MessageQueueBody("broker-a", 0, "T1")
STATS = ConsumeStats(1.5, queue_map([(QUEUE, OffsetWrapper(10, 4, 1_700_000_000_000, 7))]))


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("ConsumeStats (208)", STATS),
        ("ConsumeStatsList (317)", ConsumeStatsList("127.0.0.1:10911", [{"CG": [STATS]}], 6, 3)),
        (
            "TopicStatsTable (202)",
            TopicStatsTable(queue_map([(QUEUE, TopicOffset(1_700_000_000_000, 10, 0))]), 0.0),
        ),
    ],
)
def test_bodies_are_those_of_rocketmq_to_the_byte(what: str, body: msgspec.Struct) -> None:
    assert encode_json_body(body) == VECTORS[what].encode()


def test_the_windows_of_an_item() -> None:
    hour = BrokerStatsItem(1.0, 600, 10.0)
    body = BrokerStatsData(stats_day=BrokerStatsItem(), stats_hour=hour, stats_minute=hour)
    # The vector names the hour a second time; a broker never does.
    plain = '{"avgpt":1.0,"sum":600,"tps":10.0}'
    expected = VECTORS["BrokerStatsData (315)"].replace('{"$ref":"$.statsHour"}', plain)
    assert encode_json_body(body) == expected.encode()


def test_several_queues_and_none() -> None:
    other = MessageQueueBody("broker-a", 1, 'T"2')
    entries = queue_map([(QUEUE, 5), (other, 6)])
    assert bytes(entries) == (
        b'{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:5,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T\\"2"}:6}'
    )
    assert bytes(queue_map([])) == b"{}"


def test_what_there_is_not_is_left_out_of_a_consume_queue() -> None:
    body = QueryConsumeQueueResponseBody(2, 0, [ConsumeQueueData(True, 1, 2, 3)])  # noqa: FBT003 - a field of a record
    assert encode_json_body(body) == (
        b'{"maxQueueIndex":2,"minQueueIndex":0,"queueData":'
        b'[{"eval":true,"physicOffset":1,"physicSize":2,"tagsCode":3}]}'
    )
