"""The whole store, next to the obvious bound of each work and to RocketMQ's own store.

    python benchmarks/store.py [--directory DIR] [--messages 180000] [--no-java]

The same messages go into both stores: bodies of 1 KiB, TAGS, KEYS and UNIQ_KEY, log files of 256
MiB, index files of 500,000 slots and 2,000,000 units. One line is one kind of work; it tells

    ours         what our store does, one process and one thread
    the bound    what cannot be avoided, measured in the same run: copying the same bytes, reading
                 them, their CRC, or reading and setting one slot and one unit of an index
    RocketMQ     what DefaultMessageStore 5.3.3 does (benchmarks/java/StoreBench.java), after that
                 and on the same disk; needs Java and Maven

and how many times as fast as the others ours is. Fast rows have five rounds, rows that take seconds
have three; the figure is the median. Everything is in the page cache.

RocketMQ enters messages in queues and index in a thread of its own while it takes others, so our
single puts are listed without and with the index. Our log files are touched before they are written
to, as in a node, where a thread does it meanwhile; RocketMQ touches them as it goes. Recovery is
all of opening a store: ours syncs what it vouches for, RocketMQ syncs nothing. After the crash
there are no queues, no index and no checkpoint, and all is built anew.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks import index as index_bench
from benchmarks.append import BATCH, BODY, BORN_HOST, copy_rate, touch
from benchmarks.verify import read_all, verify
from store import FlushDiskType, MessageStore, PutBatch, PutMessage, StoreConfig
from store.machine.real_disk import RealDisk
from store.machine.tcp_network import TCPNetwork
from store.services.reput_message_service import INDEX_SLICE_BYTES, ReputMessageService
from tandem.wire.crc import raw_crc32
from tandem.wire.message import Host, Message, encode_batch_body
from tandem.wire.record_scan import scan_records

FILE_BYTES: Final = 256 << 20
SLOTS: Final = 500_000
UNITS: Final = 2_000_000
ROUNDS: Final = 5
SLOW_ROUNDS: Final = 3
QUERIES: Final = 4_000
BATCH_BODIES: Final = 16
AT_ONCE_BYTES: Final = 2 << 20
"""What is entered in queues or index in one go while nobody else wants to run."""

PULL: Final = 32
KEYS: Final = 8192
"""How many keys the bound of the index enters in one go."""
GIB: Final = 1 << 30
JAVA: Final = Path(__file__).resolve().parent / "java"
POM: Final = Path(__file__).resolve().parent.parent / "tests" / "compat" / "java" / "pom.xml"

Seconds = defaultdict[str, list[float]]
"""By the name of a work, what one message (or one query, or all of the log) took in each round."""


def open_store(directory: Path, *, index: bool = True) -> MessageStore:
    """Open the store, as a node does."""
    return MessageStore.open(
        StoreConfig(
            directory=str(directory),
            mapped_file_size_commit_log_bytes=FILE_BYTES,
            max_hash_slot_num=SLOTS,
            max_index_num=UNITS,
            message_index_enable=index,
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        ),
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        store_host=Host("127.0.0.1", 10_911),
        is_slave=False,
    )


def timed(seconds: list[float], work: Callable[[], object], per: int = 1) -> None:
    """Do the work, and note what each of `per` messages took."""
    start = time.perf_counter()
    work()
    seconds.append((time.perf_counter() - start) / per)


# -- ours ----------------------------------------------------------------------------------------


class Ours:
    """Does with our store what StoreBench does with RocketMQ's."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.count = count // (ROUNDS * BATCH) * ROUNDS * BATCH
        """Messages of each kind: whole rounds of whole batches and pulls."""
        self.seconds: Seconds = defaultdict(list)
        self.log_bytes = self.records = 0

    def run(self) -> None:
        """Fill, read, stop, recover, dispatch."""
        with open_store(self.directory) as store:
            self._puts(store)
            self._gets(store)
            self.log_bytes = store.max_physical_offset
        for _ in range(SLOW_ROUNDS):
            self._recover("recover_clean")
        for _ in range(SLOW_ROUNDS):
            wipe(self.directory)
            self._recover("recover_all")
        for _ in range(SLOW_ROUNDS):
            self._reput()

    def _puts(self, store: MessageStore) -> None:
        per_round = self.count // ROUNDS
        singles(store, "Warm", range(1))
        touch(store.commit_log.files.files[0].buffer)
        singles(store, "Warm", range(1, self.count // 4))
        index_all(store)
        for number in range(ROUNDS):
            prepare_next(store)
            numbers = range(number * per_round, (number + 1) * per_round)
            timed(self.seconds["put_single"], partial(singles, store, "Single", numbers), per_round)
            timed(self.seconds["index_rest"], partial(index_all, store), per_round)
        both = zip(self.seconds["put_single"], self.seconds["index_rest"], strict=True)
        self.seconds["put_single_indexed"] = [sum(pair) for pair in both]
        bodies = batch_bodies()
        for _ in range(ROUNDS):
            prepare_next(store)
            put = partial(batches, store, bodies, per_round // BATCH)
            timed(self.seconds["put_batch"], put, per_round)
        index_all(store)
        self.records = self.count // 4 + 2 * self.count

    def _gets(self, store: MessageStore) -> None:
        per_round = self.count // ROUNDS
        for number in range(ROUNDS):
            offsets = range(number * per_round, (number + 1) * per_round, PULL)
            timed(self.seconds["get_32"], partial(pulls, store, offsets), per_round)
        for number in range(ROUNDS):
            numbers = range(number * QUERIES, (number + 1) * QUERIES)
            timed(self.seconds["query"], partial(queries, store, numbers, self.count), QUERIES)

    def _recover(self, name: str) -> None:
        start = time.perf_counter()
        store = open_store(self.directory)
        index_all(store, AT_ONCE_BYTES)
        self.seconds[name].append(time.perf_counter() - start)
        assert store.max_physical_offset == self.log_bytes
        store.close()

    def _reput(self) -> None:
        shutil.rmtree(self.directory / "index")
        with open_store(self.directory) as store:
            store.queues.destroy()
            service = ReputMessageService(
                store.commit_log, store.queues, store.grown, index_service=store.index_service
            )
            timed(self.seconds["reput_queues"], partial(dispatch_all, service))
            timed(self.seconds["reput_index"], partial(index_all, store, AT_ONCE_BYTES))
        both = zip(self.seconds["reput_queues"], self.seconds["reput_index"], strict=True)
        self.seconds["reput_all"] = [sum(pair) for pair in both]

    @property
    def walked_after_a_clean_stop(self) -> int:
        """How many bytes either store looks at: those of the last file."""
        return self.log_bytes % FILE_BYTES


def singles(store: MessageStore, topic: str, numbers: range) -> None:
    """Put messages one at a time; every 64th ends the round, as a node does when it answers."""
    put = store.puts.put_message
    for number in numbers:
        properties = (
            f"TAGS\x01TagA\x02KEYS\x01k{number}\x02UNIQ_KEY\x017F00000100002A9F{number}\x02"
        ).encode()
        result = put(PutMessage(topic, 0, BODY, properties, 1, BORN_HOST))
        if result.status:
            raise SystemExit(f"put: {result}")
        if not number & 63:
            store.announce()
    store.announce()


def batch_bodies() -> list[bytes]:
    """Return what clients send; encoding it is their work."""
    return [
        encode_batch_body(
            [
                Message("Batch", BODY, keys=f"b{first + n}", tags="TagA", wait_store_msg_ok=True)
                for n in range(BATCH)
            ]
        )
        for first in range(0, BATCH_BODIES * BATCH, BATCH)
    ]


def batches(store: MessageStore, bodies: list[bytes], count: int) -> None:
    """Put `count` batches, each a round of its own."""
    for number in range(count):
        body = bodies[number % BATCH_BODIES]
        result = store.puts.put_batch(PutBatch("Batch", 0, body, b"", 1, BORN_HOST))
        if result.status:
            raise SystemExit(f"put: {result}")
        store.announce()


def pulls(store: MessageStore, offsets: range) -> None:
    """Pull 32 messages from each of these queue offsets on."""
    for offset in offsets:
        if store.reads.get_message("Single", 0, offset, PULL).message_count != PULL:
            raise SystemExit(f"not {PULL} messages at {offset}")


def queries(store: MessageStore, numbers: range, count: int) -> None:
    """Ask for one message by its key, far apart from each other."""
    for number in numbers:
        key = f"k{number * 7919 % count}"
        if not store.reads.query_message("Single", key, 1).records:
            raise SystemExit(f"no message with key {key}")


def prepare_next(store: MessageStore) -> None:
    """Have the next log file ready, as in a node, where a task does it meanwhile."""
    if store.commit_log.files.next_file.is_wanted:
        trio.run(store.commit_log.files.next_file.prepare)


def index_all(store: MessageStore, bytes_max: int = INDEX_SLICE_BYTES) -> None:
    """Let the index follow to the end of the log."""
    while store.reput_service.is_index_behind:
        store.reput_service.index_some(bytes_max)


def dispatch_all(service: ReputMessageService) -> None:
    """Let the queues follow to the end of the log."""
    while service.is_behind:
        service.dispatch_some(bytes_max=AT_ONCE_BYTES)


def wipe(directory: Path) -> None:
    """Leave the log, and a trace of a hard stop."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(directory / name)
    (directory / "checkpoint").unlink()
    (directory / "abort").write_text("1")


# -- the bounds ----------------------------------------------------------------------------------


class Bounds(NamedTuple):
    """Seconds that cannot be avoided: of one message, of one key, or of all of the log."""

    copy: float
    copy_32: float
    read: float
    crc: float
    index_put: float
    index_get: float


def measure_bounds(directory: Path, log: Path, ours: Ours) -> Bounds:
    """Measure all of them, medians of some rounds; `directory` is for scratch files."""
    record_bytes = ours.log_bytes // ours.records
    reads: list[float] = []
    crcs: list[float] = []
    for _ in range(SLOW_ROUNDS):
        timed(reads, partial(read_all, log, crc=False))
        timed(crcs, partial(read_all, log, crc=True))
    copies = copy_rate(directory, record_bytes, 40_000)
    pulls_copied = copy_rate(directory, PULL * record_bytes, 10_000)
    places = [(40 + 4 * (n * 7919 % SLOTS), 40 + 4 * SLOTS + 20 * n) for n in range(QUERIES)]
    bench = index_bench.Bench(directory, SLOTS, UNITS)
    put = index_bench.per_item(lambda: index_bench.batch_bound(bench.scratch, SLOTS, KEYS))
    get = index_bench.per_item(lambda: index_bench.read_bound(bench.scratch, places))
    bench.index.close()
    median = statistics.median
    return Bounds(
        1 / median(copies),
        1 / median(pulls_copied) / PULL,
        median(reads),
        median(crcs),
        2e-9 * median(put),
        1e-9 * median(get),
    )


def index_put(directory: Path) -> list[float]:
    """Return what it takes to enter a message with two keys, in pieces as dispatch does it."""
    log = index_bench.a_log(index_bench.RECORDS, len(BODY))
    columns = scan_records(log, 0, check_crc=False).columns
    bench = index_bench.Bench(directory, SLOTS, UNITS)
    rounds = index_bench.per_item(lambda: bench.dispatch(log, columns, 1000))
    bench.index.close()
    return [1e-9 * nanoseconds for nanoseconds in rounds]


# -- RocketMQ ------------------------------------------------------------------------------------


class JavaFigure(msgspec.Struct, frozen=True):
    """A line of StoreBench."""

    name: str
    messages: int
    seconds: float


def rocketmq(directory: Path, count: int) -> Seconds | str:
    """Run StoreBench; return its figures, or why there are none."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"there is no `{program}` here"
    class_path = directory / "class_path"
    fetched = subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(POM)),
            *("dependency:build-classpath", f"-Dmdep.outputFile={class_path}"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if fetched.returncode:
        return f"Maven cannot fetch RocketMQ 5.3.3: {fetched.stdout[-200:]}"
    done = subprocess.run(
        [
            *("java", f"-Duser.home={directory}", "-cp", class_path.read_text()),
            *(str(JAVA / "StoreBench.java"), str(directory / "rocketmq")),
            *map(str, (count, FILE_BYTES, SLOTS, UNITS)),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return f"StoreBench failed: {done.stderr[-500:]}"
    seconds: Seconds = defaultdict(list)
    for line in done.stdout.splitlines():
        if line.startswith('{"name"'):
            figure = msgspec.json.decode(line, type=JavaFigure)
            of_all = figure.name.startswith(("recover", "reput"))
            seconds[figure.name].append(figure.seconds / (1 if of_all else figure.messages))
    return seconds


# -- the table -----------------------------------------------------------------------------------


class Line(NamedTuple):
    """One kind of work: our seconds, those of the bound, and how to print them."""

    what: str
    ours: str
    bound: str
    bound_seconds: float
    rocketmq: str = ""
    gibibytes: float = 0.0
    """Of a work on all of the log; then the figures are seconds per GiB, else rates."""


def lines_of(ours: Ours, bounds: Bounds, jobs: int) -> list[Line]:
    """Return what is printed, in this order."""
    all_of_it = ours.log_bytes / GIB
    last_file = ours.walked_after_a_clean_stop
    of_last = last_file / ours.log_bytes
    return [
        Line("append, single", "put_single", "copy", bounds.copy),
        Line(
            "append, single, and the index",
            "put_single_indexed",
            "copy",
            bounds.copy,
            "put_single",
        ),
        Line(f"append, batches of {BATCH}", "put_batch", "copy", bounds.copy, "put_batch"),
        Line("get_message, 32 messages", "get_32", "copy", bounds.copy_32, "get_32"),
        Line("index put, 2 keys", "index_put", "set 2 slots", bounds.index_put, "index_put"),
        Line("index query, a key", "query", "read a slot", bounds.index_get, "query"),
        Line("reput, queues", "reput_queues", "read", bounds.read, "reput_queues", all_of_it),
        Line("reput, queues and index", "reput_all", "read", bounds.read, "reput_all", all_of_it),
        Line(
            "recovery, clean stop",
            "recover_clean",
            "CRC",
            bounds.crc * of_last,
            "recover_clean",
            last_file / GIB,
        ),
        Line("recovery, crash", "recover_all", "CRC", bounds.crc, "recover_all", all_of_it),
        Line("verify, 1 process", "verify_1", "CRC", bounds.crc, "", all_of_it),
        Line(f"verify, {jobs} processes", f"verify_{jobs}", "CRC", bounds.crc, "", all_of_it),
    ]


def shown(seconds: float, gibibytes: float) -> str:
    """Return a rate, or seconds per GiB of log."""
    return f"{seconds / gibibytes:.2f} s/GiB" if gibibytes else f"{1 / seconds:,.0f}/s"


def say(line: Line, ours: Seconds, theirs: Seconds) -> None:
    """Print one line of the table."""
    median = statistics.median(ours[line.ours])
    bound = f"{shown(line.bound_seconds, line.gibibytes)} {line.bound}"
    print(
        f"{line.what:<30} {shown(median, line.gibibytes):>15} {bound:>27}"
        f" {line.bound_seconds / median:>8.3f}",
        end="",
    )
    if rounds := theirs.get(line.rocketmq or line.ours):
        other = statistics.median(rounds)
        print(f" {shown(other, line.gibibytes):>15} {other / median:>8.2f}", end="")
    print(flush=True)


def say_machine() -> None:
    """Print what the figures depend on."""
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, CRC by {raw_crc32.__module__ or 'isal'}"
    )


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", help="where the files go (default: a temporary directory)")
    parser.add_argument("--messages", type=int, default=180_000, help="of each kind")
    parser.add_argument("--no-java", action="store_true", help="leave RocketMQ out")
    options = parser.parse_args()
    TCPNetwork()  # as in a node: makes the C library keep freed memory
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        run(Path(name), options.messages, with_java=not options.no_java)


def run(directory: Path, count: int, *, with_java: bool) -> None:
    """Measure everything; RocketMQ when our files are gone."""
    jobs = max(2, os.cpu_count() or 1)
    say_machine()
    mine = directory / "ours"
    ours = Ours(mine, count)
    ours.run()
    seconds = ours.seconds
    for number in (1, jobs):
        for _ in range(SLOW_ROUNDS):
            timed(seconds[f"verify_{number}"], partial(verify, mine, number))
    for name in ("bounds", "index"):
        (directory / name).mkdir()
    bounds = measure_bounds(directory / "bounds", mine, ours)
    seconds["index_put"] = index_put(directory / "index")
    for name in ("ours", "bounds", "index"):
        shutil.rmtree(directory / name)
    theirs = rocketmq(directory, count) if with_java else "left out"
    if isinstance(theirs, str):
        print(f"RocketMQ: {theirs}")
        theirs = defaultdict(list)
    print(
        f"{ours.records:,} messages, {ours.log_bytes / 1e6:,.0f} MB of log\n\n"
        f"{'':<30} {'ours':>15} {'the bound':>27} {'ours : it':>9}"
        f" {'RocketMQ':>15} {'ours : it':>9}"
    )
    for line in lines_of(ours, bounds, jobs):
        say(line, seconds, theirs)


if __name__ == "__main__":
    main()
