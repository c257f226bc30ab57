"""What does replication cost: catching up in MB/s, and a put that waits in milliseconds?

    python benchmarks/replication.py [--directory DIR] [--megabytes 512] [--rounds 3] [--fenced]

Two processes over loopback, the whole of the real code: stores, flush and dispatch services,
HAService, real sockets. One table:

- catch-up: an empty slave copies the master's log. Beside it, in the same run and in turns, a plain
  copy of the same bytes: blocking sendall from the master's mapping, recv_into fresh mapped files
  of the same size. Once with the body CRC checked by the slave, once without.
- puts that wait: as many puts as "in flight" says are always under way; each answer starts the
  next. There is no network in front of the master: what is measured is store, replication and
  acknowledgement.

With `--fenced` the link of fenced groups is measured beside the classic one, in turns, with the
body CRC checked by both; what is measured is the link, not the election or the in-sync set.

No figure includes a sync to disk that somebody waits for (ASYNC_FLUSH).
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ha.config import HAConfig, SlaveNode
from ha.epoch_file import EpochFile
from ha.fenced_config import FencedConfig, FencedPeer
from ha.group_transfer_service import GroupTransferService
from ha.ha_service import HAService
from ha.replica_follower import ReplicaFollower
from ha.replica_server import ReplicaServer
from node.net import TCPNetwork
from store import MessageStore, PutBatch, PutMessage, PutMessageStatus, StoreConfig
from store.disk import RealDisk
from tandem.wire.message import Host, Message, encode_batch_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MASTER = "127.0.0.1"
SLAVE = "127.0.0.2"
HA_PORT = 18_912
COPY_PORT = 18_913
REPLICATION_PORT = 18_914
FILE_BYTES = 64 << 20
BODY = b"x" * 1024
BORN_HOST = Host(MASTER, 50_000).packed
PUT_SECONDS = 3.0
CHUNK_BYTES = 1 << 20


class Service(Protocol):
    """Replicates a store."""

    group_transfer_service: GroupTransferService

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Replicate until cancelled."""


def open_store(directory: Path, *, is_slave: bool, is_fenced: bool = False) -> MessageStore:
    """Open the store of one side."""
    return MessageStore.open(
        StoreConfig(directory=str(directory), mapped_file_size_commit_log_bytes=FILE_BYTES),
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        store_host=Host(MASTER, 10_911),
        is_slave=is_slave,
        confirm_bounds_reads=is_fenced,
    )


def fill(store: MessageStore, megabytes: int) -> None:
    """Put 1 KB messages until the log has this size."""
    body = encode_batch_body([Message("Bench", BODY, tags="TagA") for _ in range(256)])
    while store.max_physical_offset < megabytes << 20:
        store.put_batch(PutBatch("Bench", 0, body, b"", 1, BORN_HOST))
    store.announce()


