"""What do very many timers cost a node that has them, and how does it start with them?

    python benchmarks/timers.py [--timers 100000 1000000] [--idle 20] [--deliver 5000]
                                [--directory DIR]

One node of a classic group. To put a million messages with a time of their own through a
connection takes a quarter of an hour of CPU on a busy machine, so they are put into its store by
one process that has it open while the node is down. They are due an hour to three days later. Then:

    enter           CPU until the node has read all of them into its timers, for each
    memory          that is no file's, for each; before and after is a node without timers
    idle            CPU in percent of a core while nobody sends and nothing is due
    clean stop      and the start after it, seconds and CPU, until the node answers
    kill            the same after SIGKILL
    deliver         CPU for each of some that are due while all others wait
"""

from __future__ import annotations

import argparse
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.crowds import HOUR_MS, SMALL_BODY, SPREAD_MS, TOPIC, put_frame, send_windowed
from benchmarks.pipelined import LoadError, ask, cpu_seconds
from benchmarks.rivals import STORE, pause
from benchmarks.scale_nodes import OurNodes, Restarted, memory_kib
from store import MessageStore, PutMessage, StoreConfig
from store.delayed.timer_request import TimerSettings, timer_rewrite
from store.machine.real_disk import RealDisk
from tandem.testing.addresses import claimed_network
from tandem.wire.message import Host

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES: Final = 4
ROUND: Final = 64
DELAY_MS: Final = 60_000
LOOK_SECONDS: Final = 10.0
QUIET_SHARE: Final = 0.015
"""Of a core. On a full machine a busy node gets little more."""

TIMED: Final = {
    "timer_wheel_enable": True,
    "file_reserved_time_hours": 72,
    "disk_max_used_space_ratio": 95,
}


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def fill(directory: str, address: str, timers: int) -> float:
    """Put timers into the store of a node that is down; return the CPU seconds."""
    known = set(StoreConfig.__struct_fields__)
    given: dict[str, Any] = {**STORE, **TIMED}
    settings = {name: value for name, value in given.items() if name in known}
    store = MessageStore.open(
        StoreConfig(directory, os_page_cache_busy_timeout_ms=600_000, **settings),
        disk=RealDisk(),
        wall_clock_ms=now_ms,
        store_host=Host(address, 10_911),
        is_slave=False,
    )
    chance, born = random.Random(1), Host("127.0.0.1", 50_000).packed
    store.puts.take_timed(
        partial(timer_rewrite, settings=TimerSettings(), num_at=lambda _: 0, chance=chance)
    )
    began_ms, cpu = now_ms(), time.process_time()
    for number in range(timers):
        due_ms = began_ms + HOUR_MS + chance.randrange(SPREAD_MS)
        properties = b"UNIQ_KEY\x017F0000010001%020X\x02TIMER_DELIVER_MS\x01%d\x02"
        message = PutMessage(
            TOPIC, number % QUEUES, SMALL_BODY, properties % (number, due_ms), now_ms(), born
        )
        result = store.puts.put_message(message)
        if not result.status.is_stored:
            raise SystemExit(result.reason)
        if number % ROUND == 0:
            store.announce()
    store.announce()
    cpu = time.process_time() - cpu
    store.close()
    return cpu


