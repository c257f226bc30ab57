"""An embedded coordinator in the process of the test, and where it keeps its journal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tandem.coordinator.client import EtcdClient
from tandem.coordinator.journal import Journal, JournalFile
from tandem.coordinator.server import CoordinatorServer


class MemoryFile:
    """A journal in memory: what was synced, and how the next write ends."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.failing = False
        self.writes_count = 0
        self.replaced_count = 0

    def read(self) -> bytes:
        return self.data

    def append(self, data: bytes) -> None:
        self._fail()
        self.data += data
        self.writes_count += 1

    def cut(self, size: int) -> None:
        self.data = self.data[:size]

    def replace(self, data: bytes) -> None:
        self._fail()
        self.data = data
        self.replaced_count += 1

    def close(self) -> None:
        pass

    def _fail(self) -> None:
        if self.failing:
            raise OSError(5, "Input/output error")


@asynccontextmanager
async def running_server(
    file: JournalFile | None = None, port: int = 0
) -> AsyncIterator[tuple[CoordinatorServer, int]]:
    """A coordinator that lives as long as the block, and its port."""
    server = CoordinatorServer(Journal(file or MemoryFile()))
    port = await server.listen("127.0.0.1", port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        yield server, port
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[EtcdClient]:
    """A client that lives as long as the block."""
    client = EtcdClient([f"127.0.0.1:{port}"])
    try:
        yield client
    finally:
        await client.aclose()
