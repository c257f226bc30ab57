"""The reads themselves are tested through the store: tests/store/test_message_store.py."""

import logging
import struct

import pytest

from node.simulated.disk import SimulatedDisk
from store import GetMessageResult, GetMessageStatus, MessageStore
from store.log.message_encoder import inner_batch
from store.messages.get_message import collect, position_status
from tandem.wire.message import decode_messages
from tandem.wire.store_layout import CQ_STORE_UNIT
from tests.store.store_world import DIRECTORY, a_batch, a_message, open_store, put
from tests.support.logged import logged


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
        (0, GetMessageStatus.FOUND, 0),
        (2, GetMessageStatus.FOUND, 2),
        (3, GetMessageStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_every_position_has_its_status(
    offset: int, status: GetMessageStatus, next_offset: int
) -> None:
    with open_store(SimulatedDisk()) as store:
        for number in range(3):
            put(store, a_message(number))
        queue = store.queues.find("TopicA", 0)
        assert position_status(queue, offset, 3) == (status, next_offset)


def test_no_queue_has_a_status_of_its_own() -> None:
    assert position_status(None, 7, 0) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_neighbours_in_the_log_leave_as_one_view() -> None:
    with open_store(SimulatedDisk()) as store:
        for number, queue_id in enumerate((0, 0, 1, 0)):
            put(store, a_message(number, queue_id=queue_id))
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        result = collect(store.commit_log, queue, 0, 3, 32, 1 << 20, None, store.record_check)
        assert result.message_count == 3
        assert len(result.body) == 2
        for view in result.body:
            view.release()


def a_disk_with_an_older_record_damaged(position: int) -> SimulatedDisk:
    """A store closed after several files, in which somebody then changed a byte of record 1."""
    disk = SimulatedDisk()
    with open_store(disk, consume_queue_bytes=1000) as store:
        for number in range(40):
            put(store, a_message(number, body_bytes=700))
        record = store.reads.look_message_by_offset(0)
        assert record is not None
    disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer[len(record) + position] ^= 1
    return disk


def numbers_of(result: GetMessageResult) -> list[int]:
    return [m.queue_offset for view in result.body for m in decode_messages(view)]


@pytest.mark.parametrize("position", [0, 5, 15, 27, 35, 100, 780])
def test_a_read_ends_before_a_record_damaged_since_the_last_stop(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    """5.3.3 hands out what is there. Recovery after a clean stop begins in the last file."""
    disk = a_disk_with_an_older_record_damaged(position)
    with open_store(disk, consume_queue_bytes=1000) as store:
        first = store.reads.get_message("TopicA", 0, 0, 32)
        assert (first.status, numbers_of(first)) == (GetMessageStatus.FOUND, [0])
        assert (first.next_begin_offset, first.damaged) == (1, None)
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at, size, _ = queue.unit(1)
        for _ in range(3):
            alone = store.reads.get_message("TopicA", 0, 1, 32)
            assert (alone.status, alone.next_begin_offset, alone.body) == (
                GetMessageStatus.MESSAGE_DAMAGED,
                1,
                (),
            )
            assert alone.damaged is not None
            found = alone.damaged
            assert (found.topic, found.queue_id, found.queue_offset) == ("TopicA", 0, 1)
            assert found.physical_offset == at
        # An operator may move a reader past it.
        assert numbers_of(store.reads.get_message("TopicA", 0, 2, 32)) == [*range(2, 34)]
        assert [(bad.start, bad.end) for bad in store.commit_log.damage.ranges] == [(at, at + size)]
    assert len(logged(caplog, "store.queue.record_check", logging.ERROR)) == 1


def test_a_read_goes_on_when_the_record_is_healed() -> None:
    disk = a_disk_with_an_older_record_damaged(100)
    with open_store(disk, consume_queue_bytes=1000) as store:
        assert store.reads.get_message("TopicA", 0, 1, 1).status is GetMessageStatus.MESSAGE_DAMAGED
        bad = store.commit_log.damage.ranges[0]
        disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer[bad.start + 100] ^= 1
        assert store.reads.get_message("TopicA", 0, 1, 1).status is GetMessageStatus.MESSAGE_DAMAGED
        store.commit_log.damage.healed(bad.start, bad.end)
        assert numbers_of(store.reads.get_message("TopicA", 0, 1, 3)) == [1, 2, 3]


def test_a_known_bad_range_is_not_handed_out_however_sound_its_records_look() -> None:
    with open_store(SimulatedDisk()) as store:
        for number in range(6):
            put(store, a_message(number))
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at = queue.unit(3)[0]
        store.commit_log.damage.note(at + 5, at + 6, "its block differs")
        assert numbers_of(store.reads.get_message("TopicA", 0, 0, 32)) == [0, 1, 2]
        result = store.reads.get_message("TopicA", 0, 3, 32)
        assert result.damaged is not None
        assert result.damaged.reason == "its block differs"
        assert store.reads.run_units("TopicA", 0, 0) is None
        store.commit_log.damage.healed(at, at + 10)
        assert store.reads.run_units("TopicA", 0, 0) is not None
        assert numbers_of(store.reads.get_message("TopicA", 0, 0, 32)) == [*range(6)]


def test_a_setting_passes_over_damaged_records_and_counts_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = a_disk_with_an_older_record_damaged(100)
    with open_store(disk, consume_queue_bytes=1000, skip_damaged_records=True) as store:
        assert numbers_of(store.reads.get_message("TopicA", 0, 0, 4)) == [0, 2, 3, 4]
        alone = store.reads.get_message("TopicA", 0, 1, 1)
        assert (alone.status, alone.next_begin_offset) == (GetMessageStatus.FOUND, 3)
        assert store.record_check.passed_over == 2
    lines = logged(caplog, "store.queue.record_check", logging.ERROR)
    assert [line[:3] for line in lines if len(line) > 1] == [(1, 0, "TopicA")]


def test_a_reader_of_other_tags_does_not_meet_the_damaged_record() -> None:
    disk = a_disk_with_an_older_record_damaged(100)
    with open_store(disk, consume_queue_bytes=1000) as store:
        result = store.reads.get_message("TopicA", 0, 0, 32, tags_codes=frozenset([1]))
        assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE


def test_a_unit_of_an_older_file_that_names_another_record_ends_the_read() -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(80):
            put(store, a_message(number, queue_id=number % 2, body_bytes=700))
    queue = disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{0:020d}").buffer
    other = disk.open(f"{DIRECTORY}/consumequeue/TopicA/1/{0:020d}").buffer
    queue[60:80] = other[60:80]
    with open_store(disk) as store:
        assert numbers_of(store.reads.get_message("TopicA", 0, 0, 8)) == [0, 1, 2]
        assert store.reads.get_message("TopicA", 0, 3, 8).status is GetMessageStatus.MESSAGE_DAMAGED
        # The queue is wrong. The log is whole, and the other queue's readers get the record.
        assert not store.commit_log.damage
        assert numbers_of(store.reads.get_message("TopicA", 1, 3, 1)) == [3]


@pytest.mark.parametrize(
    "unit",
    [(1 << 62, 100), (100, -5), (8000, 1 << 30), (3, 0), (-7, 90), (0, 2**31 - 1), (791, 791)],
)
def test_a_unit_of_an_older_file_that_names_no_place_ends_the_read(unit: tuple[int, int]) -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(60):
            put(store, a_message(number, body_bytes=700))
    queue = disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{0:020d}").buffer
    CQ_STORE_UNIT.pack_into(queue, 60, *unit, 0)
    with open_store(disk) as store:
        assert store.reads.min_offset_in_queue("TopicA", 0) == 0
        assert numbers_of(store.reads.get_message("TopicA", 0, 0, 8)) == [0, 1, 2]
        result = store.reads.get_message("TopicA", 0, 3, 3)
        assert (result.status, result.next_begin_offset) == (GetMessageStatus.MESSAGE_DAMAGED, 3)
        assert not store.commit_log.damage
        assert numbers_of(store.reads.get_message("TopicA", 0, 4, 2)) == [4, 5]


@pytest.mark.parametrize("count", [1, 3, 5, 900, 0, -4])
def test_a_batch_that_holds_another_number_than_its_unit_says_is_waited_for(count: int) -> None:
    """The number decides which message comes next: none is passed over, and none comes twice."""
    disk = SimulatedDisk()

    def opened() -> MessageStore:
        return open_store(disk, is_batch_topic=lambda topic: topic == "Batches")

    with opened() as store:
        for first in range(0, 400, 4):
            put(store, inner_batch(a_batch(range(first, first + 4), "Batches")))
        assert len(store.commit_log.files.files) > 2
    with opened() as store:
        units = disk.open(f"{DIRECTORY}/batchconsumequeue/Batches/0/{0:020d}").buffer
        struct.pack_into(">h", units, 5 * 46 + 36, count)
        reached = 0
        for offset in range(60):
            result = store.reads.get_message("Batches", 0, offset, 1)
            if result.status is GetMessageStatus.FOUND:
                assert not 20 <= offset < 24
                assert numbers_of(result) == [offset // 4 * 4]
                assert result.next_begin_offset == offset // 4 * 4 + 4
                reached = offset
            else:
                assert result.status is GetMessageStatus.MESSAGE_DAMAGED
                assert result.next_begin_offset == offset
            for view in result.body:
                view.release()
        assert reached >= 19
        # The unit is wrong, and not the log.
        assert not store.commit_log.damage
