"""An embedded coordinator in the process of the test, its journal, and a proxy that hurts."""

import errno
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, Literal

import trio

from tandem.coordinator.client import EtcdClient
from tandem.coordinator.journal import Journal, JournalFile, NotWrittenError
from tandem.coordinator.server import CoordinatorServer
from tandem.coordinator.tokens import USER
from tests.support.patience import PATIENCE_SECONDS

PASSWORD: Final = "the password of the tests"


class MemoryFile:
    """A journal in memory: what was synced, and how the next write ends."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.failing: Literal["", "write", "change", "replacement", "sync"] = ""
        """What the disk does not do: take any write, or one of the two kinds; or sync."""
        self.torn_bytes = 0
        """Of a write that the disk does not take, this much is there all the same."""
        self.writes_count = 0
        self.replaced_count = 0

    def read(self) -> bytes:
        return self.data

    def write(self, position: int, data: bytes) -> None:
        is_taken = self.failing not in ("write", "change")
        data = data if is_taken else data[: self.torn_bytes]
        left = self.data[position + len(data) :]
        self.data = self.data[:position] + data + left
        self._fail("write", "change")
        assert not any(left), "something is left after the end"
        self.writes_count += 1

    def replace(self, data: bytes, room_bytes: int) -> None:
        self._fail("write", "replacement")
        self.data = data
        self.replaced_count += 1

    def close(self) -> None:
        pass

    def _fail(self, *ways: str) -> None:
        if self.failing in ways:
            raise NotWrittenError(
                "no room; free space there", OSError(errno.ENOSPC, "No space left")
            )
        if self.failing == "sync":
            raise OSError(5, "Input/output error")


@asynccontextmanager
async def running_server(
    file: JournalFile | None = None, port: int = 0, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[CoordinatorServer, int]]:
    """A coordinator that lives as long as the block, and its port."""
    server = CoordinatorServer(Journal(file or MemoryFile()), password=PASSWORD)
    port = await server.listen(host, port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        yield server, port
        nursery.cancel_scope.cancel()


class Proxy:
    """Stands between a client and a coordinator, and may lose what is answered."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.loses_replies = False
        self.is_silent = False
        """Connections are taken, and nothing else happens."""
        self.requests_count = 0

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", self._target)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with near, far, trio.open_nursery() as nursery:
                nursery.start_soon(self._requests, near, far, nursery.cancel_scope)
                async for data in far:
                    if self.loses_replies:
                        break
                    await near.send_all(data)
                nursery.cancel_scope.cancel()

    async def _requests(
        self, near: trio.SocketStream, far: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        with suppress(trio.BrokenResourceError):
            async for data in near:
                if self.is_silent:
                    await trio.sleep_forever()
                self.requests_count += 1
                await far.send_all(data)
        scope.cancel()


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    """A proxy in front of a port, as long as the block runs."""
    async with trio.open_nursery() as nursery:
        proxy = Proxy(port)
        await nursery.start(proxy.run)
        yield proxy
        nursery.cancel_scope.cancel()


def connected(port: int, host: str = "127.0.0.1") -> aclosing[EtcdClient]:
    """A client that lives as long as the block: `async with`."""
    return aclosing(client_of(f"{host}:{port}"))


def client_of(*endpoints: str) -> EtcdClient:
    """A client that knows the password, patient with a busy machine."""
    return EtcdClient(endpoints, user=USER, password=PASSWORD, request_seconds_max=PATIENCE_SECONDS)
