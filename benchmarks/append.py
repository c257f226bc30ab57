"""How many messages a second does one process append, next to a plain copy of the same bytes?

    python benchmarks/append.py [--directory DIR] [--seconds 2]

Everything that a put does is in the figure: checks, body CRC, tags code, record, consume-queue
unit, result. The files are pre-touched, as the running store does it in the background, for the
copy as well as for the store. One process, one thread; no sync to disk, so this is a burst: no disk
takes these rates for long.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from store import FlushDiskType, MessageStore, PutBatch, PutMessage, StoreConfig
from store.machine.real_disk import RealDisk
from store.machine.tcp_network import TCPNetwork
from tandem.wire.message import Host, Message, encode_batch_body

T = TypeVar("T")

BODY = b"x" * 1024
BATCH = 64
FILE_BYTES = 512 << 20
PROPERTIES = b"TAGS\x01TagA\x02UNIQ_KEY\x017F00000100002A9F00000000000003E8\x02WAIT\x01true\x02"
BORN_HOST = Host("127.0.0.1", 50_000).packed
MADV_POPULATE_WRITE = 23


def touch(buffer: mmap.mmap | bytearray) -> None:
    """Touch every page, so that page faults of fresh files are in nobody's figure."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if madvise(
        ctypes.addressof(ctypes.c_char.from_buffer(buffer)), len(buffer), MADV_POPULATE_WRITE
    ):
        for position in range(0, len(buffer), mmap.PAGESIZE):
            buffer[position] = 0


def rate(step: Callable[[], object], count: int, messages: int) -> list[float]:
    """Return messages per second of five rounds of `count` steps."""
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            step()
        rounds.append(count * messages / (time.perf_counter() - start))
    return rounds


def copy_rate(directory: Path, record_bytes: int, count: int) -> list[float]:
    """Copy records of this size, ready made, into a mapping of the same kind."""
    path = directory / "copy"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, FILE_BYTES)
    with mmap.mmap(descriptor, FILE_BYTES) as buffer:
        touch(buffer)
        record = os.urandom(record_bytes)
        position = 0

        def step() -> None:
            nonlocal position
            buffer[position : position + record_bytes] = record
            position = (position + record_bytes) % (FILE_BYTES - record_bytes)

        rounds = rate(step, count, 1)
    os.close(descriptor)
    path.unlink()
    return rounds


def open_store(directory: Path) -> MessageStore:
    """Open an empty store whose first file is touched."""
    config = StoreConfig(
        directory=str(directory / "store"),
        mapped_file_size_commit_log_bytes=FILE_BYTES,
        message_index_enable=False,  # it follows in a task of its own: benchmarks/index.py
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
    )
    store = MessageStore.open(
        config,
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        store_host=Host("127.0.0.1", 10_911),
        is_slave=False,
    )
    for queue_id in (0, 1):
        store.puts.put_message(PutMessage("Bench", queue_id, BODY, PROPERTIES, 1, BORN_HOST))
    touch(store.commit_log.files.files[0].buffer)
    store.announce()
    return store


def round_of(store: MessageStore, put: Callable[[T], object], what: T) -> Callable[[], None]:
    """Return a step that puts `what`; every 64th ends the round, as a node does when it answers."""
    count = 0

    def step() -> None:
        nonlocal count
        put(what)
        count += 1
        if not count & 63:
            store.announce()

    return step


def say(what: str, rounds: list[float], copy: float, record_bytes: int) -> None:
    """Print one line of the table."""
    median = statistics.median(rounds)
    print(
        f"{what:<34} {median:>12,.0f}/s  {median * record_bytes / 1e6:>7,.0f} MB/s"
        f"  {median / copy:>6.1%} of the copy   (min {min(rounds):,.0f}, max {max(rounds):,.0f})"
    )


def main() -> None:
    """Run all three and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", help="where the files go (default: a temporary directory)")
    parser.add_argument("--count", type=int, default=40_000, help="messages a round")
    options = parser.parse_args()
    TCPNetwork()  # as in a node: makes the C library keep freed memory
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        store = open_store(directory)
        message = PutMessage("Bench", 0, BODY, PROPERTIES, 1, BORN_HOST)
        result = store.puts.put_message(message)
        copies = copy_rate(directory, result.wrote_bytes, options.count)
        copy = statistics.median(copies)
        print(f"records of {result.wrote_bytes} bytes, bodies of {len(BODY)}, median of 5 rounds")
        say("plain copy into a mapping", copies, copy, result.wrote_bytes)
        single = rate(round_of(store, store.puts.put_message, message), options.count, 1)
        say("put_message, one at a time", single, copy, result.wrote_bytes)
        body = encode_batch_body(
            [Message("Bench", BODY, keys=f"key-{i}", tags="TagA") for i in range(BATCH)]
        )
        batch = PutBatch("Bench", 1, body, b"", 1, BORN_HOST)
        record_bytes = store.puts.put_batch(batch).wrote_bytes // BATCH
        rounds = rate(round_of(store, store.puts.put_batch, batch), options.count // BATCH, BATCH)
        say(f"put_batch of {BATCH}, keys and tags", rounds, copy, record_bytes)
        body = encode_batch_body([Message("Bench", BODY) for _ in range(BATCH)])
        plain = PutBatch("Bench", 1, body, b"", 1, BORN_HOST)
        record_bytes = store.puts.put_batch(plain).wrote_bytes // BATCH
        rounds = rate(round_of(store, store.puts.put_batch, plain), options.count // BATCH, BATCH)
        say(f"put_batch of {BATCH}, bodies only", rounds, copy, record_bytes)
        store.close()


if __name__ == "__main__":
    main()
