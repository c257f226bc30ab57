"""The client's event loop under asyncio. A parked task is a future."""

import asyncio
import contextvars
import socket
import types
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from tandem.client.event_loop import ByteStream

RECEIVED_BYTES_MAX: Final = 1024 * 1024
"""What is kept of a peer that sends faster than it is read, before its socket is left alone."""


class AsyncioParked:
    """See `Parked`. To the task it is what a future is to it, with what one task needs of one.

    A future and its turn of the loop cost 3 us a message; this one, 1.8 us, since all tasks that
    are woken in one turn are stepped by one callback.

    Source: asyncio.isfuture, for what makes an object a future; asyncio.Task.__step.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_is_over",
        "_loop",
        "_value",
        "_wakes",
        "callback",
        "context",
    )

    def __init__(self, wakes: "Wakes") -> None:
        self._wakes = wakes
        self._loop = wakes.loop
        self._is_over = False

    def wake(self, value: Any) -> None:  # noqa: ANN401
        """See `Parked.wake`."""
        # Cancelling a task ends its wait at once, and the task learns it a moment later.
        if not self._is_over:
            self._is_over = True
            self._value = value
            wakes = self._wakes
            if not wakes.woken:
                wakes.begin()
            wakes.woken.append(self)

    @types.coroutine
    def wait(self, forget: Callable[[], object]) -> Generator["AsyncioParked", None, Any]:
        """See `Parked.wait`."""
        self._asyncio_future_blocking = True
        try:
            yield self
        except asyncio.CancelledError:
            forget()
            raise
        return self._value

    # What a task asks of a future.

    def add_done_callback(
        self, callback: Callable[["AsyncioParked"], object], *, context: contextvars.Context
    ) -> None:
        """Take the step of the task that waits; there is one, and once."""
        self.context = context
        self.callback = callback

    def result(self) -> None:
        """Raise if the task was cancelled."""
        if self._value.__class__ is asyncio.CancelledError:
            raise self._value

    def cancel(self, msg: object = None) -> bool:
        """Its task was cancelled. False: too late, it is woken already."""
        if self._is_over:
            return False
        self.wake(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True


class Wakes:
    """The parked tasks of one loop that go on in its next turn, in the order they were woken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.woken: deque[AsyncioParked] = deque()
        self._context = contextvars.Context()

    def begin(self) -> None:
        """The first one is woken: they go on in the next turn."""
        self.loop.call_soon(self._step_all, self.woken, context=self._context)

    def _step_all(self, woken: deque[AsyncioParked]) -> None:
        # What these wake has its place in the loop's line after what they scheduled before.
        self.woken = deque()
        try:
            while woken:
                parked = woken.popleft()
                parked.context.run(parked.callback, parked)
        finally:
            if woken:
                # A step ended the loop (KeyboardInterrupt): the others have theirs if it goes on.
                self.loop.call_soon(self._step_all, woken, context=self._context)


class AsyncioBackground:
    """Tasks in a group that a task of its own opens and closes, for any caller."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._opened: asyncio.Future[TaskGroup] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> TaskGroup:
        """See `Background.open`."""
        self._task = asyncio.create_task(self._hold_open(), name="tandem client")
        try:
            return await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def _hold_open(self) -> None:
        async with anyio.create_task_group() as group:
            self._opened.set_result(group)
            await anyio.sleep_forever()

    async def close(self) -> None:
        """See `Background.close`."""
        task = self._task
        if task is None or not self._opened.done():
            return
        self._opened.result().cancel_scope.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


class AsyncioStream(asyncio.Protocol):
    """One connected transport. One task receives, one task sends.

    Cancelling `receive_some` loses nothing. Errors are those of `ByteStream`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._is_paused = False
        self._is_over = False
        self._error: Exception | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None
        self._may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        opened = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Keep bytes of the peer for the task that receives."""
        self._received.append(data)
        self._received_bytes += len(data)
        if self._received_bytes > RECEIVED_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._open_transport().pause_reading()
        _wake(self._receiver)

    def eof_received(self) -> bool:
        """The peer sends no more."""
        self._is_over = True
        _wake(self._receiver)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed: by the peer, by an error, or here."""
        self._is_over = True
        self._error = exc
        self._transport = None
        _wake(self._receiver)
        _wake(self._sender)

    def pause_writing(self) -> None:
        """The peer takes no more for now."""
        self._may_write = False

    def resume_writing(self) -> None:
        """It does again."""
        self._may_write = True
        _wake(self._sender)

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """See `ByteStream.receive_some`."""
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._is_over:
                return b""
            self._receiver = self._loop.create_future()
            await self._receiver
        data = self._received.popleft()
        if len(data) > max_bytes:
            self._received.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._received_bytes -= len(data)
        if self._is_paused and self._received_bytes <= RECEIVED_BYTES_MAX // 2:
            self._is_paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        return data

    async def send_all(self, data: bytes, /) -> None:
        """See `ByteStream.send_all`. Returns when the transport has taken it."""
        self._open_transport().write(data)
        while not self._may_write:
            self._open_transport()
            self._sender = self._loop.create_future()
            await self._sender
        self._open_transport()

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None or self._transport.is_closing():
            raise self._error or ConnectionResetError("the connection is closed")
        return self._transport

    async def aclose(self) -> None:
        """Close at once; what the peer has not taken is dropped."""
        if self._transport is not None:
            self._transport.abort()
        self._is_over = True
        _wake(self._receiver)


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def call_soon_from_threads() -> Callable[[Callable[[], object]], object]:
    """Return what lets other threads have something called by the loop that runs now."""
    return asyncio.get_running_loop().call_soon_threadsafe


class AsyncioLoop:
    """See `EventLoop`."""

    stream_errors = (OSError,)

    def __init__(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "no event loop is running: use the client inside of asyncio.run or trio.run. For"
                " plain code there are the clients whose names begin with Blocking"
            ) from None
        self.current_time = self._loop.time
        self.parked = partial(AsyncioParked, Wakes(self._loop))

    def background(self) -> AsyncioBackground:
        """See `EventLoop.background`."""
        return AsyncioBackground(self._loop)

    async def open_tcp(self, host: str, port: int) -> ByteStream:
        """See `EventLoop.open_tcp`."""
        _, stream = await self._loop.create_connection(AsyncioStream, host, port)
        return stream
