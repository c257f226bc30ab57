"""Writes messages to a store with synchronous flush until it is killed, over and over.

    python -m tests.faults.store_writer DIRECTORY ACKNOWLEDGED

For each line on stdin, the number of the next message, it forks: the child opens the store and
puts messages, and notes in the file ACKNOWLEDGED the number of each one that is on disk, and where
it ends. The parent says who the child is, and when it is gone, how it ended:

    4711
    -9

A fork costs a fraction of a new interpreter, so that there is time for many kills.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

import trio

from store import FlushDiskType, PutBatch, PutMessageStatus
from store.machine.real_disk import RealDisk
from store.message_store import MessageStore
from tests.store.store_world import Clock, a_batch, a_message, open_store

SIZES = {
    "commit_log_bytes": 65_536,
    "consume_queue_bytes": 1_000,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
QUEUES = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))


def open_here(directory: str) -> MessageStore:
    """Open the store of this writer."""
    return open_store(
        RealDisk(),
        directory,
        clock=Clock(),
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        **SIZES,  # type: ignore[arg-type] # sizes only
    )


def put_next(store: MessageStore, number: int) -> int:
    """Put message `number`, or some with it as a batch; return the number of the next one."""
    topic, queue_id = QUEUES[number % len(QUEUES)]
    body_bytes = (40, 700, 4000)[number % 7 % 3]
    message = a_message(number, topic, queue_id, body_bytes=body_bytes)
    if number % 11 == 0:
        batch: PutBatch = a_batch(range(number, number + 5), topic, queue_id)
        result = store.puts.put_batch(batch)
    else:
        result = store.puts.put_message(message)
    if result.status is not PutMessageStatus.PUT_OK:
        raise SystemExit(f"message {number} was refused: {result}")
    return number + result.msg_num


async def write(directory: str, acknowledged: int, number: int) -> None:
    """Put messages from `number` on, until killed."""
    with open_here(directory) as store:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            while True:
                for _ in range(3):
                    number = put_next(store, number)
                _note_when_durable(store, acknowledged, number)
                store.announce()
                await trio.lowlevel.checkpoint()


def _note_when_durable(store: MessageStore, acknowledged: int, following: int) -> None:
    end = store.max_physical_offset

    def done(status: PutMessageStatus, _: str) -> None:
        if status is PutMessageStatus.PUT_OK:
            # One call: it is in the file as a whole, or not at all.
            os.write(acknowledged, f"{following - 1} {end}\n".encode())

    store.flush_service.submit(end, trio.current_time() + 5, done)


def _be_killed(directory: str, path: str, number: int) -> NoReturn:
    acknowledged = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        trio.run(write, directory, acknowledged, number)
    finally:
        os._exit(1)  # nothing of the parent's is this process's to close


def main() -> None:
    """Fork a writer for each line."""
    directory, path = sys.argv[1:]
    Path(path).touch()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _be_killed(directory, path, int(line))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
