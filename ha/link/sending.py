"""Sends over a link: frames without waiting, the rest in time, and a last word."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from ha.errors import RemoteHAError
from ha.link.limits import RECEIVE_BYTES_MAX
from ha.link.traffic import LinkTraffic
from store.machine.errors import ConnectionLost
from store.machine.network import Stream
from store.machine.signal import Signal

JOINED_BODY_BYTES_MAX: Final = 64 * 1024
"""Up to this size header and body leave in one call, at the price of a copy. Above it the copy
costs more than a second call."""

BURST_BYTES: Final = 1024 * 1024
"""After this many bytes other tasks get a turn: some hundred microseconds."""


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


class FrameSender:
    """Sends the frames of one link: in the step in which the log grows, or in its task's turn.

         +--> DRY       all was sent; the log grows --> sent at once, in the step that made it grow,
         |     |        if the other end has all that was sent, else in the task's next turn
         +-----+------> `send_until_blocked` returns: the stream is full, or there is other news

    A frame that is sent at once spares a pass over all tasks, which is most of what a single put
    waits for. While the other end is at work, what comes meanwhile gathers for one frame.

    Attributes:
        rest: What the stream did not take of a frame. Send it before anything else.
    """

    def __init__(
        self,
        stream: Stream,
        traffic: LinkTraffic,
        *,
        next_frame: Callable[[], tuple[bytes, memoryview] | None],
        is_sending: Callable[[], bool],
        has_arrived: Callable[[], bool],
    ) -> None:
        """Send over a stream.

        Args:
            stream: Where frames go.
            traffic: Counts them.
            next_frame: Returns header and body, None if the log has nothing more at the moment.
            is_sending: Asked before each frame: a link can end, or have something else to say,
                while its sender sleeps. Once it says no, nothing is sent.
            has_arrived: Whether the other end has said that it has all that was sent.
        """
        self.rest: bytes | memoryview = b""
        self._stream = stream
        self._traffic = traffic
        self._next_frame = next_frame
        self._is_sending = is_sending
        self._has_arrived = has_arrived
        self._is_dry = False
        self._to_do = Signal()
        self._error: ConnectionLost | RemoteHAError | None = None

    def take_rest(self) -> bytes | memoryview:
        """Return `rest`, for the caller to send now."""
        rest, self.rest = self.rest, b""
        return rest

    async def send_until_blocked(self, grown: Signal) -> None:
        """Send frames until the stream takes no more, or the link has something else to say.

        It may be cancelled at any await. Look at `rest` afterwards in any case.

        Args:
            grown: Notified when the log has more.

        Raises:
            ConnectionLost: see `Stream.send_nowait`.
            RemoteHAError: what `next_frame` raises.
        """
        with grown.heard_by(self._grown):
            while not self.rest and self._is_sending():
                self._is_dry = False
                if self._error is not None:
                    raise self._error
                self._is_dry = self._send_some()
                if self._is_dry:
                    await self._to_do.wait()
                elif not self.rest:
                    await trio.lowlevel.checkpoint()

    def _grown(self) -> None:
        """Send what is new; have the task do what is more than that, and tell of errors."""
        if not self._is_dry or self.rest or self._error is not None:
            return
        try:
            if self._has_arrived() and self._is_sending() and self._send_some():
                return
        except (ConnectionLost, RemoteHAError) as error:
            self._error = error
        self._to_do.notify()

    def _send_some(self) -> bool:
        """Send up to a burst; return True if all was sent."""
        burst_bytes = 0
        while burst_bytes < BURST_BYTES and self._is_sending():
            frame = self._next_frame()
            if frame is None:
                return True
            header, body = frame
            size = len(body)
            self.rest = send_frame(self._stream, header, body)
            traffic = self._traffic
            traffic.last_write = trio.current_time()
            traffic.rate.add(size, traffic.last_write)
            if self.rest:
                return False
            burst_bytes += size
        return False


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