class Timed:
    """A node with timers, and what is written down of it."""

    def __init__(self, nodes: OurNodes, directory: Path) -> None:
        self._nodes = nodes
        self._store = directory
        self._server = nodes.server(nodes.start(0).pid)
        self._process = Restarted(self._server.pids["master"])
        self._timers = 0

    def close(self) -> None:
        """Kill what was started here."""
        self._process.close()

    def measure(self, timers: int, idle: float, deliver: int) -> None:
        """Give it so many timers more that there are `timers`, and look."""
        before = self._settled_kib()
        self._process.end(signal.SIGTERM)
        new, self._timers = timers - self._timers, timers
        command = [*(sys.executable, __file__, "--fill", str(new), "--directory", str(self._store))]
        command += ["--address", self._server.address[0]]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self._say(said.strip())
        seconds, cpu = self._process.start(self._serves)
        self._settled_kib()
        all_cpu = cpu_seconds(self._process.pid)
        self._say(f"answers after {seconds:.1f} s; {all_cpu / new * 1e6:.1f} us CPU to enter each")
        self._look(idle, before)
        for what, number in (("clean stop", signal.SIGTERM), ("kill", signal.SIGKILL)):
            stop, stop_cpu = self._process.end(number)
            start, cpu = self._process.start(self._serves)
            self._settled_kib()
            self._say(
                f"{what} {stop:.1f} s, {stop_cpu:.1f} s CPU; start {start:.1f} s, {cpu:.1f} s CPU,"
                f" {cpu_seconds(self._process.pid):.1f} s CPU till it is still"
            )
        self._look(idle, before)
        self._deliver(deliver)

    def _look(self, idle: float, before_kib: int) -> None:
        cpu, began = cpu_seconds(self._process.pid), time.perf_counter()
        pause(idle)
        share = (cpu_seconds(self._process.pid) - cpu) / (time.perf_counter() - began)
        own = memory_kib(self._process.pid, "RssAnon")
        self._say(
            f"idle {share:.2%} of a core, {own / 1024:,.0f} MiB of its own,"
            f" {(own - before_kib) * 1024 / self._timers:,.0f} bytes a timer"
        )

    def _deliver(self, count: int) -> None:
        due_ms = now_ms() + DELAY_MS
        with socket.create_connection(self._server.address, 30.0) as one:
            send_windowed(one, self._due_frames(count, due_ms))
        self._settled_kib()
        left = (due_ms - now_ms()) / 1000
        if left < 0:
            self._say(f"{count} were not put within {DELAY_MS / 1000:.0f} s: nothing is said")
            return
        cpu = cpu_seconds(self._process.pid)
        pause(left)
        self._settled_kib()
        cpu = cpu_seconds(self._process.pid) - cpu
        self._say(f"{cpu / count * 1e6:.0f} us CPU for each of {count} that were due")

    @staticmethod
    def _due_frames(count: int, due_ms: int) -> Iterator[bytes]:
        for number in range(count):
            yield put_frame(number, SMALL_BODY, {"TIMER_DELIVER_MS": str(due_ms)})

    def _settled_kib(self) -> int:
        pid, before = self._process.pid, -1.0
        while True:
            now = cpu_seconds(pid)
            if before >= 0 and now - before < QUIET_SHARE * LOOK_SECONDS:
                return memory_kib(pid, "RssAnon")
            before = now
            pause(LOOK_SECONDS)

    def _serves(self) -> bool:
        try:
            return ask(self._server.address, put_frame(0)).get("code") == 0
        except (OSError, LoadError):
            return False

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{self._timers:,} timers: {text}\n")
        sys.stdout.flush()


def main() -> None:
    """Measure each number of timers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--timers", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--deliver", type=int, default=5_000)
    parser.add_argument("--directory", default=None)
    parser.add_argument("--fill", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill is not None:
        cpu = fill(options.directory, options.address, options.fill)
        sys.stdout.write(f"put by one process, {cpu / options.fill * 1e6:.1f} us CPU each\n")
        return
    with ExitStack() as stack:
        at = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="timers-", dir=options.directory)
        )
        network = stack.enter_context(claimed_network())
        nodes = OurNodes(Path(at) / "group", network, slaves_count=0, store=TIMED)
        stack.callback(nodes.close)
        timed = Timed(nodes, nodes.directory(0))
        stack.callback(timed.close)
        while not timed._serves():  # noqa: SLF001
            pause(0.3)
        for timers in sorted(options.timers):
            timed.measure(timers, options.idle, options.deliver)


if __name__ == "__main__":
    main()
