"""A queue of batches: units, the search for the one that covers an offset, recovery, damage."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.log.log_end import DispatchRequest
from store.machine.errors import StoreFullError
from store.queue.batch_consume_queue import BatchConsumeQueue, BatchUnit
from store.queue.queue_units import QueueGapError
from tandem.wire.store_layout import BATCH_CQ_STORE_UNIT

SIZE = 460
DIRECTORY = "/bcq/T/3"
FIRST_FILE = f"{DIRECTORY}/{0:020d}"
SECOND_FILE = f"{DIRECTORY}/{SIZE:020d}"


def a_queue(disk: SimulatedDisk | None = None, count: int = 0) -> BatchConsumeQueue:
    queue = BatchConsumeQueue(DIRECTORY, "T", 3, SIZE, disk or SimulatedDisk())
    for number in range(count):
        queue.ensure_room()
        offset, size, code, stored_ms, _, batch_size = batch(number)
        queue.append(offset, size, code, stored_ms, batch_size)
    return queue


def batch(number: int) -> BatchUnit:
    """Batch `number`: 1, 2, 3, 1, 2, 3 ... messages, stored every 10 ms."""
    before = (0, 1, 3)[number % 3] + number // 3 * 6
    return BatchUnit(number * 400, 100, -number, 1000 + 10 * number, before, number % 3 + 1)


def a_request(number: int, **changes: int) -> DispatchRequest:
    unit = batch(number)
    request = DispatchRequest(
        topic="T",
        queue_id=3,
        offset=unit.offset,
        size=unit.size,
        tags_code=unit.tags_code,
        queue_offset=unit.base,
        store_timestamp_ms=unit.store_timestamp_ms,
        sys_flag=0xC0,
        msg_base_offset=unit.base,
        batch_size=unit.batch_size,
    )
    return msgspec.structs.replace(request, **changes)


def recovered(disk: SimulatedDisk) -> BatchConsumeQueue:
    queue = a_queue(disk)
    queue.load()
    queue.recover()
    return queue


def units_of(queue: BatchConsumeQueue) -> list[BatchUnit]:
    """All units, read as a consumer does: from the first offset on, file by file."""
    found: list[BatchUnit] = []
    offset = queue.min_offset
    while offset < queue.next_offset:
        found += queue.batch_units(offset, 1000)
        offset = found[-1].end
    return found


def batches(count: int) -> list[BatchUnit]:
    return [batch(number) for number in range(count)]


def test_the_golden_unit() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk)
    queue.dispatch(a_request(0, size=284, tags_code=0, store_timestamp_ms=77, batch_size=3))
    expected = "0000000000000000 0000011c 0000000000000000 000000000000004d 0000000000000000"
    assert (disk.read(FIRST_FILE) or b"")[:46] == bytes.fromhex(expected + "0003 ffffffff 00000000")
    assert (queue.next_offset, queue.max_physic_offset, queue.min_offset) == (3, 284, 0)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 35, 40])
def test_recovery_finds_every_unit_again(count: int) -> None:
    """BatchConsumeQueue.recover begins at the third file from the end."""
    disk = SimulatedDisk()
    before = a_queue(disk, count)
    queue = recovered(disk)
    assert units_of(queue) == batches(count)
    assert queue.next_offset == queue.assigned_offset == (batch(count - 1).end if count else 0)
    assert queue.max_physic_offset == before.max_physic_offset
    if count:
        assert not queue.dispatch(a_request(count - 1))
    assert queue.dispatch(a_request(count))


@pytest.mark.parametrize(
    ("at", "torn"),
    [
        (0, bytes(46)),
        (8, bytes(38)),  # size and all behind it did not reach the disk
        (36, bytes(10)),
        (0, bytes(8)),  # the offset did not
        (0, bytes(10)),
        (0, (-1).to_bytes(8, signed=True)),
        (8, (-1).to_bytes(4, signed=True)),
        (28, (-1).to_bytes(8, signed=True)),
        (28, (0).to_bytes(8)),  # not behind the one before it
        (36, (-1).to_bytes(2, signed=True)),
        (0, b"\x7f" + b"\xff" * 7),
        (28, b"\x7f" + b"\xff" * 7),
    ],
)
def test_a_torn_unit_is_the_end_of_the_queue(at: int, torn: bytes) -> None:
    disk = SimulatedDisk()
    a_queue(disk, 15)
    file = disk.open(SECOND_FILE)
    file.buffer[92 + at : 92 + at + len(torn)] = torn
    queue = recovered(disk)
    assert units_of(queue) == batches(12)
    assert queue.max_physic_offset == batch(11).offset + 100
    assert bytes(file.buffer[92:]) == bytes(SIZE - 92)


@given(st.binary(min_size=92, max_size=920))
def test_no_bytes_stop_recovery_or_reading(content: bytes) -> None:
    disk = SimulatedDisk()
    for start in range(0, len(content), SIZE):
        piece = content[start : start + SIZE].ljust(SIZE, b"\0")
        disk.create(f"{DIRECTORY}/{start:020d}", SIZE).buffer[:] = piece
    queue = recovered(disk)
    units = units_of(queue)
    assert all(left.end <= right.base for left, right in pairwise(units))
    assert units_of(recovered(disk)) == units


@pytest.mark.parametrize("keep", [0, 1, 9, 10, 11, 25])
def test_units_of_records_behind_the_end_of_the_log_are_dropped(keep: int) -> None:
    """BatchConsumeQueue.truncateDirtyLogicFiles."""
    disk = SimulatedDisk()
    queue = a_queue(disk, 25)
    for end in (batch(keep).offset, batch(keep).offset - 299 if keep else 0):
        queue.truncate_dirty_logic_files(end)
        assert units_of(queue) == batches(keep)
        assert queue.max_physic_offset == (batch(keep - 1).offset + 100 if keep else -1)
    assert len(disk.list_files(DIRECTORY)) == -(-keep // 10)
    assert queue.dispatch(a_request(keep))


def test_records_are_entered_once() -> None:
    """putBatchMessagePositionInfo compares with where the last record starts."""
    queue = a_queue()
    assert [queue.dispatch(a_request(n)) for n in (0, 0, 1, 2, 1, 0, 2)] == [
        *(True, False, True, True, False, False, False)
    ]
    assert not queue.dispatch(a_request(2, offset=batch(2).offset - 50, size=1000))
    assert units_of(queue) == batches(3)


@pytest.mark.parametrize("base", [0, 5, 7, 100, 2**62 + 1, 2**80])
def test_a_record_that_does_not_continue_the_queue_is_a_gap(base: int) -> None:
    """5.3.3 appends it."""
    queue = a_queue(count=3)
    with pytest.raises(QueueGapError) as caught:
        queue.dispatch(a_request(3, msg_base_offset=base))
    assert (caught.value.queue_offset, caught.value.next_offset) == (base, 6)
    assert units_of(queue) == batches(3)


def test_a_queue_without_units_starts_late_only_if_it_may() -> None:
    """Nothing is filled in: the place of a unit does not depend on its queue offset."""
    disk = SimulatedDisk()
    queue = a_queue(disk)
    with pytest.raises(QueueGapError):
        queue.dispatch(a_request(4), may_start_late=False)
    with pytest.raises(QueueGapError):
        queue.dispatch(a_request(4, msg_base_offset=2**80))
    assert queue.dispatch(a_request(4))
    assert (queue.min_offset, queue.next_offset) == (7, 9)
    assert disk.list_files(DIRECTORY) == [(f"{0:020d}", SIZE)]
    again = recovered(disk)
    assert (again.min_offset, again.next_offset) == (7, 9)
    assert units_of(again) == [batch(4)]


def test_a_record_that_does_not_say_what_it_holds_only_uses_up_an_offset() -> None:
    """putMessagePositionInfoWrapper: "unexpected dispatch request", and no unit."""
    queue = a_queue(count=3)
    single = a_request(3, msg_base_offset=-1, batch_size=1)
    assert not queue.dispatch(single)
    assert not queue.dispatch(single)
    assert (queue.next_offset, queue.assigned_offset) == (6, 7)
    queue.dispatch(a_request(4, msg_base_offset=7))
    assert [unit.base for unit in units_of(queue)] == [0, 1, 3, 7]
    assert not queue.dispatch(single)
    assert queue.assigned_offset == queue.next_offset == 9
    assert [unit.base for unit in queue.batch_units(6, 5)] == [7]


def test_after_a_restart_an_offset_that_no_unit_has_may_be_used_again() -> None:
    disk = SimulatedDisk()
    a_queue(disk, 3)
    queue = recovered(disk)
    queue.dispatch(a_request(3, msg_base_offset=-1))
    assert queue.dispatch(a_request(4, msg_base_offset=6))
    assert queue.next_offset == 8


def test_rows_entered_at_once_are_entered_as_one_by_one() -> None:
    disks = SimulatedDisk(), SimulatedDisk()
    one, many = a_queue(disks[0]), a_queue(disks[1])
    for number in range(25):
        one.dispatch(a_request(number))
    columns = [np.array(column) for column in zip(*batches(25), strict=True)]
    offsets, sizes, codes, times, bases, counts = columns
    head = [column[:7] for column in (offsets, sizes, codes, bases, times, counts)]
    assert many.dispatch_many(*head) == 7
    assert many.dispatch_many(offsets, sizes, codes, bases, times, counts) == 18
    assert [bytes(f.buffer) for f in many.files.files] == [bytes(f.buffer) for f in one.files.files]
    with pytest.raises(QueueGapError):
        many.dispatch_many(offsets[:2] + 10**6, sizes[:2], codes[:2], bases[:2] + 99, times[:2])


def test_single_messages_are_batches_of_one() -> None:
    queue = a_queue()
    queue.append_many([number for n in range(12) for number in (n * 100, 100, n)], 5)
    assert units_of(queue) == [BatchUnit(n * 100, 100, n, 5, n, 1) for n in range(12)]
    assert queue.unit(11) == (1100, 100, 11)


def test_offsets_are_assigned_ahead_of_the_units() -> None:
    queue = a_queue(count=3)
    queue.assign(3)
    assert (queue.assigned_offset, queue.next_offset) == (9, 6)


def test_a_full_disk_is_an_error_before_anything_changes() -> None:
    queue = a_queue(SimulatedDisk(capacity_bytes=SIZE), 10)
    with pytest.raises(StoreFullError):
        queue.dispatch(a_request(10))
    assert units_of(queue) == batches(10)


@pytest.mark.parametrize("lost", [38, 40, 42, 44])
def test_the_end_of_a_unit_lost_in_a_power_loss_is_written_again(lost: int) -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 3)
    content = disk.read(FIRST_FILE)
    for file in queue.files.files:
        file.flushed_position = file.wrote_position
    disk.open(FIRST_FILE).buffer[46 + lost : 92] = bytes(46 - lost)
    queue.dispatch(a_request(1))
    assert disk.read(FIRST_FILE) == content
    assert [f.flushed_position for f in queue.files.dirty_files(0)] == [46] * (lost < 42)


def test_the_batch_that_covers_an_offset_is_found() -> None:
    """BatchConsumeQueue.iterateFrom: the first unit may begin before the wanted message."""
    queue = a_queue(count=25)
    for offset in range(queue.next_offset):
        found = list(queue.batch_units(offset, 1))
        assert [unit.base <= offset < unit.end for unit in found] == [True]
        assert list(queue.units(offset, 1)) == [queue.unit(offset)] == [found[0][:3]]
    assert list(queue.batch_units(0, 100)) == batches(10)
    assert list(queue.batch_units(queue.next_offset, 1)) == []
    assert list(a_queue().units(0, 1)) == []


@pytest.mark.parametrize(
    ("min_physical", "first"),
    [(0, 0), (1, 1), (400, 1), (401, 3), (400 * 24, 48), (400 * 24 + 1, 49), (10**9, 49)],
)
def test_the_first_readable_message_is_in_the_first_batch_the_log_still_holds(
    min_physical: int, first: int
) -> None:
    """BatchConsumeQueue.reviseMinOffsetInQueue."""
    queue = a_queue(count=25)
    queue.correct_min_offset(min_physical)
    assert queue.min_offset == first
    queue.correct_min_offset(min_physical)
    assert queue.min_offset == first


def test_files_all_of_whose_batches_have_left_the_log_are_deleted() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 25)
    assert queue.delete_expired_files(batch(9).offset) == 0
    assert queue.delete_expired_files(batch(12).offset) == 1
    queue.correct_min_offset(batch(12).offset)
    assert queue.min_offset == batch(12).base
    assert queue.delete_expired_files(10**9) == 1
    assert len(disk.list_files(DIRECTORY)) == 1
    again = recovered(disk)
    assert units_of(again) == batches(25)[20:]


@pytest.mark.parametrize(
    ("timestamp_ms", "lower", "upper"),
    [(0, 0, 0), (1000, 0, 0), (1001, 1, 0), (1010, 1, 1), (1241, 49, 48), (9999, 49, 48)],
)
def test_an_offset_is_found_by_time(timestamp_ms: int, lower: int, upper: int) -> None:
    """BatchConsumeQueue.getOffsetInQueueByTime: the first message of the batch."""
    queue = a_queue(count=25)
    assert queue.offset_by_time(lambda _: -1, timestamp_ms, 0) == lower
    assert queue.offset_by_time(lambda _: -1, timestamp_ms, 0, upper=True) == upper


def test_batches_that_have_left_the_log_are_not_found_by_time() -> None:
    queue = a_queue(count=4)
    assert queue.offset_by_time(lambda _: -1, 0, 401) == 3
    assert queue.offset_by_time(lambda _: -1, 0, 401, upper=True) == 3
    assert queue.offset_by_time(lambda _: -1, 0, 10**9) == queue.next_offset
    assert a_queue().offset_by_time(lambda _: -1, 0, 0) == 0


def test_a_destroyed_queue_starts_at_nothing() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 25)
    queue.destroy()
    assert disk.list_files(DIRECTORY) == []
    assert (queue.next_offset, queue.min_offset, queue.max_physic_offset) == (0, 0, -1)
    assert queue.dispatch(a_request(0))
    assert queue.file_queues == (queue.files,)
    queue.close()


def test_the_layout_is_that_of_the_wire() -> None:
    disk = SimulatedDisk()
    a_queue(disk, 1)
    assert BATCH_CQ_STORE_UNIT.unpack((disk.read(FIRST_FILE) or b"")[:46]) == (*batch(0), -1, 0)
