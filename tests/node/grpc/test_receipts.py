import msgspec
import pytest

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from node.grpc.receipts import Popped, read_delivery
from tandem.wire.message import Host, MessageExt
from tandem.wire.pop_headers import ChangeInvisibleTimeResponseHeader, PopMessageResponseHeader
from tandem.wire.pop_offsets import PoppedQueue, encode_start_offsets
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.untrusted import UnreadableError

HANDLE = "18 1795632258783 20000 6 0 broker-a 0 18 383243"


def stored(queue_id: int = 2, **properties: str) -> MessageExt:
    host = Host("127.0.0.1", 1)
    return MessageExt(
        "T", b"x", properties, queue_id, 28, 1000, 200, 0, 0, 1, host, 2, host, 0, 0, 0
    )


def popped() -> Popped:
    starts = encode_start_offsets({PoppedQueue(TopicMark.NORMAL, 2): 20})
    return Popped("g", "T", "broker-a", PopMessageResponseHeader(1234, 20_000, 6, 0, starts))


def test_a_handle_is_that_of_a_proxy() -> None:
    delivery = popped().delivery(stored())
    assert delivery.text == "20 1234 20000 6 0 broker-a 2 28 1000"
    assert read_delivery("g", "T", delivery.text) == delivery


def test_a_message_that_comes_again_has_the_handle_of_its_retry_topic() -> None:
    delivery = popped().delivery(stored(POP_CK="0 1795632273922 20000 4 1 broker-a 0 0"))
    assert delivery.text == "0 1795632273922 20000 4 1 broker-a 0 0 1000"
    assert delivery.ack_header().topic == "%RETRY%g_T"


def test_a_queue_of_which_nothing_was_said_is_an_error() -> None:
    with pytest.raises(UnreadableError):
        popped().delivery(stored(queue_id=3))


def test_requests_name_the_queue_and_the_offset() -> None:
    delivery = read_delivery("g", "T", HANDLE)
    ack, moved = delivery.ack_header(), delivery.change_header(5, keeps_handle=True)
    for header in (ack, moved):
        assert (header.consumer_group, header.topic, header.queue_id) == ("g", "T", 0)
        assert (header.offset, header.extra_info) == (18, HANDLE)
    assert (moved.invisible_time, moved.keeps_handle) == (5, True)
    assert delivery.change_header(5).keeps_handle is None


def test_a_handle_after_a_change_differs_in_its_times_alone() -> None:
    delivery = read_delivery("g", "T", HANDLE)
    changed = delivery.changed(ChangeInvisibleTimeResponseHeader(1795632258796, 10_000, 7))
    assert changed.text == "18 1795632258796 10000 7 0 broker-a 0 18 383243"
    assert not changed.is_over(1795632258796 + 9_999)
    assert changed.is_over(1795632258796 + 10_000)
    assert msgspec.structs.replace(changed, handle=delivery.handle) == delivery


@pytest.mark.parametrize("text", ["", "zzz", "1 2 3", "a b c d e f g h", "1 " * 5_000])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(CallError) as caught:
        read_delivery("g", "T", text)
    assert caught.value.code == pb.INTERNAL_SERVER_ERROR
