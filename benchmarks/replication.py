"""What does replication cost: catching up in MB/s, and a put that waits in milliseconds?

    python benchmarks/replication.py [--directory DIR] [--megabytes 512] [--rounds 3]
                                     [--fenced] [--tls] [--delay-ms 2]

Two processes over loopback, the whole of the real code: stores, flush and dispatch services,
HAService, real sockets. One table:

- catch-up: an empty slave copies the master's log. Beside it, in the same run and in turns, a plain
  copy of the same bytes: blocking sendall from the master's mapping, recv_into fresh mapped files
  of the same size. Once with the body CRC checked by the slave, once without.
- puts that wait: as many puts as "in flight" says are always under way; each answer starts the
  next. There is no network before the master: what is measured is store, replication and
  acknowledgement.

With `--fenced` the link of fenced groups is measured beside the classic one, with the body CRC
checked by both; what is measured is the link, not the election or the in-sync set. Frames are
sealed and have no digest of their bodies, as in a group at loopback addresses. Both have a store
and a slave of their own, and take turns of half a second. "CPU" is the time that master and slave
spend on a put, or on a gigabyte: it hardly depends on who else uses the machine.

With `--tls` the fenced link is measured three times: in clear without digests, as between nodes of
one machine; in clear with a digest of each frame's body; and with TLS, which needs none.

With `--delay-ms` both links lead through a proxy process, and the turns are with and without so
much delay each way. The proxy wakes up late by up to a millisecond; one in flight shows it.

No figure includes a sync to disk that somebody waits for (ASYNC_FLUSH).
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.waiting_puts import (
    BODY,
    BORN_HOST,
    Puts,
    Service,
    cpu_seconds,
    measure_puts,
    print_turns,
    wait_caught_up,
)
from ha.classic.config import HAConfig, SlaveNode
from ha.classic.group_transfer_service import GroupTransferService
from ha.classic.ha_service import HAService
from ha.fenced.config import FencedConfig, FencedPeer
from ha.fenced.epoch_file import EpochFile
from ha.fenced.replica_follower import ReplicaFollower
from ha.fenced.replica_server import ReplicaServer
from store import MessageStore, PutBatch, StoreConfig
from store.machine.network import Network
from store.machine.real_disk import RealDisk
from store.machine.tcp_network import TCPNetwork
from store.machine.tls_network import TLSNetwork, TLSTerms
from tandem.cluster.certificates import Authority, write_pair
from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.proxied_pair import FlowRule, ProxiedPair
from tandem.tls_files import TLSFiles
from tandem.wire.message import Host, Message, encode_batch_body

MASTER = "127.0.0.1"
SLAVE = "127.0.0.2"
PROXY = "127.0.0.3"
HA_PORT = 18_912
COPY_PORT = 18_913
REPLICATION_PORT = 18_914
FILE_BYTES = 64 << 20
TURN_SECONDS = 0.5
CHUNK_BYTES = 1 << 20
TLS_DIRECTORY = "TANDEM_BENCH_TLS"
"""The environment tells the other process where the certificates are."""


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
        store.puts.put_batch(PutBatch("Bench", 0, body, b"", 1, BORN_HOST))
    store.announce()


def classic_service(config: HAConfig, store: MessageStore) -> HAService:
    """Return the replication of a classic group's node."""
    return HAService(config, store, TCPNetwork(), wall_clock_ms=lambda: time.time_ns() // 1_000_000)


class Nobody:
    """Stands for the broker that replication reports to."""

    def opened(self, epoch: int) -> None:
        """Nothing is delivered."""

    def role_changed(self) -> None:
        """Nobody registers."""

    def answered(self) -> None:
        """Nobody waits for answers on a connection."""

    def ended(self, reason: str) -> None:
        """The benchmark ends first."""


@asynccontextmanager
async def serving(store: MessageStore, *services: Service) -> AsyncIterator[None]:
    """Run a store and its replication."""
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for service in services:
            await nursery.start(service.run, Nobody())
        yield
        nursery.cancel_scope.cancel()


# The fenced link, without a coordinator: who is master is agreed


def fenced_config(
    name: str, address: str, directory: Path, *, dialled: str = MASTER, link: str = "clear"
) -> FencedConfig:
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
            FencedPeer(peer, Host(dialled, REPLICATION_PORT))
            for peer in {"master", "slave"} - {name}
        ),
        reconnect_interval_ms=20,
        # As `node.config` has it for a group whose nodes are all at loopback addresses.
        digests_bodies=link == "digests",
    )


