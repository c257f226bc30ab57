"""One queue: units, their recovery, and what happens when they do not fit the log."""

import struct
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store.files.growing_file import GrowingFile
from store.log.log_end import DispatchRequest
from store.machine.errors import StoreFullError
from store.queue.consume_queue import ConsumeQueue
from store.queue.queue_units import QueueGapError
from tandem.wire.store_layout import FILLER_SIZE
from tandem.wire.system_topics import SCHEDULE_TOPIC

SIZE = 200
UNIT = struct.Struct(">qiq")
DIRECTORY = "/cq/T/3"


def a_queue(disk: SimulatedDisk | None = None, count: int = 0) -> ConsumeQueue:
    queue = ConsumeQueue(DIRECTORY, "T", 3, SIZE, disk or SimulatedDisk())
    for number in range(count):
        queue.ensure_room()
        queue.append(*unit(number))
    return queue


def unit(number: int) -> tuple[int, int, int]:
    """Return the unit of message `number`: records of 100 bytes, one in four not of this queue."""
    return (number * 400, 100, -number)


def a_request(number: int, **changes: int) -> DispatchRequest:
    offset, size, code = unit(number)
    request = DispatchRequest(
        topic="T",
        queue_id=3,
        offset=offset,
        size=size,
        tags_code=code,
        queue_offset=number,
        store_timestamp_ms=1,
        sys_flag=0,
    )
    return msgspec.structs.replace(request, **changes)


def recovered(disk: SimulatedDisk) -> ConsumeQueue:
    queue = a_queue(disk)
    queue.load()
    queue.recover()
    return queue


def units_of(queue: ConsumeQueue) -> list[tuple[int, int, int]]:
    return [queue.unit(number) for number in range(queue.next_offset)]


def test_the_golden_unit() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk)
    queue.ensure_room()
    queue.append(0, 0x88, 2_598_919)
    data = disk.read(f"{DIRECTORY}/{0:020d}") or b""
    assert data[:20] == bytes.fromhex("0000000000000000 00000088 000000000027a807")
    assert (queue.next_offset, queue.max_physic_offset, queue.min_offset) == (1, 0x88, 0)


@given(st.lists(st.integers(1, 30), max_size=8))
def test_many_units_at_once_are_the_same_as_one_by_one(runs: list[int]) -> None:
    one, many = a_queue(), a_queue()
    number = 0
    for run in runs:
        flat: list[int] = []
        for _ in range(run):
            one.ensure_room()
            one.append(*unit(number))
            flat += unit(number)
            number += 1
        many.append_many(flat)
    assert units_of(many) == units_of(one) == [unit(n) for n in range(number)]
    assert (many.next_offset, many.max_physic_offset) == (one.next_offset, one.max_physic_offset)


@pytest.mark.parametrize(
    ("at", "torn"),
    [
        (0, bytes(20)),
        (8, bytes(12)),  # the size did not reach the disk
        (0, bytes(8)),  # the offset did not: RocketMQ would take this for a unit
        (0, UNIT.pack(-1, 100, 0)),
        (0, UNIT.pack(4800, -1, 0)),
        (0, UNIT.pack(unit(10)[0], 100, 0)),  # not behind the one before it
    ],
)
def test_a_torn_unit_is_the_end_of_the_queue(at: int, torn: bytes) -> None:
    disk = SimulatedDisk()
    a_queue(disk, 15)
    file = disk.open(f"{DIRECTORY}/{200:020d}")
    file.buffer[40 + at : 40 + at + len(torn)] = torn
    queue = recovered(disk)
    assert units_of(queue) == [unit(n) for n in range(12)]
    assert bytes(file.buffer[40:]) == bytes(160)


def test_records_are_entered_once() -> None:
    """ConsumeQueue.putMessagePositionInfo: what was built already is reported as success."""
    queue = a_queue()
    assert [queue.dispatch(a_request(n)) for n in (0, 0, 1, 2, 1, 0, 2)] == [
        *(True, False, True, True, False, False, False)
    ]
    assert units_of(queue) == [unit(0), unit(1), unit(2)]


