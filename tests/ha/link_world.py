"""Masters and followers of a fenced group: real stores and links over a simulated network."""

from __future__ import annotations

import hashlib
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from ha.fenced.config import FencedConfig, FencedPeer
from ha.fenced.epoch_file import EpochEntries, EpochEntry, EpochFile
from ha.fenced.protocol import (
    ENVELOPE,
    HEAD_BYTES,
    Attach,
    Challenge,
    FrameHeader,
    HandshakeMessage,
    Hello,
    Joined,
    Report,
    Welcome,
    decode_frame_header,
    decode_message,
    encode_message,
    encode_report,
    proven,
)
from ha.fenced.replica_follower import ReplicaFollower
from ha.fenced.replica_server import ReplicaServer
from ha.fenced.seal import FRAMES, REPORTS, SEAL_BYTES, Seal
from store import MessageStore, PutMessage, PutMessageStatus, StoreConfig
from store.machine.errors import ConnectionLost
from tandem.wire.message import Host
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_network import Machine, NetworkSettings, SimulatedNetwork
from tests.support.virtual_clock import Timeline, WallClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ha.fenced.events import HAEvent
    from ha.fenced.joining import FollowerOutcome
    from store.machine.network import Stream

FILE_SIZE_BYTES = 16 * 1024
PORT = 10913
IPS = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}
BODIES = [bytes([i]) * (i * 97 % 1500) for i in range(60)]
"""Enough for several files."""


def config_of(name: str, **changes: object) -> FencedConfig:
    config = FencedConfig(
        cluster="C",
        group="g",
        name=name,
        address=IPS[name],
        replication_port=PORT,
        client_address=f"{IPS[name]}:10911",
        directory="/store",
        peers=tuple(FencedPeer(peer, Host(ip, PORT)) for peer, ip in IPS.items() if peer != name),
        secret="secret",
        ha_transfer_batch_size_bytes=4096,
    )
    return msgspec.structs.replace(config, **changes)


def read_whole_log(store: MessageStore) -> bytes:
    start = store.min_physical_offset
    data = bytearray()
    while part := store.read_log(start + len(data), FILE_SIZE_BYTES):
        data += part
    return bytes(data)


def put(store: MessageStore, body: bytes) -> int:
    """Put one message; return the end of the log."""
    result = store.put_message(PutMessage("T", 0, body, b"", 1, bytes(8)))
    assert result.status is PutMessageStatus.PUT_OK, result.reason
    store.announce()
    return result.end_offset


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