def classic_service(config: HAConfig, store: MessageStore) -> HAService:
    """Return the replication of a classic group's node."""
    return HAService(config, store, TCPNetwork(), wall_clock_ms=lambda: time.time_ns() // 1_000_000)


@asynccontextmanager
async def serving(store: MessageStore, *services: Service) -> AsyncIterator[None]:
    """Run a store and its replication."""
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for service in services:
            await nursery.start(service.run)
        yield
        nursery.cancel_scope.cancel()


# The fenced link, without a coordinator: who is master is agreed


def fenced_config(name: str, address: str, directory: Path) -> FencedConfig:
    """Return the settings of one side."""
    return FencedConfig(
        cluster="bench",
        group="bench",
        name=name,
        address=address,
        replication_port=REPLICATION_PORT,
        client_address="",
        directory=str(directory),
        peers=tuple(
            FencedPeer(peer, Host(MASTER, REPLICATION_PORT))
            for peer in {"master", "slave"} - {name}
        ),
        reconnect_interval_ms=20,
    )


class FencedMaster:
    """Serves the fenced link and counts its acknowledgements as a classic group does."""

    def __init__(self, store: MessageStore, directory: Path) -> None:
        epochs = EpochFile(RealDisk(), str(directory))
        epochs.append(1, 0)
        self._acked = 0
        self.group_transfer_service = GroupTransferService(
            ["slave"], max_gap_bytes=256 << 20, in_sync_replicas=None
        )
        self._server = ReplicaServer(
            fenced_config("master", MASTER, directory),
            store,
            TCPNetwork(),
            epochs=epochs,
            epoch=1,
            incarnation="",
            listener=self,
            confirm=lambda: self._acked,
            flush_wanted=lambda: 0,
            random=random.SystemRandom(),
        )

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled."""
        await self._server.run(task_status=task_status)

    def replica_connected(self, name: str, incarnation: str, now: float) -> None:
        """See `ReplicaListener`."""
        self._acked = 0
        self.group_transfer_service.slave_connected(name)

    def replica_attached(self, name: str, offset: int, now: float) -> None:
        """See `ReplicaListener`."""
        self.group_transfer_service.slave_attached(name, offset)

    def replica_acked(self, name: str, written: int, flushed: int, sent: int, now: float) -> None:
        """See `ReplicaListener`."""
        self._acked = written
        self.group_transfer_service.slave_acked(name, written)
        self._server.confirm_changed()

    def replica_lost(self, name: str, trouble: str, now: float) -> None:
        """See `ReplicaListener`."""
        self.group_transfer_service.slave_lost(name, trouble)


# The other process


async def run_slave(directory: Path, *, check_crc: bool) -> None:
    """Follow the master until our standard input ends."""
    config = HAConfig(
        name="slave",
        address=SLAVE,
        ha_port=HA_PORT,
        master=Host(MASTER, HA_PORT),
        ha_reconnect_interval_ms=20,
        check_crc_on_append=check_crc,
    )
    with open_store(directory, is_slave=True) as store:
        print("READY", flush=True)
        sys.stdin.readline()
        async with serving(store, classic_service(config, store)):
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


async def run_fenced_slave(directory: Path) -> None:
    """Follow the master of epoch 1 until our standard input ends."""
    config = fenced_config("slave", SLAVE, directory)
    with open_store(directory, is_slave=True, is_fenced=True) as store:
        print("READY", flush=True)
        sys.stdin.readline()
        follower = ReplicaFollower(
            config,
            store,
            TCPNetwork(),
            master=config.peers[0],
            epoch=1,
            epochs=EpochFile(RealDisk(), str(directory)),
            incarnation="",
            promised=lambda: 1,
            confirm=store.confirm,
            random=random.SystemRandom(),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            nursery.start_soon(follower.run)
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()


def run_copy(directory: Path) -> None:
    """Receive one connection's bytes straight into fresh mapped files."""
    disk = RealDisk()
    with socket.create_server((SLAVE, COPY_PORT)) as listener:
        print("READY", flush=True)
        stream, _ = listener.accept()
    with stream:
        size = int.from_bytes(stream.recv(8, socket.MSG_WAITALL), "big")
        received = 0
        while received < size:
            file = disk.create(f"{directory}/{received:020d}", FILE_BYTES)
            with memoryview(file.buffer) as view:
                end = min(FILE_BYTES, size - received)
                position = 0
                while position < end:
                    count = stream.recv_into(view[position : min(position + CHUNK_BYTES, end)])
                    if not count:
                        raise EOFError("the sender went away")
                    position += count
            received += end
            file.close()
        stream.sendall(b"k")


@contextmanager
def other_process(role: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run this script in another role; it ends with the block."""
    command = [sys.executable, __file__, "--role", role, "--directory", str(directory)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert expect(process.stdout).readline() == "READY\n"
        try:
            yield process
        finally:
            expect(process.stdin).close()
            process.wait()


def expect(pipe: IO[str] | None) -> IO[str]:
    """Return a pipe that is there."""
    assert pipe is not None
    return pipe


# Catching up


class CatchUp(msgspec.Struct, frozen=True):
    """One way of copying and its rounds, in MB/s."""

    name: str
    rounds: list[float]


def copy_plainly(store: MessageStore, directory: Path) -> float:
    """Return the MB/s of a plain copy of the log."""
    size = store.max_physical_offset
    with other_process("copy", directory), socket.create_connection((SLAVE, COPY_PORT)) as stream:
        start = time.perf_counter()
        stream.sendall(size.to_bytes(8, "big"))
        position = 0
        while position < size:
            with store.read_log(position, CHUNK_BYTES) as view:
                stream.sendall(view)
                position += len(view)
        assert stream.recv(1) == b"k"
        return size / (time.perf_counter() - start) / 1e6


async def catch_up(store: MessageStore, service: Service, directory: Path, role: str) -> float:
    """Return the MB/s at which an empty slave gets the whole log."""
    with other_process(role, directory) as process:
        start = time.perf_counter()
        expect(process.stdin).write("\n")
        expect(process.stdin).flush()
        await wait_caught_up(store, service)
        elapsed = time.perf_counter() - start
        log = Path(directory) / "commitlog"
        assert sum(1 for _ in log.iterdir()) >= store.max_physical_offset // FILE_BYTES
    await trio.sleep(0.1)
    return store.max_physical_offset / elapsed / 1e6


async def wait_caught_up(store: MessageStore, service: Service) -> None:
    """Wait until the slave has acknowledged everything."""
    slave = service.group_transfer_service.slaves["slave"]
    while slave.ack_offset < store.max_physical_offset:  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.002)


async def measure_catch_up(
    store: MessageStore, service: Service, root: Path, rounds: int
) -> list[CatchUp]:
    """Copy in turns."""
    plain, checked, unchecked = (CatchUp(name, []) for name in ("plain copy", "CRC on", "CRC off"))
    for _ in range(rounds):
        with fresh(root) as directory:
            plain.rounds.append(copy_plainly(store, directory))
        with fresh(root) as directory:
            checked.rounds.append(await catch_up(store, service, directory, "slave"))
        with fresh(root) as directory:
            unchecked.rounds.append(await catch_up(store, service, directory, "slave-unchecked"))
    return [plain, checked, unchecked]


@contextmanager
def fresh(root: Path) -> Iterator[Path]:
    """Give a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=root) as name:
        yield Path(name)


# Puts that wait


class Producer:
    """Keeps `in_flight` puts waiting; the answers of one round start the next round's puts."""

    def __init__(self, store: MessageStore, service: Service) -> None:
        self._store = store
        self._group = service.group_transfer_service
        self._message = PutMessage("Bench", 0, BODY, b"TAGS\x01TagA\x02", 1, BORN_HOST)
        self._answered = 0
        self.latencies_ms: list[float] = []
        self.running = True

    def put(self, count: int) -> None:
        """Put `count` messages in one go."""
        deadline = trio.current_time() + PUT_SECONDS
        for _ in range(count):
            start = time.perf_counter()
            result = self._store.put_message(self._message)
            self._group.submit(
                result.end_offset,
                deadline,
                lambda status, _, start=start: self.note(status, start),  # type: ignore[misc]
            )
        self._store.announce()

    def note(self, status: PutMessageStatus, start: float) -> None:
        """Take one answer."""
        assert status is PutMessageStatus.PUT_OK
        self.latencies_ms.append((time.perf_counter() - start) * 1000)
        self._answered += 1

    def again(self) -> None:
        """Replace the puts that were answered."""
        count, self._answered = self._answered, 0
        if self.running:
            self.put(count)


async def measure_puts(store: MessageStore, service: Service, in_flight: int) -> str:
    """Return one line of the table."""
    producer = Producer(store, service)
    service.group_transfer_service.after_release = producer.again
    producer.put(in_flight)
    await trio.sleep(0.3)
    producer.latencies_ms.clear()
    start = time.perf_counter()
    await trio.sleep(PUT_SECONDS)
    elapsed = time.perf_counter() - start
    producer.running = False
    latencies = sorted(producer.latencies_ms)
    await trio.sleep(0.3)
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    rate = len(latencies) / elapsed
    return f"{in_flight:>4} in flight   {rate:>9,.0f}/s   p50 {p50:6.3f} ms   p99 {p99:6.3f} ms"


def print_catch_up(ways: list[CatchUp], megabytes: int, rounds: int) -> None:
    """Print the first table."""
    plain = statistics.median(ways[0].rounds)
    print(f"catch-up, {megabytes} MiB of 1 KB messages, median of {rounds} rounds")
    for way in ways:
        median = statistics.median(way.rounds)
        spread = f"{min(way.rounds):,.0f} to {max(way.rounds):,.0f}"
        print(f"  {way.name:<12} {median:>7,.0f} MB/s   {median / plain:.2f}   ({spread})")


async def print_puts(store: MessageStore, service: Service, root: Path, role: str) -> None:
    """Print the second table."""
    print(f"puts of 1 KB that wait for the {role} (CRC on)")
    with fresh(root) as slave, other_process(role, slave) as process:
        expect(process.stdin).write("\n")
        expect(process.stdin).flush()
        await wait_caught_up(store, service)
        for in_flight in (1, 64, 256):
            print("  " + await measure_puts(store, service, in_flight))


async def compare_links(
    store: MessageStore, classic: Service, fenced: Service, root: Path, rounds: int
) -> list[CatchUp]:
    """Copy in turns over both links."""
    ways = [CatchUp(name, []) for name in ("classic", "fenced")]
    for _ in range(rounds):
        for way, service, role in zip(
            ways, (classic, fenced), ("slave", "fenced-slave"), strict=True
        ):
            with fresh(root) as directory:
                way.rounds.append(await catch_up(store, service, directory, role))
    return ways


async def run_master(root: Path, megabytes: int, rounds: int, *, is_fenced: bool) -> None:
    """Measure everything and print it."""
    config = HAConfig(
        name="master", address=MASTER, ha_port=HA_PORT, slaves=(SlaveNode("slave", SLAVE),)
    )
    print(f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}")
    with fresh(root) as directory, open_store(directory, is_slave=False) as store:
        fill(store, megabytes)
        classic = classic_service(config, store)
        if not is_fenced:
            async with serving(store, classic):
                ways = await measure_catch_up(store, classic, root, rounds)
                print_catch_up(ways, megabytes, rounds)
                await print_puts(store, classic, root, "slave")
            return
        fenced = FencedMaster(store, directory)
        async with serving(store, classic, fenced):
            ways = await compare_links(store, classic, fenced, root, rounds)
            print_catch_up(ways, megabytes, rounds)
            await print_puts(store, classic, root, "slave")
            await print_puts(store, fenced, root, "fenced-slave")


def main() -> None:
    """Play one of the roles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, help="where the files go (default: temporary)")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fenced", action="store_true", help="compare with the fenced link")
    parser.add_argument("--role", default="master", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "copy":
        run_copy(options.directory)
    elif options.role == "fenced-slave":
        trio.run(run_fenced_slave, options.directory)
    elif options.role.startswith("slave"):
        trio.run(lambda: run_slave(options.directory, check_crc=options.role == "slave"))
    else:
        root = options.directory or Path(tempfile.gettempdir())
        trio.run(
            lambda: run_master(root, options.megabytes, options.rounds, is_fenced=options.fenced)
        )


if __name__ == "__main__":
    main()
