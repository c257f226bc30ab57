"""When is it cheaper to read topics through their consume queues than to scan the log for them?

    python benchmarks/spark_queues.py [--directory DIR] [--files 4] [--body-bytes 1024 128]
                                      [--rounds 3]

Builds a log of 64 MiB files with 16 topics of one queue each, and reads 1, 2, 4 and 8 of the topics
both ways in turns, every column as Arrow with the CRC checked, in this process. Prints processor
seconds, best of the rounds, page cache warm, and what `queue_plan` would choose.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spark_scan import FILE_BYTES, TOPICS, build
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import open_logs
from tandem.spark.commitlog.queue_plan import is_cheaper, plan_store
from tandem.spark.commitlog.queue_read import read_queue_split
from tandem.spark.commitlog.read import read_split
from tandem.spark.commitlog.split import LogSplit
from tandem.spark.record_batches import COLUMNS


def read(options: ScanOptions) -> tuple[float, int]:
    """Return processor seconds of planning and reading, and the rows."""
    before = time.process_time()
    rows = 0
    for log in open_logs(options):
        for split in plan_store(log, options):
            if isinstance(split, LogSplit):
                batches = read_split(split, options, tuple(COLUMNS))
            else:
                batches = read_queue_split(split, options, tuple(COLUMNS))
            rows += sum(batch.num_rows for batch in batches)
    return time.process_time() - before, rows


def main() -> None:
    """Build, read both ways, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--body-bytes", type=int, nargs="+", default=[1024, 128])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for body_bytes in given.body_bytes:
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            records = build(Path(folder, "store"), given.files, body_bytes)
            log_bytes = given.files * FILE_BYTES
            print(f"{records} records, {body_bytes}-byte bodies, {log_bytes >> 20} MiB of log")
            for count in (1, 2, 4, 8):
                topics = frozenset(f"Topic{number:02d}" for number in range(count))
                scan = ScanOptions(
                    paths=(f"{folder}/store",), topics=topics, consume_queues="never"
                )
                queues = msgspec.structs.replace(scan, consume_queues="always")
                seconds: dict[str, list[float]] = {"scan": [], "queues": []}
                for _ in range(given.rounds):
                    for name, options in (("scan", scan), ("queues", queues)):
                        took, rows = read(options)
                        assert abs(rows - records * count // TOPICS) < TOPICS * given.files
                        seconds[name].append(took)
                chosen = is_cheaper(records * count // TOPICS, records, log_bytes)
                print(
                    f"  {count:2} of {TOPICS} topics: scan {min(seconds['scan']):6.2f} s, through"
                    f" queues {min(seconds['queues']):6.2f} s, chosen:"
                    f" {'queues' if chosen else 'scan'}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
