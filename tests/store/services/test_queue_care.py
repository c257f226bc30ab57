"""Queues are mended while their store runs: meanwhile readers get an error, and skip nothing."""

import logging
from typing import Any

import pytest
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.log.message_encoder import inner_batch
from store.machine.errors import DiskFailedError, RecordDamagedError
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue_store import AnyConsumeQueue
from store.services.queue_rebuild import QueueRebuild
from store.services.scrub_service import ScrubProgress
from tandem.wire.store_layout import QUEUE_NOTE_FILE, REBUILD_ORDER_FILE
from tests.store.store_world import (
    CONSUME_QUEUE_BYTES,
    DIRECTORY,
    a_batch,
    a_message,
    check_store,
    open_store,
    put,
    put_many,
    queue_messages,
)
from tests.support.logged import logged
from tests.support.reasons import words

QUEUE = f"{DIRECTORY}/consumequeue/TopicA/0"
BATCHES = f"{DIRECTORY}/batchconsumequeue/Batches/0"


def is_batch(topic: str) -> bool:
    return topic == "Batches"


def a_store(disk: SimulatedDisk | None = None, **settings: object) -> MessageStore:
    """Return one with queues of several files each, of both kinds."""
    store = open_store(
        disk or SimulatedDisk(),
        is_batch_topic=is_batch,
        mapper_file_size_batch_consume_queue_bytes=46 * 8,
        **settings,  # type: ignore[arg-type]
    )
    for number in range(20):
        put_many(store, 6, start=6 * number, body_bytes=200)
        put(store, inner_batch(a_batch(range(3 * number, 3 * number + 3), "Batches")))
    return store


def queue_of(store: MessageStore, topic: str = "TopicA") -> AnyConsumeQueue:
    queue = store.queues.find(topic, 0)
    assert queue is not None
    assert len(queue.files.files) >= 3
    return queue


async def scrub(store: MessageStore) -> ScrubProgress:
    store.scrub_service.scrub_now()
    await store.scrub_service.scrub_pass()
    return store.scrub_service.progress


def bytes_of(queue: AnyConsumeQueue) -> list[bytes]:
    return [bytes(file.buffer[: file.wrote_position]) for file in queue.files.files]


def read_batches(store: MessageStore) -> list[int]:
    """Return the numbers of a reader that reads from the beginning, as far as it gets."""
    got: list[int] = []
    offset = store.reads.min_offset_in_queue("Batches", 0)
    while offset < store.reads.max_offset_in_queue("Batches", 0):
        result = store.reads.get_message("Batches", 0, offset, 32)
        if result.status.name != "FOUND":
            break
        got += range(offset, result.next_begin_offset)
        offset = result.next_begin_offset
    return got


def shorten(disk: SimulatedDisk, store: MessageStore, path: str, size: int) -> None:
    """Cut a file under its process: what was cut off is zeros for memory, too."""
    file = disk.open(path)
    mapped = next(f for f in store.queues.mapped_files() if f.file.path == path)
    mapped.buffer[size:] = bytes(len(mapped.buffer) - size)
    disk._files[path] = disk._file(path, file.content[:size])


@pytest.mark.parametrize("topic", ["TopicA", "Batches"])
@pytest.mark.parametrize("number", [0, 1, -1])
async def test_a_queue_file_that_is_deleted_under_its_process_is_written_anew_from_memory(
    topic: str, number: int, autojump_clock: MockClock
) -> None:
    disk = SimulatedDisk()
    store = a_store(disk)
    queue = queue_of(store, topic)
    before = bytes_of(queue)
    path = queue.files.files[number].file.path
    del disk._files[path]

    progress = await scrub(store)

    assert (progress.rewritten_queue_files, progress.rewritten_units) == (1, 0)
    assert "1 files of queues" in progress.in_words()
    assert bytes_of(queue) == before
    put_many(store, 3, start=200)
    put(store, inner_batch(a_batch(range(60, 63), "Batches")))
    check_all(store)
    store.close()
    check_all(open_again(disk))


def open_again(disk: SimulatedDisk) -> MessageStore:
    return open_store(
        disk, is_batch_topic=is_batch, mapper_file_size_batch_consume_queue_bytes=46 * 8
    )


def check_all(store: MessageStore) -> None:
    """Check that every reader gets every message."""
    for topic, queue_id in store.list_queues():
        queue = store.queues.find(topic, queue_id)
        assert queue is not None
        assert not queue.trouble
        if isinstance(queue, BatchConsumeQueue):
            assert read_batches(store) == list(range(queue.min_offset, queue.next_offset))
        else:
            found = queue_messages(store, topic, queue_id)
            assert [m.queue_offset for m in found] == list(
                range(queue.min_offset, queue.next_offset)
            )


