"""What both kinds of queues do: recover, be cut, give numbers away, let old files go."""

from collections.abc import Callable

import pytest

from node.simulated.disk import SimulatedDisk
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import ConsumeQueue
from store.queue.queue_units import QueueGapError
from store.queue.unit_queue import UnitQueue
from tandem.wire.store_layout import BATCH_CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE

DIRECTORY = "/cq/T/3"
UNITS_PER_FILE = 10
Unit = tuple[int, int, int]

KINDS = [(ConsumeQueue, CQ_STORE_UNIT_SIZE), (BatchConsumeQueue, BATCH_CQ_STORE_UNIT_SIZE)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind[0].__name__)
def kind(request: pytest.FixtureRequest) -> tuple[type[ConsumeQueue | BatchConsumeQueue], int]:
    chosen: tuple[type[ConsumeQueue | BatchConsumeQueue], int] = request.param
    return chosen


@pytest.fixture
def unit_bytes(kind: tuple[type, int]) -> int:
    return kind[1]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def a_queue(
    kind: tuple[type[ConsumeQueue | BatchConsumeQueue], int], disk: SimulatedDisk
) -> Callable[[int], ConsumeQueue | BatchConsumeQueue]:
    """Make a queue of one message each record, on the disk of the test."""

    def make(count: int) -> ConsumeQueue | BatchConsumeQueue:
        queue = kind[0](DIRECTORY, "T", 3, UNITS_PER_FILE * kind[1], disk)
        for number in range(count):
            queue.ensure_room()
            queue.append(*unit(number))
        return queue

    return make


AQueue = Callable[[int], ConsumeQueue | BatchConsumeQueue]


def unit(number: int) -> Unit:
    return (number * 400, 100, -number)


def units(count: int) -> list[Unit]:
    return [unit(number) for number in range(count)]


def units_of(queue: ConsumeQueue | BatchConsumeQueue) -> list[Unit]:
    return [queue.unit(number) for number in range(queue.min_offset, queue.next_offset)]


def recovered(a_queue: AQueue) -> ConsumeQueue | BatchConsumeQueue:
    queue = a_queue(0)
    queue.load()
    queue.recover()
    return queue


def end_of(count: int) -> int:
    return unit(count - 1)[0] + 100 if count else -1


def lose_from(queue: UnitQueue, number: int, unit_bytes: int) -> None:
    """Put zeros where this unit and all after it were."""
    for file in queue.files.files[number // UNITS_PER_FILE :]:
        start = max(0, number * unit_bytes - file.file_from_offset)
        file.buffer[start:] = bytes(file.size - start)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 35, 40])
def test_recovery_finds_every_unit_again(a_queue: AQueue, count: int) -> None:
    a_queue(count)
    queue = recovered(a_queue)
    assert units_of(queue) == units(count)
    assert (queue.next_offset, queue.assigned_offset, queue.max_physic_offset) == (
        *(count, count),
        end_of(count),
    )
    assert queue.confirmed_from == count
    assert all(not file.zero_from(file.wrote_position) for file in queue.files.files)


def test_a_last_file_without_a_unit_is_deleted(
    a_queue: AQueue, disk: SimulatedDisk, unit_bytes: int
) -> None:
    """5.3.3 takes its first zeros for a unit, or fails to load."""
    a_queue(10)
    disk.create(f"{DIRECTORY}/{10 * unit_bytes:020d}", 10 * unit_bytes)
    assert units_of(recovered(a_queue)) == units(10)
    assert disk.list_files(DIRECTORY) == [(f"{0:020d}", 10 * unit_bytes)]


@pytest.mark.parametrize("lost_from", [0, 3, 10, 17, 20, 40])
def test_an_end_before_the_last_three_files_is_found(
    a_queue: AQueue, lost_from: int, unit_bytes: int
) -> None:
    """Otherwise the queue would know no record, and all of it be entered again."""
    lose_from(a_queue(60), lost_from, unit_bytes)
    again = recovered(a_queue)
    assert units_of(again) == units(lost_from)
    assert again.max_physic_offset == end_of(lost_from)


