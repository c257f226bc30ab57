"""The server's end of one HTTP/2 connection: a state machine with no I/O.

    bytes, the time  --> receive_data --> events: Opened, Received, Ended, WasReset
    headers and data --> what the peer's windows let through --> `take_output`

Only what a client of gRPC needs is here: no push, no priorities, and no dynamic table in what is
sent. What a peer may keep us busy with is bounded: headers, streams at a time, streams that are
reset, and frames that bring nothing on. Whoever goes beyond ends its connection.

Source: RFC 9113; RFC 7541 by the package `hpack`.
"""

from __future__ import annotations

from typing import Final

from node.grpc.frames import (
    ACK,
    CANCEL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES_MIN,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_MAX,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    FrameCutter,
    Http2Error,
    frame,
    goaway_frame,
    number_frame,
    number_of,
    settings_frame,
    settings_of,
    without_padding,
)
from node.grpc.header_blocks import HEADER_LIST_BYTES_MAX, HeaderBlocks
from node.grpc.streams import (
    STREAM_WINDOW_BYTES,
    Ended,
    Event,
    Opened,
    Quiet,
    Received,
    Stream,
    WasReset,
)

STREAMS_MAX: Final = 1_024
"""At a time. A consumer has one for each broker and topic, its telemetry, and some calls."""

CONNECTION_WINDOW_BYTES: Final = 8 * 1024 * 1024

FRAME_BYTES_MAX: Final = 256 * 1024
"""A body of 4 MiB then takes 16 frames, and not 256."""

CONTINUATIONS_MAX: Final = 16
"""Of one header block, so that empty ones come to an end, too."""

WATCHED_SECONDS: Final = 10.0
RESETS_MAX: Final = 2_000
"""Streams of a connection that end too early, within `WATCHED_SECONDS`: by their client, or refused
by us. All receives of a busy client that is stopped are fewer."""

IDLE_FRAMES_MAX: Final = 4_000
"""Frames that bring nothing on, within `WATCHED_SECONDS`, beyond what goes with messages."""

IDLE_FRAMES_PER_MESSAGE: Final = 16
"""A client may answer each frame of ours with a ping and some windows."""

FRAMES_AT_ONCE: Final = 32
"""That say nothing to calls, before whoever asks for events may do something else."""

_SIZES: Final = {PING: 8, PRIORITY: 5}
_INITIAL_WINDOW: Final = 65_535
_ENABLE_PUSH: Final = 0x2
_MAX_CONCURRENT_STREAMS: Final = 0x3
_INITIAL_WINDOW_SIZE: Final = 0x4
_MAX_FRAME_SIZE: Final = 0x5
_MAX_HEADER_LIST_SIZE: Final = 0x6


