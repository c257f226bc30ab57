"""How fast does `tandem log verify` check a store, next to reading the same bytes and their CRC?

    python benchmarks/verify.py [--directory DIR] [--mebibytes 1024] [--body-bytes 1024 128]
                                [--rounds 3] [--jobs 1 2]

Builds a store as RocketMQ would lay it out: commit log files of 256 MiB, 16 topics of 8 queues,
TAGS, KEYS and UNIQ_KEY in each message, so two index entries a message. Then measures, each as
seconds per GiB of commit log, best and median of the rounds, page cache warm:

    read       plain reads of the log's files, 4 MiB at a time
    crc        the same, and one CRC-32 over each piece
    verify     everything: records, CRCs, queue units, index entries and chains
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from tandem.log import open_store_directory
from tandem.log.verify import verify_store
from tandem.wire.column_values import tags_codes
from tandem.wire.crc import raw_crc32
from tandem.wire.message import BLANK_MAGIC_CODE, Host, MessageExt, encode_record
from tandem.wire.record_keys import hash_keys
from tandem.wire.record_scan import Int64s, RecordColumns, read_columns, walk_records
from tandem.wire.store_layout import CHECKPOINT, CHECKPOINT_BYTES, INDEX_HEADER

FILE_BYTES: Final = 256 << 20
BLOCK_BYTES: Final = 16 << 20
TOPICS: Final = 16
QUEUES: Final = 8
QUEUE_FILE_BYTES: Final = 6_000_000
SLOTS: Final = 5_000_000
UNITS: Final = 20_000_000
STORED_MS: Final = 1_700_000_000_000
READ_BYTES: Final = 4 << 20


def one_block(body_bytes: int) -> bytearray:
    """About 16 MiB of records, as they would be at the beginning of a log."""
    data = bytearray()
    number = 0
    while len(data) < BLOCK_BYTES or number % (TOPICS * QUEUES):
        data += encode_record(
            MessageExt(
                topic=f"Topic{number % TOPICS:02d}",
                body=number.to_bytes(8, "big") * (body_bytes // 8),
                properties={
                    "KEYS": f"order-{number:09d}",
                    "TAGS": f"Tag{number % 4}",
                    "UNIQ_KEY": f"7F00000100002A9F{number:016X}",
                },
                queue_id=number // TOPICS % QUEUES,
                queue_offset=number // TOPICS // QUEUES,
                physical_offset=0,
                store_size=0,
                flag=0,
                sys_flag=0,
                born_timestamp_ms=STORED_MS,
                born_host=Host("10.0.0.1", 40_000),
                store_timestamp_ms=STORED_MS,
                store_host=Host("127.0.0.1", 10911),
                reconsume_times=0,
                prepared_transaction_offset=0,
                body_crc=0,
            )
        )
        number += 1
    return data


class Block:
    """The block, with what changes from one copy to the next."""

    def __init__(self, body_bytes: int) -> None:
        self.data = one_block(body_bytes)
        self.starts = walk_records(self.data).starts
        self.columns: RecordColumns = read_columns(self.data, self.starts)
        self.codes = tags_codes(self.data, self.columns)
        self.keys = hash_keys(self.data, self.columns)
        self.queue_offsets = self.columns.queue_offset.copy()
        self._longs = np.ndarray((len(self.data) - 7,), ">i8", self.data, strides=(1,))

    def place(self, number: int, offset: int) -> Int64s:
        """Make it copy `number`, at `offset` of the log; return the queue offsets."""
        count = len(self.starts) // (TOPICS * QUEUES)
        queue_offsets = self.queue_offsets + number * count
        self._longs[self.starts + 20] = queue_offsets
        self._longs[self.starts + 28] = offset + self.starts
        self._longs[self.starts + 56] = STORED_MS + number * 1000
        return queue_offsets


def build(root: Path, mebibytes: int, body_bytes: int) -> int:
    """Write the store; return how many records it has."""
    (root / "commitlog").mkdir(parents=True)
    block = Block(body_bytes)
    offset = number = 0
    offsets: list[Int64s] = []
    times: list[Int64s] = []
    while offset + len(block.data) + 8 <= mebibytes << 20:
        left = FILE_BYTES - offset % FILE_BYTES
        if left < len(block.data) + 8:
            append(root, offset, left.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big"))
            offset += left
        block.place(number, offset)
        append(root, offset, block.data)
        offsets.append(offset + block.starts)
        times.append(np.full(len(block.starts), STORED_MS + number * 1000))
        offset += len(block.data)
        number += 1
    for path in (root / "commitlog").iterdir():
        os.truncate(path, FILE_BYTES)
    write_queues(root, block, np.stack(offsets))
    write_index(root, block, np.stack(offsets), np.stack(times))
    stamp = STORED_MS + (number - 1) * 1000
    (root / "checkpoint").write_bytes(
        CHECKPOINT.pack(stamp, stamp, 0, 0, 0).ljust(CHECKPOINT_BYTES, b"\0")
    )
    return number * len(block.starts)


def append(root: Path, offset: int, data: bytes | bytearray) -> None:
    """Write bytes at an offset of the log."""
    start = offset - offset % FILE_BYTES
    with (root / "commitlog" / f"{start:020d}").open("ab") as file:
        file.write(data)


def write_queues(
    root: Path, block: Block, offsets: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> None:
    """Write the units of all copies, queue by queue."""
    unit = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
    for first in range(TOPICS * QUEUES):
        rows = slice(first, None, TOPICS * QUEUES)
        units = np.zeros(offsets[:, rows].shape, unit)
        units["offset"] = offsets[:, rows]
        units["size"] = block.columns.size[rows]
        units["code"] = block.codes[rows]
        folder = root / "consumequeue" / f"Topic{first % TOPICS:02d}" / str(first // TOPICS)
        folder.mkdir(parents=True)
        data = units.tobytes()
        for at in range(0, len(data), QUEUE_FILE_BYTES):
            path = folder / f"{at:020d}"
            path.write_bytes(data[at : at + QUEUE_FILE_BYTES])
            os.truncate(path, QUEUE_FILE_BYTES)


def write_index(
    root: Path,
    block: Block,
    offsets: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    times: np.ndarray[tuple[int, int], np.dtype[np.int64]],
) -> None:
    """Write index files of the default size, with every key of every record."""
    (root / "index").mkdir()
    entry_offsets = offsets[:, block.keys.row].reshape(-1)
    entry_times = times[:, block.keys.row].reshape(-1)
    hashes = np.tile(block.keys.key_hash, len(offsets))
    for number, at in enumerate(range(0, len(hashes), UNITS - 1)):
        some = slice(at, at + UNITS - 1)
        write_index_file(
            root / "index" / f"{20_231_114_221_320_000 + number}",
            hashes[some],
            entry_offsets[some],
            entry_times[some],
        )


def write_index_file(path: Path, hashes: Int64s, offsets: Int64s, times: Int64s) -> None:
    """Write one index file."""
    unit = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
    units = np.zeros(len(hashes) + 1, unit)
    units["hash"][1:], units["offset"][1:] = hashes, offsets
    units["seconds"][1:] = (times - times[0]) // 1000
    slots = hashes % SLOTS
    order = np.argsort(slots, kind="stable")
    same = np.append(False, slots[order][1:] == slots[order][:-1])
    units["previous"][1 + order] = np.where(same, np.roll(order, 1) + 1, 0)
    table = np.zeros(SLOTS, ">i4")
    table[slots[order]] = order + 1
    head = (times[0], times[-1], offsets[0], offsets[-1], np.count_nonzero(table), len(units))
    with path.open("wb") as file:
        file.write(INDEX_HEADER.pack(*map(int, head)))
        file.write(table.tobytes())
        file.write(units.tobytes())
        file.truncate(40 + SLOTS * 4 + UNITS * 20)


def read_all(root: Path, *, crc: bool) -> None:
    """Read the log into one buffer, piece by piece."""
    data = bytearray(READ_BYTES)
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(data):
                if crc:
                    raw_crc32(memoryview(data)[:size])


def verify(root: Path, jobs: int) -> None:
    """Check everything, and expect it to be sound."""
    report = verify_store(open_store_directory(root), jobs=jobs)
    if report.findings:
        raise SystemExit(f"the benchmark's own store is not sound: {report.findings[:3]}")


def measure(what: str, work: Callable[[], object], gibibytes: float, rounds: int) -> None:
    """Run `work` once to warm up, then `rounds` times, and print its time per GiB of log."""
    work()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    best, median = min(seconds) / gibibytes, statistics.median(seconds) / gibibytes
    print(f"  {what:28}{best:8.2f} s/GiB best {median:8.2f} median", flush=True)


def main() -> None:
    """Run everything and print the times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to build (default: temporary)")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--body-bytes", type=int, nargs="+", default=[1024, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, {arguments.mebibytes} MiB of log, rounds {arguments.rounds}")
    for body_bytes in arguments.body_bytes:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
            root = Path(place, "store")
            records = build(root, arguments.mebibytes, body_bytes)
            print(f"bodies of {body_bytes} bytes, {records:,} records")
            compare(root, arguments.mebibytes / 1024, arguments.rounds, arguments.jobs)


def compare(root: Path, gibibytes: float, rounds: int, jobs_tried: list[int]) -> None:
    """Measure everything on one store."""
    measure("read", lambda: read_all(root, crc=False), gibibytes, rounds)
    measure("crc", lambda: read_all(root, crc=True), gibibytes, rounds)
    for jobs in jobs_tried:
        measure(f"verify, --jobs {jobs}", partial(verify, root, jobs), gibibytes, rounds)


if __name__ == "__main__":
    main()
