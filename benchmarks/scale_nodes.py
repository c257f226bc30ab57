"""What do many queues cost a whole node, beside RocketMQ 5.3.3 with files of queues?

    python benchmarks/scale_nodes.py [--queues 1000 4000 10000] [--only ours rocketmq rocksdb]
                                     [--seconds 5] [--idle 30] [--follower] [--directory DIR]

One node of each kind, one after the other, with the same frames (benchmarks/rivals.py has their
settings): topics of eight queues, made by their first message, bodies of 1,024 bytes, eight in
flight. The queues grow from one number to the next, and at each of them:

    new queue       CPU of the node for each queue, from the first message to the last answer
    idle            CPU of the node while nobody sends, in percent of a core
    memory          of the node that is no file's (RssAnon), and all of it (VmRSS)
    descriptors     and mappings
    puts            a second and CPU each, into the first eight queues, and into all in turn

and after the last one:

    stop, start     SIGTERM to the end of the process; start to the first answer, and its CPU
    kill, start     the same after SIGKILL
    follower        with --follower, of ours only: a second node copies all there is; its CPU, and
                    what it takes while nobody sends

`rocksdb` is RocketMQ with its queues in RocksDB. RocketMQ comes from Maven. A node that does not
get there says so, and the other goes on.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.pipelined import (
    LoadError,
    answer_load,
    ask,
    cpu_seconds,
    send_all,
    send_frame,
)
from benchmarks.rivals import BOOT_SECONDS_MAX, STORE, Server, pause, rocketmq_group
from tandem.cluster.spec import read_spec
from tandem.testing.addresses import claimed_network
from tandem.testing.cluster_files import Settings, write_cluster_file
from tests.compat.programs import NotToBeHadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tandem.testing.addresses import Network

ROOT: Final = Path(__file__).resolve().parent.parent
KINDS: Final = ("ours", "rocketmq", "rocksdb")
ROCKSDB: Final = {"storeType": "defaultRocksDB"}
QUEUES_A_TOPIC: Final = 8
IN_FLIGHT: Final = 8
SETTLE_SECONDS: Final = 12.0
"""Longer than what both put off: the syncs of queues, the registration."""

FRAMES_AT_ONCE: Final = 256
ATTEMPTS: Final = 10
"""Where others have most of the machine, a put takes a second now and then, and the next ones are
refused: these are sent again, as a client would, with those that came with them."""

STOP_SECONDS_MAX: Final = 600.0


def frame_of(number: int) -> bytes:
    """Return the frame of one message for queue `number`."""
    topic = f"topic-{number // QUEUES_A_TOPIC:06d}"
    return send_frame(
        topic, number, wait=False, queue_id=number % QUEUES_A_TOPIC, queues=QUEUES_A_TOPIC
    )


def send_some(address: tuple[str, int], frames: list[bytes]) -> None:
    """Send frames, all of them again if one is refused.

    Raises:
        LoadError: one is refused each time.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return send_all(address, frames)
        except LoadError:
            if attempt == ATTEMPTS:
                raise
            pause(0.5)
    return None


