import struct

import pytest

from node.grpc.call import MESSAGE_BYTES_MAX, Call, MalformedCallError, prefixed, timeout_seconds
from node.grpc.http2 import Http2


def a_call(**headers: str) -> Call:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Call(Http2(), 1, "SendMessage", fields, 100.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3S", 3.0),
        ("2H", 7200.0),
        ("1M", 60.0),
        ("2999m", 2.999),
        ("5000000u", 5.0),
        ("1n", 1e-9),
        ("", None),
        ("S", None),
        ("3", None),
        ("3x", None),
        ("-3S", -3.0),
        ("123456789S", None),
        ("3.5S", None),
    ],
)
def test_timeouts_are_read_in_all_units(text: str, seconds: float | None) -> None:
    assert timeout_seconds(text) == seconds


def test_a_call_knows_its_client_its_deadline_and_its_signature() -> None:
    call = a_call(
        x_mq_client_id=" me ", grpc_timeout="3S", authorization="A b", x_mq_date_time="now"
    )
    assert (call.client_id, call.deadline) == ("me", 103.0)
    assert (call.signature.authorization, call.signature.date_time) == ("A b", "now")
    call = a_call()
    assert (call.client_id, call.deadline, call.signature.authorization) == (None, None, "")


def test_messages_are_cut_however_they_come() -> None:
    data = prefixed(b"one") + prefixed(b"") + prefixed(b"three")
    for size in range(1, len(data)):
        call, found = a_call(), []
        for at in range(0, len(data), size):
            call.receive_data(memoryview(data[at : at + size]))
            while (message := call.next_message()) is not None:
                found.append(message)
        assert found == [b"one", b"", b"three"]
        assert call.buffered_bytes == 0


@pytest.mark.parametrize(
    ("head", "status"),
    [(struct.pack(">BI", 1, 3), 12), (struct.pack(">BI", 0, MESSAGE_BYTES_MAX + 1), 8)],
)
def test_messages_that_are_too_large_or_compressed_are_refused_by_their_head(
    head: bytes, status: int
) -> None:
    call = a_call()
    call.receive_data(memoryview(head))
    with pytest.raises(MalformedCallError) as caught:
        call.next_message()
    assert caught.value.status == status


def test_what_waits_for_the_end_of_a_call_is_done_once() -> None:
    call, done = a_call(), []
    call.when_over(lambda: done.append(1))
    call.gone()
    call.gone()
    call.end()
    call.answer(b"x")
    assert done == [1]
