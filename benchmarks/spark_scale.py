"""Does a scan cost the same for each megabyte, however long the log is? And what is planned?

    python benchmarks/spark_scale.py [--directory DIR] [--mebibytes 64 256 1024 2048]
                                     [--body-bytes 1024] [--rounds 3] [--ranges 10000]

Builds one log of files of 64 MiB, as `spark_scan.py` does: every byte of it is on the disk. Shorter
ones are its first files, by hard links. In each round each log is read into the `noop` sink, all
columns and then five, after a query that reads nothing, in one session of two cores. A log of less
than 1 GiB is read as often as makes that, and counts with the mean: one that is short has no luck
that others cannot have. Prints the least of the rounds: processor seconds of all processes
together, and seconds, for each GB of log, in all and without those of the query that reads nothing;
then what the driver's heap holds after a collection, what the JVM has in memory, and the most that
a Python worker had.

Then it plans `--ranges` splits of the longest log, and as many ranges of queues, without Spark, and
prints the seconds of that.
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spark_scan import (
    FILE_BYTES,
    NARROW,
    build,
    build_queues,
    cost_of,
    noop,
)
from tandem.client.results import MessageQueue
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.table import plan_table
from tandem.spark.live.options import parse_options
from tandem.spark.live.ranges import QueueRange
from tandem.spark.live.reader import partitions_of
from tandem.spark.session import local_session
from tandem.wire.record_scan import walk_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

WARM_UP_ROUNDS: Final = 3
ROUND_BYTES: Final = 1 << 30
NOTHING_TIMES: Final = 4
_MIB: Final = 1 << 20
_PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")


def shorter(root: Path, whole: Path, files: int, starts: NDArray[np.int64]) -> Path:
    """Make a store of the first files of another one, and queues of that length."""
    (root / "commitlog").mkdir(parents=True)
    for number in range(files):
        name = f"{number * FILE_BYTES:020d}"
        os.link(whole / "commitlog" / name, root / "commitlog" / name)
    data = (whole / "commitlog" / ("0" * 20)).read_bytes()
    sizes = np.ndarray((len(data) - 3,), ">i4", data, strides=(1,))[starts].astype(np.int64)
    build_queues(root, files, starts, sizes)
    return root


def record_places(whole: Path) -> NDArray[np.int64]:
    """Where records start in each file."""
    data = (whole / "commitlog" / ("0" * 20)).read_bytes()
    return np.array(walk_records(data).starts, np.int64)


def heap_mib(spark: SparkSession) -> float:
    """What the driver's heap holds after a collection."""
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]  # noqa: SLF001
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / _MIB


