"""A small store on a disk that can die, and what must be true of it whenever it is open."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from typing import Any, Final

import msgspec
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import FlushDiskType, MessageStore, PutBatch, PutMessage, StoreConfig
from store.machine.disk import Disk
from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    Host,
    Message,
    MessageExt,
    decode_message,
    decode_messages,
    encode_batch_body,
)
from tandem.wire.message_properties import encode_properties, tags_code

DIRECTORY: Final = "/store"
STORE_HOST: Final = Host("127.0.0.1", 10911)
BORN_HOST: Final = Host("10.1.2.3", 1234)
BORN_MS: Final = 1_700_000_000_000
COMMIT_LOG_BYTES: Final = 8192
CONSUME_QUEUE_BYTES: Final = 200

TAGS: Final = ("", "TagA", "TagB")


class Clock:
    """A wall clock that moves by `step_ms` whenever somebody looks."""

    def __init__(self, now_ms: int = BORN_MS, step_ms: int = 1) -> None:
        self.now_ms = now_ms
        self.step_ms = step_ms

    def __call__(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms


def open_store(
    disk: Disk,
    directory: str = DIRECTORY,
    *,
    clock: Clock | None = None,
    is_slave: bool = False,
    store_host: Host = STORE_HOST,
    commit_log_bytes: int = COMMIT_LOG_BYTES,
    consume_queue_bytes: int = CONSUME_QUEUE_BYTES,
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
    max_message_size_bytes: int = 4 << 20,
    is_batch_topic: Callable[[str], bool] = lambda _: False,
    compacted: Container[str] = frozenset(),
    hidden_before: Callable[[str], int] = lambda _: 0,
    confirm_bounds_reads: bool = False,
    **settings: Any,  # noqa: ANN401 - fields of StoreConfig
) -> MessageStore:
    """Open the store in `directory` with files so small that they roll all the time."""
    config = StoreConfig(
        directory=directory,
        mapped_file_size_commit_log_bytes=commit_log_bytes,
        mapped_file_size_consume_queue_bytes=consume_queue_bytes,
        max_message_size_bytes=max_message_size_bytes,
        flush_disk_type=flush_disk_type,
        **{"max_hash_slot_num": 100, "max_index_num": 400, **settings},
    )
    return MessageStore.open(
        config,
        disk=disk,
        wall_clock_ms=clock or Clock(),
        store_host=store_host,
        is_slave=is_slave,
        is_batch_topic=is_batch_topic,
        compacted=compacted,
        hidden_before=hidden_before,
        confirm_bounds_reads=confirm_bounds_reads,
    )


def copy_log(master: MessageStore, slave: MessageStore) -> None:
    """Append to `slave` what it lacks of the log of `master`, as a replication link does."""
    offset = max(slave.max_physical_offset, master.min_physical_offset)
    while offset < master.max_physical_offset:
        with master.read_log(offset, 1 << 30) as view:
            slave.append_data(offset, bytes(view))
            offset += len(view)
    slave.announce()


def a_message(
    number: int = 0, topic: str = "TopicA", queue_id: int = 0, *, body_bytes: int = 0
) -> PutMessage:
    """Message `number`: its body says so, its tags are one of TAGS in turn."""
    properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"U{number}"}
    if tags := TAGS[number % len(TAGS)]:
        properties["TAGS"] = tags
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=f"{number}:".encode().ljust(body_bytes, b"."),
        properties=encode_properties(properties),
        born_timestamp_ms=BORN_MS + number,
        born_host=BORN_HOST.packed,
    )


def a_batch(numbers: range, topic: str = "TopicA", queue_id: int = 0) -> PutBatch:
    """Build a client's batch of the messages `numbers`."""
    messages = [
        Message(topic, f"{n}:".encode(), keys=f"k{n}", tags=TAGS[n % len(TAGS)]) for n in numbers
    ]
    return PutBatch(
        topic=topic,
        queue_id=queue_id,
        body=encode_batch_body(messages),
        properties=b"CLUSTER\x01c\x02",
        born_timestamp_ms=BORN_MS,
        born_host=BORN_HOST.packed,
    )


def number_of(message: MessageExt) -> int:
    """Return the number that the body of `message` begins with."""
    return int(message.body.split(b":")[0])


def put(store: MessageStore, message: PutMessage | PutBatch) -> int:
    """Put, expect it to be taken, announce; return the end of the log."""
    if isinstance(message, PutBatch):
        result = store.puts.put_batch(message)
    else:
        result = store.puts.put_message(message)
    assert result.status.name == "PUT_OK", result
    store.announce()
    return result.end_offset


def put_many(store: MessageStore, count: int, *, start: int = 0, body_bytes: int = 300) -> None:
    """Put `count` messages in two topics and three queues."""
    for number in range(start, start + count):
        topic, queue_id = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))[number % 3]
        put(store, a_message(number, topic, queue_id, body_bytes=body_bytes))


