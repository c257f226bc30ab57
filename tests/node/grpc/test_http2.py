import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.grpc import http2
from node.grpc.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    FrameCutter,
    Http2Error,
    frame,
    number_frame,
    settings_frame,
)
from node.grpc.header_blocks import BEGIN, HEADER_LIST_BYTES_MAX, end_block
from node.grpc.http2 import IDLE_FRAMES_MAX, RESETS_MAX, STREAMS_MAX, Http2
from node.grpc.streams import STREAM_WINDOW_BYTES, Ended, Event, Opened, Received, WasReset
from tests.node.grpc.h2_client import Engine

BLOCK = (
    b"\x83\x86"  # :method POST, :scheme http
    + b"\x04\x02/X"  # :path
    + b"\x41\x01a"  # :authority
)
START = PREFACE + settings_frame({})


def events(server: Http2, data: bytes = b"", now: float = 0.0) -> list[Event]:
    if data:
        server.receive_data(data, now)
    found = []
    while (event := server.next_event()) is not None:
        found.append(event)
    return found


def started() -> Http2:
    server = Http2()
    events(server, START)
    server.take_output()
    return server


def frames_of(data: bytes) -> list[tuple[int, int, int, bytes]]:
    cutter = FrameCutter(1 << 24)
    cutter.receive_data(data)
    return list(iter(cutter.next_frame, None))


def headers(stream_id: int, flags: int = END_HEADERS | END_STREAM, block: bytes = BLOCK) -> bytes:
    return frame(HEADERS, flags, stream_id, block)


def refused(server: Http2, data: bytes, now: float = 0.0) -> int:
    with pytest.raises(Http2Error) as caught:
        events(server, data, now)
    return caught.value.code


def talk(client: Engine, server: Http2, answer: dict[str, bytes]) -> None:
    """Let both speak until nobody has more to say; each message of a call is answered."""
    while True:
        data = client.h2.data_to_send()
        for event in events(server, data):
            if isinstance(event, Ended):
                server.send_headers(event.stream_id, BEGIN)
                server.send_data(event.stream_id, answer["data"])
                server.send_headers(event.stream_id, end_block(), is_end=True)
        out = server.take_output()
        if not data and not out:
            return
        client.receive(out)


def test_a_call_of_another_implementation_is_taken_and_answered() -> None:
    client, server = Engine(), Http2()
    client.receive(server.take_output())
    stream_id = client.begin("SendMessage", x_mq_client_id="me")
    client.send(stream_id, b"hello")
    (opened, received, ended) = events(server, client.h2.data_to_send())
    assert isinstance(opened, Opened)
    assert opened.headers["x-mq-client-id"] == "me"
    assert opened.headers[":path"].endswith("/SendMessage")
    assert received == Received(stream_id, memoryview(b"\0\0\0\0\x05hello"))
    assert ended == Ended(stream_id)
    server.send_headers(stream_id, BEGIN)
    server.send_data(stream_id, b"\0\0\0\0\x02hi")
    server.send_headers(stream_id, end_block(5, "no: 50 % Ä"), is_end=True)
    client.receive(server.take_output())
    reply = client.replies[stream_id]
    assert (reply.messages(), reply.status, reply.is_over) == ([b"hi"], 5, True)
    assert reply.headers["grpc-message"] == "no: 50 %25 %C3%84"
    assert server.open_count == 0


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 3_000_000])
def test_answers_go_out_as_the_windows_of_the_client_allow(size: int) -> None:
    client, server = Engine(), Http2()
    data = struct.pack(">BI", 0, size) + random.Random(size).randbytes(size)
    first, second = client.begin("A"), client.begin("B")
    client.send(first, b"")
    client.send(second, b"")
    talk(client, server, {"data": data})
    for stream_id in (first, second):
        assert client.replies[stream_id].data == data
        assert client.replies[stream_id].is_over
    assert (server.pending_bytes, server.open_count) == (0, 0)


def test_bodies_larger_than_the_window_come_in() -> None:
    client, server = Engine(), Http2()
    client.receive(server.take_output())
    stream_id, got = client.begin("A"), bytearray()
    body, at = random.Random(1).randbytes(4 * STREAM_WINDOW_BYTES), 0
    while at < len(body):
        room = min(client.h2.local_flow_control_window(stream_id), 16_384, len(body) - at)
        assert room > 0, "the window was not opened again"
        client.h2.send_data(stream_id, body[at : at + room], end_stream=at + room == len(body))
        at += room
        for event in events(server, client.h2.data_to_send()):
            if isinstance(event, Received):
                got += event.data
        client.receive(server.take_output())
    assert got == body