def jvm_mib(spark: SparkSession) -> float:
    """What the JVM of the driver, whose threads run the tasks here, has in memory."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - there is no other way to the process
    assert gateway is not None
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{gateway.proc.pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def worker_peak_mib() -> float:
    """The most memory that any Python worker of this process has had."""
    peaks = [0.0]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_python = (entry / "exe").readlink().name.startswith("python")
            if is_python and b"pyspark" in (entry / "cmdline").read_bytes() and _is_ours(entry):
                found = _PEAK.search((entry / "status").read_text())
                peaks.append(int(found[1]) / 1024 if found else 0.0)
        except OSError:  # it has ended in this moment, or is no process
            continue
    return max(peaks)


def _is_ours(entry: Path) -> bool:
    process_id = int(entry.name)
    while process_id > 1:
        if process_id == os.getpid():
            return True
        stat = Path(f"/proc/{process_id}/stat").read_text()
        process_id = int(stat.rsplit(")", 1)[1].split()[1])
    return False


def scan(spark: SparkSession, store: Path, columns: tuple[str, ...], **options: str) -> None:
    """Read a store and throw its rows away."""
    reader = spark.read.format("commitlog").options(**options)
    if columns:
        reader = reader.option("columns", ",".join(columns))
    noop(reader.load(str(store)))


class Least(NamedTuple):
    """The least of some rounds: processor seconds of all processes, and seconds."""

    cpu: float = math.inf
    wall: float = math.inf

    def or_of(self, work: Callable[[], object], times: int) -> Least:
        """Do something so many times, and return the less of what it took each time and this."""

        def repeatedly() -> None:
            for _ in range(times):
                work()

        began = time.perf_counter()
        cpu = cost_of(repeatedly) / times
        wall = (time.perf_counter() - began) / times
        return Least(min(self.cpu, cpu), min(self.wall, wall))

    def by_gb(self, base: Least, giga_bytes: float) -> list[str]:
        """Cells of the table: in all, by GB, and by GB without what a query costs by itself."""
        return [
            cell
            for own, bare in zip(self, base, strict=True)
            for cell in (
                f"{own:.2f}",
                f"{own / giga_bytes:.2f}",
                f"{(own - bare) / giga_bytes:.2f}",
            )
        ]


def scan_nothing(spark: SparkSession, store: Path) -> None:
    """Ask for a topic that there is not: what a query costs that reads nothing."""
    scan(spark, store, (), topic="Nobody", ignoreMissingTopics="true", consumeQueues="always")


def measure(spark: SparkSession, stores: dict[int, Path], rounds: int) -> None:
    """Read all logs in turns, and print the table."""
    ways = ((), NARROW)
    base = Least()
    least = {(files, columns): Least() for files in stores for columns in ways}
    memory = dict.fromkeys(stores, "")
    for number in range(rounds + 1):
        for files, store in stores.items():
            times = max(1, ROUND_BYTES // (files * FILE_BYTES))
            found = base.or_of(lambda: scan_nothing(spark, store), NOTHING_TIMES)  # noqa: B023
            base = found if number else base
            for columns in ways:
                spent = least[files, columns].or_of(
                    lambda: scan(spark, store, columns),  # noqa: B023
                    times,
                )
                least[files, columns] = spent if number else Least()
            held = (heap_mib(spark), jvm_mib(spark), worker_peak_mib())
            memory[files] = " | ".join(f"{each:.0f}" for each in held)
            print(f"round {number}, {files * FILE_BYTES >> 20} MiB: {least[files, ()]}", flush=True)
    print(f"\na query that reads nothing: {base.cpu:.2f} s of processor, {base.wall:.2f} s\n")
    sides = "CPU s | by GB | own by GB | s | by GB | own by GB"
    print(
        f"| log, MiB | all columns: {sides} | five: {sides}"
        " | heap after, MiB | JVM | a worker's peak |"
    )
    print("|" + "---|" * 16)
    for files in stores:
        cells = [f"{files * FILE_BYTES >> 20:,}"]
        for columns in ways:
            cells += least[files, columns].by_gb(base, files * FILE_BYTES / 1e9)
        print(f"| {' | '.join(cells)} | {memory[files]} |", flush=True)


def plan(store: Path, ranges: int) -> None:
    """Plan `ranges` splits of a log, and as many ranges of queues; print the seconds."""
    size = sum(file.stat().st_size for file in (store / "commitlog").iterdir())
    options = ScanOptions(paths=(str(store),), split_bytes=max(size // ranges, 4096))
    for turn in ("", ", again", ", again"):
        began, before = time.perf_counter(), time.process_time()
        parts = plan_table(options)
        cpu, wall = time.process_time() - before, time.perf_counter() - began
        print(
            f"{len(parts):,} splits of {size >> 20:,} MiB of log planned{turn}: {cpu:.2f} s of"
            f" processor, {wall:.2f} s, {len(pickle.dumps(parts)):,} bytes",
            flush=True,
        )
    live = parse_options({"nameServers": "10.0.0.1:9876", "subscribe": "orders"})
    queues = [
        QueueRange(MessageQueue("orders", f"broker-{n % 10}", n // 10), 0, 1000, "cluster")
        for n in range(ranges)
    ]
    began, before = time.perf_counter(), time.process_time()
    partitions = partitions_of(queues, live)
    print(
        f"{len(queues):,} ranges of queues as {len(partitions):,} tasks:"
        f" {time.process_time() - before:.2f} s of processor, {time.perf_counter() - began:.2f} s"
    )


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[64, 256, 1024, 2048])
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranges", type=int, default=10_000)
    given = parser.parse_args()
    lengths = sorted({max(1, size >> 6) for size in given.mebibytes})
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        whole = Path(folder, "whole")
        records = build(whole, lengths[-1], given.body_bytes)
        starts = record_places(whole)
        print(f"{records:,} records with bodies of {given.body_bytes:,} bytes\n", flush=True)
        plan(whole, given.ranges)
        stores = {
            files: shorter(Path(folder, f"files-{files}"), whole, files, starts)
            for files in lengths
        }
        with local_session(master="local[2]") as spark:
            for _ in range(WARM_UP_ROUNDS):
                scan(spark, stores[lengths[0]], ())
            measure(spark, stores, given.rounds)


if __name__ == "__main__":
    main()
