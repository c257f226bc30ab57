"""Real sockets with the protocols of `store.machine.network`.

The pattern is "system call first, wait second": a non-blocking call is tried, and only if the
kernel has nothing to give does the task wait for the file descriptor. Against trio's own streams
that halves the latency of a single request. After a read of a few bytes there is nothing more,
as a rule: then the task waits first. The price of trying is that a task whose peer is always faster
would never let go; so each stream passes a checkpoint once every few successful reads.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from store.machine.network import (
    AddressInUseError,
    ClosedHere,
    ConnectionLost,
    Member,
    ReceivesSome,
    Take,
    Taken,
    TakeRest,
)
from store.machine.read_loop import BrokenSocketError, read_loop
from tandem.wire.message import Host

READS_PER_CHECKPOINT: Final = 8
"""Successful reads in a row before other tasks get a turn. A read takes what is there (up to
hundreds of requests), so this bounds a turn to some milliseconds. Chosen without measuring."""

ACCEPTS_PER_CHECKPOINT: Final = 8
"""Connections accepted in a row before other tasks get a turn."""

FEW_BYTES: Final = 4096
"""A read of less than this was all there was, and what comes next comes after an answer. Less than
three messages of 1 KiB, or a report."""

LISTEN_BACKLOG: Final = 511
"""Connections the kernel keeps for us while we are at the limit. Linux cuts it to somaxconn."""

ACCEPT_BACK_OFF_SECONDS: Final = 0.1

FREED_BYTES_KEPT: Final = 2 * 1024 * 1024
"""Twice the largest read, that of a slave."""

_ACCEPT_RETRIED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TCPStream(ReceivesSome):
    """One connected TCP socket. Owned by the task that reads it."""

    plain_fd: int = -1  # an attribute: it is asked for with every answer

    def __init__(self, sock: socket.socket, peer: Host) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._peer = peer
        self.plain_fd = sock.fileno()
        self._reads_until_checkpoint = READS_PER_CHECKPOINT
        self._waits_first = True

    @property
    def peer(self) -> Host:
        """Address of the other end."""
        return self._peer

    async def receive_some(self, bytes_max: int) -> bytes:
        """See `Stream.receive_some`."""
        if self._waits_first:
            self._reads_until_checkpoint = READS_PER_CHECKPOINT
            await self._wait(trio.lowlevel.wait_readable)
        self._reads_until_checkpoint -= 1
        if self._reads_until_checkpoint <= 0:
            self._reads_until_checkpoint = READS_PER_CHECKPOINT
            await trio.lowlevel.checkpoint()
        while True:
            try:
                data = self._sock.recv(bytes_max)
            except BlockingIOError:
                self._reads_until_checkpoint = READS_PER_CHECKPOINT
                await self._wait(trio.lowlevel.wait_readable)
            except OSError as error:
                raise self._lost(error) from error
            else:
                self._waits_first = len(data) < FEW_BYTES
                return data

    async def receive_while(self, bytes_max: int, take: Take) -> bool:
        """See `Stream.receive_while`."""
        return await self._receive_while(bytes_max, take, None)

    async def receive_together(
        self, bytes_max: int, take: Take, member: Member, take_rest: TakeRest
    ) -> bool:
        """See `Stream.receive_together`."""
        return await self._receive_while(bytes_max, take, (member, take_rest))

    async def _receive_while(
        self, bytes_max: int, take: Take, joining: tuple[Member, TakeRest] | None
    ) -> bool:
        loop = read_loop()
        if loop is None:
            return await super().receive_while(bytes_max, take)
        sock = self._sock

        def read() -> Taken | None:
            try:
                data = sock.recv(bytes_max)
            except BlockingIOError:
                return None
            except OSError as error:
                raise self._lost(error) from error
            if not data:
                return False
            taken = take(data)
            if taken is True:
                return None
            return True if taken is False else taken

        fd = self.plain_fd
        if fd < 0:
            raise self._closed()
        try:
            return await loop.run_reader(fd, read, joining)
        except BrokenSocketError as error:
            raise self._lost(OSError(error.number, os.strerror(error.number))) from error
        except trio.ClosedResourceError as error:
            raise self._closed() from error

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """See `Stream.send_nowait`."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._lost(error) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `Stream.send_all`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        with memoryview(data) as view:
            sent = self.send_nowait(view)
            while sent < len(view):
                await self._wait(trio.lowlevel.wait_writable)
                with view[sent:] as rest:
                    sent += self.send_nowait(rest)

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        self.close_nowait()
        await trio.lowlevel.checkpoint()

    def close_nowait(self) -> None:
        """See `Stream.close_nowait`."""
        fd, self.plain_fd = self.plain_fd, -1
        if fd >= 0:
            if (loop := read_loop()) is not None:
                loop.forget(fd)
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    async def _wait(self, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        if self._sock.fileno() < 0:
            raise self._closed()
        try:
            await wait(self._sock)
        except (trio.ClosedResourceError, OSError) as error:
            raise self._closed() from error

    def _closed(self) -> ClosedHere:
        return ClosedHere(f"the connection to {self._peer} was closed here")

    def _lost(self, error: OSError) -> ConnectionLost:
        if self._sock.fileno() < 0:
            return self._closed()
        return ConnectionLost(f"the connection to {self._peer} broke: {error.strerror}")


class TCPListener:
    """A listening TCP socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._port: int = sock.getsockname()[1]
        self._accepts_until_checkpoint = ACCEPTS_PER_CHECKPOINT

    @property
    def port(self) -> int:
        """The port bound, also when 0 was asked for."""
        return self._port

    async def accept(self) -> TCPStream:
        """See `Listener.accept`."""
        self._accepts_until_checkpoint -= 1
        if self._accepts_until_checkpoint <= 0:
            self._accepts_until_checkpoint = ACCEPTS_PER_CHECKPOINT
            await trio.lowlevel.checkpoint()
        while True:
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                self._accepts_until_checkpoint = ACCEPTS_PER_CHECKPOINT
                await self._wait_for_connection()
            except OSError as error:
                await self._after_failed_accept(error)
            else:
                sock.settimeout(0)
                return TCPStream(sock, Host(address[0], address[1]))

    async def aclose(self) -> None:
        """See `Listener.aclose`."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()
        await trio.lowlevel.checkpoint()

    async def _wait_for_connection(self) -> None:
        try:
            await trio.lowlevel.wait_readable(self._sock)
        except (trio.ClosedResourceError, OSError) as error:
            raise ClosedHere("the listener was closed") from error

    async def _after_failed_accept(self, error: OSError) -> None:
        if self._sock.fileno() < 0:
            raise ClosedHere("the listener was closed") from error
        # Out of descriptors or memory: connections that end give some back. Anything else is one
        # connection that died in the queue (accept(2), "Error handling").
        if error.errno in _ACCEPT_RETRIED:
            await trio.sleep(ACCEPT_BACK_OFF_SECONDS)
        else:
            await trio.lowlevel.checkpoint()


class TCPNetwork:
    """The network of this machine, IPv4."""

    def __init__(self) -> None:
        _keep_freed_memory()

    async def connect(self, host: str, port: int, *, source: str | None) -> TCPStream:
        """See `Network.connect`."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            if source is not None:
                _bind_source(sock, source)
            await _connect(sock, host, port)
            return TCPStream(sock, Host(host, port))
        except OSError as error:
            sock.close()
            raise ConnectionLost(f"cannot connect to {host}:{port}: {error.strerror}") from error
        except BaseException:
            sock.close()
            raise

    async def listen(self, host: str, port: int) -> TCPListener:
        """See `Network.listen`."""
        await trio.lowlevel.checkpoint()
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            # Allows a restart while old connections are in TIME_WAIT; not two listeners on Linux.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(LISTEN_BACKLOG)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(host=host, port=port) from error
            raise ConnectionLost(f"cannot listen on {host}:{port}: {error.strerror}") from error
        return TCPListener(sock)


def _keep_freed_memory() -> None:
    """Make the C library keep freed blocks of the size of a read for the next one.

    glibc hands blocks above a threshold back to the kernel, and every read then pays for fresh
    pages: measured 0.5 ms a MiB, against 0.06 for the read itself. The threshold rises to the size
    of the largest block ever freed. Elsewhere this does nothing.
    """
    block = bytes(FREED_BYTES_KEPT)
    del block


def _bind_source(sock: socket.socket, source: str) -> None:
    # Without it the kernel picks the port now, when it does not know the destination yet, and runs
    # out of ports sooner.
    if hasattr(socket, "IP_BIND_ADDRESS_NO_PORT"):
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((source, 0))


async def _connect(sock: socket.socket, host: str, port: int) -> None:
    await trio.lowlevel.checkpoint_if_cancelled()
    result = sock.connect_ex((host, port))
    if result == errno.EINPROGRESS:
        await trio.lowlevel.wait_writable(sock)
        result = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if result:
        raise OSError(result, os.strerror(result))
