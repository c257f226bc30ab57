"""A slow consumer of old messages, beside a load. A part of `sustained.py`.

    python benchmarks/cold_reader.py ADDRESS PORT TOPIC DIRECTORY

Pulls 32 messages of queue 0 ten times a second, from the oldest on and then again. Before each pull
the files of all logs below the directory leave the page cache, but the last of each. When its
standard input ends it says how long the pulls took.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.open_loop import Histogram
from benchmarks.pipelined import PULLED, ask, max_offset_frame, pull_frames
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import QueueRequestHeader

PULL_SECONDS: Final = 0.1


def main() -> None:
    """Pull until there is no more input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("address", help="of the broker")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path, help="its logs leave the page cache")
    arguments = parser.parse_args()
    topic, directory = arguments.topic, arguments.directory
    address = arguments.address, arguments.port
    latencies = Histogram()
    offset = 0
    while not select.select([sys.stdin], [], [], PULL_SECONDS)[0]:
        drop_pages(directory)
        first = number_of(ask(address, min_offset_frame(topic)))
        last = number_of(ask(address, max_offset_frame(topic, 0)))
        offset = max(offset, first)
        if offset + PULLED > last:
            offset = first
            continue
        began = time.perf_counter()
        if ask(address, pull_frames(topic, {0: offset}, PULLED)[0])["code"] == 0:
            latencies.add(time.perf_counter() - began)
            offset += PULLED
    ms = [latencies.percentile(share) * 1000 for share in (0.5, 0.99, 1.0)]
    print(f"{latencies.count} cold pulls: p50 {ms[0]:.2f}, p99 {ms[1]:.2f}, longest {ms[2]:.2f} ms")


def drop_pages(directory: Path) -> None:
    """Have the files of each log leave the page cache, as far as nobody has them mapped."""
    for log in directory.rglob("commitlog"):
        for file in sorted(log.glob("0*"))[:-1]:
            with suppress(FileNotFoundError), file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def min_offset_frame(topic: str) -> bytes:
    """Return a GET_MIN_OFFSET frame of queue 0."""
    header = QueueRequestHeader(topic=topic, queue_id=0)
    command = RemotingCommand(
        RequestCode.GET_MIN_OFFSET, 1, ext=header, serialize_type=SerializeType.JSON
    )
    return encode_frame(command)


def number_of(header: dict[str, object]) -> int:
    """Return the offset that was answered."""
    fields = header["extFields"]
    assert isinstance(fields, dict)
    return int(fields["offset"])


if __name__ == "__main__":
    main()