def memory_kib(pid: int, name: str) -> int:
    """Return a figure of /proc/PID/status in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0])


def count_of(pid: int, what: str) -> int:
    """Return how many descriptors (`fd`) or mappings (`maps`) a process has."""
    place = Path(f"/proc/{pid}/{what}")
    return sum(1 for _ in place.iterdir()) if what == "fd" else place.read_text().count("\n")


def growth(queues: Sequence[int]) -> list[int]:
    """Return the numbers to grow to, each once and in order.

    Raises:
        ValueError: one is less than the queues of one topic.
    """
    if min(queues) < QUEUES_A_TOPIC:
        raise ValueError(f"--queues {min(queues)}: give {QUEUES_A_TOPIC} or more")
    return sorted({*queues})


def is_running(pid: int) -> bool:
    """Say whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Restarted:
    """A process that somebody has started by its command line: it is ended, and started again.

    Attributes:
        pid: of the process as it is now.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process: subprocess.Popen[bytes] | None = None
        self._command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")[:-1]
        self._environment = {
            os.fsdecode(key): os.fsdecode(value)
            for key, _, value in (pair.partition(b"=") for pair in pairs)
        }
        self._directory = Path(f"/proc/{pid}/cwd").readlink()

    def end(self, number: signal.Signals) -> tuple[float, float]:
        """End it by a signal; return seconds, and the CPU that it took to end.

        Raises:
            LoadError: it does not end.
        """
        first = last = cpu_seconds(self.pid)
        began = time.perf_counter()
        os.kill(self.pid, number)
        while is_running(self.pid):
            with suppress(OSError):
                last = cpu_seconds(self.pid)
            if time.perf_counter() - began > STOP_SECONDS_MAX:
                raise LoadError(f"process {self.pid} does not end")
            pause(0.05)
        if self._process is not None:
            self._process.wait()
        return time.perf_counter() - began, last - first

    def start(self, serves: Callable[[], bool]) -> tuple[float, float]:
        """Start it again; return seconds and CPU until it `serves`.

        Raises:
            LoadError: it ends before that.
        """
        began = time.perf_counter()
        self._process = subprocess.Popen(
            self._command,
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._process.pid
        while not serves():
            if self._process.poll() is not None:
                raise LoadError(f"it does not start again: status {self._process.returncode}")
            pause(0.05)
        return time.perf_counter() - began, cpu_seconds(self.pid)

    def close(self) -> None:
        """Kill what was started here."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Node:
    """One node whose queues grow, and what is written down of it."""

    def __init__(self, server: Server, name: str, seconds: float, idle_seconds: float) -> None:
        self._server = server
        self._name = name
        self._process = Restarted(server.pids["master"])
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._queues = 0
        self._begun_kib = memory_kib(self._pid, "RssAnon")

    @property
    def _pid(self) -> int:
        return self._process.pid

    def grow_to(self, queues: int) -> None:
        """Send a message into each new queue, and measure."""
        frames = [frame_of(number) for number in range(self._queues, queues)]
        new = len(frames)
        cpu, began = cpu_seconds(self._pid), time.perf_counter()
        for at in range(0, new, FRAMES_AT_ONCE):
            send_some(self._server.address, frames[at : at + FRAMES_AT_ONCE])
        seconds = time.perf_counter() - began
        cpu = cpu_seconds(self._pid) - cpu
        self._queues = queues
        self._say(f"new queue {cpu / new * 1e6:,.0f} us CPU, {seconds / new * 1e6:,.0f} us")
        self._idle()
        few = self._puts("8", range(QUEUES_A_TOPIC))
        many = self._puts("all", range(queues))
        self._say(f"puts into all: {many / few:.0%} of those into 8")

    def _idle(self) -> None:
        pause(SETTLE_SECONDS)
        cpu, began = cpu_seconds(self._pid), time.perf_counter()
        pause(self._idle_seconds)
        share = (cpu_seconds(self._pid) - cpu) / (time.perf_counter() - began)
        anon, whole = (memory_kib(self._pid, name) for name in ("RssAnon", "VmRSS"))
        self._say(
            f"idle {share:.2%} of a core, {anon / 1024:,.0f} MiB of its own,"
            f" {(anon - self._begun_kib) * 1024 / self._queues:,.0f} bytes a queue,"
            f" {whole / 1024:,.0f} MiB in all, {count_of(self._pid, 'fd')} descriptors,"
            f" {count_of(self._pid, 'maps')} mappings"
        )

    def _puts(self, into: str, numbers: Sequence[int]) -> float:
        frames = [frame_of(number) for number in numbers]
        while len(frames) < 2 * IN_FLIGHT:
            frames *= 2
        cpu = cpu_seconds(self._pid)
        answered = answer_load(self._server.address, frames, IN_FLIGHT, self._seconds)
        cpu = cpu_seconds(self._pid) - cpu
        rate = answered.messages / answered.seconds
        each = cpu / answered.messages_in_all * 1e6
        self._say(f"puts into {into}: {rate:,.0f}/s, {each:,.1f} us CPU each")
        return rate

    def stop_and_start(self) -> None:
        """Stop it in an orderly way and start it again, kill it and start it again."""
        for what, number in (("clean stop", signal.SIGTERM), ("kill", signal.SIGKILL)):
            stop, stop_cpu = self._process.end(number)
            start, start_cpu = self._process.start(self._serves)
            self._say(
                f"{what} {stop:.1f} s, {stop_cpu:.1f} s CPU;"
                f" start {start:.1f} s, {start_cpu:.1f} s CPU"
            )
        self._idle()

    def close(self) -> None:
        """Kill what was started here."""
        self._process.close()

    def _serves(self) -> bool:
        try:
            return ask(self._server.address, frame_of(0)).get("code") == 0
        except (OSError, LoadError):
            return False

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{self._name}, {self._queues:,} queues: {text}\n")
        sys.stdout.flush()


