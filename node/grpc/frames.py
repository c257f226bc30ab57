"""Frames of HTTP/2: how they are cut out of bytes, and how they are written.

    offset  bytes  content
    0       3      length of the payload
    3       1      kind
    4       1      flags
    5       4      stream; the top bit says nothing
    9       ...    payload

Source: RFC 9113, 4.1 and 6.
"""

from __future__ import annotations

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first. As the length of a remoting frame its first four bytes are 1.3 GB."""

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

HEAD_BYTES: Final = 9
WINDOW_MAX: Final = 2**31 - 1
FRAME_BYTES_MIN: Final = 16_384
"""Payload that everybody takes."""

_HEAD: Final = struct.Struct(">HBBBI")
_NUMBER: Final = struct.Struct(">I")
_SETTING: Final = struct.Struct(">HI")
_GOAWAY: Final = struct.Struct(">II")


class Http2Error(Exception):
    """The peer has broken the protocol, or does too much of something: the connection ends.

    Attributes:
        code: What GOAWAY says of it.
    """

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(reason)


def frame(kind: int, flags: int, stream_id: int, payload: bytes | memoryview = b"") -> bytes:
    """Return one frame."""
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def number_frame(kind: int, stream_id: int, number: int) -> bytes:
    """Return a frame whose payload is one number: RST_STREAM, WINDOW_UPDATE."""
    return frame(kind, 0, stream_id, _NUMBER.pack(number))


def settings_frame(settings: dict[int, int]) -> bytes:
    """Return our settings."""
    payload = b"".join(_SETTING.pack(name, value) for name, value in settings.items())
    return frame(SETTINGS, 0, 0, payload)


def goaway_frame(last_stream_id: int, code: int, reason: str) -> bytes:
    """Return the last words."""
    payload = _GOAWAY.pack(last_stream_id, code) + reason.encode()
    return frame(GOAWAY, 0, 0, payload)


def number_of(payload: memoryview) -> int:
    """Return the number of a frame that has nothing else.

    Raises:
        Http2Error: it has something else.
    """
    if len(payload) != _NUMBER.size:
        raise Http2Error(FRAME_SIZE_ERROR, f"{len(payload)} bytes where there are to be 4")
    return int(_NUMBER.unpack(payload)[0])


def settings_of(payload: memoryview) -> list[tuple[int, int]]:
    """Return names and values, in their order.

    Raises:
        Http2Error: it is cut.
    """
    if len(payload) % _SETTING.size:
        raise Http2Error(FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
    return [(name, value) for name, value in _SETTING.iter_unpack(payload)]


def without_padding(flags: int, payload: memoryview) -> memoryview:
    """Return the payload of DATA or HEADERS without its padding.

    Raises:
        Http2Error: there is more padding than payload.
    """
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error(PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]


class FrameCutter:
    """Cuts what comes into frames.

    Attributes:
        buffered_bytes: How many are kept of a frame that is not whole.
    """

    def __init__(self, payload_bytes_max: int) -> None:
        self._most = payload_bytes_max
        self._buffer = bytearray()
        self._read = 0

    @property
    def buffered_bytes(self) -> int:
        """How many bytes are kept."""
        return len(self._buffer) - self._read

    def receive_data(self, data: bytes) -> None:
        """Take in what came."""
        if self._read:
            del self._buffer[: self._read]
            self._read = 0
        self._buffer += data

    def skip(self, prefix: bytes) -> bool:
        """Take a prefix away, once all of it is there; whether it is.

        Raises:
            Http2Error: something else is there.
        """
        start = bytes(self._buffer[self._read : self._read + len(prefix)])
        if not prefix.startswith(start):
            raise Http2Error(PROTOCOL_ERROR, "it does not begin as HTTP/2 does")
        if len(start) < len(prefix):
            return False
        self._read += len(prefix)
        return True

    def next_frame(self) -> tuple[int, int, int, bytes] | None:
        """Return kind, flags, stream and payload of the next whole frame; None: there is none.

        Raises:
            Http2Error: it is larger than it may be.
        """
        start = self._read
        if len(self._buffer) - start < HEAD_BYTES:
            return None
        high, low, kind, flags, stream_id = _HEAD.unpack_from(self._buffer, start)
        size = (high << 8) | low
        if size > self._most:
            raise Http2Error(
                FRAME_SIZE_ERROR, f"a frame of {size} bytes; the most allowed are {self._most}"
            )
        end = start + HEAD_BYTES + size
        if len(self._buffer) < end:
            return None
        self._read = end
        payload = bytes(memoryview(self._buffer)[start + HEAD_BYTES : end])
        return kind, flags, stream_id & WINDOW_MAX, payload