class FencedMaster:
    """Serves the fenced link and counts its acknowledgements as a classic group does."""

    def __init__(self, store: MessageStore, directory: Path, link: str = "clear") -> None:
        epochs = EpochFile(RealDisk(), str(directory))
        epochs.append(1, 0)
        self._acked = 0
        self.group_transfer_service = GroupTransferService(
            ["slave"], max_gap_bytes=256 << 20, in_sync_replicas=None
        )
        self._server = ReplicaServer(
            fenced_config("master", MASTER, directory, link=link),
            store,
            network_of(link),
            epochs=epochs,
            epoch=1,
            incarnation="",
            listener=self,
            confirm_offset=lambda: self._acked,
            flush_wanted=lambda: 0,
            random=random.SystemRandom(),
        )

    async def run(self, listener: object, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled."""
        await self._server.run(task_status=task_status)

    def replica_connected(self, name: str, incarnation: str, now: float) -> None:
        """See `ReplicaListener`."""
        self._acked = 0
        self.group_transfer_service.slave_connected(name)

    def replica_attached(self, name: str, offset: int, now: float) -> None:
        """See `ReplicaListener`."""
        self.group_transfer_service.slave_attached(name, offset)

    def replica_objected(self, name: str, parting: int, confirm: int) -> None:
        """See `ReplicaListener`."""

    def replica_acked(self, name: str, written: int, flushed: int, sent: int, now: float) -> None:
        """See `ReplicaListener`."""
        self._acked = written
        self.group_transfer_service.slave_acked(name, written)
        self._server.confirm_changed()

    def replica_lost(self, name: str, trouble: str, now: float) -> None:
        """See `ReplicaListener`."""
        self.group_transfer_service.slave_lost(name, trouble)


# The other process


async def run_slave(directory: Path, dialled: str, *, check_crc: bool) -> None:
    """Follow the master until our standard input ends."""
    config = HAConfig(
        name="slave",
        address=SLAVE,
        ha_port=HA_PORT,
        master=Host(dialled, HA_PORT),
        ha_reconnect_interval_ms=20,
        check_crc_on_append=check_crc,
    )
    with open_store(directory, is_slave=True) as store:
        print("READY", flush=True)
        sys.stdin.readline()
        async with serving(store, classic_service(config, store)):
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


def network_of(link: str) -> Network:
    """Return what a link is made with."""
    if link != "tls":
        return TCPNetwork()
    directory = os.environ[TLS_DIRECTORY]
    files = TLSFiles(f"{directory}/ca.pem", f"{directory}/node.pem", f"{directory}/node.key")
    accepting, dialling = files.server_context(ssl.CERT_REQUIRED), files.client_context()
    return TLSNetwork(
        TCPNetwork(), TLSTerms(accepting, dialling, takes_clear=False, dials_clear=False)
    )


def make_certificates(directory: Path) -> None:
    """Make those that `network_of` takes."""
    now = datetime.now(UTC)
    authority = Authority.of(directory, "bench", now)
    write_pair(directory, "node", *authority.issue("node", [MASTER, SLAVE], now, 1))
    os.environ[TLS_DIRECTORY] = str(directory)


async def run_fenced_slave(directory: Path, dialled: str, link: str = "clear") -> None:
    """Follow the master of epoch 1 until our standard input ends."""
    config = fenced_config("slave", SLAVE, directory, dialled=dialled, link=link)
    with open_store(directory, is_slave=True, is_fenced=True) as store:
        print("READY", flush=True)
        sys.stdin.readline()
        follower = ReplicaFollower(
            config,
            store,
            network_of(link),
            master=config.peers[0],
            epoch=1,
            epochs=EpochFile(RealDisk(), str(directory)),
            incarnation="",
            promised=lambda: 1,
            random=random.SystemRandom(),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            nursery.start_soon(follower.run)
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()


async def run_proxy() -> None:
    """Lead slaves to the master; each line of our standard input is a delay in seconds."""
    proxy = FaultProxy(
        [
            ProxiedPair(
                source="slave",
                source_address=SLAVE,
                target="master",
                target_address=MASTER,
                listen_address=PROXY,
                ports=(HA_PORT, REPLICATION_PORT),
            )
        ]
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        print("READY", flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            rule = FlowRule(delay_seconds=float(line))
            proxy.rules.change("slave", "master", rule)
            proxy.rules.change("master", "slave", rule)
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
def other_process(
    role: str, directory: Path, dialled: str = MASTER
) -> Iterator[subprocess.Popen[str]]:
    """Run this script in another role; it ends with the block."""
    command = [sys.executable, __file__, "--role", role, "--directory", str(directory)]
    command += ["--dial", dialled]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert expect(process.stdout).readline() == "READY\n"
        try:
            yield process
        finally:
            expect(process.stdin).close()
            process.wait()


def say(process: subprocess.Popen[str], line: str) -> None:
    """Give another process a line to read."""
    expect(process.stdin).write(line + "\n")
    expect(process.stdin).flush()


def expect(pipe: IO[str] | None) -> IO[str]:
    """Return a pipe that is there."""
    assert pipe is not None
    return pipe


# Catching up


class CatchUp(msgspec.Struct, frozen=True):
    """One way of copying and its rounds, in MB/s."""

    name: str
    rounds: list[float]
    cpu_rounds: list[float]
    """Seconds of CPU for a gigabyte, both sides together."""


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


async def catch_up(
    store: MessageStore, service: Service, directory: Path, role: str, way: CatchUp
) -> None:
    """Note the MB/s at which an empty slave gets the whole log."""
    with other_process(role, directory) as process:
        cpu_before = cpu_seconds(process)
        start = time.perf_counter()
        say(process, "")
        await wait_caught_up(store, service)
        elapsed = time.perf_counter() - start
        cpu = cpu_seconds(process) - cpu_before
        log = Path(directory) / "commitlog"
        assert sum(1 for _ in log.iterdir()) >= store.max_physical_offset // FILE_BYTES
    await trio.sleep(0.1)
    way.rounds.append(store.max_physical_offset / elapsed / 1e6)
    way.cpu_rounds.append(cpu / store.max_physical_offset * 1e9)


async def measure_catch_up(
    store: MessageStore, service: Service, root: Path, rounds: int
) -> list[CatchUp]:
    """Copy in turns."""
    plain, checked, unchecked = (
        CatchUp(name, [], []) for name in ("plain copy", "CRC on", "CRC off")
    )
    for _ in range(rounds):
        with fresh(root) as directory:
            plain.rounds.append(copy_plainly(store, directory))
        with fresh(root) as directory:
            await catch_up(store, service, directory, "slave", checked)
        with fresh(root) as directory:
            await catch_up(store, service, directory, "slave-unchecked", unchecked)
    return [plain, checked, unchecked]


@contextmanager
def fresh(root: Path) -> Iterator[Path]:
    """Give a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=root) as name:
        yield Path(name)


