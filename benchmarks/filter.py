"""How many messages a second does one read look at through an SQL92 filter?

    python benchmarks/filter.py

Each message has six properties, and the reads go through all of them, 32 at a time, as pulls do.
One process, one thread, everything in the page cache; seconds are those of this process on a core.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from node.filter.message_filter import compile_filter
from store import MessageStore, PutMessage, StoreConfig
from store.machine.real_disk import RealDisk
from tandem.wire.message import Host

MESSAGES = 50_000
ROUNDS = 5
BORN_HOST = Host("127.0.0.1", 50_000).packed
PROPERTIES = (
    "UNIQ_KEY\x017F00000100002A9F00000000000003E8\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    "CLUSTER\x01DefaultCluster\x02color\x01blue\x02n\x01{}\x02"
)
EXPRESSIONS = ("", "n > 50", "n = 3", "n BETWEEN 2 AND 3 OR color = 'red'")


def rate(store: MessageStore, text: str) -> tuple[float, int]:
    """Return how many messages a second are looked at, and how many were found."""
    wanted = compile_filter(text) if text else None
    begun, offset, found = time.process_time(), 0, 0
    while offset < MESSAGES:
        result = store.reads.get_message("T", 0, offset, 32, message_filter=wanted)
        offset, found = result.next_begin_offset, found + result.message_count
        for view in result.body:
            view.release()
    return MESSAGES / (time.process_time() - begun), found


def main() -> None:
    """Print a line for each expression."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0]).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        config = StoreConfig(directory=directory, mapped_file_size_commit_log_bytes=128 << 20)
        with MessageStore.open(
            config,
            disk=RealDisk(),
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
            store_host=Host("127.0.0.1", 10_911),
            is_slave=False,
        ) as store:
            for number in range(MESSAGES):
                properties = PROPERTIES.format(number % 10).encode()
                store.puts.put_message(PutMessage("T", 0, b"x" * 100, properties, 0, BORN_HOST))
            for text in EXPRESSIONS:
                rounds = [rate(store, text) for _ in range(ROUNDS)]
                median = statistics.median(speed for speed, _ in rounds)
                print(f"{text or 'no filter':40} {median:12,.0f}/s, {rounds[0][1]} found")


if __name__ == "__main__":
    main()
