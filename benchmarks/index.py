"""What does the index cost a message, next to moving the same bytes, and what a query?

    python benchmarks/index.py [--directory DIR] [--slots 5000000] [--units 20000000]

Bounds, in the same run and over files of the same size, all pages touched before:

    entering   copy the 20 bytes of each unit to where they go, and its number into a random slot
    querying   read the slot and one unit, both at random

Messages have one UNIQ_KEY as clients make them and one key in KEYS. No sync to disk. One process,
one thread.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.append import touch
from store.files.store_checkpoint import StoreCheckpoint
from store.index.index_file import IndexFile
from store.index.index_service import IndexService
from store.machine.disk import DiskFile
from store.machine.real_disk import RealDisk
from tandem.wire.message import Host, MessageExt, encode_record
from tandem.wire.record_keys import hash_keys
from tandem.wire.record_scan import RecordColumns, scan_records
from tandem.wire.store_layout import INDEX_SLOT, INDEX_UNIT, index_file_bytes

RECORDS = 4096
ROUNDS = 5
NOW_MS = 1_700_000_000_000
HOST = Host("127.0.0.1", 10_911)
EARLY, LATE = 0, 2**63 - 1


def per_item(step: Callable[[], int]) -> list[float]:
    """Return nanoseconds an item of five rounds; `step` says how many it did."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        count = step()
        rounds.append((time.perf_counter() - start) / count * 1e9)
    return rounds


def say(what: str, rounds: list[float], bound: float) -> None:
    """Print one line of the table."""
    median = statistics.median(rounds)
    print(
        f"{what:<52} {median:>9,.0f} ns  {median / bound:>7.1f} times the bound"
        f"   (min {min(rounds):,.0f}, max {max(rounds):,.0f})"
    )


def a_log(count: int, body_bytes: int, first: int = 0) -> bytes:
    """Return records as a client of RocketMQ would have them stored."""
    parts = []
    offset = 0
    for number in range(first, first + count):
        message = MessageExt(
            topic="BenchTopic",
            body=b"x" * body_bytes,
            properties={
                "KEYS": f"order-{number}",
                "UNIQ_KEY": f"7F00000100002A9F{number:016X}",
                "TAGS": "TagA",
                "WAIT": "true",
            },
            queue_id=0,
            queue_offset=number,
            physical_offset=offset,
            store_size=0,
            flag=0,
            sys_flag=0,
            born_timestamp_ms=NOW_MS,
            born_host=HOST,
            store_timestamp_ms=NOW_MS + number,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
        )
        parts.append(encode_record(message))
        offset += len(parts[-1])
    return b"".join(parts)


def batch_bound(file: DiskFile, slots: int, count: int) -> int:
    """Copy `count` units in one go, and set a random slot for each."""
    numbers = np.random.default_rng(1).integers(0, slots, count)
    units = bytes(count * INDEX_UNIT.size)
    table = np.ndarray((slots,), ">i4", file.buffer, 40)
    at = 40 + 4 * slots
    file.buffer[at : at + len(units)] = units
    table[numbers] = 7
    return count


def single_bound(file: DiskFile, slots: int, places: list[int]) -> int:
    """Copy units and set the slots at `places`, one by one."""
    buffer = file.buffer
    unit, at = bytes(20), 40 + 4 * slots
    for place in places:
        buffer[at : at + 20] = unit
        buffer[place : place + 4] = b"\0\0\0\7"
        at += 20
    return len(places)


def read_bound(file: DiskFile, places: list[tuple[int, int]]) -> int:
    """Read a slot and a unit at each pair of places, one by one."""
    buffer = file.buffer
    for slot_at, unit_at in places:
        INDEX_SLOT.unpack_from(buffer, slot_at)
        INDEX_UNIT.unpack_from(buffer, unit_at)
    return len(places)


class Bench:
    """A service over one file that never gets full, and a log to feed it."""

    def __init__(self, directory: Path, slots: int, units: int) -> None:
        self.slots = slots
        self.units = units
        disk = RealDisk()
        self.checkpoint = StoreCheckpoint(str(directory / "checkpoint"), disk)
        self.index = IndexService(
            str(directory / "index"),
            slots,
            units,
            disk=disk,
            wall_clock_ms=lambda: NOW_MS,
            checkpoint=self.checkpoint,
            max_msgs_num_batch=64,
        )
        self.scratch = disk.create(str(directory / "scratch"), index_file_bytes(slots, units))
        touch(self.scratch.buffer)
        self.round = 0
        # The first message makes the file, which is touched like the other one.
        self.index.dispatch("BenchTopic", b"", 0, NOW_MS, 0)
        touch(self.file.file.buffer)

    @property
    def file(self) -> IndexFile:
        """The file being written."""
        return self.index.files[-1]

    def later(self, columns: RecordColumns) -> RecordColumns:
        """Return the same records as they would be further down the log."""
        self.round += 1
        shift = self.round << 32
        fields = {name: getattr(columns, name) for name in columns.__struct_fields__}
        return RecordColumns(**{**fields, "physical_offset": columns.physical_offset + shift})

    def dispatch(self, log: bytes, columns: RecordColumns, size: int) -> int:
        """Dispatch in pieces of `size` records."""
        columns = self.later(columns)
        for at in range(0, len(columns), size):
            self.index.dispatch_columns(log, columns.take(slice(at, at + size)))
        return len(columns)