@pytest.mark.parametrize(("lost_from", "in_doubt"), [(7, False), (10, True), (12, False)])
def test_an_end_is_in_doubt_where_a_file_ends(
    a_queue: AQueue,
    lost_from: int,
    in_doubt: bool,  # noqa: FBT001
    unit_bytes: int,
) -> None:
    queue = a_queue(lost_from)
    lose_from(queue, lost_from, unit_bytes)
    assert recovered(a_queue).ends_in_doubt == in_doubt


@pytest.mark.parametrize("keep", [0, 1, 9, 10, 11, 25])
def test_units_of_records_past_the_end_of_the_log_are_dropped(
    a_queue: AQueue, disk: SimulatedDisk, keep: int
) -> None:
    """ConsumeQueue.truncateDirtyLogicFiles, BatchConsumeQueue.truncateDirtyLogicFiles."""
    queue = a_queue(25)
    for end in (unit(keep)[0], unit(keep)[0] - 299 if keep else 0):
        queue.truncate_dirty_logic_files(end)
        assert units_of(queue) == units(keep)
        assert queue.max_physic_offset == end_of(keep)
    assert len(disk.list_files(DIRECTORY)) == -(-keep // UNITS_PER_FILE)
    assert units_of(recovered(a_queue)) == units(keep)


def test_units_of_older_records_are_yielded_backwards(a_queue: AQueue) -> None:
    queue = a_queue(25)
    expected = [(number * 400, 100, number) for number in range(12)]
    assert list(queue.units_below(unit(12)[0])) == expected[::-1]
    assert list(queue.units_below(0)) == []


def test_units_found_on_disk_have_to_be_confirmed(a_queue: AQueue) -> None:
    """Nothing was dispatched since: none of them was met."""
    a_queue(5)
    queue = recovered(a_queue)
    with pytest.raises(QueueGapError):
        queue.confirm(unit(2)[0], end_of(5))
    queue.confirm(end_of(5), end_of(5))
    assert queue.confirmed_from == 5


def test_offsets_are_assigned_ahead_of_the_units(a_queue: AQueue) -> None:
    queue = a_queue(4)
    queue.assign(3)
    assert (queue.next_offset, queue.assigned_offset) == (4, 7)
    queue.assign(2)
    assert queue.assigned_offset == 9
    queue.truncate_dirty_logic_files(unit(2)[0])
    assert (queue.next_offset, queue.assigned_offset) == (2, 2)


def test_room_is_made_for_a_file_full_of_units(a_queue: AQueue, disk: SimulatedDisk) -> None:
    queue = a_queue(4)
    queue.ensure_room(6)
    assert len(disk.list_files(DIRECTORY)) == 1
    queue.ensure_room(7)
    assert len(disk.list_files(DIRECTORY)) == 2
    queue.drop_empty_file()
    assert len(disk.list_files(DIRECTORY)) == 1
    assert units_of(queue) == units(4)


def test_files_all_of_whose_messages_have_left_the_log_are_deleted(
    a_queue: AQueue, disk: SimulatedDisk
) -> None:
    queue = a_queue(25)
    assert queue.delete_expired_files(unit(9)[0]) == 0
    assert queue.delete_expired_files(unit(9)[0] + 1) == 1
    assert queue.delete_expired_files(10**9) == 1
    assert len(disk.list_files(DIRECTORY)) == 1
    queue.correct_min_offset(unit(22)[0])
    assert queue.min_offset == 22
    assert units_of(queue) == units(25)[22:]


def test_an_empty_queue_has_nothing_to_correct(a_queue: AQueue) -> None:
    queue = a_queue(0)
    queue.correct_min_offset(10**9)
    assert queue.min_offset == 0


def test_a_destroyed_queue_starts_at_nothing(a_queue: AQueue, disk: SimulatedDisk) -> None:
    queue = a_queue(25)
    queue.correct_min_offset(unit(12)[0])
    queue.ensure_room(9)  # more than the last file holds
    queue.destroy()
    assert disk.list_files(DIRECTORY) == []
    assert (queue.next_offset, queue.min_offset, queue.max_physic_offset) == (0, 0, -1)
    assert (queue.assigned_offset, queue.confirmed_from) == (0, 0)
    queue.ensure_room()
    queue.append(*unit(0))
    assert units_of(queue) == units(1)
    queue.close()
