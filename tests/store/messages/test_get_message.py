"""The reads themselves are tested through the store: tests/store/test_message_store.py."""

import pytest

from store import GetMessageStatus
from store.messages.get_message import collect, position_status
from tandem.wire.message import decode_messages
from tandem.wire.store_layout import CQ_STORE_UNIT
from tests.store.store_world import DIRECTORY, a_message, open_store, put
from tests.support.simulated_disk import SimulatedDisk


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
        result = collect(store.commit_log, queue, 0, 3, 32, 1 << 20, None)
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
        record = store.look_message_by_offset(0)
        assert record is not None
    disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer[len(record) + position] ^= 1
    return disk


@pytest.mark.parametrize("position", [0, 5, 15, 27, 35, 100, 780])
def test_a_record_damaged_since_the_last_stop_is_told_and_passed_over(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    """5.3.3 hands out what lies there. Recovery after a clean stop begins in the last file."""
    disk = a_disk_with_an_older_record_damaged(position)
    with open_store(disk, consume_queue_bytes=1000) as store:
        first = store.get_message("TopicA", 0, 0, 32)
        read = [decode_messages(view) for view in first.body]
        assert [m.queue_offset for part in read for m in part] == [0, *range(2, 33)]
        assert first.next_begin_offset == 33
        alone = store.get_message("TopicA", 0, 1, 1)
        assert (alone.status, alone.next_begin_offset) == (GetMessageStatus.FOUND, 3)
        second = store.queues.find("TopicA", 0)
        assert second is not None
        # Whose message it is, only a queue can tell.
        is_whole = position in (15, 27)
        assert (store.look_message_by_offset(second.unit(1)[0]) is not None) == is_whole
    assert "number 1 of queue 0 of topic TopicA cannot be read" in caplog.text


def test_a_unit_of_an_older_file_that_names_another_record_is_passed_over() -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(80):
            put(store, a_message(number, queue_id=number % 2, body_bytes=700))
    queue = disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{0:020d}").buffer
    other = disk.open(f"{DIRECTORY}/consumequeue/TopicA/1/{0:020d}").buffer
    queue[60:80] = other[60:80]
    with open_store(disk) as store:
        result = store.get_message("TopicA", 0, 0, 8)
        read = [m.queue_offset for view in result.body for m in decode_messages(view)]
        assert read == [0, 1, 2, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("unit", [(1 << 62, 100), (100, -5), (8000, 1 << 30), (3, 0)])
def test_a_unit_of_an_older_file_that_names_no_place_is_passed_over(unit: tuple[int, int]) -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(60):
            put(store, a_message(number, body_bytes=700))
    queue = disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{0:020d}").buffer
    CQ_STORE_UNIT.pack_into(queue, 60, *unit, 0)
    with open_store(disk) as store:
        result = store.get_message("TopicA", 0, 3, 3)
        read = [m.queue_offset for view in result.body for m in decode_messages(view)]
        assert read == [4, 5, 6]
        assert result.next_begin_offset == 7
