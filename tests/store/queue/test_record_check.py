"""What readers get is tested in tests/store/messages/test_get_message.py."""

import pytest

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.machine.errors import RecordDamagedError
from store.queue.record_check import Missing, RecordCheck
from tandem.wire.store_layout import CQ_STORE_UNIT
from tests.store.store_world import DIRECTORY, a_message, open_store, put


def a_disk(count: int = 80) -> SimulatedDisk:
    """Closed after several files of 8 KiB: the next opening looks at the last one only."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(count):
            put(store, a_message(number, queue_id=number % 2, body_bytes=700))
    return disk


def a_fault(store: MessageStore, number: int, queue_id: int = 0) -> RecordDamagedError:
    queue = store.queues.find("TopicA", queue_id)
    assert queue is not None
    with pytest.raises(RecordDamagedError) as caught:
        store.record_check.message(queue, number, *queue.unit(number)[:2])
    return caught.value


def test_a_sound_record_is_handed_out() -> None:
    with open_store(a_disk()) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at, size, _ = queue.unit(2)
        record = store.record_check.message(queue, 2, at, size)
        assert record is not None
        assert len(record) == size
        record.release()


@pytest.mark.parametrize(
    ("position", "length"),
    [(3, 1), (4, 1), (15, 1), (21, 1), (27, 1), (35, 1), (400, 1), (0, 800), (795, 1)],
)
def test_bytes_of_the_log_that_changed_are_noted_as_bad(position: int, length: int) -> None:
    disk = a_disk()
    with open_store(disk) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at, size, _ = queue.unit(1)
        assert length <= size
        buffer = disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer
        for place in range(at + position, min(at + size, at + position + length)):
            buffer[place] = 0 if length > 1 else buffer[place] ^ 1
        error = a_fault(store, 1)
        assert (error.queue_offset, error.physical_offset) == (1, at)
        assert [(bad.start, bad.end) for bad in store.commit_log.damage.ranges] == [(at, at + size)]


@pytest.mark.parametrize("by", [-1, 1, 700])
def test_a_unit_that_names_the_middle_of_a_record_does_not_speak_for_the_log(by: int) -> None:
    disk = a_disk()
    with open_store(disk) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at, size, code = queue.unit(2)
    units = disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{0:020d}").buffer
    CQ_STORE_UNIT.pack_into(units, 40, at + by, size, code)
    with open_store(disk) as store:
        assert a_fault(store, 2).physical_offset == at + by
        assert not store.commit_log.damage


def test_what_was_deleted_is_gone_until_the_queue_knows() -> None:
    with open_store(a_disk()) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        store.commit_log.files.files.pop(0)
        first = store.commit_log.min_offset
        assert store.record_check.looks(queue, 0)(0, *queue.unit(0)[:2]) is Missing.GONE
        store.queues.correct_min_offset(first)
        # Units from the first one on are of records that are there.
        look = store.record_check.looks(queue, queue.min_offset)
        assert isinstance(look(queue.min_offset, 0, 790), RecordDamagedError)


def test_one_unit_that_seems_to_be_gone_does_not_move_the_begin_of_a_queue() -> None:
    """A search by halves meets the unit in the middle first."""
    disk = a_disk()
    units = disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{0:020d}").buffer
    for number in range(1, 10):
        kept = bytes(units[number * 20 : number * 20 + 20])
        CQ_STORE_UNIT.pack_into(units, number * 20, -1, 790, 0)
        with open_store(disk) as store:
            assert store.reads.min_offset_in_queue("TopicA", 0) == 0
        units[number * 20 : number * 20 + 20] = kept


def test_who_skips_gets_nothing_and_counts() -> None:
    disk = a_disk()
    with open_store(disk) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at, size, _ = queue.unit(1)
        store.commit_log.damage.note(at, at + 1, "a test")
        check = RecordCheck(store.commit_log, store.queues, skips=True)
        assert check.message(queue, 1, at, size) is None
        assert check.passed_over == 1


def test_what_is_damaged_again_after_it_was_healed_is_noted_again() -> None:
    disk = a_disk()
    with open_store(disk) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at, size, _ = queue.unit(1)
        buffer = disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer
        for _ in range(3):
            buffer[at + 400] ^= 1
            a_fault(store, 1)
            assert [bad.start for bad in store.commit_log.damage.ranges] == [at]
            buffer[at + 400] ^= 1
            store.commit_log.damage.healed(at, at + size)
            record = store.record_check.message(queue, 1, at, size)
            assert record is not None
            record.release()


def test_a_record_that_is_read_by_its_place_is_noted_as_well() -> None:
    disk = a_disk()
    with open_store(disk) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        at, size, _ = queue.unit(1)
        read = store.record_check.by_place("TopicA")
        disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer[at + 400] ^= 1
        for wrong in ((at + 3, size), (at, size + 1), (at, -5)):
            with pytest.raises(RecordDamagedError):
                read(*wrong)
            store.commit_log.damage.healed(0, 1 << 62)
        with pytest.raises(RecordDamagedError):
            read(at, size)
        ranges = store.commit_log.damage.ranges
        assert [(bad.start, bad.end) for bad in ranges] == [(at, at + size)]
