"""What the loops of tandem/wire/native.c take, and what Python takes for the same.

    python benchmarks/loops.py [--rounds 15]

Microseconds of CPU a message, the lowest of all rounds, C and Python in turns in one process.
Records of 1 KB with a tag, KEYS and UNIQ_KEY; slices of 1,024 as the index takes them, and runs of
64 as a slave gets them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from node.simulated.file import SimulatedFile
from store.index.index_file import IndexFile
from store.log.message_encoder import MessageEncoder
from store.results import PutBatch
from tandem.wire import native
from tandem.wire.batch_body import encode_batch_entry
from tandem.wire.column_values import distinct_values, tags_codes
from tandem.wire.message import Host
from tandem.wire.message_properties import encode_properties
from tandem.wire.record_check import check_records
from tandem.wire.record_keys import hash_keys
from tandem.wire.record_scan import scan_records
from tandem.wire.store_layout import index_file_bytes

BODY: Final = b"x" * 1024
SLOTS: Final = 5_000_000
UNITS: Final = 20_000_000
CALLS: Final = 20
TIME_MS: Final = 1_700_000_000_000

Case = tuple[str, int, "Callable[[], object]"]
"""What is done, to how many messages at once, and how."""


def entry(number: int) -> bytes:
    """Return one message of a batch."""
    properties = {
        "TAGS": f"Tag{number % 5}",
        "KEYS": f"order-{number:08d}",
        "UNIQ_KEY": f"7F0000010000{number:020X}",
        "WAIT": "true",
    }
    return encode_batch_entry(0, BODY, encode_properties(properties))


def a_batch(count: int) -> PutBatch:
    """Return a client's batch."""
    return PutBatch(
        topic="Bench",
        queue_id=1,
        body=b"".join(map(entry, range(count))),
        properties=b"",
        born_timestamp_ms=TIME_MS,
        born_host=bytes(8),
    )


def cases() -> list[Case]:
    """Return what is timed."""
    encoder = MessageEncoder(
        Host("127.0.0.1", 10911),
        record_bytes_max=1 << 28,
        max_message_size_bytes=4 << 20,
        append_prop_crc=False,
    )

    def split(batch: PutBatch) -> bytes:
        return bytes(encoder.encode_batch(batch, b"Bench", 0, 0, TIME_MS)[0])

    few = a_batch(64)
    many = split(a_batch(1024))
    columns = scan_records(many, 0).columns
    hashes = hash_keys(many, columns)
    keys = (
        hashes.key_hash,
        columns.physical_offset[hashes.row],
        columns.store_timestamp_ms[hashes.row],
    )
    index = IndexFile(SimulatedFile("/index", bytes(index_file_bytes(SLOTS, UNITS))), SLOTS, UNITS)
    return [
        ("a batch of 64 becomes records", 64, partial(split, few)),
        ("64 records checked, CRC included", 64, partial(check_records, split(few), 0)),
        ("columns of 1,024 records", 1024, partial(scan_records, many, 0, check_crc=False)),
        ("their tags codes", 1024, partial(tags_codes, many, columns)),
        (
            "their topics told apart",
            1024,
            partial(distinct_values, many, columns.topic_start, columns.topic_size),
        ),
        ("their keys hashed, two a message", 1024, partial(hash_keys, many, columns)),
        ("their keys entered in an index file", 1024, partial(index.put_many, *keys)),
    ]


def cpu_us(count: int, work: Callable[[], object]) -> float:
    """Return the CPU a message."""
    start = time.process_time()
    for _ in range(CALLS):
        work()
    return (time.process_time() - start) / CALLS / count * 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    loops = native.loops
    if loops is None:
        sys.exit("the loops in C were not compiled here; see tandem/wire/native.py")
    print("| | in C, us a message | in Python | ratio |")
    print("| --- | --- | --- | --- |")
    for name, count, work in cases():
        taken: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for is_c in (True, False):
                native.loops = loops if is_c else None
                taken[is_c].append(cpu_us(count, work))
        native.loops = loops
        ours, theirs = float(np.min(taken[True])), float(np.min(taken[False]))
        print(f"| {name} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f} |")


if __name__ == "__main__":
    main()
