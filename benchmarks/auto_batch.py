"""What does it bring that sends of many tasks share requests?

    python benchmarks/auto_batch.py [--seconds 2] [--rounds 5] [--tasks 1 16 64 256 1024]
                                    [--loops trio asyncio] [--body-bytes 1024]

One node as a process, one producer here, a task per sender; each awaits its answer before it sends
again. "alone" is every send as a request of its own (`batch_max_bytes=0`), "gathered" is the
default. The two take turns, round by round, at the same node, so that what else the machine does
meets both. CPU is per message, of this process and of the node's; it depends less on the machine's
other work than rates do.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.node import TOPIC, running_cluster
from tandem.client import Producer
from tandem.client.accumulator import BATCH_MAX_BYTES
from tandem.wire.message import Message

WARM_SHARE = 0.2


class Outcome(msgspec.Struct, frozen=True):
    """One round: messages a second, microseconds of CPU a message, median and p99 in ms."""

    rate: float
    client_us: float
    node_us: float
    p50_ms: float
    p99_ms: float


def node_process() -> int:
    """Return the process id of the node that this process started."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return int(children[-1])


def cpu_seconds(process_id: int) -> float:
    """Return what a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def one_round(
    host: str, tasks: int, seconds: float, body: bytes, batch_max_bytes: int
) -> Outcome:
    """Send for this long."""
    latencies: list[float] = []
    clock = time.perf_counter
    async with Producer(
        [f"{host}:9876"], group="bench", batch_max_bytes=batch_max_bytes
    ) as producer:
        await producer.send(Message(TOPIC, body))
        warm = clock() + WARM_SHARE * seconds
        end = warm + seconds
        at_warm = (0.0, 0.0)

        async def send_on() -> None:
            while (sent_at := clock()) < end:
                await producer.send(Message(TOPIC, body))
                if sent_at >= warm:
                    latencies.append(clock() - sent_at)

        async def note_warm() -> None:
            nonlocal at_warm
            await anyio.sleep(max(0.0, warm - clock()))
            at_warm = (time.process_time(), cpu_seconds(node))

        node = node_process()
        async with anyio.create_task_group() as group:
            group.start_soon(note_warm)
            for _ in range(tasks):
                group.start_soon(send_on)
        client_seconds = time.process_time() - at_warm[0]
        node_seconds = cpu_seconds(node) - at_warm[1]
        lasted = clock() - warm
    count = len(latencies)
    latencies.sort()
    return Outcome(
        count / lasted,
        client_seconds / count * 1e6,
        node_seconds / count * 1e6,
        latencies[count // 2] * 1000,
        latencies[count * 99 // 100] * 1000,
    )


def median(outcomes: list[Outcome]) -> Outcome:
    """Return the median of each figure."""
    return Outcome(
        *(
            statistics.median(getattr(each, name) for each in outcomes)
            for name in Outcome.__struct_fields__
        )
    )


def main() -> None:
    """Run all combinations and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 16, 64, 256, 1024])
    parser.add_argument("--loops", nargs="+", default=["trio", "asyncio"])
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--ways", nargs="+", default=["alone", "gathered"])
    options = parser.parse_args()
    body = bytes(options.body_bytes)
    limits = {"alone": 0, "gathered": BATCH_MAX_BYTES}
    print(f"{tempfile.gettempdir()}: bodies of {len(body)} bytes, {options.rounds} rounds")
    for loop, tasks in itertools.product(options.loops, options.tasks):
        found: dict[str, list[Outcome]] = {way: [] for way in options.ways}
        for number in range(options.rounds):
            with running_cluster(0, "ASYNC_MASTER") as host:
                # A node that has just started is slower: that must not meet the same one each time.
                anyio.run(one_round, host, tasks, options.seconds / 2, body, 0, backend=loop)
                for way in options.ways[:: -1 if number % 2 else 1]:
                    gc.collect()
                    arguments = (host, tasks, options.seconds, body, limits[way])
                    found[way].append(anyio.run(one_round, *arguments, backend=loop))
        for way, outcomes in found.items():
            middle = median(outcomes)
            rates = sorted(each.rate for each in outcomes)
            print(
                f"{loop:8} {tasks:5} tasks {way:9} {middle.rate:>9,.0f}/s"
                f"  client {middle.client_us:6.1f} us  node {middle.node_us:6.1f} us"
                f"  p50 {middle.p50_ms:7.2f} ms  p99 {middle.p99_ms:7.2f} ms"
                f"   ({rates[0]:,.0f} to {rates[-1]:,.0f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
