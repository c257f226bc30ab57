"""How many instructions does each path take, in another version and in this one?

    python benchmarks/instructions.py OLD [NEW] [--only simulated,inside,async,sync,fenced]
                                      [--rounds 3] [--keep DIR]

OLD and NEW (this checkout, if it is left out) are checkouts, each with its `.venv` and its loops in
C. Whatever else a machine does, an instruction is an instruction: this compares versions where
seconds cannot.

Nodes run as processes of their own, under valgrind's callgrind. It counts while a load is on, and
not while they start. One connection puts messages of 1 KB: as many at once as are in flight, and
again when all are answered. What a node takes for itself in that time, measured while nothing is
asked of it, is taken away. A figure is the sum of all nodes of the group; median of some rounds,
lowest and highest. Appends and recoveries are made in one process.

`simulated` needs no valgrind and little time: whole nodes on virtual time, as in
`tests/test_put_path.py`. It counts instructions of Python, trio's among them; what is done in C is
not seen.

Only instructions of the processes are counted: not those of the system for them, nor what a miss of
a cache costs. `--keep DIR` leaves what callgrind says of each function there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.pipelined import (
    LoadError,
    Ring,
    ask,
    count_answers,
    send_frames,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
COUNTED = ROOT / "benchmarks" / "counted.py"
BYTECODES = ROOT / "benchmarks" / "bytecodes.py"
TOPIC = "Bench"
IDLE_SECONDS = 20.0
READY_SECONDS_MAX = 3_600.0
ANSWER_SECONDS_MAX = 300.0
SETTLE_SECONDS = 2.0
"""Until queues and index have what was put."""

ROUNDS_OF = {1: 300, 64: 20, 256: 8}
"""By how many are in flight: how often all of them are put."""
CATCH_UP_FRAMES = 128
CATCH_UP_DEPTH = 8
BATCH = 64
GROUPS = {
    "async": ("ASYNC_MASTER", 1, (1, 64, 256)),
    "sync": ("SYNC_MASTER", 2, (1, 64)),
    "fenced": ("fenced", 3, (1, 64)),
}
TOTAL = re.compile(rb"^totals: (\d+)", re.MULTILINE)

END = "\n"
"""What `counted.py` says when there is no other step."""

Popen = subprocess.Popen[str]

Found = dict[str, list[float]]
"""By what was done: instructions for each message, one figure a round."""


class Valgrind:
    """Counts in processes that were started behind `command`."""

    def __init__(self, directory: Path) -> None:
        self._prefix = directory / "vgdb"
        self._directory = directory
        self._dumps: dict[int, int] = {}
        directory.mkdir()
        self.command = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--vgdb-prefix={self._prefix}",
            f"--callgrind-out-file={directory}/out.%p",
            f"--log-file={directory}/log.%p",
        ]

    def order(self, pid: int, order: str) -> None:
        """Give callgrind an order in a process."""
        command = ["vgdb", f"--vgdb-prefix={self._prefix}", f"--pid={pid}", *order.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"valgrind in process {pid} does not take {order!r}: {done.stderr.strip()}")

    def counted(self, pid: int) -> int:
        """Return how many instructions a process took since `zero`."""
        self.order(pid, "dump")
        number = self._dumps[pid] = self._dumps.get(pid, 0) + 1
        total = TOTAL.search(self._dump(pid, number).read_bytes())
        return 0 if total is None else int(total[1])

    def keep(self, pid: int, path: Path) -> None:
        """Leave what was counted last, function by function, in a file."""
        shutil.copyfile(self._dump(pid, self._dumps[pid]), path)

    def _dump(self, pid: int, number: int) -> Path:
        return self._directory / f"out.{pid}.{number}"


class Side(NamedTuple):
    """One of the two trees."""

    name: str
    tree: Path
    keep: Path | None

    @property
    def python(self) -> str:
        """Return its interpreter."""
        return str(self.tree / ".venv" / "bin" / "python")

    def kept(self, what: str, node: str = "") -> Path:
        """Return the file for what callgrind says."""
        assert self.keep is not None
        return self.keep / re.sub(r"\W+", "-", f"{self.name} {what} {node}".strip())


class Node(NamedTuple):
    """One process of a group, and where it takes messages."""

    name: str
    pid: int
    address: tuple[str, int]


class Group:
    """Nodes that are counted."""

    def __init__(self, side: Side, valgrind: Valgrind, nodes: list[Node]) -> None:
        self._side = side
        self._valgrind = valgrind
        self._idle = 0.0
        self.nodes = nodes
        self.master = nodes[0]

    def warm(self, frames: list[bytes]) -> None:
        """Wait for a master that has all it waits for, and until no code is new."""
        end = time.monotonic() + READY_SECONDS_MAX
        while not self._has_master(frames[0]):
            if time.monotonic() > end:
                sys.exit("there is no master that takes messages")
            pause(1.0)
        for node in self.nodes:
            self._valgrind.order(node.pid, "instrumentation on")
        self.put(frames, 1, 100)
        self.put(frames, 64, 4)
        pause(IDLE_SECONDS)
        self._idle = self.count("idle", lambda: pause(IDLE_SECONDS)) / IDLE_SECONDS

    def _has_master(self, frame: bytes) -> bool:
        for node in self.nodes:
            if takes(node, frame):
                self.master = node
                return True
        return False

    @property
    def idle(self) -> float:
        """Return what all nodes take for themselves in a second."""
        return self._idle

    def count(self, what: str, take: Callable[[], object]) -> float:
        """Return what all nodes took for something, and for what is left of it afterwards."""
        for node in self.nodes:
            self._valgrind.order(node.pid, "zero")
        begun = time.monotonic()
        take()
        elapsed = time.monotonic() - begun
        counts = [self._valgrind.counted(node.pid) for node in self.nodes]
        if self._side.keep is not None:
            for node in self.nodes:
                self._valgrind.keep(node.pid, self._side.kept(what, node.name))
        return sum(counts) - self._idle * elapsed

    def put(self, frames: list[bytes], depth: int, rounds: int) -> None:
        """Put `depth` messages at once, and again when all of them are answered."""
        ring = Ring(frames)
        with socket.create_connection(self.master.address, ANSWER_SECONDS_MAX) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rest = b""
            for _ in range(rounds):
                stream.sendall(ring.take(depth))
                left = depth
                while left:
                    data = stream.recv(1 << 18)
                    if not data:
                        raise LoadError("the node has closed the connection")
                    count, rest = count_answers(rest + data)
                    left -= count
        pause(SETTLE_SECONDS)

    def catch_up(self, batches: list[bytes], frame: bytes) -> float:
        """Return what it took to bring a slave what came while it was stopped."""
        slave = self.nodes[1]
        os.kill(slave.pid, signal.SIGSTOP)
        self.put(batches, CATCH_UP_DEPTH, CATCH_UP_FRAMES // CATCH_UP_DEPTH)

        def follow() -> None:
            os.kill(slave.pid, signal.SIGCONT)
            # Answered when the slave has it, and all before it.
            while not takes(self.master, frame):
                pause(0.1)

        return self.count("catch-up", follow)


def takes(node: Node, frame: bytes) -> bool:
    """Whether a node stores a message, and has it wherever it has to be."""
    with contextlib.suppress(OSError, LoadError):
        return ask(node.address, frame).get("code") == 0
    return False


def pause(seconds: float) -> None:
    """Let nodes be by themselves."""
    time.sleep(seconds)  # noqa: TID251 - plain code


@contextlib.contextmanager
def running(side: Side, *arguments: str) -> Iterator[Popen]:
    """Run `counted.py` in a tree."""
    with subprocess.Popen(
        [*arguments],
        cwd=side.tree,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


def line_of(process: Popen) -> str:
    """Return the next line of a process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit("what is counted has ended; see above")
    return line