def print_catch_up(ways: list[CatchUp], megabytes: int, rounds: int) -> None:
    """Print the first table."""
    plain = statistics.median(ways[0].rounds)
    print(f"catch-up, {megabytes} MiB of 1 KB messages, median of {rounds} rounds")
    for way in ways:
        median = statistics.median(way.rounds)
        spread = f"{min(way.rounds):,.0f} to {max(way.rounds):,.0f}"
        cpu = f"CPU {statistics.median(way.cpu_rounds):.2f} s/GB" if way.cpu_rounds else ""
        print(f"  {way.name:<12} {median:>7,.0f} MB/s   {median / plain:.2f}   ({spread})   {cpu}")


async def print_puts(store: MessageStore, service: Service, root: Path, role: str) -> None:
    """Print the second table."""
    print(f"puts of 1 KB that wait for the {role} (CRC on)")
    with fresh(root) as slave, other_process(role, slave) as process:
        say(process, "")
        await wait_caught_up(store, service)
        for in_flight in (1, 64, 256):
            turn = await measure_puts(store, service, process, in_flight)
            print_turns(f"{in_flight:>4} in flight", [turn])


# Two links that take turns


class Side(msgspec.Struct, frozen=True):
    """A link, and all that belongs to it."""

    name: str
    store: MessageStore
    service: Service
    slave: subprocess.Popen[str]

    async def put(self, in_flight: int) -> Puts:
        """Take one turn."""
        return await measure_puts(
            self.store, self.service, self.slave, in_flight, seconds=TURN_SECONDS
        )


