import msgspec
import pytest

from node.handlers.queue_offset import QueueOffset
from store import PutMessage
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    ViewMessageRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client


def filled(behind: str | None = None) -> tuple[Broker, Client]:
    broker = Broker()
    for number in range(3):
        message = PutMessage("T", 0, b"%d" % number, b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
        broker.store.puts.put_message(message)
    queue = QueueOffset(broker.store, lambda: behind)
    handlers = {
        RequestCode.GET_MAX_OFFSET: queue.max_offset,
        RequestCode.GET_MIN_OFFSET: queue.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queue.search,
        RequestCode.GET_EARLIEST_MSG_STORETIME: queue.earliest_store_time,
        RequestCode.QUERY_MESSAGE: queue.query_message,
        RequestCode.VIEW_MESSAGE_BY_ID: queue.view_message,
    }
    return broker, Client({int(code): handler for code, handler in handlers.items()})


async def test_the_bounds_of_a_queue() -> None:
    _, client = filled()
    for code, offset in ((RequestCode.GET_MAX_OFFSET, 3), (RequestCode.GET_MIN_OFFSET, 0)):
        answer = client.call(code, QueueRequestHeader("T", 0))
        assert answer.decode_header(OffsetResponseHeader).offset == offset


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_MAX_OFFSET, QueueRequestHeader("T", 0)),
        (RequestCode.GET_MIN_OFFSET, QueueRequestHeader("T", 0)),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader("T", 0, NOW_MS)),
    ],
)
async def test_a_node_that_may_lack_messages_refuses_who_wants_the_masters_word(
    code: RequestCode, header: QueueRequestHeader | SearchOffsetRequestHeader
) -> None:
    wanted = msgspec.structs.replace(header, only_master=True)
    _, master = filled()
    assert master.call(code, wanted).code == 0
    _, other = filled(behind="a1 is not master: that is a0")
    assert other.call(code, header).code == 0
    refused = other.call(code, wanted)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refused.remark == "only the master knows offsets: a1 is not master: that is a0"


async def test_an_unknown_queue_is_empty_and_is_not_created() -> None:
    broker, client = filled()
    answer = client.call(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("other", 7))
    assert answer.decode_header(OffsetResponseHeader).offset == 0
    assert broker.store.list_queues() == [("T", 0)]


async def test_when_the_first_message_was_stored() -> None:
    _, client = filled()
    for topic, timestamp_ms in (("T", NOW_MS), ("other", -1)):
        answer = client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader(topic, 0))
        assert answer.decode_header(TimestampResponseHeader).timestamp == timestamp_ms


async def test_an_offset_by_time() -> None:
    _, client = filled()
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    for header, offset in (
        (SearchOffsetRequestHeader("T", 0, NOW_MS), 0),
        (SearchOffsetRequestHeader("T", 0, NOW_MS + 1), 3),
        (SearchOffsetRequestHeader("T", 0, NOW_MS, "UPPER"), 2),
    ):
        answer = client.call(search, header)
        assert answer.decode_header(OffsetResponseHeader).offset == offset


async def test_messages_by_key() -> None:
    broker, client = filled()
    for number in range(40):
        properties = f"KEYS\x01all k{number}\x02UNIQ_KEY\x01U{number}\x02".encode()
        body = b"key %d" % number
        message = PutMessage("T", 0, body, properties, NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
        broker.store.puts.put_message(message)
    broker.store.reput_service.index_some()

    def query(key: str, max_num: int) -> RemotingCommand:
        header = QueryMessageRequestHeader("T", key, max_num, 0, NOW_MS + 1)
        return client.call(RequestCode.QUERY_MESSAGE, header)

    answer = query("all", 2)
    assert [message.keys for message in decode_messages(answer.body)] == ["all k38", "all k39"]
    index = answer.decode_header(QueryMessageResponseHeader)
    assert index.index_last_update_timestamp == NOW_MS
    assert [message.body for message in decode_messages(query("U7", 32).body)] == [b"key 7"]
    missing = query("nobody", 32)
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert missing.decode_header(QueryMessageResponseHeader) == index
    fields = {
        "topic": "T",
        "key": "all",
        "maxNum": "1",
        "beginTimestamp": "0",
        "endTimestamp": str(NOW_MS + 1),
        "_UNIQUE_KEY_QUERY": "true",
    }
    assert len(decode_messages(client.call(RequestCode.QUERY_MESSAGE, fields).body)) == 32


async def test_one_message_by_its_place() -> None:
    _, client = filled()
    answer = client.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(0))
    assert [message.body for message in decode_messages(answer.body)] == [b"0"]


async def test_a_place_without_a_message_is_an_error() -> None:
    _, client = filled()
    for offset in (7, -1, 1 << 60):
        answer = client.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "can not find message" in str(answer.remark)
