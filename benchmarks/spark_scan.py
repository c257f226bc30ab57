"""What does it cost Spark to read a commit log, next to reading the same rows from Parquet?

    python benchmarks/spark_scan.py [--directory DIR] [--mebibytes 256] [--body-bytes 1024 104]
                                    [--rounds 5] [--parts] [--java-options=-XX:TieredStopAtLevel=1]

Builds a log of 64 MiB files with 16 topics and three properties a message, has Spark write its rows
to Parquet (snappy, Spark's defaults), and runs the same questions of both. Prints a table in
Markdown: processor seconds of all processes together, which are this one, the JVM and every Python
worker, user and system; medians of the rounds. The rounds of log and Parquet alternate, so that
other work on the machine hits both; the ratio is the median of the ratios of the rounds. The page
cache is warm, and three rounds before the first make the JVM warm.

Bodies are hexadecimal digits made by chance, which snappy halves, as it does much of what people
log.

`--parts` measures the parts of a scan in this process instead, in MB of log per second: best and
median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tandem.spark.commitlog.log_files import WINDOW_BYTES
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split
from tandem.spark.record_batches import COLUMNS
from tandem.spark.session import local_session
from tandem.wire.message import BLANK_MAGIC_CODE, Host, MessageExt, encode_record
from tandem.wire.record_scan import scan_records, walk_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES: Final = 64 << 20
TOPICS: Final = 16
WARM_UP_ROUNDS: Final = 3
QUEUE_FILE_UNITS: Final = 300_000
NARROW: Final = ("topic", "queueId", "queueOffset", "physicalOffset", "keys")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def one_file(body_bytes: int) -> tuple[bytearray, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """A full file of records, and where they start."""
    chance = random.Random(1)
    data = bytearray()
    starts = []
    number = 0
    while True:
        record = encode_record(
            MessageExt(
                topic=f"Topic{number % TOPICS:02d}",
                body=chance.randbytes(body_bytes // 2).hex().encode(),
                properties={
                    "KEYS": f"order-{number:09d}",
                    "TAGS": f"Tag{number % 4}",
                    "UNIQ_KEY": f"7F00000100002A9F{number:016X}",
                },
                queue_id=number // TOPICS % 8,
                queue_offset=number // TOPICS // 8,
                physical_offset=len(data),
                store_size=0,
                flag=0,
                sys_flag=0,
                born_timestamp_ms=1_700_000_000_000 + number,
                born_host=Host("10.0.0.1", 40_000 + number % 8),
                store_timestamp_ms=1_700_000_000_001 + number,
                store_host=Host("127.0.0.1", 10911),
                reconsume_times=0,
                prepared_transaction_offset=0,
                body_crc=0,
            )
        )
        if len(data) + len(record) + 8 > FILE_BYTES:
            break
        starts.append(len(data))
        data += record
        number += 1
    left = FILE_BYTES - len(data)
    data += left.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big") + bytes(left - 8)
    return data, np.array(starts, np.int64)


def build(root: Path, files: int, body_bytes: int) -> int:
    """Write a store, log and queues; return how many records it has. Files differ in offsets."""
    (root / "commitlog").mkdir(parents=True)
    data, starts = one_file(body_bytes)
    longs = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))
    ints = np.ndarray((len(data) - 3,), ">i4", data, strides=(1,))
    ints[starts + 12] = 0
    topics = np.arange(len(starts)) % TOPICS
    counts = np.bincount(topics)
    for number in range(files):
        longs[starts + 28] = number * FILE_BYTES + starts
        longs[starts + 20] = number * counts[topics] + np.arange(len(starts)) // TOPICS
        (root / "commitlog" / f"{number * FILE_BYTES:020d}").write_bytes(data)
    build_queues(root, files, starts, ints[starts].astype(np.int64))
    return files * len(starts)


def build_queues(
    root: Path, files: int, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> None:
    """Write the queues of a log whose files have records of these sizes at these places."""
    kind = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
    topics = np.arange(len(starts)) % TOPICS
    for topic in range(TOPICS):
        chosen = topics == topic
        mine = np.concatenate([number * FILE_BYTES + starts[chosen] for number in range(files)])
        units = np.zeros(-(-len(mine) // QUEUE_FILE_UNITS) * QUEUE_FILE_UNITS, kind)
        units["offset"][: len(mine)] = mine
        units["size"][: len(mine)] = np.tile(sizes[chosen], files)
        folder = root / "consumequeue" / f"Topic{topic:02d}" / "0"
        folder.mkdir(parents=True)
        for first in range(0, len(units), QUEUE_FILE_UNITS):
            name = f"{first * kind.itemsize:020d}"
            (folder / name).write_bytes(units[first : first + QUEUE_FILE_UNITS].tobytes())


def processor_seconds() -> float:
    """What this process and everything that descends from it has used, also what has ended."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended in this moment
            continue
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = sum(map(int, fields[11:15]))
    tree = {os.getpid()}
    for pid in sorted(parents):
        line = [pid]
        while line[-1] not in tree and line[-1] in parents:
            line.append(parents[line[-1]])
        if line[-1] in tree:
            tree.update(line)
    return sum(used.get(pid, 0) for pid in tree) / _TICKS_PER_SECOND


def cost_of(work: Callable[[], object]) -> float:
    """Run `work` and return the processor seconds that it took, wherever it took them."""
    before = processor_seconds()
    work()
    return processor_seconds() - before