@asynccontextmanager
async def two_sides(root: Path, dialled: str) -> AsyncIterator[list[Side]]:
    """Run both links beside each other; a side that has nothing to send costs next to nothing."""
    sides = []
    async with AsyncExitStack() as stack:
        for name, role in (("classic", "slave"), ("fenced", "fenced-slave")):
            directory = stack.enter_context(fresh(root))
            store = stack.enter_context(
                open_store(directory, is_slave=False, is_fenced=name == "fenced")
            )
            service = classic_master(store) if name == "classic" else FencedMaster(store, directory)
            fill(store, 1)
            await stack.enter_async_context(serving(store, service))
            slave = stack.enter_context(
                other_process(role, stack.enter_context(fresh(root)), dialled)
            )
            say(slave, "")
            await wait_caught_up(store, service)
            sides.append(Side(name, store, service, slave))
        yield sides


async def compare_puts(root: Path, rounds: int) -> None:
    """Print the table of both links."""
    print("puts of 1 KB that wait for the slave (CRC on), in turns")
    async with two_sides(root, MASTER) as sides:
        for in_flight in (1, 64, 256, 1024):
            turns: dict[str, list[Puts]] = {side.name: [] for side in sides}
            for number in range(rounds):
                for side in sides[:: 1 if number % 2 else -1]:
                    turns[side.name].append(await side.put(in_flight))
            print_turns(f"{in_flight:>4} in flight, classic", turns["classic"])
            print_turns(f"{in_flight:>4} in flight, fenced", turns["fenced"], turns["classic"])


async def compare_delays(root: Path, rounds: int, delay_ms: float) -> None:
    """Print what a delay costs either link."""
    print(f"the same through a proxy, without and with {delay_ms:g} ms of delay each way, in turns")
    with other_process("proxy", root) as proxy:
        async with two_sides(root, PROXY) as sides:
            for in_flight in (1, 64, 256, 1024, 4096):
                for side in sides:
                    await compare_delay(side, proxy, in_flight, rounds, delay_ms)


async def compare_delay(
    side: Side, proxy: subprocess.Popen[str], in_flight: int, rounds: int, delay_ms: float
) -> None:
    """Print two lines of that table."""
    turns: dict[float, list[Puts]] = {0.0: [], delay_ms: []}
    for number in range(rounds):
        for delay in (0.0, delay_ms)[:: 1 if number % 2 else -1]:
            say(proxy, str(delay / 1000))
            await trio.sleep(0.05)
            turns[delay].append(await side.put(in_flight))
    for delay, done in turns.items():
        name = f"{in_flight:>4} in flight, {side.name}, {delay:g} ms"
        print_turns(name, done, turns[0.0] if delay else None)


async def compare_links(
    store: MessageStore, classic: Service, fenced: Service, root: Path, rounds: int
) -> list[CatchUp]:
    """Copy in turns over both links."""
    ways = [CatchUp(name, [], []) for name in ("classic", "fenced")]
    sides = list(zip(ways, (classic, fenced), ("slave", "fenced-slave"), strict=True))
    for number in range(rounds):
        for way, service, role in sides[:: 1 if number % 2 else -1]:
            with fresh(root) as directory:
                await catch_up(store, service, directory, role, way)
    return ways


def classic_master(store: MessageStore) -> HAService:
    """Return the replication of a classic group's master with one slave."""
    slaves = (SlaveNode("slave", SLAVE),)
    config = HAConfig(name="master", address=MASTER, ha_port=HA_PORT, slaves=slaves)
    return classic_service(config, store)