@pytest.mark.parametrize("number", [1, 4, 5, 100])
def test_a_record_that_does_not_continue_the_queue_is_a_gap(number: int) -> None:
    """5.3.3 logs "logic queue order maybe wrong" and appends at the wrong place."""
    queue = a_queue(count=3)
    request = a_request(3, queue_offset=number)
    with pytest.raises(QueueGapError) as caught:
        queue.dispatch(request)
    assert (caught.value.queue_offset, caught.value.next_offset) == (number, 3)
    assert units_of(queue) == [unit(n) for n in range(3)]


def test_a_queue_without_units_starts_late_only_if_it_may() -> None:
    """ConsumeQueue.fillPreBlank: fillers up to the first unit, none of which can be read."""
    disk = SimulatedDisk()
    queue = a_queue(disk)
    with pytest.raises(QueueGapError):
        queue.dispatch(a_request(15), may_start_late=False)
    assert queue.dispatch(a_request(15))
    assert (queue.min_offset, queue.next_offset) == (15, 16)
    assert disk.list_files(DIRECTORY) == [(f"{200:020d}", SIZE)]
    data = disk.read(f"{DIRECTORY}/{200:020d}") or b""
    assert data[:100] == UNIT.pack(0, FILLER_SIZE, 0) * 5
    assert data[100:120] == UNIT.pack(*unit(15))
    again = recovered(disk)
    assert (again.next_offset, again.max_physic_offset) == (16, unit(15)[0] + 100)
    again.correct_min_offset(0)
    assert again.min_offset == 15


@pytest.mark.parametrize("number", [-1, -(2**63), 2**63 - 1])
def test_a_number_that_no_message_has_starts_no_queue(number: int) -> None:
    disk = SimulatedDisk()
    with pytest.raises(QueueGapError):
        a_queue(disk).dispatch(a_request(0, queue_offset=number))
    assert disk.list_files(DIRECTORY) == []


Row = tuple[int, int, int, int]


