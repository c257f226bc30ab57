"""How fast is a log checked when a store opens, and how fast do queues and index follow it?

    python benchmarks/recovery.py [--directory DIR] [--megabytes 512] [--body 1024]

Next to it, in the same run: reading the same bytes, and the CRC of the same bytes in large pieces,
which is what any check costs at least. With zlib's CRC and, where it is installed, with isal's.

The log is in the page cache: from a cold disk everything here waits for the disk. One process,
one core. Recovery is the whole of opening a store, its syncs included.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from store import FlushDiskType, MessageStore, PutBatch, StoreConfig
from store.index.index_service import IndexService
from store.machine.real_disk import RealDisk
from store.machine.tcp_network import TCPNetwork
from store.services.reput_message_service import ReputMessageService
from tandem.wire import record_scan
from tandem.wire.message import Host, Message, encode_batch_body

CRCS: list[tuple[str, Callable[[bytes], int]]] = [("zlib", zlib.crc32)]
try:
    from isal.isal_zlib import crc32 as isal_crc32
except ImportError:  # no wheel for this platform
    pass
else:
    CRCS.append(("isal", isal_crc32))

BATCH = 64
QUEUES = 4
ROUNDS = 5
PIECE_BYTES = 2 << 20
BORN_HOST = Host("127.0.0.1", 50_000).packed


def open_store(directory: Path, file_bytes: int = 0) -> MessageStore:
    """Open the store: recovery, from the lock to the last sync."""
    file_bytes = file_bytes or (directory / "commitlog" / f"{0:020d}").stat().st_size
    return MessageStore.open(
        StoreConfig(
            directory=str(directory),
            mapped_file_size_commit_log_bytes=file_bytes,
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            message_index_enable=False,  # it has a line of its own
        ),
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        store_host=Host("127.0.0.1", 10_911),
        is_slave=False,
    )


def fill(directory: Path, log_bytes: int, body_bytes: int) -> int:
    """Write a log of `log_bytes`; return how many records it has."""
    body = b"x" * body_bytes
    messages = [
        Message("Bench", body, keys=f"key-{i:08d}", tags=("TagA", "TagB")[i % 2])
        for i in range(BATCH)
    ]
    batch_body = encode_batch_body(messages)
    count = 0
    with open_store(directory, log_bytes) as store:
        # One file, nearly full.
        while store.max_physical_offset < log_bytes - 2 * len(batch_body) - (1 << 20):
            batch = PutBatch("Bench", count % QUEUES, batch_body, b"", 1, BORN_HOST)
            assert store.puts.put_batch(batch).status.name == "PUT_OK"
            count += 1
        store.announce()
    return count * BATCH


def in_pieces(path: Path, size: int, use: Callable[[bytes], object]) -> None:
    """Read the file in pieces and use each."""
    with path.open("rb", buffering=0) as file:
        for _ in range(0, size, PIECE_BYTES):
            use(file.read(PIECE_BYTES))


def stop_hard(directory: Path, *, queues: bool) -> None:
    """Make the last stop look like a crash of which the checkpoint tells nothing."""
    (directory / "abort").touch()
    checkpoint = directory / "checkpoint"
    checkpoint.write_bytes(bytes(checkpoint.stat().st_size))
    if not queues:
        shutil.rmtree(directory / "consumequeue")


def reput(directory: Path, *, with_index: bool) -> float:
    """Dispatch the whole log to new queues, and to a new index; return the seconds."""
    shutil.rmtree(directory / "index", ignore_errors=True)
    with open_store(directory) as store:
        store.queues.destroy()
        index = an_index(directory, store) if with_index else None
        service = ReputMessageService(
            store.commit_log, store.queues, store.grown, index_service=index
        )
        start = time.perf_counter()
        while service.is_behind:
            service.dispatch_some()
        while service.is_index_behind:
            service.index_some()
        elapsed = time.perf_counter() - start
        if index is not None:
            index.close()
    return elapsed


def slices(directory: Path) -> list[float]:
    """Return how long other tasks wait while the queues follow: the seconds of every slice."""
    with open_store(directory) as store:
        store.queues.destroy()
        service = ReputMessageService(store.commit_log, store.queues, store.grown)
        waits = []
        while service.is_behind:
            start = time.perf_counter()
            service.dispatch_some()
            waits.append(time.perf_counter() - start)
    return waits


def an_index(directory: Path, store: MessageStore) -> IndexService:
    """Return the empty index of this store, with RocketMQ's sizes."""
    index = IndexService(
        str(directory / "index"),
        store.config.max_hash_slot_num,
        store.config.max_index_num,
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        checkpoint=store.checkpoint,
        max_msgs_num_batch=64,
    )
    index.load(clean=True)
    return index


