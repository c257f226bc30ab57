"""A TCP connection that makes the system call first and waits second.

`trio.SocketStream` lets the scheduler run around every call. A client's receiver and sender sleep
anyway as soon as there is nothing to do, so they need that only now and then; doing without halves
the latency of a lone request.
"""

import socket
from typing import Final

import trio

CALLS_WITHOUT_YIELDING_MAX: Final = 16
"""A peer that always has bytes for us must not starve the other tasks."""


class TcpStream:
    """One connected socket. One task receives, one task sends.

    Cancelling `receive_some` loses nothing; after a cancelled `send_all` the stream is unusable.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(0)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._calls = 0

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return 1 to `max_bytes` bytes, or nothing at the end.

        Raises:
            OSError: the connection broke.
            trio.ClosedResourceError: it was closed on this side.
        """
        await self._yield_now_and_then()
        while True:
            try:
                return self._socket.recv(max_bytes)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)

    async def send_all(self, data: bytes, /) -> None:
        """Send all of `data`; waits while the peer does not take it.

        Raises:
            OSError: the connection broke.
            trio.ClosedResourceError: it was closed on this side.
        """
        await self._yield_now_and_then()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def _yield_now_and_then(self) -> None:
        self._calls += 1
        if self._calls % CALLS_WITHOUT_YIELDING_MAX == 0:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    async def aclose(self) -> None:
        """Close; a task that waits on the stream gets `trio.ClosedResourceError`."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()


async def open_tcp(host: str, port: int) -> TcpStream:
    """Connect to the first address of `host` that answers.

    Raises:
        OSError: none does.
    """
    stream = await trio.open_tcp_stream(host, port)
    return TcpStream(socket.socket(fileno=stream.socket.detach()))