class Http2:
    """One connection.

    Attributes:
        pending_bytes: How many wait for the windows of the peer.
        open_count: How many streams there are.
        is_ending: Whether nothing new is taken any more.
    """

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.is_ending = False
        self._frames = FrameCutter(FRAME_BYTES_MAX)
        self._headers = HeaderBlocks()
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        self._has_preface = self._has_settings = False
        self._block: tuple[int, int, bytearray, int] | None = None
        """Of headers that go on in CONTINUATION: stream, flags, bytes so far, frames so far."""
        self._peer_window = _INITIAL_WINDOW
        self._peer_initial_window = _INITIAL_WINDOW
        self._peer_frame_bytes = FRAME_BYTES_MIN
        self._receive_window = _INITIAL_WINDOW
        self._events: list[Event] = []
        self._watched_from = 0.0
        self._resets = self._idle_frames = 0
        settings = {
            _MAX_CONCURRENT_STREAMS: STREAMS_MAX,
            _INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            _MAX_FRAME_SIZE: FRAME_BYTES_MAX,
            _MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES_MAX,
        }
        self._out = [settings_frame(settings)]
        self._widen()

    @property
    def open_count(self) -> int:
        """How many streams there are."""
        return len(self._streams)

    @property
    def buffered_bytes(self) -> int:
        """Of a frame or of headers that are not whole."""
        return self._frames.buffered_bytes + (0 if self._block is None else len(self._block[2]))

    def receive_data(self, data: bytes, now: float) -> None:
        """Take in what came; `next_event` says what it is."""
        self._frames.receive_data(data)
        if now >= self._watched_from + WATCHED_SECONDS:
            self._watched_from = now
            self._resets = self._idle_frames = 0

    def next_event(self) -> Event | None:
        """Return the next event; None: more bytes are needed.

        Raises:
            Http2Error: the connection has to end; see `give_up`.
        """
        count = 0
        while not self._events:
            if count == FRAMES_AT_ONCE:
                return Quiet()
            count += 1
            if not self._has_preface:
                self._has_preface = self._frames.skip(PREFACE)
                if not self._has_preface:
                    return None
            found = self._frames.next_frame()
            if found is None:
                return None
            self._take(*found)
        return self._events.pop(0)

    def take_output(self) -> bytes:
        """Return what is to be sent."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def is_open(self, stream_id: int) -> bool:
        """Whether a stream is there, if only for what waits for the peer's windows."""
        return stream_id in self._streams

    def unsent_count(self, stream_id: int) -> int:
        """How many pieces of data of a stream the peer has not got as a whole."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else _unsent_count(stream)

    def send_headers(self, stream_id: int, block: bytes, *, is_end: bool = False) -> None:
        """Send a block of headers, after the data that waits. Nothing if the stream is over."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        flags = END_HEADERS | (END_STREAM if is_end else 0)
        whole = frame(HEADERS, flags, stream_id, block)
        if stream.waiting:
            stream.waiting.append((whole, True))
            self.pending_bytes += len(whole)
        else:
            self._out.append(whole)
        if is_end:
            stream.is_answered = True
            if not stream.waiting:
                self._close(stream_id, stream)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Send data as the windows of the peer allow. Nothing if the stream is over."""
        stream = self._streams.get(stream_id)
        if stream is None or not data:
            return
        stream.waiting.append((data, False))
        self.pending_bytes += len(data)
        self._note_progress()
        self._pump(stream_id, stream)

    def reset(self, stream_id: int, code: int = CANCEL) -> None:
        """End a stream at once."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._drop(stream)
            self._out.append(number_frame(RST_STREAM, stream_id, code))

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._out.append(frame(PING, 0, 0, bytes(_SIZES[PING])))

    def say_goodbye(self) -> None:
        """Take no new streams; those that are open go on."""
        if not self.is_ending:
            self.is_ending = True
            self._out.append(goaway_frame(self._last_id, NO_ERROR, ""))

    def give_up(self, error: Http2Error) -> None:
        """Say why the connection ends."""
        self.is_ending = True
        self._out.append(goaway_frame(self._last_id, error.code, str(error)))

    # -- what came -------------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        view = memoryview(payload)
        if not self._has_settings:
            if kind != SETTINGS or flags & ACK:
                raise Http2Error(PROTOCOL_ERROR, "the first frame is no SETTINGS")
            self._has_settings = True
        if self._block is not None and kind != CONTINUATION:
            raise Http2Error(PROTOCOL_ERROR, "headers are followed by something else")
        if kind == DATA:
            self._take_data(flags, stream_id, view)
        elif kind == HEADERS:
            self._take_headers(flags, stream_id, view)
        elif kind == CONTINUATION:
            self._take_continuation(flags, stream_id, view)
        elif kind == WINDOW_UPDATE:
            self._note_idle()
            self._take_window(stream_id, number_of(view))
        elif kind == RST_STREAM:
            self._take_reset(stream_id, number_of(view))
        else:
            self._note_idle()
            self._take_other(kind, flags, stream_id, view)

    def _take_other(self, kind: int, flags: int, stream_id: int, view: memoryview) -> None:
        if kind in (SETTINGS, PING, GOAWAY) and stream_id:
            raise Http2Error(PROTOCOL_ERROR, f"a frame of kind {kind} of a stream")
        size = _SIZES.get(kind)
        if size is not None and len(view) != size:
            raise Http2Error(FRAME_SIZE_ERROR, f"a frame of kind {kind} with {len(view)} bytes")
        if kind == PUSH_PROMISE:
            raise Http2Error(PROTOCOL_ERROR, "a client cannot push")
        if kind == SETTINGS and flags & ACK and view:
            raise Http2Error(FRAME_SIZE_ERROR, "an acknowledgement with settings")
        if kind == SETTINGS and not flags & ACK:
            self._take_settings(view)
        elif kind == PING and not flags & ACK:
            self._out.append(frame(PING, ACK, 0, view))

    def _take_headers(self, flags: int, stream_id: int, view: memoryview) -> None:
        if not stream_id % 2:
            raise Http2Error(PROTOCOL_ERROR, f"headers of stream {stream_id}, which is none")
        view = without_padding(flags, view)
        if flags & WITH_PRIORITY:
            if len(view) < 5:
                raise Http2Error(FRAME_SIZE_ERROR, "headers are cut in their priority")
            view = view[5:]
        self._take_block(flags, stream_id, bytearray(view), 0)

    def _take_continuation(self, flags: int, stream_id: int, view: memoryview) -> None:
        block = self._block
        if block is None or block[0] != stream_id:
            raise Http2Error(PROTOCOL_ERROR, "CONTINUATION without headers before it")
        _, first_flags, buffer, count = block
        buffer += view
        self._take_block(first_flags | flags & END_HEADERS, stream_id, buffer, count + 1)

    def _take_block(self, flags: int, stream_id: int, block: bytearray, count: int) -> None:
        if len(block) > HEADER_LIST_BYTES_MAX or count > CONTINUATIONS_MAX:
            raise Http2Error(
                ENHANCE_YOUR_CALM,
                f"headers of more than {HEADER_LIST_BYTES_MAX} bytes or {CONTINUATIONS_MAX} parts",
            )
        if not flags & END_HEADERS:
            self._block = (stream_id, flags, block, count)
            return
        self._block = None
        try:
            headers = self._headers.read(bytes(block))
        except ValueError as error:
            raise Http2Error(COMPRESSION_ERROR, str(error)) from error
        self._open(stream_id, headers, is_end=bool(flags & END_STREAM))

    def _open(self, stream_id: int, headers: dict[str, str] | None, *, is_end: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            if stream.has_peer_ended or not is_end:
                raise Http2Error(PROTOCOL_ERROR, "more headers on a stream")
            self._peer_ended(stream_id, stream)
            return
        if stream_id <= self._last_id:
            self._note_reset()  # one that we have ended a moment ago, or has it again
            return
        self._last_id = stream_id
        if self.is_ending or len(self._streams) >= STREAMS_MAX:
            self._note_reset()
            self._out.append(number_frame(RST_STREAM, stream_id, REFUSED_STREAM))
            return
        if headers is None:
            self._note_reset()
            self._out.append(number_frame(RST_STREAM, stream_id, PROTOCOL_ERROR))
            return
        stream = self._streams[stream_id] = Stream(self._peer_initial_window)
        self._events.append(Opened(stream_id, headers))
        if is_end:
            self._peer_ended(stream_id, stream)

    def _take_data(self, flags: int, stream_id: int, view: memoryview) -> None:
        if not stream_id or stream_id > self._last_id:
            raise Http2Error(PROTOCOL_ERROR, f"data of stream {stream_id}, which was not opened")
        size = len(view)
        self._receive_window -= size
        if self._receive_window < 0:
            raise Http2Error(FLOW_CONTROL_ERROR, "more data than the window of the connection")
        self._widen()
        stream = self._streams.get(stream_id)
        if stream is None:
            self._note_idle()
            return
        if stream.has_peer_ended:
            self._note_reset()
            self._refuse(stream_id, stream, STREAM_CLOSED)
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise Http2Error(FLOW_CONTROL_ERROR, "more data than the window of a stream")
        is_end = bool(flags & END_STREAM)
        data = without_padding(flags, view)
        if data:
            self._note_progress()
            self._events.append(Received(stream_id, data))
        elif not is_end:
            self._note_idle()
        if is_end:
            self._peer_ended(stream_id, stream)
        elif stream.receive_window < STREAM_WINDOW_BYTES // 2:
            more = STREAM_WINDOW_BYTES - stream.receive_window
            stream.receive_window += more
            self._out.append(number_frame(WINDOW_UPDATE, stream_id, more))

    def _refuse(self, stream_id: int, stream: Stream, code: int) -> None:
        self._events.append(WasReset(stream_id, _unsent_count(stream)))
        self.reset(stream_id, code)

    def _take_reset(self, stream_id: int, _code: int) -> None:
        if not stream_id or stream_id > self._last_id:
            raise Http2Error(PROTOCOL_ERROR, f"reset of stream {stream_id}, which was not opened")
        self._note_reset()
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._events.append(WasReset(stream_id, _unsent_count(stream)))
            self._drop(stream)

    def _take_settings(self, view: memoryview) -> None:
        for name, value in dict(settings_of(view)).items():  # the last word counts
            if name == _INITIAL_WINDOW_SIZE:
                self._change_initial_window(value)
            elif name == _MAX_FRAME_SIZE:
                if not FRAME_BYTES_MIN <= value < 1 << 24:
                    raise Http2Error(PROTOCOL_ERROR, f"a frame size of {value} bytes")
                self._peer_frame_bytes = min(value, FRAME_BYTES_MAX)
            elif name == _ENABLE_PUSH and value > 1:
                raise Http2Error(PROTOCOL_ERROR, "a push that is neither on nor off")
        self._out.append(frame(SETTINGS, ACK, 0))

    def _change_initial_window(self, value: int) -> None:
        if value > WINDOW_MAX:
            raise Http2Error(FLOW_CONTROL_ERROR, f"a window of {value} bytes")
        more = value - self._peer_initial_window
        self._peer_initial_window = value
        for stream_id, stream in list(self._streams.items()):
            stream.send_window += more
            if stream.send_window > WINDOW_MAX:
                raise Http2Error(FLOW_CONTROL_ERROR, "a window beyond all bounds")
            self._pump(stream_id, stream)

    def _take_window(self, stream_id: int, more: int) -> None:
        more &= WINDOW_MAX
        if not stream_id:
            if not more or self._peer_window + more > WINDOW_MAX:
                raise Http2Error(FLOW_CONTROL_ERROR, "a window of nothing, or beyond all bounds")
            self._peer_window += more
            for each_id, each in list(self._streams.items()):
                if self._peer_window <= 0:
                    break
                self._pump(each_id, each)
            return
        if stream_id > self._last_id:
            raise Http2Error(PROTOCOL_ERROR, f"window of stream {stream_id}, which was not opened")
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.send_window += more
        if not more or stream.send_window > WINDOW_MAX:
            self._note_reset()
            self._refuse(stream_id, stream, FLOW_CONTROL_ERROR)
            return
        self._pump(stream_id, stream)

    # -- what goes out ---------------------------------------------------------------------------

    def _pump(self, stream_id: int, stream: Stream) -> None:
        """Send of a stream what the windows allow."""
        while stream.waiting:
            data, is_frame = stream.waiting[0]
            if is_frame:
                self._out.append(data)
                self.pending_bytes -= len(data)
                stream.waiting.pop(0)
                continue
            room = min(stream.send_window, self._peer_window, self._peer_frame_bytes)
            if room <= 0:
                return
            piece = memoryview(data)[stream.waiting_at : stream.waiting_at + room]
            self._out.append(frame(DATA, 0, stream_id, piece))
            size = len(piece)
            stream.send_window -= size
            self._peer_window -= size
            self.pending_bytes -= size
            stream.waiting_at += size
            if stream.waiting_at == len(data):
                stream.waiting.pop(0)
                stream.waiting_at = 0
        if stream.is_answered:
            self._close(stream_id, stream)

    def _close(self, stream_id: int, stream: Stream) -> None:
        """Our side has said all. What the peer has still to say is not waited for."""
        self._streams.pop(stream_id, None)
        if not stream.has_peer_ended:
            self._out.append(number_frame(RST_STREAM, stream_id, NO_ERROR))

    def _peer_ended(self, stream_id: int, stream: Stream) -> None:
        stream.has_peer_ended = True
        self._events.append(Ended(stream_id))

    def _drop(self, stream: Stream) -> None:
        waiting = sum(len(data) for data, _ in stream.waiting)
        self.pending_bytes -= waiting - stream.waiting_at
        stream.waiting.clear()

    def _widen(self) -> None:
        """Let the peer send more, once half of the connection's window is used up."""
        if self._receive_window < CONNECTION_WINDOW_BYTES // 2:
            more = CONNECTION_WINDOW_BYTES - self._receive_window
            self._receive_window += more
            self._out.append(number_frame(WINDOW_UPDATE, 0, more))

    def _note_progress(self) -> None:
        self._idle_frames = max(0, self._idle_frames - IDLE_FRAMES_PER_MESSAGE)

    def _note_idle(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > IDLE_FRAMES_MAX:
            raise Http2Error(ENHANCE_YOUR_CALM, "too many frames that bring nothing on")

    def _note_reset(self) -> None:
        self._resets += 1
        if self._resets > RESETS_MAX:
            raise Http2Error(ENHANCE_YOUR_CALM, "too many streams that end before their time")


def _unsent_count(stream: Stream) -> int:
    return sum(not is_frame for _, is_frame in stream.waiting)