class OurNodes:
    """A master of ours and, when it is asked for, its slave: processes as a user starts them."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        slaves_count: int,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        directory.mkdir(parents=True)
        settings: Settings = {
            "store": {**STORE, **(store or {})},
            "replication": {},
            "broker": {"register_broker_interval_ms": 10_000},
            "groups": {"broker-a": {"broker_role": "ASYNC_MASTER"}},
        }
        self._file = write_cluster_file(directory, slaves_count, settings, network=network)
        self._spec = read_spec(self._file)
        self._spec.make_directories()
        self._processes: list[subprocess.Popen[bytes]] = []

    def directory(self, number: int) -> Path:
        """Return where a node has its store."""
        return self._spec.nodes[number].directory

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start a node; it may take a while until it serves."""
        node = self._spec.nodes[number]
        command = [sys.executable, "-m", "node", "--config", str(self._file), "--name", node.name]
        with (self._file.parent / f"{node.name}.said").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def server(self, pid: int) -> Server:
        """Return the master, whose process this is, when it serves.

        Raises:
            LoadError: it does not.
        """
        first = self._spec.nodes[0]
        deadline = time.monotonic() + BOOT_SECONDS_MAX
        while not is_listening((first.address, first.port)):
            if time.monotonic() > deadline or not is_running(pid):
                raise LoadError(f"{first.name} does not start: see {self._file.parent}")
            pause(0.1)
        name_server = f"{first.address}:{first.name_server_port}"
        return Server("ours", (first.address, first.port), name_server, {"master": pid})

    def follow(self, idle_seconds: float) -> str:
        """Start the slave and wait until it has no more queues for a while; say what it took.

        And what it takes in `idle_seconds` after that.

        Raises:
            LoadError: it has none for long.
        """
        began = time.perf_counter()
        pid = self.start(1).pid
        queues = self._spec.nodes[1].directory / "consumequeue"
        there, at = 0, began
        while not there or time.perf_counter() - at < SETTLE_SECONDS:
            if not there and time.perf_counter() - began > BOOT_SECONDS_MAX:
                raise LoadError("the slave has no queue")
            pause(1.0)
            now = sum(1 for _ in queues.glob("*/*/*"))
            if now != there:
                there, at = now, time.perf_counter()
        cpu, idle_began = cpu_seconds(pid), time.perf_counter()
        pause(idle_seconds)
        idle = (cpu_seconds(pid) - cpu) / (time.perf_counter() - idle_began)
        return (
            f"a slave has {there:,} queues after {at - began:.1f} s,"
            f" {cpu:.1f} s CPU, {memory_kib(pid, 'RssAnon') / 1024:,.0f} MiB,"
            f" idle {idle:.2%} of a core, {count_of(pid, 'fd')} descriptors,"
            f" {count_of(pid, 'maps')} mappings"
        )

    def close(self) -> None:
        """Kill what was started here."""
        for process in self._processes:
            process.kill()
            process.wait()


def is_listening(address: tuple[str, int]) -> bool:
    """Say whether somebody listens there."""
    try:
        socket.create_connection(address, 5.0).close()
    except OSError:
        return False
    return True


def measure(kind: str, directory: Path, options: argparse.Namespace) -> None:
    """Measure one kind of node.

    Raises:
        LoadError, NotToBeHadError, OSError: it does not get there.
    """
    with ExitStack() as stack:
        nodes = None
        if kind == "ours":
            network = stack.enter_context(claimed_network())
            nodes = OurNodes(directory / "group", network, slaves_count=int(options.follower))
            stack.callback(nodes.close)
            server = nodes.server(nodes.start(0).pid)
        else:
            more = ROCKSDB if kind == "rocksdb" else None
            server = stack.enter_context(rocketmq_group(directory / "group", 0, more))
        node = Node(server, kind, options.seconds, options.idle)
        stack.callback(node.close)
        for queues in growth(options.queues):
            node.grow_to(queues)
        node.stop_and_start()
        if nodes is not None and options.follower:
            sys.stdout.write(f"{kind}: {nodes.follow(options.idle)}\n")


def main() -> None:
    """Measure one kind of node after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, nargs="+", default=[1_000, 4_000, 10_000])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--idle", type=float, default=30.0)
    parser.add_argument("--follower", action="store_true")
    parser.add_argument("--directory", default=None)
    options = parser.parse_args()
    try:
        growth(options.queues)
    except ValueError as error:
        parser.error(str(error))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for kind in options.only:
        with tempfile.TemporaryDirectory(prefix="scale-", dir=options.directory) as directory:
            try:
                measure(kind, Path(directory), options)
            except (LoadError, NotToBeHadError, OSError) as error:
                sys.stdout.write(f"{kind}: {error}\n")


if __name__ == "__main__":
    main()
