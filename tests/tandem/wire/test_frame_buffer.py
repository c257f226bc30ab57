import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.errors import FrameTooLargeError, MalformedFrameError, WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame

COMMANDS = [
    RemotingCommand(10, opaque, ext={"topic": "T"}, body=b"x" * size, serialize_type=kind)
    for opaque, (kind, size) in enumerate(itertools.product(SerializeType, (0, 1, 700)))
]
STREAM = b"".join(map(encode_frame, COMMANDS))


def drain(buffer: FrameBuffer) -> list[tuple[int, bytes]]:
    seen = []
    while (command := buffer.next_command()) is not None:
        assert command.ext_fields() == {"topic": "T"}
        seen.append((command.opaque, command.body))
    return seen


EXPECTED = [(command.opaque, command.body) for command in COMMANDS]


def test_whole_frames_in_one_chunk() -> None:
    buffer = FrameBuffer()
    buffer.receive_data(STREAM)
    assert drain(buffer) == EXPECTED


def test_one_byte_at_a_time() -> None:
    buffer = FrameBuffer()
    seen = []
    for index in range(len(STREAM)):
        buffer.receive_data(STREAM[index : index + 1])
        seen += drain(buffer)
    assert seen == EXPECTED


@given(st.lists(st.integers(1, 900), min_size=1, max_size=40), st.booleans())
def test_any_chopping_gives_the_same_commands(sizes: list[int], drain_each: bool) -> None:  # noqa: FBT001
    buffer = FrameBuffer()
    seen = []
    position = 0
    for size in itertools.cycle(sizes):
        buffer.receive_data(STREAM[position : position + size])
        if drain_each:
            seen += drain(buffer)
        position += size
        if position >= len(STREAM):
            break
    assert seen + drain(buffer) == EXPECTED


def test_every_truncation_gives_the_frames_before_it() -> None:
    ends = list(itertools.accumulate(len(encode_frame(command)) for command in COMMANDS))
    for cut in range(0, len(STREAM), 7):
        buffer = FrameBuffer()
        buffer.receive_data(STREAM[:cut])
        assert len(drain(buffer)) == sum(end <= cut for end in ends)


def test_good_frames_before_a_bad_one_are_handed_out_first() -> None:
    buffer = FrameBuffer()
    buffer.receive_data(encode_frame(COMMANDS[0]) + b"\xff" * 9)
    first = buffer.next_command()
    assert first is not None
    assert first.opaque == 0
    for _ in range(2):
        with pytest.raises(FrameTooLargeError):
            buffer.next_command()


def test_a_frame_up_to_the_limit_passes_and_one_byte_more_does_not() -> None:
    frame = encode_frame(COMMANDS[2])
    buffer = FrameBuffer(frame_bytes_max=len(frame))
    buffer.receive_data(frame)
    assert buffer.next_command() is not None
    buffer = FrameBuffer(frame_bytes_max=len(frame) - 1)
    buffer.receive_data(frame)
    with pytest.raises(FrameTooLargeError) as caught:
        buffer.next_command()
    assert (caught.value.size, caught.value.limit) == (len(frame), len(frame) - 1)


def test_a_length_too_large_is_refused_before_its_bytes_arrive() -> None:
    buffer = FrameBuffer()
    buffer.receive_data(b"GET ")
    with pytest.raises(FrameTooLargeError):
        buffer.next_command()


def test_a_negative_length_is_refused() -> None:
    buffer = FrameBuffer()
    buffer.receive_data((-1).to_bytes(4, "big", signed=True))
    with pytest.raises(FrameTooLargeError):
        buffer.next_command()


@pytest.mark.parametrize("length", [0, 3])
def test_a_frame_too_short_for_its_head_is_refused(length: int) -> None:
    buffer = FrameBuffer()
    buffer.receive_data(length.to_bytes(4, "big"))
    with pytest.raises(MalformedFrameError):
        buffer.next_command()