@pytest.mark.parametrize("topic", ["TopicA", "Batches"])
@pytest.mark.parametrize("size", [0, 30, 92])
@pytest.mark.parametrize("number", [0, 1, -1])
async def test_a_queue_file_that_is_cut_under_its_process_is_built_anew_in_place(
    topic: str, size: int, number: int, autojump_clock: MockClock
) -> None:
    disk = SimulatedDisk()
    store = a_store(disk)
    queue = queue_of(store, topic)
    before = bytes_of(queue)
    mapped = queue.files.files[number]
    shorten(disk, store, mapped.file.path, size)

    progress = await scrub(store)

    assert bytes_of(queue) == before
    assert progress.rewritten_queue_files == 1
    assert progress.rewritten_units >= 1
    assert not progress.queues_left
    check_all(store)
    put_many(store, 40, start=200)
    put(store, inner_batch(a_batch(range(60, 63), "Batches")))
    check_all(store)
    store.close()
    check_all(open_again(disk))


async def test_a_file_that_is_too_long_is_written_anew_from_memory(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = a_store(disk)
    queue = queue_of(store)
    before = bytes_of(queue)
    path = queue.files.files[1].file.path
    disk._files[path] = disk._file(path, before[1] + b"x")
    assert (await scrub(store)).rewritten_queue_files == 1
    assert disk.read(path) == before[1]
    assert not queue.trouble


async def test_while_a_queue_is_built_anew_its_readers_get_an_error_and_puts_go_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.services.queue_rebuild.SLICE_BYTES", 700)
    disk = SimulatedDisk()
    store = a_store(disk)
    for topic in ("TopicA", "Batches"):
        shorten(disk, store, queue_of(store, topic).files.files[1].file.path, 10)
    ends = {t: store.reads.max_offset_in_queue(t, 0) for t in ("TopicA", "Batches")}
    looks = 0
    step = QueueRebuild._step

    def look_before_step(rebuild: QueueRebuild, *arguments: Any) -> tuple[int, bool]:  # noqa: ANN401
        nonlocal looks
        for topic, offset in (("TopicA", 0), ("TopicA", 15), ("Batches", 3), ("Batches", 27)):
            for codes in (None, frozenset({1})):
                result = store.reads.get_message(topic, 0, offset, 32, tags_codes=codes)
                assert result.status.name == "MESSAGE_DAMAGED"
                assert result.next_begin_offset == offset
                assert "built anew" in str(result.damaged)
                assert " at -1" not in str(result.damaged)
        assert store.reads.run_units("TopicA", 0, ends["TopicA"] - 1) is None
        assert store.reads.get_message("TopicA", 1, 0, 32).status.name == "FOUND"
        with pytest.raises(RecordDamagedError):
            store.reads.offset_in_queue_by_time("TopicA", 0, 1)
        with pytest.raises(RecordDamagedError):
            store.reads.message_store_timestamp_ms("Batches", 0, 3)
        put(store, a_message(200 + looks))
        put(store, inner_batch(a_batch(range(200 + looks, 202 + looks), "Batches")))
        looks += 1
        return step(rebuild, *arguments)

    monkeypatch.setattr(QueueRebuild, "_step", look_before_step)
    await scrub(store)
    assert looks > 5
    check_all(store)
    assert store.reads.max_offset_in_queue("TopicA", 0) == ends["TopicA"] + looks
    assert store.reads.max_offset_in_queue("Batches", 0) == ends["Batches"] + 2 * looks


FIELDS = {"offset": 0, "size": 8, "base": 28, "count": 36}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("index", [0, 3, 12])
async def test_a_wrong_unit_of_a_queue_of_batches_is_written_anew(
    field: str, index: int, autojump_clock: MockClock
) -> None:
    store = a_store()
    queue = queue_of(store, "Batches")
    before = bytes_of(queue)
    file = queue.files.files[index // 8]
    file.buffer[index % 8 * 46 + FIELDS[field] + 1] ^= 1

    progress = await scrub(store)

    assert bytes_of(queue) == before
    assert progress.rewritten_units == 1
    check_all(store)
    assert (await scrub(store)).rewritten_units == 0
    if index < 8:  # also of a full file, which no flush looks at any more
        assert file.file.durable == file.file.content  # type: ignore[attr-defined]
        assert file.flushed_position == file.size


async def test_batches_that_have_left_the_log_keep_their_units(autojump_clock: MockClock) -> None:
    store = a_store()
    for _ in range(2):
        store.commit_log.files.delete_expired_file_by_time(
            now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=1
        )
    store.queues.correct_min_offset(store.min_physical_offset)
    queue = queue_of(store, "Batches")
    assert queue.min_offset > 0
    before = bytes_of(queue)
    file = queue.files.files[1]
    file.buffer[46 * 2 + 33] ^= 1

    assert (await scrub(store)).rewritten_units == 1

    assert bytes_of(queue) == before
    check_all(store)


async def test_where_a_part_of_the_log_is_damaged_batches_wait_for_the_next_start(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    store = a_store(disk)
    queue = queue_of(store, "Batches")
    whole = disk.open(f"{DIRECTORY}/commitlog/{0:020d}").content
    record = store.commit_log.record_at(0)
    assert record is not None
    store.commit_log.files.files[0].buffer[10] ^= 1
    queue.files.files[1].buffer[33] ^= 1

    progress = await scrub(store)

    assert progress.queues_left
    assert queue.trouble
    assert read_batches(store) == []
    assert len(logged(caplog, "store.queue.rebuild_order", logging.ERROR)) == 1
    # It heals, and the next scrub needs no start; the order stands, and costs a read of the log.
    store.commit_log.files.files[0].buffer[: len(record)] = whole[: len(record)]
    store.commit_log.damage.healed(0, 1 << 60)
    await scrub(store)
    assert not queue.trouble
    check_all(store)
    assert disk.exists(f"{DIRECTORY}/{REBUILD_ORDER_FILE}")
    store.close()
    store = open_again(disk)
    check_all(store)
    assert not disk.exists(f"{DIRECTORY}/{REBUILD_ORDER_FILE}")
    assert "next start" not in store.scrub_service.progress.in_words()


async def test_a_unit_of_a_queue_with_extensions_is_built_anew_with_its_plain_code(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = a_store(
        disk, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext_bytes=1000
    )
    queue = queue_of(store)
    codes = [code for _, _, code in queue.units(0, 10)]
    shorten(disk, store, queue.files.files[0].file.path, 60)

    assert (await scrub(store)).rewritten_units == 7

    assert [code for _, _, code in queue.units(0, 10)] == codes
    check_all(store)


@pytest.mark.parametrize("what", ["first", "all"])
async def test_what_has_no_place_in_a_queue_is_built_at_the_next_start_and_that_is_said(
    what: str,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At rest, in a log that is longer than what a start looks at."""
    monkeypatch.setattr("store.recovery.queue_fronts.WALKED_BYTES_MAX", 0)
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(25):
        put(store, a_message(number, "Quiet"))
    put_many(store, 90, start=100, body_bytes=500)
    store.close()
    quiet = f"{DIRECTORY}/consumequeue/Quiet/0"
    names = [name for name, _ in disk.list_files(quiet)]
    for name in names if what == "all" else names[:1]:
        disk.remove(f"{quiet}/{name}")
    disk.remove(f"{DIRECTORY}/{QUEUE_NOTE_FILE}")  # as an earlier version leaves it
    store = open_store(disk)
    # This start has not found it by itself.
    assert not logged(caplog, "store.queue.rebuild_order", logging.ERROR)

    progress = await scrub(store)

    assert "Quiet-0: " in words(progress.queues_left)
    assert logged(caplog, "store.queue.rebuild_order", logging.ERROR) == [(progress.queues_left,)]
    store.close()
    store = open_store(disk)
    check_store(store)
    assert store.reads.max_offset_in_queue("Quiet", 0) == 25
    assert not (await scrub(store)).queues_left


async def test_a_file_of_no_queue_is_named_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    store = a_store(disk)
    disk.replace(f"{QUEUE}/{90 * CONSUME_QUEUE_BYTES:020d}", bytes(CONSUME_QUEUE_BYTES))
    for _ in range(2):
        await scrub(store)
    (named,) = logged(caplog, "store.services.queue_files_check", logging.ERROR)
    assert named == (f"{QUEUE}/{90 * CONSUME_QUEUE_BYTES:020d}",)


async def test_a_disk_that_refuses_the_new_file_is_said_and_asked_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    store = a_store(disk)
    path = queue_of(store).files.files[1].file.path
    del disk._files[path]

    def refuse(path: str, size: int, *, grows: bool = False) -> None:
        raise DiskFailedError(f"{path}: no")

    with monkeypatch.context() as refusing:
        refusing.setattr(disk, "create", refuse)
        assert (await scrub(store)).rewritten_queue_files == 0
    (refused,) = logged(caplog, "store.services.queue_files_check", logging.ERROR)
    assert refused[0] == path
    assert (await scrub(store)).rewritten_queue_files == 1
    check_all(store)
