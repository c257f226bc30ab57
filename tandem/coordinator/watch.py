"""A watch over HTTP: a response that never ends, one line of JSON for each batch of events."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import httpcore
import msgspec
import trio

from tandem.coordinator import etcd_v3
from tandem.coordinator.interface import (
    CoordinatorError,
    CoordinatorUnavailableError,
    Event,
    NoAnswer,
)
from tandem.coordinator.troubles import broken_in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A watch that sends a longer line is broken."""


class Lines:
    """The lines of a stream."""

    def __init__(self, endpoint: str, chunks: AsyncIterator[bytes]) -> None:
        self._endpoint = endpoint
        self._chunks = chunks
        self._buffer = b""

    async def next(self) -> bytes:
        """Return the next line that is not empty.

        Raises:
            CoordinatorUnavailableError: The stream ended, broke, or has a line without end.
        """
        while True:
            line, end, rest = self._buffer.partition(b"\n")
            if end:
                self._buffer = rest
                if line:
                    return line
            elif len(line) > LINE_BYTES_MAX:
                text = f"{self._endpoint} sent a line without an end"
                raise CoordinatorUnavailableError(text, NoAnswer.UNREADABLE)
            else:
                with broken_in_words(self._endpoint):
                    chunk = await anext(self._chunks, b"")
                if not chunk:
                    text = f"{self._endpoint} ended the watch"
                    raise CoordinatorUnavailableError(text, NoAnswer.ENDED)
                self._buffer += chunk

    async def aclose(self) -> None:
        """Read to the end of what has come, then give up.

        httpcore reads with generators within generators; closing the outermost would leave the
        others to the garbage collector. An error from within ends them all.
        """
        with trio.CancelScope() as reading, suppress(httpcore.NetworkError, httpcore.ProtocolError):
            reading.cancel()
            async for _chunk in self._chunks:
                pass


class _Watched(msgspec.Struct, frozen=True):
    """What the reader of a watch hands on: events, or why there will be no more."""

    events: tuple[Event, ...] = ()
    end: CoordinatorError | None = None


class _Watch:
    """The events of a watch, a batch at a time."""

    def __init__(self, received: trio.MemoryReceiveChannel[_Watched]) -> None:
        self._received = received
        self._end: CoordinatorError | None = None

    def __aiter__(self) -> AsyncIterator[tuple[Event, ...]]:
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        if self._end is None:
            watched = await self._received.receive()
            if watched.end is None:
                return watched.events
            self._end = watched.end
        raise self._end


async def _read(lines: Lines, sender: trio.MemorySendChannel[_Watched]) -> None:
    try:
        while True:
            if events := etcd_v3.decode_watch(await lines.next()):
                await sender.send(_Watched(events))
    except CoordinatorUnavailableError as error:
        await sender.send(_Watched(end=error))
    except CoordinatorError as error:
        # Whatever ends a watch: the caller has to read, and to begin another.
        await sender.send(_Watched(end=CoordinatorUnavailableError(str(error))))


@asynccontextmanager
async def batches_of(lines: Lines) -> AsyncIterator[AsyncIterator[tuple[Event, ...]]]:
    """Read events in a task of its own, so that a caller who stops waiting breaks nothing.

    It holds one batch of events; more wait in the connection.
    """
    trouble: Exception | None = None
    async with trio.open_nursery() as nursery:
        sender, receiver = trio.open_memory_channel[_Watched](1)
        nursery.start_soon(_read, lines, sender)
        try:
            yield _Watch(receiver)
        except Exception as error:  # noqa: BLE001 - raised again outside of the nursery
            trouble = error
        nursery.cancel_scope.cancel()
    if trouble is not None:
        # The nursery would wrap it in a group; it is the caller's own.
        raise trouble
