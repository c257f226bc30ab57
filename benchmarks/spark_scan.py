"""How fast does Spark read a commit log, next to reading the same bytes and to Parquet?

    python benchmarks/spark_scan.py [--directory DIR] [--mebibytes 512] [--body-bytes 1024 128]
                                    [--rounds 3] [--java-options=-XX:TieredStopAtLevel=1]

Builds a log of 64 MiB files with 16 topics and three properties a message, then measures, each as
MB of log per second, best and median of the rounds, page cache warm:

    read                 plain reads of the files, 4 MiB at a time: the probe
    walk, columns, crc   tandem.wire.record_scan on the bytes of one file
    arrow                every column as Arrow batches in this process, as a task does
    spark ...            queries in local[*]; the table goes through the socket into the JVM
    parquet              the same rows and columns, read by Spark from Parquet
"""

from __future__ import annotations

import argparse
import os
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

    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES: Final = 64 << 20
TOPICS: Final = 16


def one_file(body_bytes: int) -> tuple[bytearray, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """A full file of records, and where they start."""
    data = bytearray()
    starts = []
    number = 0
    while True:
        record = encode_record(
            MessageExt(
                topic=f"Topic{number % TOPICS:02d}",
                body=number.to_bytes(8, "big") * (body_bytes // 8),
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


def build(folder: Path, files: int, body_bytes: int) -> int:
    """Write the log; return how many records it has. Files differ in physical offsets only."""
    data, starts = one_file(body_bytes)
    offsets = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))
    for number in range(files):
        offsets[starts + 28] = number * FILE_BYTES + starts
        (folder / f"{number * FILE_BYTES:020d}").write_bytes(data)
    return files * len(starts)


def measure(what: str, work: Callable[[], object], mega_bytes: float, rounds: int) -> None:
    """Run `work` once to warm up, then `rounds` times, and print its rate."""
    work()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    best, median = min(seconds), statistics.median(seconds)
    print(
        f"  {what:34}{mega_bytes / best:8,.0f} MB/s best {mega_bytes / median:8,.0f} median"
        f"  {median:6.2f} s",
        flush=True,
    )


def read_all(folder: Path) -> None:
    """Read every file into one buffer."""
    data = bytearray(WINDOW_BYTES)
    for path in sorted(folder.iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.readinto(data):
                pass


def to_arrow(folder: Path) -> int:
    """What the tasks do, all in this process."""
    options = ScanOptions(paths=(str(folder),))
    rows = 0
    for split in plan_splits(options):
        rows += sum(batch.num_rows for batch in read_split(split, options, tuple(COLUMNS)))
    return rows


def in_this_process(folder: Path, mega_bytes: float, rounds: int) -> None:
    """The parts of a scan, on one core."""
    measure("read", lambda: read_all(folder), mega_bytes, rounds)
    data = (folder / ("0" * 20)).read_bytes()
    file_mega_bytes = len(data) / 1e6
    measure("walk", lambda: walk_records(data), file_mega_bytes, rounds)
    measure("columns", lambda: scan_records(data, 0, check_crc=False), file_mega_bytes, rounds)
    measure("columns and crc", lambda: scan_records(data, 0), file_mega_bytes, rounds)
    measure("arrow", lambda: to_arrow(folder), mega_bytes, rounds)


def in_spark(spark: SparkSession, folder: Path, mega_bytes: float, rounds: int) -> None:
    """Queries as a user would write them."""

    def load(**options: str) -> DataFrame:
        return spark.read.format("commitlog").options(**options).load(str(folder))

    parquet = str(folder.parent / "parquet")
    load().write.mode("overwrite").parquet(parquet)
    narrow = "topic,queueId,queueOffset,physicalOffset,keys"
    for what, work in (
        ("spark count(*)", lambda: load().count()),
        ("spark count(*), checkCrc=false", lambda: load(checkCrc="false").count()),
        ("spark count(*), 5 columns", lambda: load(columns=narrow).count()),
        ("spark every column, noop sink", lambda: noop(load())),
        ("spark one topic of 16", lambda: noop(load(topic="Topic03"))),
        ("parquet every column, noop sink", lambda: noop(spark.read.parquet(parquet))),
    ):
        measure(what, work, mega_bytes, rounds)


def noop(table: DataFrame) -> None:
    """Compute all of a table and throw it away."""
    table.write.format("noop").mode("overwrite").save()


def main() -> None:
    """Run everything and print the rates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--directory", type=Path, help="where to build the log (default: temporary)"
    )
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--body-bytes", type=int, nargs="+", default=[1024, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--java-options", default="")
    arguments = parser.parse_args()
    spark = local_session(java_options=arguments.java_options)
    print(f"{os.cpu_count()} cores, {arguments.mebibytes} MiB of log, rounds {arguments.rounds}")
    for body_bytes in arguments.body_bytes:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
            folder = Path(place, "commitlog")
            folder.mkdir()
            records = build(folder, max(1, arguments.mebibytes >> 6), body_bytes)
            mega_bytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
            print(f"bodies of {body_bytes} bytes, {records:,} records")
            in_this_process(folder, mega_bytes, arguments.rounds)
            in_spark(spark, folder, mega_bytes, arguments.rounds)
    spark.stop()


if __name__ == "__main__":
    main()