def test_every_cut_of_the_bytes_gives_the_same_events() -> None:
    data = START + headers(1, END_HEADERS) + frame(DATA, END_STREAM, 1, b"abc") + headers(3)
    whole = events(Http2(), data)
    for cut in range(len(data)):
        server = Http2()
        found = events(server, data[:cut]) + events(server, data[cut:])
        assert found == whole
    server = Http2()
    assert [each for byte in data for each in events(server, bytes([byte]))] == whole


def test_headers_in_parts_with_padding_and_priority_are_read() -> None:
    server = started()
    padded = bytes([4]) + b"\0\0\0\1\x10" + BLOCK[:3] + b"\0" * 4
    data = frame(HEADERS, 0x8 | 0x20 | END_STREAM, 1, padded)
    data += frame(CONTINUATION, 0, 1, BLOCK[3:5]) + frame(CONTINUATION, END_HEADERS, 1, BLOCK[5:])
    opened, ended = events(server, data)
    assert isinstance(opened, Opened)
    assert opened.headers[":path"] == "/X"
    assert ended == Ended(1)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n", PROTOCOL_ERROR),
        (PREFACE + frame(PING, 0, 0, b"8" * 8), PROTOCOL_ERROR),
        (START + frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
        (START + headers(2), PROTOCOL_ERROR),
        (START + headers(0), PROTOCOL_ERROR),
        (START + frame(CONTINUATION, 0, 1, b""), PROTOCOL_ERROR),
        (START + headers(1, 0) + frame(PING, 0, 0, b"8" * 8), PROTOCOL_ERROR),
        (START + headers(1, 0) + frame(CONTINUATION, END_HEADERS, 3, b""), PROTOCOL_ERROR),
        (START + headers(1, END_HEADERS) * 2, PROTOCOL_ERROR),
        (START + number_frame(RST_STREAM, 1, 0), PROTOCOL_ERROR),
        (START + number_frame(WINDOW_UPDATE, 5, 1), PROTOCOL_ERROR),
        (START + number_frame(WINDOW_UPDATE, 0, 0), FLOW_CONTROL_ERROR),
        (START + number_frame(WINDOW_UPDATE, 0, 2**31 - 1), FLOW_CONTROL_ERROR),
        (START + frame(WINDOW_UPDATE, 0, 0, b"123"), 0x6),
        (START + frame(PING, 0, 0, b"123"), 0x6),
        (START + frame(PRIORITY, 0, 1, b"123"), 0x6),
        (START + frame(SETTINGS, 0, 0, b"123"), 0x6),
        (START + frame(SETTINGS, 1, 0, b"123456"), 0x6),
        (START + frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
        (START + settings_frame({0x2: 2}), PROTOCOL_ERROR),
        (START + settings_frame({0x4: 2**31}), FLOW_CONTROL_ERROR),
        (START + settings_frame({0x5: 100}), PROTOCOL_ERROR),
        (START + frame(0x5, 0, 1, b"1234"), PROTOCOL_ERROR),
        (START + frame(HEADERS, 0x8 | END_HEADERS, 1, b"\x09abc"), PROTOCOL_ERROR),
        (START + frame(HEADERS, 0x20 | END_HEADERS, 1, b"abc"), 0x6),
        (START + headers(1, block=b"\xff\xff\xff\xff"), 0x9),
        (START + headers(1, block=b"\x80"), 0x9),
        (START + b"\xff\xff\xff\0\0\0\0\0\1", 0x6),
    ],
)
def test_who_breaks_the_protocol_ends_its_connection(data: bytes, code: int) -> None:
    server = Http2()
    assert refused(server, data) == code
    server.give_up(Http2Error(code, "why"))
    kind, _, _, payload = frames_of(server.take_output())[-1]
    assert (kind, struct.unpack(">I", payload[4:8])[0], payload[8:]) == (0x7, code, b"why")


