"""Opens a store on what a crash has left, and compares all of it with its `History`."""

import random
from typing import Final

import msgspec

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.index.index_file import IndexFile
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import ConsumeQueue
from tandem.wire.message import decode_message
from tandem.wire.store_layout import INDEX_HEADER_BYTES, INDEX_SLOT, INDEX_UNIT
from tests.store.crash_history import History, Queue, Row

NOT_COMPARED: Final = ("/lock", "/abort", ".tmp")
NOT_BUILT_ANEW: Final = ("/commitlog", "/consumequeue", "/batchconsumequeue", "/checkpoint")


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


class Bounds(msgspec.Struct):
    """Where the log may end and begin after a crash, in bytes of the log.

    Attributes:
        must: What has to be there ends here.
        durable: What was acknowledged or flushed ends here: it survives a power loss to come, too.
        may: Nothing was written behind this.
        low: It begins no earlier: the files before were deleted.
        high: It begins no later.
    """

    must: int
    durable: int
    may: int
    low: int
    high: int


def expect(is_so: bool, text: str, *values: object) -> None:  # noqa: FBT001 - as `assert` has it
    """Raise `BrokenPromiseError` with `text` unless it is so."""
    if not is_so:
        raise BrokenPromiseError(f"{text}: {', '.join(map(repr, values))}" if values else text)


def bytes_on(disk: SimulatedDisk) -> dict[str, bytes]:
    """Return what a recovery may not change when it is repeated: every file but lock and abort."""
    return {
        path: file.content for path, file in disk._files.items() if not path.endswith(NOT_COMPARED)
    }


def check_opened(
    store: MessageStore,
    disk: SimulatedDisk,
    history: History,
    bounds: Bounds,
    chance: random.Random,
) -> int:
    """Check a store that was just opened; return where its log ends."""
    begin, end = store.min_physical_offset, store.max_physical_offset
    expect(
        end >= bounds.must, "what was acknowledged is missing: log ends, must reach", end, bounds
    )
    expect(end <= bounds.may, "more than was written: log ends, may reach", end, bounds)
    expect(end in history.stops, "the log does not end behind a record", end)
    expect(bounds.low <= begin <= bounds.high, "the log begins in the wrong place", begin, bounds)
    _check_log(store, history, begin, end)
    _check_on_disk(store, disk, end)
    rows = history.rows_between(history.rows, begin, end)
    _check_queues(store, history, begin, end)
    last = rows[-1].offset if rows else -1
    if rows and rows[-1].is_queued:
        expect(store.last_record_offset == last, "last record", store.last_record_offset, last)
    _check_index(store, history, rows, begin, end)
    _check_reads(store, history, rows, chance)
    return end


def _check_log(store: MessageStore, history: History, begin: int, end: int) -> None:
    found = bytearray()
    for file in store.commit_log.files.files:
        content = bytes(file.buffer)
        found += content[: file.wrote_position]
        expect(
            not any(content[file.wrote_position :]),
            "something is left behind the end of the log",
            file.file.path,
            file.wrote_position,
        )
    expect(found == history.log[begin:end], "the log has other bytes than were written", begin, end)


def _check_on_disk(store: MessageStore, disk: SimulatedDisk, end: int) -> None:
    """What recovery has accepted counts as flushed from now on, so it has to be on disk."""
    expect(store.flushed_where == end, "flushed_where", store.flushed_where, end)
    checkpoint = store.checkpoint.confirm_physical_offset
    expect(checkpoint == end or not history_exists(store), "confirm offset", checkpoint, end)
    for path, file in disk._files.items():
        if any(part in path for part in NOT_BUILT_ANEW) and not path.endswith(".tmp"):
            expect(file.durable == file.content, "recovery has not synced", path)


def history_exists(store: MessageStore) -> bool:
    """Say whether there is a log; without one recovery has nothing to note."""
    return bool(store.commit_log.files.files)


def _check_queues(store: MessageStore, history: History, begin: int, end: int) -> None:
    known = set(store.list_queues())
    for queue in sorted(known | set(history.queues)):
        all_rows = history.queues.get(queue, [])
        rows = history.rows_between(all_rows, begin, end)
        found = store.queues.find(*queue)
        if found is None:
            expect(not rows, "a queue is missing", queue)
            continue
        before = history.rows_between(all_rows, 0, end)
        following = before[-1].queue_offset + before[-1].count if before else 0
        expect(found.next_offset == following, "next offset", queue, found.next_offset, following)
        low = rows[0].queue_offset if rows else following
        expect(found.min_offset == low, "first offset", queue, found.min_offset, low)
        units = _units_of(found)
        expect(units == [row.unit for row in rows], "units", queue, units, rows)
        if rows:
            expect(found.max_physic_offset == rows[-1].end, "end of the queue's last record", queue)