def entering(bench: Bench) -> None:
    """Measure what a key and what a message costs."""
    slots, scratch = bench.slots, bench.scratch
    batch = per_item(lambda: batch_bound(scratch, slots, 2 * RECORDS))
    draw = random.Random(2)
    places = [40 + 4 * draw.randrange(slots) for _ in range(2 * RECORDS)]
    single = per_item(lambda: single_bound(scratch, slots, places))
    one, many = statistics.median(single), statistics.median(batch)
    say("bound: copy a unit, set a slot, batch", batch, many)
    say("bound: copy a unit, set a slot, one by one", single, one)
    chance = np.random.default_rng(4)
    hashes = chance.integers(0, 1 << 31, 2 * RECORDS)
    offsets = np.arange(2 * RECORDS) * 500
    times = NOW_MS + offsets // 100
    plain = list(zip(hashes.tolist(), offsets.tolist(), times.tolist(), strict=True))

    def put() -> int:
        for key in plain:
            bench.file.put(*key)
        return len(plain)

    say("IndexFile.put, a key", per_item(put), one)
    rounds = per_item(lambda: bench.file.put_many(hashes, offsets, times))
    say(f"IndexFile.put_many of {2 * RECORDS}, a key", rounds, many)
    for body_bytes in (100, 1024):
        dispatching(bench, body_bytes, 2 * many)


def dispatching(bench: Bench, body_bytes: int, bound: float) -> None:
    """Measure what a message costs, in pieces of several sizes."""
    log = a_log(RECORDS, body_bytes)
    columns = scan_records(log, 0, check_crc=False).columns
    print(f"messages with bodies of {body_bytes} bytes and two keys; the bound is two keys'")
    rounds = per_item(lambda: len(hash_keys(log, columns)) // 2)
    say("  find and hash their keys, a message", rounds, bound)
    for size in (1, 10, 11, 100, 1000, RECORDS):
        rounds = per_item(partial(bench.dispatch, log, columns, size))
        say(f"  dispatch_columns of {size}, a message", rounds, bound)


def querying(bench: Bench) -> None:
    """Measure queries by key for what is there once, and for what is not."""
    draw = random.Random(3)
    slots_at = [40 + 4 * draw.randrange(bench.slots) for _ in range(RECORDS)]
    units_at = 40 + 4 * bench.slots
    places = [(at, units_at + 20 * draw.randrange(bench.units)) for at in slots_at]
    reads = per_item(lambda: read_bound(bench.scratch, places))
    bound = statistics.median(reads)
    say("bound: read a slot and a unit", reads, bound)
    log = a_log(RECORDS, 100, first=10**9)
    bench.dispatch(log, scan_records(log, 0, check_crc=False).columns, RECORDS)
    here = [f"order-{number}" for number in range(10**9, 10**9 + RECORDS)]
    random.Random(5).shuffle(here)

    def ask(keys: list[str], found: int) -> int:
        for key in keys:
            if len(bench.index.query_offset("BenchTopic", key, 32, EARLY, LATE)) != found:
                raise AssertionError(key)
        return len(keys)

    say("query_offset, key there once", per_item(lambda: ask(here, 1)), bound)
    gone = [f"no-{key}" for key in here]
    say("query_offset, key not there", per_item(lambda: ask(gone, 0)), bound)
    common = np.full(1 << 18, 77)
    for _ in range(4):
        stamps = np.full(1 << 18, NOW_MS + 10**6)
        bench.file.put_many(common, np.arange(1 << 18), stamps)
    rounds = per_item(lambda: len([*bench.file.offsets(77, EARLY, NOW_MS)]) + 1)
    print(
        f"a chain of {4 << 18:,} units, all of them too young: "
        f"{statistics.median(rounds) / 1e6:.1f} ms"
    )


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", help="where the files go (default: a temporary directory)")
    parser.add_argument("--slots", type=int, default=5_000_000)
    parser.add_argument("--units", type=int, default=20_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        bench = Bench(Path(name), options.slots, options.units)
        print(f"{options.slots:,} slots, {options.units:,} units; medians of {ROUNDS} rounds")
        entering(bench)
        querying(bench)
        bench.index.close()


if __name__ == "__main__":
    main()
