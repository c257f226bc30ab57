"""The frame of an answer is the same, byte for byte, as if it had been encoded field by field."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.handlers.stored_answer import encoded, stored_frame, stored_response, with_outcome
from store import PutMessageResult, PutMessageStatus
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_headers import SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode

NUMBERS = st.integers(0, 2**63 - 1)
KEYS = st.none() | st.text("0123456789ABCDEF", min_size=1) | st.text(st.characters(codec="utf-8"))
HOSTS = st.sampled_from(("7F00000100002A9F", "FE80000000000000000000000000000100002A9F"))
BATCHES = st.lists(NUMBERS, max_size=3).map(tuple)


def result(
    offset: int, queue_offset: int, host: str, of_batch: tuple[int, ...]
) -> PutMessageResult:
    return PutMessageResult(
        PutMessageStatus.PUT_OK, "", offset, 100, queue_offset, 1, 5, host, of_batch
    )


RESULTS = st.builds(result, NUMBERS, NUMBERS, HOSTS, BATCHES)


@given(
    st.sampled_from(list(SerializeType)),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**31 - 1),
    KEYS,
    RESULTS,
)
def test_a_frame_is_what_encoding_gives(
    kind: SerializeType, opaque: int, queue_id: int, key: str | None, put: PutMessageResult
) -> None:
    command = RemotingCommand(310, opaque, serialize_type=kind)
    properties = "KEYS\x01k\x02" + (f"UNIQ_KEY\x01{key}\x02" if key is not None else "")
    expected = encode_frame(stored_response(command, queue_id, properties, put))
    assert stored_frame(command, queue_id, properties, put) == expected


@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.MSGPACK])
def test_an_answer_that_is_a_frame_already_takes_another_outcome(kind: SerializeType) -> None:
    command = RemotingCommand(310, 7, serialize_type=kind)
    put = result(5, 6, "7F00000100002A9F", ())
    response = stored_response(command, 1, "UNIQ_KEY\x01ABC\x02", put)
    frame = stored_frame(command, 1, "UNIQ_KEY\x01ABC\x02", put)
    assert encoded(response) == encoded(frame) == frame
    frames = FrameBuffer()
    for answer in (response, frame):
        frames.receive_data(encoded(with_outcome(answer, ResponseCode.FLUSH_SLAVE_TIMEOUT, "late")))
        other = frames.next_command()
        assert other is not None
        assert (other.code, other.remark) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, "late")
        assert (other.opaque, other.flag) == (response.opaque, response.flag)
        header = other.decode_header(SendMessageResponseHeader)
        assert header == response.ext
        assert msgspec.structs.astuple(header)[:3] == ("7F00000100002A9F0000000000000005", 1, 6)
