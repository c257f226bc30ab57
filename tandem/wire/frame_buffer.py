"""Splits a stream of bytes into remoting commands.

    buffer.receive_data(data)
    while (command := buffer.next_command()) is not None:
        ...

Whole frames are cut straight out of the chunk they arrived in; only an incomplete one at the end
is copied and gathered, so the cost does not depend on how the stream was chopped.

One command at a time, so that a bad frame does not take the good ones before it down with it. After
an error the buffer stays at the bad frame and raises again: the stream has no way to find the next
frame.
"""

import struct
from typing import Final

from tandem.wire.errors import FrameTooLargeError, MalformedFrameError
from tandem.wire.frame_seal import SEAL_BYTES, SEALED_FLAG
from tandem.wire.remoting_command import FRAME_HEAD, RemotingCommand, decode_frame_parts

FRAME_BYTES_MAX: Final = 16_777_216
"""The whole frame with its first word (NettyDecoder, com.rocketmq.remoting.frameMaxLength)."""

HEADER_BYTES_MAX: Final = 262_144
"""Ours. The largest legal header holds 32,767 bytes of properties, each of which JSON may write in
six (`\\u0001`), and a few short fields."""

_HEAD_BYTES: Final = FRAME_HEAD.size
_LENGTH: Final = struct.Struct(">I")
_LENGTH_BYTES: Final = _LENGTH.size


class FrameBuffer:
    """The receiving end of one connection.

    Invariant: what has arrived and was not handed out is `_data[_position:]` followed by `_tail`,
    and `_tail` is only used when no whole frame was left in `_data`, or nobody asked.

    Attributes:
        is_sealed: Whether the last command has a seal; see `sealed_frame`.
    """

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_BYTES_MAX
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._data = b""
        self._position = 0
        self.is_sealed = False
        self._sealed_at = 0
        self._tail = bytearray()
        self._needed = 0

    @property
    def unfinished_bytes(self) -> int:
        """How much has arrived and was not handed out."""
        return len(self._data) - self._position + len(self._tail)

    def is_used_up(self) -> bool:
        """Whether all that has arrived was handed out; if so, its bytes are not kept any longer."""
        if self._tail or self._position < len(self._data):
            return False
        self._data = b""
        self._position = 0
        return True

    def receive_data(self, data: bytes) -> None:
        """Keep bytes from the peer. Call `next_command` until it has no more."""
        if self._tail:
            self._tail += data
        elif self._position == len(self._data):
            self._data = data
            self._position = 0
        else:
            self._keep_rest(needed=0)
            self._tail += data

    def starts_with(self, heads: tuple[bytes, ...]) -> bool:
        """Whether the header of the next frame, as far as it is there, starts with one of these."""
        if self._tail:
            if len(self._tail) < self._needed:
                return False
            self._use_tail()
        return self._data.startswith(heads, self._position + _HEAD_BYTES)

    def from_next_frame(self) -> tuple[bytes, int]:
        """Return bytes and where the first frame starts; whether it is whole is not said."""
        return self._data, self._position

    def several_frames(self) -> tuple[bytes, int] | None:
        """Return bytes and where the first of several whole frames starts; None: not several yet.

        Whether they are good ones is not said.
        """
        if self._tail:
            if len(self._tail) < self._needed:
                return None
            self._use_tail()
        data, start = self._data, self._position
        size = len(data)
        if size - start < 2 * _HEAD_BYTES:
            return None
        second = start + _LENGTH_BYTES + _LENGTH.unpack_from(data, start)[0]
        if second + _HEAD_BYTES > size:
            return None
        end = second + _LENGTH_BYTES + _LENGTH.unpack_from(data, second)[0]
        return (data, start) if end <= size else None

    def skip_to(self, end: int) -> None:
        """Take the frames up to `end`, one of which ends there, as handed out."""
        self._position = end

    def _use_tail(self) -> None:
        self._data = bytes(self._tail)
        self._position = 0
        self._tail.clear()

    def next_command(self) -> RemotingCommand | None:
        """Return the next command, or None: more bytes are needed.

        Raises:
            FrameTooLargeError: a length beyond the bounds. Drop the connection.
            MalformedFrameError: no correct peer sends this. Drop the connection.
        """
        if self._tail:
            if len(self._tail) < self._needed:
                return None
            self._use_tail()
        data = self._data
        start = self._position
        if len(data) - start < _HEAD_BYTES:
            self._look_at_short_rest()
            return None
        length, type_word = FRAME_HEAD.unpack_from(data, start)
        header_start = start + _HEAD_BYTES
        body_start = header_start + (type_word & 0xFFFFFF)
        end = start + _LENGTH_BYTES + length
        if end - start > self._frame_bytes_max or body_start > end:
            self._check_length(length)
            raise MalformedFrameError(
                f"header of {body_start - header_start} bytes in a frame of length {length}"
            )
        if body_start - header_start > self._header_bytes_max:
            raise FrameTooLargeError("header", body_start - header_start, self._header_bytes_max)
        if end > len(data):
            self._keep_rest(needed=end - start)
            return None
        encoding, body_end = type_word >> 24, end
        self.is_sealed = encoding & SEALED_FLAG != 0
        if self.is_sealed:
            encoding ^= SEALED_FLAG
            body_end -= SEAL_BYTES
            if body_start > body_end:
                raise MalformedFrameError("a sealed frame without its seal")
            self._sealed_at = start
        command = decode_frame_parts(
            encoding, data[header_start:body_start], data[body_start:body_end]
        )
        self._position = end
        return command

    def sealed_frame(self) -> bytes:
        """Return the frame of the last command, directly after it; b"": it has no seal."""
        return self._data[self._sealed_at : self._position] if self.is_sealed else b""

    def _look_at_short_rest(self) -> None:
        """Keep less than a frame's head. A length that is wrong is wrong already now."""
        rest = self._data[self._position :]
        if len(rest) >= _LENGTH_BYTES:
            self._check_length(int.from_bytes(rest[:_LENGTH_BYTES], "big"))
        self._keep_rest(needed=_HEAD_BYTES if len(rest) >= _LENGTH_BYTES else _LENGTH_BYTES)

    def _keep_rest(self, needed: int) -> None:
        """Move what is left to the tail. Nothing can be done before `needed` bytes are there."""
        self._tail += memoryview(self._data)[self._position :]
        self._needed = needed
        self._data = b""
        self._position = 0

    def _check_length(self, length: int) -> None:
        if length + _LENGTH_BYTES > self._frame_bytes_max:
            raise FrameTooLargeError("frame", length + _LENGTH_BYTES, self._frame_bytes_max)
        if length < _LENGTH_BYTES:
            raise MalformedFrameError(f"frame of length {length}, too short for a header length")
