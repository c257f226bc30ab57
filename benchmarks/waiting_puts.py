"""Puts that wait for a slave, and what they cost. A part of `replication.py`."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from ha.classic.group_transfer_service import GroupTransferService
from ha.replication import ReplicationListener
from store import MessageStore, PutMessage, PutMessageStatus
from tandem.wire.message import Host

BODY = b"x" * 1024
BORN_HOST = Host("127.0.0.1", 50_000).packed
PUT_SECONDS = 3.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Service(Protocol):
    """Replicates a store."""

    group_transfer_service: GroupTransferService

    async def run(
        self, listener: ReplicationListener, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Replicate until cancelled."""


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """Return what this process and another have used up."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS + time.process_time()


async def wait_caught_up(store: MessageStore, service: Service) -> None:
    """Wait until the slave has acknowledged everything."""
    slave = service.group_transfer_service.slaves["slave"]
    while slave.ack_offset < store.max_physical_offset:  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.002)


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
            result = self._store.puts.put_message(self._message)
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


class Puts(msgspec.Struct, frozen=True):
    """One turn of puts that wait."""

    count: int
    seconds: float
    latencies_ms: list[float]
    cpu_seconds: float


async def measure_puts(
    store: MessageStore,
    service: Service,
    slave: subprocess.Popen[str],
    in_flight: int,
    seconds: float = PUT_SECONDS,
) -> Puts:
    """Keep a number of puts waiting for some time."""
    producer = Producer(store, service)
    service.group_transfer_service._after_release = producer.again  # noqa: SLF001 - of this run
    producer.put(in_flight)
    await trio.sleep(min(0.3, seconds / 3))
    producer.latencies_ms.clear()
    start, cpu_before = time.perf_counter(), cpu_seconds(slave)
    await trio.sleep(seconds)
    elapsed, cpu = time.perf_counter() - start, cpu_seconds(slave) - cpu_before
    latencies = producer.latencies_ms.copy()
    producer.running = False
    await wait_caught_up(store, service)
    return Puts(len(latencies), elapsed, latencies, cpu)


def print_turns(name: str, turns: list[Puts], base: list[Puts] | None = None) -> None:
    """Print one line over all turns, and its ratios to another's."""
    latencies = sorted(latency for turn in turns for latency in turn.latencies_ms)
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    rate, cpu_us = rate_of(turns), cpu_us_of(turns)
    ratio = ""
    if base is not None:
        ratio = f"   rate {rate / rate_of(base):.2f}, CPU {cpu_us / cpu_us_of(base):.2f} of it"
    print(
        f"  {name:<30} {rate:>9,.0f}/s   p50 {p50:6.3f} ms   p99 {p99:6.3f} ms"
        f"   CPU {cpu_us:5.1f} us{ratio}",
        flush=True,
    )


def rate_of(turns: list[Puts]) -> float:
    """Return the median rate of turns, in puts a second."""
    return statistics.median(turn.count / turn.seconds for turn in turns)


def cpu_us_of(turns: list[Puts]) -> float:
    """Return microseconds of CPU for a put."""
    return sum(turn.cpu_seconds for turn in turns) / sum(turn.count for turn in turns) * 1e6