def count(kind: str, side: Side, rounds: int) -> Found:
    """Count one kind of thing in one tree."""
    found: Found = {}
    if kind == "inside":
        count_inside(side, rounds, found)
    elif kind == "simulated":
        count_simulated(side, found)
    else:
        count_group(kind, side, rounds, found)
    return found


def count_group(kind: str, side: Side, rounds: int, found: Found) -> None:
    """Count puts in a group."""
    role, nodes_count, depths = GROUPS[kind]
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        valgrind = Valgrind(Path(name, "valgrind"))
        data = Path(name, "data")
        data.mkdir()
        arguments = ("group", role, str(nodes_count), str(data), *valgrind.command)
        with running(side, side.python, "-P", str(COUNTED), *arguments) as process:
            nodes = [
                Node(node, pid, (address.rpartition(":")[0], int(address.rpartition(":")[2])))
                for node, pid, address in json.loads(line_of(process))
            ]
            group = Group(side, valgrind, nodes)
            frames = send_frames(TOPIC, 256, wait=True)
            group.warm(frames)
            found.setdefault(f"{kind}, idle, a second", []).append(group.idle)
            for _ in range(rounds):
                for depth in depths:
                    what = f"{kind}, {depth} in flight"
                    put = partial(group.put, frames, depth, ROUNDS_OF[depth])
                    taken = group.count(what, put)
                    found.setdefault(what, []).append(taken / (depth * ROUNDS_OF[depth]))
                if kind == "sync":
                    batches = send_frames(TOPIC, CATCH_UP_DEPTH, wait=False, batch=BATCH)
                    taken = group.catch_up(batches, frames[0])
                    found.setdefault("catch-up", []).append(taken / (CATCH_UP_FRAMES * BATCH))