def test_a_header_longer_than_its_frame_is_refused() -> None:
    buffer = FrameBuffer()
    buffer.receive_data(bytes.fromhex("00000010 00000011") + b"x" * 12)
    with pytest.raises(MalformedFrameError):
        buffer.next_command()


def test_the_largest_properties_fit_however_json_writes_them() -> None:
    frame = encode_frame(RemotingCommand(10, 1, ext={"properties": "\x01" * 32_767}))
    buffer = FrameBuffer()
    buffer.receive_data(frame)
    command = buffer.next_command()
    assert command is not None
    assert command.ext_fields() == {"properties": "\x01" * 32_767}


def test_a_header_beyond_the_bound_is_refused() -> None:
    buffer = FrameBuffer(header_bytes_max=10)
    buffer.receive_data(encode_frame(COMMANDS[0]))
    with pytest.raises(FrameTooLargeError) as caught:
        buffer.next_command()
    assert (caught.value.part, caught.value.limit) == ("header", 10)


def test_a_large_frame_in_small_chunks_is_not_copied_again_and_again() -> None:
    frame = encode_frame(RemotingCommand(10, 1, ext={"topic": "T"}, body=b"x" * 8_000_000))
    buffer = FrameBuffer()
    for start in range(0, len(frame), 4096):
        assert buffer.next_command() is None
        buffer.receive_data(frame[start : start + 4096])
    assert drain(buffer) == [(1, b"x" * 8_000_000)]


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_random_bytes_are_accepted_or_refused_as_the_peers_fault(chunks: list[bytes]) -> None:
    buffer = FrameBuffer()
    try:
        for chunk in chunks:
            buffer.receive_data(chunk)
            while buffer.next_command() is not None:
                pass
    except WireError:
        pass


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 8, 20])
def test_several_frames_are_there_when_the_second_is_whole(cut: int) -> None:
    data = encode_frame(RemotingCommand(10, 1, body=b"body"))
    frames = FrameBuffer()
    assert frames.several_frames() is None
    frames.receive_data(data + data[:cut])
    assert frames.several_frames() is None
    frames.receive_data(data[cut:])
    received, start = frames.several_frames() or (b"", -1)
    assert received[start:] == data * 2
    frames.skip_to(start + len(data))
    assert frames.several_frames() is None
    command = frames.next_command()
    assert command is not None
    assert command.body == b"body"
    assert frames.unfinished_bytes == 0


@given(st.binary(max_size=40))
def test_whatever_stands_there_it_can_be_asked_whether_it_is_several_frames(data: bytes) -> None:
    frames = FrameBuffer()
    frames.receive_data(data)
    found = frames.several_frames()
    assert found in (None, (data, 0))


@pytest.mark.parametrize("cut", range(len(STREAM) // 3))
def test_how_the_next_header_starts_is_known_when_it_is_there(cut: int) -> None:
    frames = FrameBuffer()
    frames.receive_data(STREAM[:cut])
    start = STREAM[8:18]
    assert frames.starts_with((b"nothing", start)) == (cut >= 18)
    assert not frames.starts_with((b"nothing",))
    frames.receive_data(STREAM[cut:])
    assert frames.starts_with((start,))
    data, position = frames.from_next_frame()
    assert data[position:] == STREAM
    assert drain(frames) == EXPECTED
    assert not frames.starts_with((start,))


@given(st.lists(st.integers(1, 900), min_size=1, max_size=40))
def test_what_is_used_up_is_not_kept(sizes: list[int]) -> None:
    frames = FrameBuffer()
    position = 0
    seen = 0
    assert frames.is_used_up()
    for size in itertools.cycle(sizes):
        frames.receive_data(STREAM[position : position + size])
        position += size
        assert not frames.is_used_up()
        while (frames.next_command()) is not None:
            seen += 1
            assert frames.is_used_up() == (frames.unfinished_bytes == 0)
        if position >= len(STREAM):
            break
    assert seen == len(EXPECTED)
    assert frames.is_used_up()
    assert frames.from_next_frame() == (b"", 0)
