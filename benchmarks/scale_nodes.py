"""What do many queues cost a whole node, beside RocketMQ 5.3.3 with files of queues?

    python benchmarks/scale_nodes.py [--queues 1000 4000 10000] [--only ours rocketmq]
                                     [--seconds 5] [--idle 30] [--directory DIR]

One node of each kind, one after the other, with the same frames (benchmarks/rivals.py has their
settings): topics of eight queues, made by their first message, bodies of 1,024 bytes, eight in
flight. The queues grow from one number to the next, and at each of them:

    new queue       CPU of the node from the first message of a queue to the next one's
    idle            CPU of the node while nobody sends, in percent of a core
    memory          of the node that is no file's (RssAnon), and all of it (VmRSS)
    descriptors     and mappings
    puts            a second and CPU each, into the first eight queues, and into all in turn
    stop, start     SIGTERM to the end of the process; start to the first answer, and its CPU

RocketMQ comes from Maven. A node that does not get there says so, and the other goes on.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.pipelined import (
    LoadError,
    answer_load,
    ask,
    cpu_seconds,
    send_all,
    send_frame,
)
from benchmarks.rivals import our_group, pause, rocketmq_group
from tests.compat.programs import NotToBeHadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rivals import Server

QUEUES_A_TOPIC: Final = 8
IN_FLIGHT: Final = 8
SETTLE_SECONDS: Final = 12.0
"""Longer than what both put off: the syncs of queues, the registration."""

STOP_SECONDS_MAX: Final = 600.0


def frame_of(number: int) -> bytes:
    """Return the frame of one message for queue `number`."""
    topic = f"topic-{number // QUEUES_A_TOPIC:06d}"
    return send_frame(
        topic, number, wait=False, queue_id=number % QUEUES_A_TOPIC, queues=QUEUES_A_TOPIC
    )


def memory_kib(pid: int, name: str) -> int:
    """Return a figure of /proc/PID/status in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0])


def count_of(pid: int, what: str) -> int:
    """Return how many descriptors (`fd`) or mappings (`maps`) a process has."""
    place = Path(f"/proc/{pid}/{what}")
    return sum(1 for _ in place.iterdir()) if what == "fd" else place.read_text().count("\n")


class Node:
    """One node whose queues grow, and what is written down of it."""

    def __init__(self, server: Server, name: str, seconds: float, idle_seconds: float) -> None:
        self._server = server
        self._name = name
        self._pid = server.pids["master"]
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._queues = 0
        self._begun_kib = memory_kib(self._pid, "RssAnon")

    def grow_to(self, queues: int) -> None:
        """Send a message into each new queue, and measure."""
        frames = [frame_of(number) for number in range(self._queues, queues)]
        new = len(frames)
        cpu, began = cpu_seconds(self._pid), time.perf_counter()
        send_all(self._server.address, frames)
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
            f"idle {share:.1%} of a core, {anon / 1024:,.0f} MiB of its own,"
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
        """Stop it in an orderly way and start it again, as it was started."""
        command = Path(f"/proc/{self._pid}/cmdline").read_bytes().split(b"\0")[:-1]
        environment = Path(f"/proc/{self._pid}/environ").read_bytes().split(b"\0")[:-1]
        directory = Path(f"/proc/{self._pid}/cwd").readlink()
        cpu, began = cpu_seconds(self._pid), time.perf_counter()
        os.kill(self._pid, signal.SIGTERM)
        cpu_then = cpu
        while is_running(self._pid):
            cpu_then = cpu_seconds(self._pid)
            if time.perf_counter() - began > STOP_SECONDS_MAX:
                raise LoadError(f"{self._name} does not stop")
            pause(0.05)
        stop = time.perf_counter() - began
        began = time.perf_counter()
        pairs = (pair.partition(b"=") for pair in environment)
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not self._serves():
                if process.poll() is not None:
                    raise LoadError(f"{self._name} does not start again")
                pause(0.05)
            seconds = time.perf_counter() - began
            self._say(
                f"clean stop {stop:.1f} s, {cpu_then - cpu:.1f} s CPU;"
                f" start {seconds:.1f} s, {cpu_seconds(process.pid):.1f} s CPU"
            )
        finally:
            process.kill()
            process.wait()

    def _serves(self) -> bool:
        try:
            return ask(self._server.address, frame_of(0)).get("code") == 0
        except (OSError, LoadError):
            return False

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{self._name}, {self._queues:,} queues: {text}\n")
        sys.stdout.flush()


def is_running(pid: int) -> bool:
    """Say whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    """Measure one kind of node after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, nargs="+", default=[1_000, 4_000, 10_000])
    parser.add_argument("--only", nargs="+", default=["ours", "rocketmq"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--idle", type=float, default=30.0)
    parser.add_argument("--directory", default=None)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for kind in options.only:
        group = our_group if kind == "ours" else rocketmq_group
        with tempfile.TemporaryDirectory(prefix="scale-", dir=options.directory) as directory:
            try:
                with group(Path(directory) / "group", 0) as server:
                    node = Node(server, kind, options.seconds, options.idle)
                    for queues in options.queues:
                        node.grow_to(queues)
                    node.stop_and_start()
            except (LoadError, NotToBeHadError, OSError) as error:
                sys.stdout.write(f"{kind}: {error}\n")


if __name__ == "__main__":
    main()
