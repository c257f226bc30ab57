import msgspec
import pytest

from tandem.wire.errors import MalformedFrameError
from tandem.wire.queue_map import (
    ConsumeOffsets,
    GroupsOffsets,
    ResetOffsets,
    RunningInfo,
    TopicOffsets,
    by_queue,
    decode_body_by_queue,
)
from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.stats_requests import TopicOffset, TopicStatsTable, queue_map

# As RocketMQ 5.3.3 answered.
TOPIC_STATS = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T1"}:{"lastUpdateTimestamp":0,'
    b'"maxOffset":0,"minOffset":0},{"brokerName":"broker-a","queueId":0,"topic":"T1"}:'
    b'{"lastUpdateTimestamp":17,"maxOffset":10,"minOffset":2}},"topicPutTps":0.0}'
)


def test_queues_are_keys_and_come_in_order() -> None:
    table = decode_body_by_queue(TOPIC_STATS, TopicOffsets).offset_table
    assert by_queue(table) == [
        (MessageQueueBody("broker-a", 0, "T1"), TopicOffset(17, 10, 2)),
        (MessageQueueBody("broker-a", 1, "T1"), TopicOffset(0, 0, 0)),
    ]


@pytest.mark.parametrize("topic", ["{}:", '{"a":1}:', 'quo"te\\', "Ä"])
def test_what_we_write_is_read_whatever_the_names_are(topic: str) -> None:
    queue = MessageQueueBody("b", 3, topic)
    body = TopicStatsTable(queue_map([(queue, TopicOffset(1, 2, 3))]), 0.5)
    table = decode_body_by_queue(msgspec.json.encode(body), TopicOffsets).offset_table
    assert by_queue(table) == [(queue, TopicOffset(1, 2, 3))]


def test_records_within_records_are_read() -> None:
    body = (
        b'{"brokerAddr":"a:1","consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":'
        b'{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":9,"consumerOffset":4,'
        b'"lastTimestamp":0,"pullOffset":5}}}]},{"h":[]}],"totalDiff":5,"totalInflightDiff":0}'
    )
    (first, second) = decode_body_by_queue(body, GroupsOffsets).consume_stats_list
    ((queue, offsets),) = by_queue(first["g"][0].offset_table)
    assert (queue.topic, offsets.broker_offset, offsets.consumer_offset) == ("T", 9, 4)
    assert second == {"h": []}


def test_a_client_says_what_it_reads() -> None:
    body = (
        b'{"jstack":"x","mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"commitOffset":7,'
        b'"cachedMsgCount":3,"droped":false}},"properties":{"a":"b"},"statusTable":{}}'
    )
    info = decode_body_by_queue(body, RunningInfo)
    ((_, progress),) = by_queue(info.mq_table)
    assert (progress.commit_offset, progress.cached_msg_count) == (7, 3)


def test_an_empty_table_is_one() -> None:
    assert decode_body_by_queue(b"{}", ConsumeOffsets).offset_table == {}
    assert decode_body_by_queue(b'{"offsetTable":{}}', ResetOffsets).offset_table == {}


@pytest.mark.parametrize("body", [b"", b"{", b'{"offsetTable":{{"a":1}:', b'{"offsetTable":3}'])
def test_what_is_no_such_record_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode_body_by_queue(body, TopicOffsets)


@pytest.mark.parametrize("key", [b"\xff", b'"topic":"T"'])
def test_a_key_that_is_no_queue_is_malformed(key: bytes) -> None:
    body = b'{"offsetTable":{{%b}:1}}' % key
    with pytest.raises(MalformedFrameError):
        by_queue(decode_body_by_queue(body, ResetOffsets).offset_table)
