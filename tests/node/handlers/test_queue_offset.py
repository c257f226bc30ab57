from __future__ import annotations

from node.handlers.queue_offset import QueueOffset
from store import PutMessage
from tandem.wire.message import decode_messages
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client


def filled() -> tuple[Broker, Client]:
    broker = Broker()
    for number in range(3):
        message = PutMessage("T", 0, b"%d" % number, b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
        broker.store.put_message(message)
    queue = QueueOffset(broker.store)
    handlers = {
        RequestCode.GET_MAX_OFFSET: queue.max_offset,
        RequestCode.GET_MIN_OFFSET: queue.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queue.search,
        RequestCode.VIEW_MESSAGE_BY_ID: queue.view_message,
    }
    return broker, Client({int(code): handler for code, handler in handlers.items()})


async def test_the_bounds_of_a_queue() -> None:
    _, client = filled()
    for code, offset in ((RequestCode.GET_MAX_OFFSET, 3), (RequestCode.GET_MIN_OFFSET, 0)):
        answer = client.call(code, QueueRequestHeader("T", 0))
        assert answer.decode_header(OffsetResponseHeader).offset == offset


async def test_an_unknown_queue_is_empty_and_is_not_created() -> None:
    broker, client = filled()
    answer = client.call(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("other", 7))
    assert answer.decode_header(OffsetResponseHeader).offset == 0
    assert broker.store.list_queues() == [("T", 0)]


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