def count_inside(side: Side, rounds: int, found: Found) -> None:
    """Count appends and recoveries in one process."""
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
            valgrind = Valgrind(Path(name, "valgrind"))
            command = [*valgrind.command, side.python, "-P", str(COUNTED), "inside", name]
            with running(side, *command) as process:
                assert process.stdin is not None
                for line in iter(partial(line_of, process), END):
                    what, units = json.loads(line)
                    # Code that was not counted before may run on for a while.
                    valgrind.order(process.pid, "instrumentation on")
                    valgrind.order(process.pid, "zero")
                    print(file=process.stdin, flush=True)
                    line_of(process)
                    taken = valgrind.counted(process.pid)
                    if what:
                        found.setdefault(what, []).append(taken / units)
                    if what and side.keep is not None:
                        valgrind.keep(process.pid, side.kept(what))
                    print(file=process.stdin, flush=True)


def count_simulated(side: Side, found: Found) -> None:
    """Count Python's instructions in simulated nodes: the same in every run."""
    with (
        tempfile.TemporaryDirectory(prefix="tandem-bench-") as name,
        running(side, side.python, "-P", str(BYTECODES), name) as process,
    ):
        for line in iter(partial(line_of, process), END):
            what, taken = json.loads(line)
            found[what] = [taken]


def check(side: Side, *, needs_valgrind: bool) -> None:
    """End with a sentence if a tree cannot be counted."""
    for tool in ("valgrind", "vgdb") if needs_valgrind else ():
        if shutil.which(tool) is None:
            sys.exit(
                f"{tool} is missing: install valgrind (Debian, Ubuntu: apt-get install valgrind)"
            )
    if not Path(side.python).exists():
        sys.exit(f"{side.tree} has no .venv: run {side.tree}/scripts/setup first")


def report(what: str, old: list[float], new: list[float]) -> None:
    """Print one row."""
    before, after = statistics.median(old), statistics.median(new)
    spread = " and ".join(f"{min(each):,.0f} to {max(each):,.0f}" for each in (old, new))
    print(
        f"| {what} | {before:,.0f} | {after:,.0f} | {after / before:.3f} | {spread} |", flush=True
    )


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--only", default="simulated,inside,async,sync,fenced")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a directory for what callgrind says")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    sides = [
        Side(name, getattr(options, name).resolve(), options.keep and options.keep.resolve())
        for name in ("old", "new")
    ]
    kinds = options.only.split(",")
    for side in sides:
        check(side, needs_valgrind=kinds != ["simulated"])
    print("| instructions a message | old | new | new : old | lowest to highest |")
    print("| --- | ---: | ---: | ---: | --- |")
    # Instructions do not care how long they take, so all is counted at once.
    with ThreadPoolExecutor(2 * len(kinds)) as pool:
        pairs = [
            [pool.submit(count, kind, side, options.rounds) for side in sides] for kind in kinds
        ]
        for old, new in pairs:
            after = new.result()
            for what, before in old.result().items():
                report(what, before, after[what])


if __name__ == "__main__":
    main()
