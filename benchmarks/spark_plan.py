"""How long does the driver plan a `load()` of a large store?

    python benchmarks/spark_plan.py [--directory DIR] [--log-files 1024] [--queue-files 600]
                                    [--split-mebibytes 64]

Builds a store that is large in name only: log files of 1 GiB without blocks, but for the head of a
record wherever a queue says that there is one, and consume queues of 64 units a file. Prints the
processor seconds of one plan, how many splits it has, and how many files were opened for it.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.storage import LocalStorage
from tandem.wire.crc import crc32
from tandem.wire.message import MESSAGE_MAGIC_CODE, Host, MessageExt, encode_record
from tandem.wire.store_layout import CQ_STORE_UNIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tandem.spark.commitlog.storage import OpenedFile

LOG_FILE_BYTES: Final = 1 << 30
UNITS_A_FILE: Final = 64
QUEUES: Final = 4
_HEAD: Final = struct.Struct(">iIiiiqqi")


def build(root: Path, log_files: int, queue_files: int) -> None:
    """Write the sparse store: units evenly over the log, in `QUEUES` queues by turns."""
    (root / "commitlog").mkdir(parents=True)
    units = queue_files * UNITS_A_FILE
    step = log_files * LOG_FILE_BYTES // units
    offsets = [number * step for number in range(units)]
    for number in range(log_files):
        start = number * LOG_FILE_BYTES
        with (root / "commitlog" / f"{start:020d}").open("wb") as file:
            file.truncate(LOG_FILE_BYTES)
            for offset in offsets:
                if start <= offset < start + LOG_FILE_BYTES:
                    file.seek(offset - start)
                    file.write(_HEAD.pack(100, MESSAGE_MAGIC_CODE, 0, 0, 0, 0, offset, 0))
    _close_last_file(root, log_files)
    for queue in range(QUEUES):
        folder = root / "consumequeue" / "Topic" / str(queue)
        folder.mkdir(parents=True)
        mine = offsets[queue::QUEUES]
        for at in range(0, len(mine), UNITS_A_FILE):
            packed = b"".join(
                CQ_STORE_UNIT.pack(each, 100, 0) for each in mine[at : at + UNITS_A_FILE]
            )
            (folder / f"{at * CQ_STORE_UNIT.size:020d}").write_bytes(packed)


def _close_last_file(root: Path, log_files: int) -> None:
    """A last file with one record, so that the end of the log is soon found."""
    start = log_files * LOG_FILE_BYTES
    host = Host("127.0.0.1", 10911)
    record = encode_record(
        MessageExt(
            topic="Topic",
            body=b"last",
            properties={},
            queue_id=0,
            queue_offset=0,
            physical_offset=start,
            store_size=0,
            flag=0,
            sys_flag=0,
            born_timestamp_ms=0,
            born_host=host,
            store_timestamp_ms=0,
            store_host=host,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=crc32(b"last"),
        )
    )
    with (root / "commitlog" / f"{start:020d}").open("wb") as file:
        file.write(record)
        file.truncate(LOG_FILE_BYTES)


@contextmanager
def counted_opens(counts: dict[str, int]) -> Iterator[None]:
    """Count the files that are opened meanwhile, by path."""
    opened = LocalStorage.opened

    @contextmanager
    def counting(self: LocalStorage, path: str) -> Iterator[OpenedFile]:
        counts[path] = counts.get(path, 0) + 1
        with opened(self, path) as file:
            yield file

    LocalStorage.opened = counting  # type: ignore[method-assign]
    try:
        yield
    finally:
        LocalStorage.opened = opened  # type: ignore[method-assign]


def main() -> None:
    """Build, plan, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--log-files", type=int, default=1024)
    parser.add_argument("--queue-files", type=int, default=600)
    parser.add_argument("--split-mebibytes", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        root = Path(folder, "store")
        build(root, given.log_files, given.queue_files)
        options = ScanOptions(paths=(str(root),), split_bytes=given.split_mebibytes << 20)
        counts: dict[str, int] = {}
        with counted_opens(counts):
            before = time.process_time()
            splits = plan_splits(options)
            took = time.process_time() - before
    print(
        f"{given.log_files} log files, {given.queue_files} queue files: {took:.2f} s of processor"
        f" time, {len(splits)} splits, {sum(counts.values())} opens"
    )


if __name__ == "__main__":
    main()