class World:
    """The machine room. Disks survive their nodes."""

    def __init__(self, settings: NetworkSettings | None) -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(1), settings=settings)
        self.disks: dict[str, SimulatedDisk] = {}
        self.random = random.Random(2)

    def open_store(self, name: str, *, is_slave: bool) -> MessageStore:
        return MessageStore.open(
            StoreConfig(
                directory="/store",
                mapped_file_size_commit_log_bytes=FILE_SIZE_BYTES,
                mapped_file_size_consume_queue_bytes=2000,
                max_message_size_bytes=8192,
                max_hash_slot_num=100,
                max_index_num=1000,
            ),
            disk=self.disk(name),
            wall_clock_ms=WallClock().now_ms,
            store_host=Host(IPS[name], 10911),
            is_slave=is_slave,
            confirm_bounds_reads=is_slave,
        )

    def disk(self, name: str) -> SimulatedDisk:
        return self.disks.setdefault(name, SimulatedDisk())

    def epochs(self, name: str) -> EpochFile:
        return EpochFile(self.disk(name), "/store")

    @asynccontextmanager
    async def master(
        self, name: str = "a", *, epoch: int = 0, **changes: object
    ) -> AsyncIterator[MasterNode]:
        """Run a master of `epoch`; 0: of the last one in its file, or of a first one."""
        machine = self.network.machine(IPS[name])
        epochs = self.epochs(name)
        with self.open_store(name, is_slave=False) as store:
            if epoch > epochs.last_epoch or not epochs.entries:
                epochs.append(epoch or 1, store.max_physical_offset)
            node = MasterNode(store, epochs, machine)
            node.server = ReplicaServer(
                config_of(name, **changes),
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
            async with trio.open_nursery() as nursery:
                await nursery.start(store.run)
                await nursery.start(node.server.run)
                yield node
                nursery.cancel_scope.cancel()
            machine.kill()

    @asynccontextmanager
    async def follower(
        self, name: str = "b", *, master: str = "a", epoch: int = 1, **changes: object
    ) -> AsyncIterator[FollowerNode]:
        """Run a follower of the master of `epoch`."""
        machine = self.network.machine(IPS[name])
        epochs = self.epochs(name)
        with self.open_store(name, is_slave=True) as store:
            node = FollowerNode(store, epochs, machine)
            node.promised = epoch
            node.follower = ReplicaFollower(
                config_of(name, **changes),
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
            async with trio.open_nursery() as nursery:
                await nursery.start(store.run)
                nursery.start_soon(node.run)
                yield node
                nursery.cancel_scope.cancel()
            machine.kill()

    def fill(self, name: str, bodies: list[bytes], *, epoch: int) -> int:
        """Have `name` be master of `epoch` for a while, alone; return the end of its log."""
        epochs = self.epochs(name)
        with self.open_store(name, is_slave=False) as store:
            if epoch > epochs.last_epoch:
                epochs.append(epoch, store.max_physical_offset)
            for body in bodies:
                put(store, body)
            return store.max_physical_offset

    def copy_disk(self, source: str, target: str) -> None:
        """Give `target` the store that `source` has."""
        self.disks[target] = self.disks[source].crashed()


@asynccontextmanager
async def open_world(settings: NetworkSettings | None = None) -> AsyncIterator[World]:
    world = World(settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.timeline.run)
        yield world
        nursery.cancel_scope.cancel()


# What the other side of the wire would do


class RawFollower:
    """A follower made of bytes."""

    def __init__(self, stream: Stream, *, name: str = "b", epoch: int = 1) -> None:
        self.stream = stream
        self.name = name
        self.epoch = epoch
        self.data = b""
        self.nonces = "", ""
        self.reports_seal = self.frames_seal = Seal("", "")

    async def receive_exactly(self, size: int) -> bytes:
        with trio.fail_after(60):
            while len(self.data) < size:
                part = await self.stream.receive_some(65536)
                if not part:
                    raise ConnectionLost("end of stream")
                self.data += part
        data, self.data = self.data[:size], self.data[size:]
        return data

    async def receive_message(self) -> HandshakeMessage:
        head = await self.receive_exactly(ENVELOPE.size)
        size, _ = ENVELOPE.unpack(head)
        found = decode_message(head + await self.receive_exactly(size), 1 << 20)
        assert found is not None
        return found[0]

    async def say_hello(self, *, secret: str = "secret", **changes: object) -> HandshakeMessage:
        challenge = await self.receive_message()
        assert isinstance(challenge, Challenge)
        hello = Hello(
            cluster="C",
            group="g",
            node=self.name,
            incarnation="raw",
            epoch=self.epoch,
            file_size_bytes=FILE_SIZE_BYTES,
            nonce="once",
        )
        hello = msgspec.structs.replace(hello, **changes)
        self.nonces = challenge.nonce, hello.nonce
        hello = proven(hello, secret, *self.nonces)
        await self.stream.send_all(encode_message(hello))
        return await self.receive_message()

    async def attach(self, offset: int = 0) -> Welcome:
        welcome = await self.say_hello()
        assert isinstance(welcome, Welcome), welcome
        nothing = hashlib.blake2b(digest_size=16).hexdigest()
        attach = Attach(offset=offset, check_from=offset, checksum=nothing)
        self.reports_seal = Seal("secret", REPORTS, *self.nonces)
        self.frames_seal = Seal("secret", FRAMES, *self.nonces)
        proof = proven(attach, "secret", *self.nonces)
        await self.stream.send_all(encode_message(proof))
        joined = await self.receive_message()
        assert isinstance(joined, Joined), joined
        return welcome

    async def receive_frame(self) -> tuple[FrameHeader, bytes]:
        head = await self.receive_exactly(HEAD_BYTES)
        header, _, _ = decode_frame_header(head, 0)
        assert self.frames_seal.fits(head[:-SEAL_BYTES], head[-SEAL_BYTES:])
        return header, await self.receive_exactly(header.size)

    async def report(self, written: int, flushed: int = 0, *, epoch: int | None = None) -> None:
        epoch = self.epoch if epoch is None else epoch
        said = encode_report(Report(epoch, written, flushed))
        await self.stream.send_all(said + self.reports_seal.next(said))


async def dial(world: World, name: str = "b", *, target: str = "a") -> RawFollower:
    machine = world.network.machine(IPS[name]) if name in IPS else world.network.machine(name)
    stream = await machine.connect(IPS[target], PORT, source=None)
    return RawFollower(stream, name=name)


def listed(*pairs: tuple[int, int]) -> EpochEntries:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)