async def run_master(root: Path, megabytes: int, rounds: int) -> None:
    """Measure the classic link and print it."""
    with fresh(root) as directory, open_store(directory, is_slave=False) as store:
        fill(store, megabytes)
        service = classic_master(store)
        async with serving(store, service):
            print_catch_up(await measure_catch_up(store, service, root, rounds), megabytes, rounds)
            await print_puts(store, service, root, "slave")


async def run_both_masters(root: Path, megabytes: int, rounds: int) -> None:
    """Measure the fenced link beside the classic one and print it."""
    with fresh(root) as directory, open_store(directory, is_slave=False) as store:
        fill(store, megabytes)
        classic, fenced = classic_master(store), FencedMaster(store, directory)
        async with serving(store, classic, fenced):
            ways = await compare_links(store, classic, fenced, root, rounds)
        print_catch_up(ways, megabytes, rounds)
    await compare_puts(root, 2 * rounds)


async def run_tls(root: Path, megabytes: int, rounds: int) -> None:
    """Measure the fenced link in clear and with TLS and print it."""
    make_certificates(Path(tempfile.mkdtemp(dir=root)))
    ways = {link: CatchUp(link, [], []) for link in ("clear", "digests", "tls")}
    puts: dict[tuple[int, str], list[Puts]] = {}
    with fresh(root) as directory, open_store(directory, is_slave=False) as store:
        fill(store, megabytes)
        for number in range(rounds):
            for link in [*ways][:: 1 if number % 2 else -1]:
                service = FencedMaster(store, directory / f"{link}-{number}", link)
                async with serving(store, service):
                    with fresh(root) as slave:
                        await catch_up(store, service, slave, f"fenced-slave {link}", ways[link])
    for number in range(2 * rounds):
        for link in [*ways][:: 1 if number % 2 else -1]:
            with fresh(root) as directory, open_store(directory, is_slave=False) as store:
                service = FencedMaster(store, directory / link, link)
                fill(store, 1)
                async with serving(store, service):
                    with (
                        fresh(root) as copy,
                        other_process(f"fenced-slave {link}", copy) as process,
                    ):
                        say(process, "")
                        await wait_caught_up(store, service)
                        for in_flight in (1, 64, 256):
                            side = Side(link, store, service, process)
                            puts.setdefault((in_flight, link), []).append(await side.put(in_flight))
    print_catch_up([*ways.values()], megabytes, rounds)
    print("puts of 1 KB that wait for the slave, in turns")
    for (in_flight, link), turns in sorted(puts.items()):
        base = None if link == "clear" else puts[in_flight, "clear"]
        print_turns(f"{in_flight:>4} in flight, {link}", turns, base)


def main() -> None:
    """Play one of the roles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, help="where the files go (default: temporary)")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fenced", action="store_true", help="compare with the fenced link")
    parser.add_argument("--tls", action="store_true", help="what TLS costs the fenced link")
    parser.add_argument(
        "--delay-ms", type=float, default=0.0, help="compare with so much delay each way, only"
    )
    parser.add_argument("--role", default="master", help=argparse.SUPPRESS)
    parser.add_argument("--dial", default=MASTER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role != "master":
        play(options.role, options.directory, options.dial)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}")
    root = options.directory or Path(tempfile.gettempdir())
    if options.delay_ms:
        trio.run(compare_delays, root, options.rounds, options.delay_ms)
    elif options.tls:
        trio.run(run_tls, root, options.megabytes, options.rounds)
    elif options.fenced:
        trio.run(run_both_masters, root, options.megabytes, options.rounds)
    else:
        trio.run(run_master, root, options.megabytes, options.rounds)


def play(role: str, directory: Path, dialled: str) -> None:
    """Be another process of the measurement."""
    if role == "copy":
        run_copy(directory)
    elif role == "proxy":
        trio.run(run_proxy)
    elif role.startswith("fenced-slave"):
        trio.run(run_fenced_slave, directory, dialled, role.partition(" ")[2] or "clear")
    else:
        trio.run(lambda: run_slave(directory, dialled, check_crc=role == "slave"))


if __name__ == "__main__":
    main()