def _units_of(queue: ConsumeQueue | BatchConsumeQueue) -> list[tuple[int, ...]]:
    units: list[tuple[int, ...]] = []
    offset = queue.min_offset
    while offset < queue.next_offset:
        if isinstance(queue, BatchConsumeQueue):
            batches = list(queue.batch_units(offset, 1 << 20))
            units += map(tuple, batches)
            following = batches[-1].end if batches else offset
        else:
            some = list(queue.units(offset, 1 << 20))
            units += some
            following = offset + len(some)
        expect(following > offset, "the queue has a hole", queue.topic, queue.queue_id, offset)
        offset = following
    return units


def _check_index(
    store: MessageStore, history: History, rows: list[Row], begin: int, end: int
) -> None:
    index = store.index_service
    if index is None:
        return
    while store.reput_service.is_index_behind:
        store.reput_service.index_some()
    found: list[tuple[int, int]] = []
    for file in index.files:
        found += _entries_of(file)
    # The keys of a record may be in two files, if the first was full with some of them.
    distinct = list(dict.fromkeys(found))
    held = [entry for entry in distinct if entry[1] >= begin]
    expected = [entry for row in rows for entry in dict.fromkeys(row.keys)]
    expect(held == expected, "the index holds", held, expected)
    gone = distinct[: len(distinct) - len(held)]
    expect({*gone} <= {*history.keys_before(begin)}, "the index holds what never was", gone)


def _entries_of(file: IndexFile) -> list[tuple[int, int]]:
    """Return hash and offset of every unit, after a look at every chain."""
    buffer = bytes(file.file.buffer)
    units_at = INDEX_HEADER_BYTES + file.hash_slot_num * 4
    entries = []
    last: dict[int, int] = {}
    for number in range(1, file.index_count):
        value, offset, _, before = INDEX_UNIT.unpack_from(buffer, units_at + number * 20)
        slot = value % file.hash_slot_num
        expect(before == last.get(slot, 0), "a chain of the index", file, number, before)
        last[slot] = number
        entries.append((value, offset))
    slots = [number for (number,) in INDEX_SLOT.iter_unpack(buffer[INDEX_HEADER_BYTES:units_at])]
    expected = [last.get(slot, 0) for slot in range(file.hash_slot_num)]
    expect(slots == expected, "the slots of the index", file, slots, expected)
    expect(file.hash_slot_count == len(last), "slots in use", file, file.hash_slot_count)
    return entries


def _check_reads(
    store: MessageStore, history: History, rows: list[Row], chance: random.Random
) -> None:
    """Read as consumers and operators do: some messages, by each of the ways there are."""
    for row in chance.sample(rows, min(3, len(rows))):
        record = bytes(history.log[row.offset : row.end])
        expect(store.reads.look_message_by_offset(row.offset) == record, "by offset", row)
        message, _ = decode_message(record, 0)
        _check_get(store, row, record)
        key = message.properties.get("UNIQ_KEY", "")
        if key and row.keys and store.index_service is not None:
            answer = store.reads.query_message(message.topic, key, 64)
            expected = tuple(
                bytes(history.log[other.offset : other.end])
                for other in rows
                if row.keys[0][0] in [value for value, _ in other.keys]
                and _has_key(history, other, row.queue, key)
            )
            expect(answer.records == expected, "by key", key, len(answer.records), len(expected))
    expect(
        not store.reads.query_message("TopicA", "nobody has this key", 64).records,
        "a key of nobody",
    )


def _has_key(history: History, row: Row, queue: Queue, key: str) -> bool:
    message, _ = decode_message(history.log, row.offset)
    keys = [message.properties.get("UNIQ_KEY"), *message.properties.get("KEYS", "").split(" ")]
    return message.topic == queue[0] and key in keys


def _check_get(store: MessageStore, row: Row, record: bytes) -> None:
    if not row.is_queued:
        return
    result = store.reads.get_message(*row.queue, row.queue_offset, 1)
    expect(result.status.name == "FOUND", "by queue", row, result.status)
    expect(b"".join(map(bytes, result.body)) == record, "by queue", row)
