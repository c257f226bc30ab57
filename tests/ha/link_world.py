"""Masters and followers of a fenced group: real stores and links over a simulated network."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from ha.fenced.config import FencedPeer
from ha.fenced.epoch_file import EpochEntries, EpochEntry, EpochFile
from ha.fenced.events import HAEvent
from ha.fenced.joining import FollowerOutcome
from ha.fenced.replica_follower import ReplicaFollower
from ha.fenced.replica_server import ReplicaServer
from node.simulated.network import Machine, NetworkSettings
from store import MessageStore
from tandem.wire.message import Host
from tests.ha.world import DIRECTORY, IPS, PORT, World, fenced_config, put, read_whole_log

BATCH_BYTES: Final = 4096
"""Small, so that a log goes over in several frames."""


class MasterNode:
    """A master while it runs. It is told what its followers do, and keeps it."""

    def __init__(self, store: MessageStore, epochs: EpochFile, machine: Machine) -> None:
        self.store = store
        self.epochs = epochs
        self.machine = machine
        self.calls: list[tuple[object, ...]] = []
        self.acks: dict[str, tuple[int, int]] = {}
        self.confirm_offset = 0
        self.flush_wanted = 0
        self.server: ReplicaServer

    def replica_connected(self, name: str, incarnation: str, now: float) -> None:
        self.calls.append(("connected", name, incarnation))

    def replica_attached(self, name: str, offset: int, now: float) -> None:
        self.calls.append(("attached", name, offset))

    def replica_objected(self, name: str, parting: int, confirm: int) -> None:
        self.calls.append(("objected", name, parting, confirm))

    def replica_acked(self, name: str, written: int, flushed: int, sent: int, now: float) -> None:
        assert flushed <= written <= sent <= self.store.max_physical_offset
        self.acks[name] = written, flushed

    def replica_lost(self, name: str, trouble: str, now: float) -> None:
        self.calls.append(("lost", name, trouble))
        self.acks.pop(name, None)

    @property
    def log(self) -> bytes:
        return read_whole_log(self.store)

    def put(self, body: bytes = b"body") -> int:
        return put(self.store, body)

    async def wait_acked(self, *names: str) -> None:
        with trio.fail_after(30):
            while not all(
                self.acks.get(name, (-1, 0))[0] == self.store.max_physical_offset for name in names
            ):
                await trio.sleep(0.001)


class FollowerNode:
    """A follower while it runs."""

    def __init__(self, store: MessageStore, epochs: EpochFile, machine: Machine) -> None:
        self.store = store
        self.epochs = epochs
        self.machine = machine
        self.promised = 0
        self.events: list[HAEvent] = []
        self.outcome: FollowerOutcome | None = None
        self.ended = trio.Event()
        self.follower: ReplicaFollower

    @property
    def log(self) -> bytes:
        return read_whole_log(self.store)

    async def run(self) -> None:
        self.outcome = await self.follower.run()
        self.ended.set()

    async def wait_ended(self) -> FollowerOutcome:
        with trio.fail_after(30):
            await self.ended.wait()
        assert self.outcome is not None
        return self.outcome


class LinkWorld(World):
    """The machine room of masters and followers, of which no coordinator knows."""

    def __init__(self, settings: NetworkSettings | None = None) -> None:
        super().__init__(settings)
        self.random = random.Random(2)

    def epochs(self, name: str) -> EpochFile:
        return EpochFile(self.disks[name], DIRECTORY)

    @asynccontextmanager
    async def master(
        self, name: str = "a", *, epoch: int = 0, **changes: object
    ) -> AsyncIterator[MasterNode]:
        """Run a master of `epoch`; 0: of the last one in its file, or of a first one."""
        epochs = self.epochs(name)
        async with self.running_store(name, is_slave=False) as (store, machine, nursery):
            if epoch > epochs.last_epoch or not epochs.entries:
                epochs.append(epoch or 1, store.max_physical_offset)
            node = MasterNode(store, epochs, machine)
            node.server = ReplicaServer(
                fenced_config(name, ha_transfer_batch_size_bytes=BATCH_BYTES, **changes),
                store,
                machine,
                epochs=epochs,
                epoch=epochs.last_epoch,
                incarnation=f"i-{name}",
                listener=node,
                confirm_offset=lambda: node.confirm_offset,
                flush_wanted=lambda: node.flush_wanted,
                random=self.random,
            )
            await nursery.start(node.server.run)
            yield node

    @asynccontextmanager
    async def follower(
        self, name: str = "b", *, master: str = "a", epoch: int = 1, **changes: object
    ) -> AsyncIterator[FollowerNode]:
        """Run a follower of the master of `epoch`."""
        epochs = self.epochs(name)
        async with self.running_store(name, is_slave=True) as (store, machine, nursery):
            node = FollowerNode(store, epochs, machine)
            node.promised = epoch
            node.follower = ReplicaFollower(
                fenced_config(name, ha_transfer_batch_size_bytes=BATCH_BYTES, **changes),
                store,
                machine,
                master=FencedPeer(master, Host(IPS[master], PORT)),
                epoch=epoch,
                epochs=epochs,
                incarnation=f"i-{name}",
                promised=lambda: node.promised,
                random=self.random,
                on_event=node.events.append,
            )
            nursery.start_soon(node.run)
            yield node

    def fill(self, name: str, bodies: list[bytes], *, epoch: int) -> int:
        """Have `name` be master of `epoch` for a while, alone; return the end of its log."""
        epochs = self.epochs(name)
        with self.open_store(name, is_slave=False) as store:
            if epoch > epochs.last_epoch:
                epochs.append(epoch, store.max_physical_offset)
            return put(store, *bodies)


open_world = LinkWorld.open


def listed(*pairs: tuple[int, int]) -> EpochEntries:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)
