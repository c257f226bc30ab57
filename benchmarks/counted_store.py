"""What `instructions.py` counts in a store: puts, and recoveries after them.

    python -P counted_store.py DIRECTORY

Run in the directory of a tree, by the Python of that tree. Each step is said when it begins and
when it is over, and an answer is waited for.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))


from benchmarks.append import BODY, BORN_HOST, PROPERTIES
from benchmarks.recovery import stop_hard
from store import MessageStore, PutBatch, PutMessage, StoreConfig
from store.machine.real_disk import RealDisk
from tandem.wire import native
from tandem.wire.message import Host, Message, encode_batch_body

WARMING = 640
SINGLE = 640
BATCHED = 6_400
LOG_BYTES = 16 << 20


def step(what: str, messages: int, take: Callable[[], object]) -> None:
    """Take a step that others count."""
    print("begin", flush=True)
    sys.stdin.readline()
    take()
    print("end", flush=True)
    sys.stdin.readline()
    print(json.dumps([what, messages, 0]), flush=True)


def open_store(directory: Path) -> MessageStore:
    """Open a store that takes no put for a slow one, however slow it is."""
    config = StoreConfig(
        directory=str(directory),
        mapped_file_size_commit_log_bytes=LOG_BYTES,
        message_index_enable=False,
        os_page_cache_busy_timeout_ms=3_600_000,
    )
    return MessageStore.open(
        config,
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        store_host=Host("127.0.0.1", 10_911),
        is_slave=False,
    )


def put_rounds(
    store: MessageStore, put: Callable[[Any], Any], what: object, many: int, count: int
) -> None:
    """Put as often as that is `count` messages; every 64 puts are a round."""
    for number in range(count // many):
        if put(what).status.name != "PUT_OK":
            sys.exit("a message was not stored")
        if not number % 64:
            store.announce()
    store.announce()


def count_store(directory: Path) -> None:
    """Append to a store and recover it."""
    messages = [Message("Bench", BODY, keys=f"key-{i}", tags="TagA") for i in range(64)]
    single = PutMessage("Bench", 0, BODY, PROPERTIES, 1, BORN_HOST)
    batch = PutBatch("Bench", 1, encode_batch_body(messages), b"", 1, BORN_HOST)
    with open_store(directory) as store:
        # Before the store had a part for puts, it took them itself.
        puts: Any = getattr(store, "puts", store)
        steps = (
            ("append, single", puts.put_message, single, 1, SINGLE),
            ("append, batches of 64", puts.put_batch, batch, 64, BATCHED),
        )
        for _, put, each, many, _ in steps:
            put_rounds(store, put, each, many, WARMING)
        for what, put, each, many, count in steps:
            step(what, count, partial(put_rounds, store, put, each, many, count))
    records = 2 * WARMING + SINGLE + BATCHED
    step("recovery, clean stop", records, lambda: open_store(directory).close())
    stop_hard(directory, queues=True)
    step("recovery, crash", records, lambda: open_store(directory).close())
    stop_hard(directory, queues=False)
    step("recovery, queues lost", records, lambda: open_store(directory).close())


def main() -> None:
    """Take all steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path, help="an empty one")
    directory = parser.parse_args().directory
    if native.loops is None:
        sys.exit(f"{Path.cwd()} has no loops in C: run its scripts/setup first")
    count_store(directory)


if __name__ == "__main__":
    main()