@pytest.mark.parametrize(
    "block",
    [
        BLOCK + b"\x00\x01X\x01y",  # a name with a capital letter
        BLOCK + b"\x00\x01a\x01b\x83",  # a pseudo header after another one
        BLOCK + b"\x83",  # twice
        BLOCK + b"\x88",  # of an answer
    ],
)
def test_a_request_that_is_none_is_reset_and_the_next_is_taken(block: bytes) -> None:
    server = started()
    assert events(server, headers(1, block=block)) == []
    assert frames_of(server.take_output())[0][:3] == (RST_STREAM, 0, 1)
    assert len(events(server, headers(3))) == 2


def test_the_table_of_headers_stays_small_and_a_bomb_ends_the_connection() -> None:
    bomb = b"\x40\x01a\x7f\x81\x1e" + b"v" * 4000  # put into the table: 4,000 bytes
    again = b"\xbe" * 10_000  # and named 10,000 times
    assert refused(started(), headers(1, block=bomb + again)) == 0x9
    assert (
        refused(started(), headers(1, block=b"\x3f\xe1\xff\x03" + BLOCK)) == 0x9
    )  # a table of 64 KiB


def test_headers_that_do_not_end_end_the_connection() -> None:
    flood = headers(1, 0) + frame(CONTINUATION, 0, 1, b"") * 100
    assert refused(started(), flood) == ENHANCE_YOUR_CALM
    large = headers(1, 0) + frame(CONTINUATION, 0, 1, b"\0" * HEADER_LIST_BYTES_MAX)
    assert refused(started(), large) == ENHANCE_YOUR_CALM


def test_streams_beyond_the_bound_are_refused_and_others_go_on() -> None:
    server = started()
    data = b"".join(headers(2 * n + 1, END_HEADERS) for n in range(STREAMS_MAX + 1))
    assert len(events(server, data)) == server.open_count == STREAMS_MAX
    (last,) = frames_of(server.take_output())
    assert last == (RST_STREAM, 0, 2 * STREAMS_MAX + 1, struct.pack(">I", 0x7))
    assert events(server, frame(DATA, END_STREAM, 1, b"x")) == [
        Received(1, memoryview(b"x")),
        Ended(1),
    ]


def test_rapid_resets_end_the_connection_and_those_of_a_client_that_stops_do_not() -> None:
    def begun_and_reset(first: int, count: int) -> bytes:
        ids = range(2 * first + 1, 2 * (first + count), 2)
        return b"".join(headers(each) + number_frame(RST_STREAM, each, 8) for each in ids)

    server = started()
    events(server, begun_and_reset(0, RESETS_MAX))
    assert server.open_count == 0
    assert refused(server, begun_and_reset(RESETS_MAX, 2)) == ENHANCE_YOUR_CALM
    server = started()
    for turn in range(5):
        events(server, begun_and_reset(turn * RESETS_MAX, RESETS_MAX), now=turn * 11.0)


@pytest.mark.parametrize(
    "idle",
    [
        frame(PING, 0, 0, b"8" * 8),
        settings_frame({}),
        frame(PRIORITY, 0, 1, b"12345"),
        frame(0x77, 0, 1, b"unknown"),
        number_frame(WINDOW_UPDATE, 0, 1),
        frame(DATA, 0, 1, b""),
    ],
)
def test_floods_of_frames_that_bring_nothing_on_end_the_connection(idle: bytes) -> None:
    server = started()
    events(server, headers(1, END_HEADERS))
    events(server, idle * (IDLE_FRAMES_MAX - 1))
    assert refused(server, idle * 3) == ENHANCE_YOUR_CALM


def test_pings_and_windows_of_a_busy_client_are_no_flood() -> None:
    server = started()
    for number in range(IDLE_FRAMES_MAX):
        data = headers(2 * number + 1, END_HEADERS) + frame(DATA, END_STREAM, 2 * number + 1, b"x")
        data += frame(PING, 0, 0, b"8" * 8) + number_frame(WINDOW_UPDATE, 0, 1) * 2
        assert len(events(server, data)) == 3
        server.send_headers(2 * number + 1, BEGIN)
        server.send_headers(2 * number + 1, end_block(), is_end=True)


def test_a_ping_is_answered_and_the_answer_to_ours_is_not() -> None:
    server = started()
    events(server, frame(PING, 0, 0, b"12345678") + frame(PING, 1, 0, b"12345678"))
    assert frames_of(server.take_output()) == [(PING, 1, 0, b"12345678")]


