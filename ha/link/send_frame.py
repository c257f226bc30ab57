"""Hands a frame to a stream without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store.machine.network import Stream

JOINED_BODY_BYTES_MAX: Final = 64 * 1024
"""Up to this size header and body leave in one call, at the price of a copy. Above it the copy
costs more than a second call."""


def send_frame(stream: Stream, header: bytes, body: memoryview) -> bytes | memoryview:
    """Send a frame without waiting; return the part that the stream did not take.

    `body` is released unless it is part of what is returned.

    Raises:
        ConnectionLost: see `Stream.send_nowait`.
    """
    size = len(body)
    if size <= JOINED_BODY_BYTES_MAX:
        with body:
            frame = b"".join((header, body))
        sent = stream.send_nowait(frame)
        return frame[sent:]
    sent = stream.send_nowait(header)
    if sent < len(header):
        with body:
            return header[sent:] + body
    sent = stream.send_nowait(body)
    if sent == size:
        body.release()
        return b""
    return body[sent:]