def timed(step: Callable[[], object], before: Callable[[], object] = lambda: None) -> list[float]:
    """Return the seconds of some rounds of `step`, each after `before`."""
    rounds = []
    for _ in range(ROUNDS):
        before()
        start = time.perf_counter()
        step()
        rounds.append(time.perf_counter() - start)
    return rounds


class Table:
    """Prints lines of figures, each next to the raw read and the CRC of the same bytes."""

    def __init__(self, log_bytes: int, records: int) -> None:
        self._log_bytes = log_bytes
        self._records = records
        self.read_seconds = self.crc_seconds = 0.0

    def say(self, what: str, rounds: list[float]) -> float:
        """Print one line; return the median in seconds."""
        median = statistics.median(rounds)
        rates = [self._log_bytes / seconds / 1e9 for seconds in (median, *rounds)]
        ratios = [
            f"{seconds / median:>6.1%} of the {name}"
            for name, seconds in (("read", self.read_seconds), ("CRC", self.crc_seconds))
            if seconds
        ]
        print(
            f"{what:<34} {rates[0]:>6.2f} GB/s {median / self._records * 1e9:>6,.0f} ns/record "
            f" {'  '.join(ratios)}   (min {min(rates):.2f}, max {max(rates):.2f})"
        )
        return median


def measure(
    directory: Path, table: Table, log_bytes: int, name: str, crc32: Callable[[bytes], int]
) -> None:
    """Print what depends on the CRC."""
    vars(record_scan)["raw_crc32"] = crc32
    path = directory / "commitlog" / f"{0:020d}"
    table.crc_seconds = 0.0
    table.crc_seconds = table.say(
        f"CRC of the same bytes, {name}", timed(lambda: in_pieces(path, log_bytes, crc32))
    )

    def recover() -> None:
        store = open_store(directory)
        assert store.max_physical_offset >= log_bytes
        store.close()

    table.say("recovery, clean stop", timed(recover))
    table.say("recovery, crash", timed(recover, before=lambda: stop_hard(directory, queues=True)))
    table.say(
        "recovery, crash, queues lost",
        timed(recover, before=lambda: stop_hard(directory, queues=False)),
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", help="where the files go (default: a temporary directory)")
    parser.add_argument("--megabytes", type=int, default=512, help="size of the log")
    parser.add_argument("--body", type=int, default=1024, help="bytes of body a message")
    options = parser.parse_args()
    TCPNetwork()  # as in a node: makes the C library keep freed memory
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name) / "store"
        records = fill(directory, options.megabytes << 20, options.body)
        with open_store(directory) as store:
            log_bytes = store.max_physical_offset
        print(
            f"{records:,} records of {log_bytes // records} bytes, {QUEUES} queues,"
            f" {log_bytes / 1e6:,.0f} MB, median of {ROUNDS} rounds"
        )
        table = Table(log_bytes, records)
        path = directory / "commitlog" / f"{0:020d}"
        table.read_seconds = table.say(
            "reading the same bytes", timed(lambda: in_pieces(path, log_bytes, len))
        )
        for crc_name, crc32 in CRCS:
            measure(directory, table, log_bytes, crc_name, crc32)
        table.crc_seconds = 0.0
        table.say("reput, queues", [reput(directory, with_index=False) for _ in range(ROUNDS)])
        table.say("reput, queues and index", [reput(directory, with_index=True) for _ in range(3)])
        waits = sorted(slices(directory))
        print(
            f"one slice of reput: median {statistics.median(waits) * 1e3:.2f} ms,"
            f" 99 % within {waits[len(waits) * 99 // 100] * 1e3:.2f} ms,"
            f" longest {waits[-1] * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