def test_more_data_than_the_windows_allow_ends_the_connection() -> None:
    server = started()
    data = headers(1, END_HEADERS) + frame(DATA, 0, 1, b"x" * http2.FRAME_BYTES_MAX)
    events(server, data)
    first = frames_of(server.take_output())
    assert all(kind != WINDOW_UPDATE for kind, *_ in first), "not yet half of it is used"
    server._streams[1].receive_window = 10
    assert refused(server, frame(DATA, 0, 1, b"x" * 11)) == FLOW_CONTROL_ERROR


def test_what_waits_for_a_window_is_dropped_with_its_stream() -> None:
    server = started()
    events(server, settings_frame({0x4: 0}) + headers(1))
    server.send_headers(1, BEGIN)
    server.send_data(1, b"x" * 1000)
    server.send_headers(1, end_block(), is_end=True)
    assert server.pending_bytes >= 1000
    assert events(server, number_frame(RST_STREAM, 1, 8)) == [WasReset(1, unsent_count=1)]
    assert (server.pending_bytes, server.open_count) == (0, 0)


def test_a_stream_that_ends_says_how_much_its_client_has_not_got() -> None:
    server = started()
    events(server, settings_frame({0x4: 250}) + headers(1))
    server.send_headers(1, BEGIN)
    for _ in range(4):
        server.send_data(1, b"x" * 100)
    server.send_headers(1, end_block(), is_end=True)
    assert (server.is_open(1), server.unsent_count(1)) == (True, 2)
    assert events(server, number_frame(WINDOW_UPDATE, 1, 60)) == []
    assert server.unsent_count(1) == 1
    ended = events(server, number_frame(WINDOW_UPDATE, 1, 0))
    assert ended == [WasReset(1, unsent_count=1)]
    assert (server.is_open(1), server.unsent_count(1)) == (False, 0)


def test_a_call_that_is_answered_before_it_has_ended_is_told_so() -> None:
    server = started()
    events(server, headers(1, END_HEADERS))
    server.send_headers(1, BEGIN + end_block(), is_end=True)
    kinds = [kind for kind, *_ in frames_of(server.take_output())]
    assert kinds == [HEADERS, RST_STREAM]
    assert events(server, frame(DATA, END_STREAM, 1, b"late")) == []
    assert refused(server, headers(2)) == PROTOCOL_ERROR


def test_no_new_streams_are_taken_after_the_goodbye() -> None:
    server = started()
    events(server, headers(1, END_HEADERS))
    server.say_goodbye()
    assert events(server, headers(3)) == []
    assert events(server, frame(DATA, END_STREAM, 1, b"x")) == [
        Received(1, memoryview(b"x")),
        Ended(1),
    ]


@given(st.lists(st.binary(max_size=60), max_size=30), st.booleans())
def test_random_bytes_raise_nothing_but_the_one_error(pieces: list[bytes], starts: bool) -> None:  # noqa: FBT001
    server = Http2()
    try:
        if starts:
            events(server, START)
        for piece in pieces:
            events(server, piece)
    except Http2Error as error:
        server.give_up(error)
        server.take_output()


FRAMES = st.tuples(
    st.integers(0, 10), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40)
)


@given(st.lists(FRAMES, max_size=40), st.randoms(use_true_random=False))
def test_random_frames_keep_the_books_of_the_connection(
    made: list[tuple[int, int, int, bytes]], chance: random.Random
) -> None:
    server = started()
    try:
        for kind, flags, stream_id, payload in made:
            if chance.random() < 0.5:
                payload = BLOCK  # noqa: PLW2901
            for event in events(server, frame(kind, flags, stream_id, payload)):
                if isinstance(event, Opened) and chance.random() < 0.5:
                    server.send_headers(event.stream_id, BEGIN)
                    server.send_data(event.stream_id, b"x" * chance.randrange(200_000))
                    is_end = chance.random() < 0.5
                    server.send_headers(event.stream_id, end_block(), is_end=is_end)
    except Http2Error as error:
        server.give_up(error)
    waiting = sum(
        len(data) for stream in server._streams.values() for data, _ in stream.waiting
    ) - sum(stream.waiting_at for stream in server._streams.values())
    assert server.pending_bytes == waiting
    for kind, _, _, payload in frames_of(server.take_output()):
        assert kind != DATA or len(payload) <= 16_384