def compare(
    what: str, of_log: Callable[[], object], of_parquet: Callable[[], object], rounds: int
) -> None:
    """Run both in turn and print a line of the table."""
    for _ in range(WARM_UP_ROUNDS):
        of_log()
        of_parquet()
    logs, parquets = [], []
    for _ in range(rounds):
        logs.append(cost_of(of_log))
        parquets.append(cost_of(of_parquet))
    ratio = statistics.median(log / parquet for log, parquet in zip(logs, parquets, strict=True))
    log, parquet = statistics.median(logs), statistics.median(parquets)
    print(f"| {what} | {log:.2f} | {parquet:.2f} | {ratio:.2f} |", flush=True)


def against_parquet(spark: SparkSession, store: Path, rounds: int, label: str) -> None:
    """The questions of the table."""

    def log(**options: str) -> DataFrame:
        return spark.read.format("commitlog").options(**options).load(str(store))

    path = str(store.parent / "parquet")
    log().write.mode("overwrite").parquet(path)

    def parquet() -> DataFrame:
        return spark.read.parquet(path)

    third = "topic = 'Topic03'"
    for what, of_log, of_parquet in (
        ("all columns", lambda: noop(log()), lambda: noop(parquet())),
        (
            "five columns by `select`",
            lambda: noop(log().select(*NARROW)),
            lambda: noop(parquet().select(*NARROW)),
        ),
        (
            "one topic of 16, scanned",
            lambda: noop(log(topic="Topic03", consumeQueues="never")),
            lambda: noop(parquet().where(third)),
        ),
        (
            "one topic of 16, through its queues",
            lambda: noop(log(topic="Topic03")),
            lambda: noop(parquet().where(third)),
        ),
        ("`count()`", lambda: log().count(), lambda: parquet().count()),
    ):
        compare(f"{label}: {what}", of_log, of_parquet, rounds)


def noop(table: DataFrame) -> None:
    """Compute all of a table and throw it away."""
    table.write.format("noop").mode("overwrite").save()


def measure(what: str, work: Callable[[], object], mega_bytes: float, rounds: int) -> None:
    """Run `work` once to warm up, then `rounds` times, and print its rate."""
    work()
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    best, median = min(seconds), statistics.median(seconds)
    print(
        f"  {what:34}{mega_bytes / best:8,.0f} MB/s best {mega_bytes / median:8,.0f} median"
        f"  {median:6.3f} s",
        flush=True,
    )


def read_all(folder: Path) -> None:
    """Read every file into one buffer."""
    data = bytearray(WINDOW_BYTES)
    for path in sorted(folder.iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.readinto(data):
                pass


def to_arrow(store: Path, names: tuple[str, ...] = tuple(COLUMNS), **options: object) -> int:
    """What the tasks do, all in this process."""
    asked = ScanOptions(paths=(str(store),), **options)  # type: ignore[arg-type]
    rows = 0
    for split in plan_splits(asked):
        rows += sum(batch.num_rows for batch in read_split(split, asked, names))
    return rows


def in_this_process(store: Path, mega_bytes: float, rounds: int) -> None:
    """The parts of a scan, on one core."""
    data = (store / "commitlog" / ("0" * 20)).read_bytes()
    file_mega_bytes = len(data) / 1e6
    topic = frozenset({"Topic03"})
    for what, work, size in (
        ("plain reads", lambda: read_all(store / "commitlog"), mega_bytes),
        ("record starts", lambda: walk_records(data), file_mega_bytes),
        ("columns", lambda: scan_records(data, 0, check_crc=False), file_mega_bytes),
        ("columns and crc", lambda: scan_records(data, 0), file_mega_bytes),
        ("arrow, all columns", lambda: to_arrow(store), mega_bytes),
        ("arrow, no crc", lambda: to_arrow(store, check_crc=False), mega_bytes),
        ("arrow, five columns", lambda: to_arrow(store, NARROW), mega_bytes),
        ("arrow, one topic of 16", lambda: to_arrow(store, topics=topic), mega_bytes),
    ):
        measure(what, work, size, rounds)


def main() -> None:
    """Build the logs, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--directory", type=Path, help="where to build the log (default: temporary)"
    )
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--body-bytes", type=int, nargs="+", default=[1024, 104])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--parts", action="store_true", help="without Spark: what a scan is made of"
    )
    parser.add_argument("--java-options", default="")
    arguments = parser.parse_args()
    settings = {"spark.tandem.columnPruning": "true"}
    spark = (
        None
        if arguments.parts
        else local_session(java_options=arguments.java_options, settings=settings)
    )
    print(
        f"{os.cpu_count()} cores, {arguments.mebibytes} MiB of log, {arguments.rounds} rounds,"
        f" Python {platform.python_version()}, Spark {spark.version if spark else '-'}\n"
    )
    if spark:
        print("| | log: CPU s | Parquet: CPU s | ratio |\n|---|---|---|---|")
    for body_bytes in arguments.body_bytes:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
            store = Path(place, "store")
            files = max(1, arguments.mebibytes >> 6)
            records = build(store, files, body_bytes)
            label = f"{records:,} records of {body_bytes:,} bytes"
            if spark:
                against_parquet(spark, store, arguments.rounds, label)
            else:
                print(label)
                in_this_process(store, files * FILE_BYTES / 1e6, arguments.rounds)
    if spark:
        spark.stop()


if __name__ == "__main__":
    main()
