"""Sends over a link: frames without waiting, the rest in time, and a last word."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ha.link.limits import RECEIVE_BYTES_MAX
from store.machine.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.link.traffic import LinkTraffic
    from store.machine.network import Stream
    from store.machine.signal import Signal

JOINED_BODY_BYTES_MAX: Final = 64 * 1024
"""Up to this size header and body leave in one call, at the price of a copy. Above it the copy
costs more than a second call."""

BURST_BYTES: Final = 1024 * 1024
"""After so many bytes other tasks get a turn: some hundred microseconds."""


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


async def send_until_blocked(
    stream: Stream,
    traffic: LinkTraffic,
    *,
    next_frame: Callable[[], tuple[bytes, memoryview] | None],
    is_sending: Callable[[], bool],
    grown: Signal,
) -> bytes | memoryview:
    """Send frames until the stream takes no more; return the part it did not take.

    It may be cancelled at any await: there, no frame is half sent.

    Args:
        stream: Where they go.
        traffic: Counts them.
        next_frame: Returns header and body, None if the log has nothing more at the moment.
        is_sending: Asked before each frame: a link can end, or have something else to say, between
            the wake-up of this task and its turn. Once it says no, nothing is sent or returned.
        grown: Notified when the log has more.

    Raises:
        ConnectionLost: see `Stream.send_nowait`.
    """
    burst_bytes = 0
    while is_sending():
        frame = next_frame()
        if frame is None:
            burst_bytes = 0
            await grown.wait()
            continue
        header, body = frame
        size = len(body)
        rest = send_frame(stream, header, body)
        traffic.last_write = trio.current_time()
        traffic.rate.add(size, traffic.last_write)
        if rest:
            return rest
        burst_bytes += size
        if burst_bytes >= BURST_BYTES:
            burst_bytes = 0
            await trio.lowlevel.checkpoint()
    return b""


async def send_in_time(stream: Stream, data: bytes, *, seconds: float, refusal: str) -> None:
    """Send all of it. `refusal` says in an error what the other end did not take.

    Raises:
        ConnectionLost: it was not taken in time; or see `Stream.send_all`.
    """
    with trio.move_on_after(seconds) as scope:
        await stream.send_all(data)
    if scope.cancelled_caught:
        raise ConnectionLost(f"{refusal} for {seconds:g} seconds")


async def say_good_bye(stream: Stream, farewell: bytes) -> None:
    """Send a last word, and let the other side hang up: a reset would eat it. The caller limits it.

    What comes meanwhile is dropped. A connection that is lost is no error any more.
    """
    with suppress(ConnectionLost):
        await stream.send_all(farewell)
        while await stream.receive_some(RECEIVE_BYTES_MAX):
            pass