def log_messages(store: MessageStore) -> list[MessageExt]:
    """Decode the whole commit log; every byte of it must belong to a record or a blank."""
    messages = []
    offset = store.min_physical_offset
    while offset < store.max_physical_offset:
        with store.read_log(offset, 1 << 30) as view:
            data = bytes(view)
        position = 0
        while position < len(data):
            if int.from_bytes(data[position + 4 : position + 8], "big") == BLANK_MAGIC_CODE:
                position += int.from_bytes(data[position : position + 4], "big")
                break
            message, position = decode_message(data, position)
            messages.append(message)
        offset += position
    assert offset == store.max_physical_offset
    return messages


def queue_messages(store: MessageStore, topic: str, queue_id: int) -> list[MessageExt]:
    """Read a queue from its first to its last message, as a consumer does."""
    messages: list[MessageExt] = []
    offset = store.reads.min_offset_in_queue(topic, queue_id)
    while offset < store.reads.max_offset_in_queue(topic, queue_id):
        result = store.reads.get_message(topic, queue_id, offset, 32)
        assert result.status.name == "FOUND", result
        assert result.next_begin_offset == offset + result.message_count
        for view in result.body:
            messages += decode_messages(view)
        offset = result.next_begin_offset
    return messages


def check_store(store: MessageStore) -> list[MessageExt]:
    """Check that log and queues agree in everything; return the messages in log order."""
    messages = log_messages(store)
    queues: defaultdict[tuple[str, int], list[MessageExt]] = defaultdict(list)
    for message in messages:
        queues[message.topic, message.queue_id].append(message)
        assert store.reads.look_message_by_offset(message.physical_offset) is not None
    for key in {*queues, *store.list_queues()}:
        expected = queues[key]
        assert queue_messages(store, *key) == expected
        low = store.reads.min_offset_in_queue(*key)
        assert [m.queue_offset for m in expected] == list(range(low, low + len(expected)))
        assert store.reads.max_offset_in_queue(*key) == low + len(expected)
        _check_units(store, key, expected)
    assert store.dispatched_offset == store.max_physical_offset
    assert store.last_record_offset == (messages[-1].physical_offset if messages else -1)
    return messages


def scrubbed(store: MessageStore) -> int:
    """Scrub a store; return how many files of the index were built anew."""

    async def scrub() -> int:
        store.scrub_service.scrub_now()
        await store.scrub_service.scrub_pass()
        return store.scrub_service.progress.rebuilt_index_files

    return trio.run(scrub, clock=MockClock(autojump_threshold=0))


def _check_units(store: MessageStore, key: tuple[str, int], expected: list[MessageExt]) -> None:
    queue = store.queues.find(*key)
    assert queue is not None
    assert queue.max_physic_offset == max(
        (m.physical_offset + m.store_size for m in expected), default=-1
    )
    for message in expected:
        unit = (message.physical_offset, message.store_size, tags_code(message.tags))
        assert next(iter(queue.units(message.queue_offset, 1))) == unit


def files_of(disk: SimulatedDisk, *, below: str = DIRECTORY) -> dict[str, bytes]:
    """Return every file below a directory with its content, but for those of the opening."""
    found: dict[str, bytes] = {}
    for directory in _directories(disk, below):
        for name, _ in disk.list_files(directory):
            if name not in ("lock", "abort", "log-start.json", "queue-ends.json"):
                found[f"{directory}/{name}"] = disk.read(f"{directory}/{name}") or b""
    return found


def _directories(disk: SimulatedDisk, directory: str) -> Iterator[str]:
    yield directory
    for name in disk.list_directories(directory):
        yield from _directories(disk, f"{directory}/{name}")


class Recovered(msgspec.Struct, frozen=True):
    """What a disk held when a store was opened on it."""

    messages: list[MessageExt]
    files: dict[str, bytes]


def recover_and_check(disk: SimulatedDisk, **settings: int) -> Recovered:
    """Open the store on a dead disk; check it, that it goes on, and that recovery is idempotent.

    `disk` itself stays as it is.
    """
    work = disk.crashed()
    store = open_store(work, **settings)  # type: ignore[arg-type] # sizes only
    messages = check_store(store)
    again = open_store(work.crashed(), **settings)  # type: ignore[arg-type]
    assert check_store(again) == messages
    put(store, a_message(99_999, "TopicA", 0))
    assert [number_of(m) for m in check_store(store)] == [*map(number_of, messages), 99_999]
    store.close()
    clean = open_store(work, **settings)  # type: ignore[arg-type]
    assert len(check_store(clean)) == len(messages) + 1
    return Recovered(messages, files_of(work))


def note_damage(store: MessageStore, topic: str, number: int, queue_id: int = 0) -> int:
    """Have the record of a message known as damaged; return where it is in the log."""
    queue = store.queues.find(topic, queue_id)
    assert queue is not None
    at, size, _ = queue.unit(number)
    store.commit_log.damage.note(at, at + size, "a test")
    return at


def heal(store: MessageStore) -> None:
    """Have all that is damaged known as whole."""
    store.commit_log.damage.healed(0, 1 << 62)