@st.composite
def rows_of_a_log(draw: st.DrawFn) -> list[Row]:
    """Runs of rows as a log walked twice, or a damaged one, would have them."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, 60))
        shift = draw(st.sampled_from((0, 0, 0, 0, 1, -1)))
        code = draw(st.sampled_from((0, 7, -7)))
        for number in range(start, start + draw(st.integers(1, 50))):
            offset, size, _ = unit(number)
            rows.append((offset, size, code, number + shift))
    return rows


def columns(rows: list[Row]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    return tuple(np.array(column, np.int64) for column in zip(*rows, strict=True))


def outcome_of_rows(queue: ConsumeQueue, rows: list[Row]) -> int | str:
    try:
        return sum(
            queue.dispatch(
                a_request(0, offset=offset, size=size, tags_code=code, queue_offset=number)
            )
            for offset, size, code, number in rows
        )
    except (QueueGapError, StoreFullError) as error:
        return str(error)


def outcome_at_once(queue: ConsumeQueue, rows: list[Row]) -> int | str:
    try:
        return queue.dispatch_many(*columns(rows))
    except (QueueGapError, StoreFullError) as error:
        return str(error)


def state_of(queue: ConsumeQueue) -> list[object]:
    return [
        queue.next_offset,
        queue.min_offset,
        queue.max_physic_offset,
        *((f.file_from_offset, f.wrote_position, f.flushed_position) for f in queue.files.files),
        *(bytes(f.buffer) for f in queue.files.files),
    ]


@given(
    before=st.integers(0, 40),
    rows=rows_of_a_log(),
    lost=st.lists(st.integers(0, 39), max_size=3),
    files_max=st.sampled_from((2, 100)),
)
def test_rows_entered_at_once_are_entered_as_one_by_one(
    before: int, rows: list[Row], lost: list[int], files_max: int
) -> None:
    """Repeats, gaps, late starts, lost codes, a full disk: never another outcome."""
    queues = []
    for _ in range(2):
        queue = a_queue(
            SimulatedDisk(capacity_bytes=SIZE * max(files_max, -(-before // 10))), before
        )
        for number in lost:
            if number < before:
                at = number % 10 * 20 + 12
                queue.files.files[number // 10].buffer[at : at + 8] = bytes(8)
        queues.append(queue)
    one, many = queues
    assert outcome_at_once(many, rows) == outcome_of_rows(one, rows)
    assert state_of(many) == state_of(one)


def test_codes_lost_in_a_power_loss_are_written_again_at_once() -> None:
    rows = [(number * 400, 100, 7, number) for number in range(60)]
    queue = a_queue()
    assert queue.dispatch_many(*columns(rows)) == 60
    for number in (3, 25, 59):
        file = queue.files.files[number // 10]
        file.buffer[number % 10 * 20 + 12 : number % 10 * 20 + 20] = bytes(8)
    assert queue.dispatch_many(*columns(rows)) == 0
    assert units_of(queue) == [row[:3] for row in rows]


def test_offsets_are_assigned_ahead_of_the_units() -> None:
    """QueueOffsetOperator.increaseQueueOffset: with a transient pool, dispatch comes later."""
    queue = a_queue(count=3)
    assert queue.assigned_offset == 3
    queue.assign(1)
    queue.assign(4)
    assert (queue.assigned_offset, queue.next_offset) == (8, 3)
    for number in range(3, 10):
        queue.dispatch(a_request(number))
    assert queue.assigned_offset == queue.next_offset == 10
    queue.truncate_dirty_logic_files(400)
    assert queue.assigned_offset == queue.next_offset == 1


def test_a_queue_of_fillers_only_knows_no_record() -> None:
    disk = SimulatedDisk()
    a_queue(disk).dispatch(a_request(15))
    file = disk.open(f"{DIRECTORY}/{200:020d}")
    file.buffer[100:] = bytes(100)
    assert recovered(disk).max_physic_offset == -1


@pytest.mark.parametrize("code", [7, -7, 2**31 - 1, -(2**31)])
def test_a_tags_code_lost_in_a_power_loss_is_written_again(code: int) -> None:
    """A sector may end inside a unit: then its code, or half of it, is zero."""
    for lost in (slice(12, 20), slice(16, 20)):
        disk = SimulatedDisk()
        queue = a_queue(disk, 2)
        queue.dispatch(a_request(2, tags_code=code))
        queue.append(*unit(3))
        for file in queue.files.files:
            file.flushed_position = file.wrote_position
        buffer = disk.open(f"{DIRECTORY}/{0:020d}").buffer
        buffer[40 + lost.start : 40 + lost.stop] = bytes(lost.stop - lost.start)
        assert not queue.dispatch(a_request(2, tags_code=code))
        assert queue.unit(2)[2] == code
        changed = code % 2**32 != 0 or lost.start == 12
        assert [f.flushed_position for f in queue.files.dirty_files(0)] == [40] * changed


@pytest.mark.parametrize(
    ("topic", "code", "stays"),
    [
        (SCHEDULE_TOPIC, 1_795_219_504_291, True),
        ("T", -(2**63) + 5, True),
        ("T", 12345, False),
        ("T", 7 ^ 1 << 40, False),
    ],
)
def test_a_code_that_has_changed_is_written_anew_and_one_of_rocketmq_stays(
    topic: str,
    code: int,
    stays: bool,  # noqa: FBT001
) -> None:
    """Delivery times of delayed messages, addresses of the extended queue."""
    queue = a_queue()
    queue.topic = topic
    queue.dispatch(a_request(0, tags_code=code))
    queue.dispatch(a_request(1))
    assert not queue.dispatch(a_request(0, tags_code=7))
    assert queue.unit(0)[2] == (code if stays else 7)


@pytest.mark.parametrize(
    ("min_physical", "first"),
    [(0, 0), (1, 1), (400, 1), (401, 2), (400 * 24, 24), (400 * 24 + 1, 25), (10**9, 25)],
)
def test_the_first_readable_message_is_the_first_one_the_log_still_holds(
    min_physical: int, first: int
) -> None:
    """ConsumeQueue.correctMinOffset; none left: the end of the queue."""
    queue = a_queue(count=25)
    queue.correct_min_offset(min_physical)
    assert queue.min_offset == first


@pytest.mark.parametrize(
    ("min_physical", "files"),
    [(0, 0), (unit(9)[0], 0), (unit(9)[0] + 1, 1), (unit(20)[0], 2), (10**9, 2)],
)
def test_files_all_of_whose_messages_have_left_the_log_are_deleted(
    min_physical: int, files: int
) -> None:
    """MappedFileQueue.deleteExpiredFileByOffset: by the last unit, and never the last file."""
    disk = SimulatedDisk()
    queue = a_queue(disk, 25)
    assert queue.delete_expired_files(min_physical) == files
    queue.correct_min_offset(min_physical)
    assert queue.min_offset == min(25, -(-min_physical // 400))
    assert disk.list_files(DIRECTORY)[0] == (f"{200 * files:020d}", SIZE)
    assert [unit(n) for n in range(10 * files, 25)] == [
        queue.unit(n) for n in range(10 * files, 25)
    ]
    again = recovered(disk)
    again.correct_min_offset(min_physical)
    assert (again.min_offset, again.next_offset) == (queue.min_offset, 25)
    assert again.dispatch(a_request(25))


def test_an_empty_last_file_does_not_keep_the_minimum_from_being_found() -> None:
    """ConsumeQueue.correctMinOffset of 5.3.3 throws, and the whole load fails."""
    disk = SimulatedDisk()
    queue = a_queue(disk, 10)
    queue.files.create_next()
    queue.correct_min_offset(unit(4)[0])
    assert queue.min_offset == 4


class CountingDisk(SimulatedDisk):
    opened = 0

    def open(self, path: str, *, read_only: bool = False, grows: bool = False) -> SimulatedFile:
        self.opened += 1
        return super().open(path, read_only=read_only, grows=grows)


@pytest.mark.parametrize(
    ("min_physical", "first", "opened"),
    [(0, 0, 0), (unit(4)[0], 4, 1), (unit(4)[0] + 100, 5, 0), (10**9, 5, 0)],
)
def test_no_file_is_opened_to_see_that_all_or_none_of_a_queue_has_left_the_log(
    min_physical: int, first: int, opened: int
) -> None:
    """Of 100,000 queues nearly all are idle and closed when a file of the log is deleted."""
    disk = CountingDisk()
    a_queue(disk, 5)
    queue = recovered(disk)
    file = queue.files.files[0]
    assert isinstance(file, GrowingFile)
    assert file.let_go(unsynced=True)
    before = disk.opened
    queue.correct_min_offset(min_physical)
    assert (queue.min_offset, disk.opened - before) == (first, opened)
    assert queue.dispatch(a_request(5))


@pytest.mark.parametrize(("late_by", "first"), [(0, 25), (4, 29), (5, 30)])
def test_fillers_are_below_the_minimum_whatever_the_log_holds(late_by: int, first: int) -> None:
    disk = SimulatedDisk()
    a_queue(disk).dispatch(a_request(25 + late_by))
    queue = recovered(disk)
    for min_physical in (0, 1, unit(first)[0]):
        queue.correct_min_offset(min_physical)
        assert queue.min_offset == first
    queue.correct_min_offset(unit(first)[0] + 1)
    assert queue.min_offset == queue.next_offset


TIMES = (1000, 1010, 1010, 1010, 1500, 1500, 2000)


def stored_ms(offset: int) -> int:
    return TIMES[offset // 400]


@pytest.mark.parametrize(
    ("timestamp_ms", "lower", "upper"),
    [
        (0, 0, 0),
        (999, 0, 0),
        (1000, 0, 0),
        (1001, 1, 0),
        (1010, 1, 3),
        (1011, 4, 3),
        (1500, 4, 5),
        (1999, 6, 5),
        (2000, 6, 6),
        (2001, 7, 6),
    ],
)
def test_an_offset_is_found_by_time(timestamp_ms: int, lower: int, upper: int) -> None:
    """ConsumeQueue.binarySearchInQueueByTime; past the last of n: n and n - 1."""
    queue = a_queue(count=7)
    assert queue.offset_by_time(stored_ms, timestamp_ms, 0) == lower
    assert queue.offset_by_time(stored_ms, timestamp_ms, 0, upper=True) == upper


@pytest.mark.parametrize(
    ("timestamp_ms", "lower", "upper"), [(0, 3, 3), (1010, 3, 3), (1011, 4, 3), (9999, 7, 6)]
)
def test_an_offset_by_time_is_never_outside_of_the_queue(
    timestamp_ms: int, lower: int, upper: int
) -> None:
    """ConsumeQueueStore.getOffsetInQueueByTime clamps to minimum and maximum."""
    queue = a_queue(count=7)
    queue.correct_min_offset(unit(3)[0])
    minimum = unit(3)[0]
    assert queue.offset_by_time(stored_ms, timestamp_ms, minimum) == lower
    assert queue.offset_by_time(stored_ms, timestamp_ms, minimum, upper=True) == upper


def test_records_below_the_log_count_as_early_and_missing_ones_as_the_first() -> None:
    queue = a_queue(count=25)
    assert queue.offset_by_time(lambda _: 5, 5, unit(10)[0]) == 10
    assert queue.offset_by_time(lambda _: -1, 5, 0) == 0
    assert a_queue().offset_by_time(lambda _: 5, 5, 0) == 0
    assert a_queue().offset_by_time(lambda _: 5, 5, 0, upper=True) == 0


@given(
    times=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    timestamp_ms=st.integers(0, 31),
    first=st.integers(0, 40),
)
def test_an_offset_by_time_is_what_a_look_at_every_message_finds(
    times: list[int], timestamp_ms: int, first: int
) -> None:
    times.sort()
    first = min(first, len(times) - 1)
    queue = a_queue(count=len(times))
    queue.correct_min_offset(unit(first)[0])
    numbers = range(first, len(times))
    lower = next((n for n in numbers if times[n] >= timestamp_ms), len(times))
    upper = max((n for n in numbers if times[n] <= timestamp_ms), default=first)
    arguments = (lambda offset: times[offset // 400]), timestamp_ms, unit(first)[0]
    assert queue.offset_by_time(*arguments) == lower
    assert queue.offset_by_time(*arguments, upper=True) == upper


@given(st.binary(max_size=600), st.integers(0, 2**63 - 1))
def test_no_bytes_stop_recovery_or_reading(content: bytes, min_physical: int) -> None:
    disk = SimulatedDisk()
    for start in range(0, len(content), SIZE):
        piece = content[start : start + SIZE].ljust(SIZE, b"\0")
        disk.create(f"{DIRECTORY}/{start:020d}", SIZE).buffer[:] = piece
    queue = recovered(disk)
    before = units_of(queue)
    assert all(offset >= 0 and size > 0 for offset, size, _ in before)
    assert units_of(recovered(disk)) == before
    queue.correct_min_offset(min_physical)
    queue.truncate_dirty_logic_files(min_physical)
    assert units_of(queue) == before[: queue.next_offset]
    assert queue.next_offset == len(before) or before[queue.next_offset][0] >= min_physical


@pytest.mark.slow
def test_recovery_of_a_large_queue_finds_the_one_bad_unit() -> None:
    """Longer than what is looked at in one go."""
    count = 40_000
    rows = [(number * 400, 100, 7, number) for number in range(count)]
    for bad in (16_383, 16_384, 20_000, count - 1, count):
        disk = SimulatedDisk()
        queue = ConsumeQueue(DIRECTORY, "T", 3, 20 * count, disk)
        queue.dispatch_many(*columns(rows))
        if bad < count:
            queue.files.files[0].buffer[bad * 20 : bad * 20 + 8] = bytes(8)
        again = ConsumeQueue(DIRECTORY, "T", 3, 20 * count, disk)
        again.load()
        again.recover()
        assert again.next_offset == bad
        assert again.max_physic_offset == (bad - 1) * 400 + 100


def test_units_are_read_from_one_file_at_a_time() -> None:
    queue = a_queue(count=25)
    assert list(queue.units(0, 100)) == [unit(n) for n in range(10)]
    assert list(queue.units(17, 2)) == [unit(17), unit(18)]
    assert list(queue.units(20, 100)) == [unit(n) for n in range(20, 25)]
    assert list(queue.units(25, 1)) == []
    assert list(queue.units(30, 1)) == []


# --- files that grow ---------------------------------------------------------------------------

PAGE_BYTES = 4096
UNITS_OF_A_PAGE = PAGE_BYTES // 20
BIG = 30_000
"""Seven pages and a bit: 1,500 units."""


def a_big_queue(disk: SimulatedDisk) -> ConsumeQueue:
    return ConsumeQueue(DIRECTORY, "T", 3, BIG, disk)


def test_a_queue_takes_a_page_of_the_disk_and_more_as_it_grows() -> None:
    disk = SimulatedDisk()
    queue = a_big_queue(disk)
    taken = []
    for number in range(1600):
        queue.ensure_room()
        queue.append(*unit(number))
        taken.append(disk.used_bytes)
    assert disk.list_files(DIRECTORY) == [(f"{0:020d}", BIG), (f"{BIG:020d}", BIG)]
    assert taken[0] == taken[UNITS_OF_A_PAGE - 1] == PAGE_BYTES
    assert taken[UNITS_OF_A_PAGE] == 2 * PAGE_BYTES
    assert taken[1499] == BIG
    assert taken[1500] == BIG + PAGE_BYTES
    queue.close()
    again = a_big_queue(disk.crashed())
    again.load()
    again.recover()
    assert units_of(again) == [unit(number) for number in range(1600)]


@given(st.lists(st.integers(1, 700), max_size=6), st.randoms(use_true_random=False))
def test_units_in_files_that_grow_are_the_same_however_they_come(
    runs: list[int], chance: Random
) -> None:
    disk = SimulatedDisk()
    queue, number = a_big_queue(disk), 0
    for count in runs:
        numbers = range(number, number + count)
        if chance.random() < 0.5:
            queue.ensure_room(count)
            used_bytes = disk.used_bytes
            queue.append_many([value for each in numbers for value in unit(each)])
            # So a batch is stored as a whole or not at all.
            assert disk.used_bytes == used_bytes
        else:
            rows = np.array([unit(each) for each in numbers])
            queue.dispatch_many(rows[:, 0], rows[:, 1], rows[:, 2], np.array(numbers))
        number += count
    assert units_of(queue) == [unit(each) for each in range(number)]
    again = a_big_queue(disk.crashed())
    again.load()
    again.recover()
    assert units_of(again) == [unit(each) for each in range(number)]


@pytest.mark.parametrize("start", [1, UNITS_OF_A_PAGE, 1000, 1499, 1500])
def test_a_queue_that_starts_late_has_room_for_its_fillers(start: int) -> None:
    disk = SimulatedDisk()
    queue = a_big_queue(disk)
    assert queue.dispatch(a_request(start))
    assert queue.unit(start) == unit(start)
    other = ConsumeQueue("/cq/T/4", "T", 4, BIG, disk)
    other.start_at(start)
    assert other.next_offset == start
    disk.crashed()  # sees whether anything was written where there are no blocks


def test_on_a_full_disk_a_queue_takes_what_its_blocks_hold_and_then_refuses() -> None:
    disk = SimulatedDisk()
    queue = a_big_queue(disk)
    queue.ensure_room()
    disk.capacity_bytes = disk.used_bytes
    for number in range(UNITS_OF_A_PAGE):
        queue.ensure_room()
        queue.append(*unit(number))
    for count in (1, 500):
        with pytest.raises(StoreFullError):
            queue.ensure_room(count)
    assert queue.next_offset == UNITS_OF_A_PAGE
    disk.capacity_bytes = 1 << 30
    queue.ensure_room(500)
    queue.append(*unit(UNITS_OF_A_PAGE))
    assert queue.next_offset == UNITS_OF_A_PAGE + 1


def test_a_batch_across_two_files_has_room_in_both_before_it_is_written() -> None:
    disk = SimulatedDisk()
    queue = a_big_queue(disk)
    queue.ensure_room(1400)
    queue.append_many([value for each in range(1400) for value in unit(each)])
    queue.ensure_room(1000)
    disk.capacity_bytes = disk.used_bytes
    queue.append_many([value for each in range(1400, 2400) for value in unit(each)])
    assert units_of(queue) == [unit(each) for each in range(2400)]
    disk.crashed()


def test_cutting_a_queue_leaves_its_blocks_and_it_goes_on() -> None:
    disk = SimulatedDisk()
    queue = a_big_queue(disk)
    queue.ensure_room(900)
    queue.append_many([value for each in range(900) for value in unit(each)])
    queue.truncate_dirty_logic_files(unit(100)[0])
    assert queue.next_offset == 100
    for number in range(100, 1000):
        queue.ensure_room()
        queue.append(*unit(number))
    assert units_of(queue) == [unit(each) for each in range(1000)]
    disk.crashed()
