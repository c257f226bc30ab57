"""What the worlds of replication stand on: real stores over simulated disks, network and time."""

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Self

import msgspec
import trio

from ha.fenced.config import FencedConfig, FencedPeer
from node.simulated.disk import SimulatedDisk
from node.simulated.network import Machine, NetworkSettings, SimulatedNetwork
from node.simulated.virtual_clock import Timeline, WallClock
from store import MessageStore, PutMessage, PutMessageStatus, StoreConfig
from tandem.wire.group_state import GroupKeys
from tandem.wire.message import Host

DIRECTORY: Final = "/store"
FILE_SIZE_BYTES: Final = 16 * 1024
IPS: Final = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}
"""The nodes of a fenced group."""
PORT: Final = 10913
CLUSTER, GROUP = "cluster", "group"
KEYS: Final = GroupKeys(CLUSTER, GROUP)
SECRET: Final = "secret"
BODIES: Final = [bytes([i]) * (i * 97 % 1500) for i in range(60)]
"""Enough for several files."""


def fenced_config(name: str, **changes: object) -> FencedConfig:
    config = FencedConfig(
        cluster=CLUSTER,
        group=GROUP,
        name=name,
        address=IPS[name],
        replication_port=PORT,
        client_address=f"{IPS[name]}:10911",
        directory=DIRECTORY,
        peers=tuple(FencedPeer(peer, Host(ip, PORT)) for peer, ip in IPS.items() if peer != name),
        secret=SECRET,
    )
    return msgspec.structs.replace(config, **changes)


STORE_CONFIG: Final = StoreConfig(
    directory=DIRECTORY,
    mapped_file_size_commit_log_bytes=FILE_SIZE_BYTES,
    mapped_file_size_consume_queue_bytes=2000,
    max_message_size_bytes=8192,
    max_hash_slot_num=100,
    max_index_num=1000,
)


class World:
    """The machine room. Disks survive their nodes."""

    def __init__(
        self,
        settings: NetworkSettings | None = None,
        *,
        ips: Mapping[str, str] = IPS,
        is_fenced: bool = True,
        seed: int = 1,
    ) -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(seed), settings=settings)
        self.disks: defaultdict[str, SimulatedDisk] = defaultdict(SimulatedDisk)
        self.nursery: trio.Nursery
        self._ips = ips
        self._is_fenced = is_fenced

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: NetworkSettings | None = None) -> AsyncIterator[Self]:
        """Make a world and let its time pass; ends, nodes and all, with the block."""
        world = cls(settings)
        async with trio.open_nursery() as world.nursery:
            world.nursery.start_soon(world.timeline.run)
            yield world
            world.nursery.cancel_scope.cancel()

    def open_store(self, name: str, *, is_slave: bool = True) -> MessageStore:
        return MessageStore.open(
            STORE_CONFIG,
            disk=self.disks[name],
            wall_clock_ms=WallClock().now_ms,
            store_host=Host(self._ips[name], 10911),
            is_slave=is_slave,
            confirm_bounds_reads=is_slave and self._is_fenced,
        )

    @asynccontextmanager
    async def running_store(
        self, name: str, *, is_slave: bool
    ) -> AsyncIterator[tuple[MessageStore, Machine, trio.Nursery]]:
        """Run the store of a node, and what is started beside it; close it as a clean stop does."""
        machine = self.network.machine(self._ips[name])
        with self.open_store(name, is_slave=is_slave) as store:
            async with trio.open_nursery() as nursery:
                await nursery.start(store.run)
                yield store, machine, nursery
                nursery.cancel_scope.cancel()
            machine.kill()

    def copy_disk(self, source: str, target: str) -> None:
        """Give `target` the store that `source` has."""
        self.disks[target] = self.disks[source].crashed()


def put(store: MessageStore, *bodies: bytes, queue_id: int = 0) -> int:
    """Put messages; return the end of the log."""
    for body in bodies:
        result = store.puts.put_message(PutMessage("T", queue_id, body, b"", 1, bytes(8)))
        assert result.status is PutMessageStatus.PUT_OK, result.reason
    store.announce()
    return store.max_physical_offset


def read_whole_log(store: MessageStore) -> bytes:
    start = store.min_physical_offset
    data = bytearray()
    while part := store.read_log(start + len(data), FILE_SIZE_BYTES):
        data += part
    return bytes(data)
