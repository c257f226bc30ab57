"""What does a queue cost, and how does that grow with how many there are?

    python benchmarks/scale.py [--queues 1000 10000] [--directory DIR] [--open-files 4096]

Topics of eight queues, bodies of 100 bytes, one store. For each number of queues, each step in a
process of its own:

    new queue       CPU of the process, kernel included, from the put to the unit, without the sync
    a queue idle    memory of the process that is its own (RssAnon), after a flush
    descriptors     open after that flush
    flush           one look of the flush when nothing has changed
    stop, start     a clean stop, a start after it, and the memory of the new process's store
    dirty stop      a clean stop when each queue has one message more than the disk
    puts            messages a second into the first eight queues, and into all queues in turn

A file system on which many files were just deleted makes new directories slowly (ext4 does not use
their numbers again for a while): give it a fresh one, and say which.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from store import MessageStore, PutMessage, StoreConfig
from store.machine.real_disk import RealDisk
from tandem.wire.message import Host

QUEUES_A_TOPIC = 8
BORN_HOST = Host("127.0.0.1", 50_000).packed
BODY = b"x" * 100
SENDS = 20_000
ROUND = 64


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def opened(directory: str, open_files: int) -> MessageStore:
    """Return the store in a directory."""
    config = StoreConfig(
        directory,
        mapped_file_size_commit_log_bytes=64 << 20,
        max_hash_slot_num=500_000,
        max_index_num=2_000_000,
        open_queue_files_max=open_files,
        os_page_cache_busy_timeout_ms=600_000,
    )
    return MessageStore.open(
        config,
        disk=RealDisk(),
        wall_clock_ms=now_ms,
        store_host=Host("127.0.0.1", 10_911),
        is_slave=False,
    )


def put(store: MessageStore, number: int) -> None:
    """Put one message into queue `number`."""
    topic, queue_id = f"topic-{number // QUEUES_A_TOPIC:06d}", number % QUEUES_A_TOPIC
    message = PutMessage(topic, queue_id, BODY, b"TAGS\1A\2", now_ms(), BORN_HOST)
    result = store.puts.put_message(message)
    if not result.status.is_stored:
        raise SystemExit(result.reason)


def put_into_all(store: MessageStore, queues: int) -> None:
    """Put one message into each queue, in rounds as a node has them."""
    for number in range(queues):
        put(store, number)
        if number % ROUND == 0:
            store.announce()
    store.announce()


def rss_anon_bytes() -> int:
    """Return the memory of this process that is no file's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def flushed(store: MessageStore) -> None:
    """Do what a thorough flush does, twice: what is on the disk falls asleep."""
    for _ in range(2):
        for files in store.queues.dirty_files(0):
            for file in files:
                file.file.sync()
                file.flushed_position = file.wrote_position
            store.queues.open_files.let_go()


def sends_a_second(store: MessageStore, queues: int) -> float:
    """Return the best of three rates of puts over this many queues in turn."""
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        for number in range(SENDS):
            put(store, number % queues)
            if number % ROUND == 0:
                store.announce()
        best = max(best, SENDS / (time.perf_counter() - began))
        flushed(store)
    return best


def fill(directory: str, queues: int, open_files: int) -> None:
    """Measure a store that gets its queues."""
    store = opened(directory, open_files)
    put(store, 0)
    before, cpu = rss_anon_bytes(), time.process_time()
    put_into_all(store, queues)
    cpu = time.process_time() - cpu
    flushed(store)
    grown = rss_anon_bytes() - before
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    look = time.process_time()
    flushed(store)
    look = time.process_time() - look
    began = time.perf_counter()
    store.close()
    stop = time.perf_counter() - began
    sys.stdout.write(
        f"{queues:,} queues: new queue {cpu / queues * 1e6:.0f} us CPU,"
        f" idle {grown / queues:.0f} bytes, {descriptors} descriptors,"
        f" flush of nothing {look * 1e6:.0f} us, clean stop {stop:.1f} s\n"
    )


def start(directory: str, queues: int, open_files: int) -> None:
    """Measure a start after a clean stop."""
    before, began, cpu = rss_anon_bytes(), time.perf_counter(), time.process_time()
    store = opened(directory, open_files)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    grown = rss_anon_bytes() - before
    sys.stdout.write(
        f"{queues:,} queues: start {seconds:.1f} s, {cpu:.1f} s CPU,"
        f" {cpu / queues * 1e6:.0f} us and {grown / queues:.0f} bytes a queue\n"
    )
    store.close()


def stop(directory: str, queues: int, open_files: int) -> None:
    """Measure a clean stop with something to sync in every queue."""
    store = opened(directory, open_files)
    put_into_all(store, queues)
    began, cpu = time.perf_counter(), time.process_time()
    store.close()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    sys.stdout.write(
        f"{queues:,} queues, all changed: clean stop {seconds:.1f} s,"
        f" {seconds / queues * 1e6:.0f} us and {cpu / queues * 1e6:.0f} us CPU a queue\n"
    )


def send(directory: str, queues: int, open_files: int) -> None:
    """Measure puts into a store that has its queues."""
    store = opened(directory, open_files)
    few, many = sends_a_second(store, QUEUES_A_TOPIC), sends_a_second(store, queues)
    store.close()
    sys.stdout.write(f"{queues:,} queues: puts into 8 {few:,.0f}/s, into all {many:,.0f}/s\n")


STEPS = {"fill": fill, "start": start, "stop": stop, "send": send}


def main() -> None:
    """Measure each number of queues."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--directory", default=None)
    parser.add_argument("--open-files", type=int, default=4_096)
    parser.add_argument("--step", choices=STEPS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.step:
        STEPS[options.step](options.directory, options.queues[0], options.open_files)
        return
    for queues in options.queues:
        directory = tempfile.mkdtemp(prefix="scale-", dir=options.directory)
        for step in STEPS:
            subprocess.run(
                [
                    *(sys.executable, __file__, "--step", step, "--queues", str(queues)),
                    *("--directory", directory, "--open-files", str(options.open_files)),
                ],
                check=True,
            )
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
