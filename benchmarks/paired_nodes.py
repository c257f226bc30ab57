"""Two nodes beside each other, and a load that takes turns between them.

What a node takes while it idles is not counted: the dearer side takes longer for as many messages,
and fewer would share it.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pipelined import Frames, answer_load, cpu_of, send_frames
from tandem.client.tls import TLSSocket

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "Bench"
PORT = 10911
IDLE_SECONDS = 4.0

CLUSTER = """
cluster: {{name: BenchCluster, data_directory: data}}
store: {{mapped_file_size_commit_log_bytes: 1073741824}}
{section}
groups: {{broker-a: {{kind: classic, broker_role: ASYNC_MASTER}}}}
nodes:
  - {{name: broker-a-0, group: broker-a, broker_id: 0, address: {address}}}
"""

LOADS = {
    "1 in flight": (1, 1),
    "16 in flight": (16, 1),
    "64 in flight": (64, 1),
    "256 in flight": (256, 1),
    "batches of 64, 8 in flight": (8, 64),
}


class Side(NamedTuple):
    """One of the two nodes, and what its load does otherwise.

    Attributes:
        name: In the table.
        address: Of the node.
        pid: Of its process.
        frames: Makes of plain requests what is sent.
        secure: Makes of a connection the one that is used.
        ring_of: Makes of a connection and requests what is sent on it.
    """

    name: str
    address: str
    pid: int
    frames: Callable[[list[bytes]], list[bytes]] = list
    secure: Callable[[socket.socket], TLSSocket] | None = None
    ring_of: Callable[[Any, list[bytes]], Frames] | None = None


@contextlib.contextmanager
def running(
    section: str, address: str, prepare: Callable[[Path], None] = lambda _: None
) -> Iterator[tuple[int, Path]]:
    """Run a node with a section of its cluster file; give its process id and its directory."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        config = Path(name) / "cluster.yaml"
        config.write_text(CLUSTER.format(section=section, address=address))
        prepare(config)
        command = [sys.executable, "-P", "-m", "node", "--config", str(config)]
        node = subprocess.Popen(
            [*command, "--name", "broker-a-0", "--supervised"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert node.stdout is not None
        if not node.stdout.readline().startswith(b"READY"):
            sys.exit("the node did not start")
        try:
            yield node.pid, Path(name)
        finally:
            node.kill()
            node.wait()


def compare(plain: Side, dearer: Side, *, seconds: float, rounds: int) -> None:
    """Put every load on both, in turns, and print a line for each."""
    idle = {side: _idle_share(side.pid) for side in (plain, dearer)}
    for what, (depth, batch) in LOADS.items():
        sent = send_frames(TOPIC, depth, wait=False, batch=batch)
        frames = {side: side.frames(sent) for side in idle}
        found: dict[Side, list[tuple[float, float]]] = {side: [] for side in idle}
        for number in range(rounds):
            for side in [*idle][:: 1 if number % 2 else -1]:
                before, begun = _cpu_of(side.pid), time.monotonic()
                done = answer_load(
                    (side.address, PORT),
                    frames[side],
                    depth,
                    seconds,
                    messages_per_frame=batch,
                    secure=side.secure,
                    ring_of=side.ring_of,
                )
                used = _cpu_of(side.pid) - before
                used -= idle[side] * (time.monotonic() - begun)
                per_second = done.messages / done.seconds
                found[side].append((per_second, used / done.messages_in_all * 1e6))
        _report(what, found, plain, dearer)


def _cpu_of(pid: int) -> float:
    return cpu_of({"node": pid}, ())["node"]


def _idle_share(pid: int) -> float:
    """Return what of a core a node takes without a load."""
    before = _cpu_of(pid)
    time.sleep(IDLE_SECONDS)  # noqa: TID251 - plain code
    return (_cpu_of(pid) - before) / IDLE_SECONDS


def _report(
    what: str, found: dict[Side, list[tuple[float, float]]], plain: Side, dearer: Side
) -> None:
    pairs = list(zip(found[dearer], found[plain], strict=True))
    rate = statistics.median(dear[0] / cheap[0] for dear, cheap in pairs)
    cpu = statistics.median(dear[1] / cheap[1] for dear, cheap in pairs)
    used = {side: statistics.median(each for _, each in found[side]) for side in found}
    print(
        f"{what:<28} CPU {used[plain]:6.1f} us {plain.name}, {used[dearer]:6.1f} us {dearer.name},"
        f" ratio {cpu:5.2f}; rate {rate:5.2f}",
        flush=True,
    )
