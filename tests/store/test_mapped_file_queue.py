"""Files laid end to end: loading, growing, cutting, and the next one prepared in advance."""

import pytest
import trio
from trio.testing import MockClock

from store.errors import CorruptLogError, StoreFullError
from store.mapped_file_queue import MappedFileQueue
from tests.support.simulated_disk import SimulatedDisk

SIZE = 4096


def a_queue(disk: SimulatedDisk, count: int = 0, *, wrote: int = SIZE) -> MappedFileQueue:
    """Return a queue of `count` files, all full but the last, which has `wrote` bytes."""
    queue = MappedFileQueue("/q", SIZE, disk)
    for index in range(count):
        file = queue.last_or_create(0)
        file.wrote_position = SIZE if index < count - 1 else wrote
    return queue


def names(disk: SimulatedDisk) -> list[str]:
    return [name.lstrip("0") or "0" for name, _ in disk.list_files("/q")]


def loaded(disk: SimulatedDisk) -> MappedFileQueue:
    queue = MappedFileQueue("/q", SIZE, disk)
    queue.load()
    return queue


def test_an_empty_queue_holds_nothing() -> None:
    """MappedFileQueue.getMinOffset is -1, getMaxOffset 0."""
    queue = a_queue(SimulatedDisk())
    queue.load()
    assert (queue.min_offset, queue.max_offset, queue.flushed_where) == (-1, 0, 0)
    assert queue.last is None
    assert queue.find_by_offset(0) is None
    assert queue.dirty_files(0) == []


def test_files_are_named_by_their_first_offset_in_20_digits() -> None:
    disk = SimulatedDisk()
    a_queue(disk, 3)
    assert [name for name, _ in disk.list_files("/q")] == [
        "00000000000000000000",
        "00000000000000004096",
        "00000000000000008192",
    ]


def test_the_first_file_begins_at_the_boundary_below_the_offset() -> None:
    """MappedFileQueue.getLastMappedFile."""
    disk = SimulatedDisk()
    assert a_queue(disk).last_or_create(10_000).file_from_offset == 8192
    assert names(disk) == ["8192"]


def test_loaded_files_count_as_full_until_recovery_knows_better() -> None:
    """MappedFileQueue.doLoad."""
    disk = SimulatedDisk()
    a_queue(disk, 3, wrote=10)
    queue = loaded(disk)
    assert (queue.min_offset, queue.max_offset, queue.flushed_where) == (0, 12288, 12288)
    assert [file.is_full for file in queue.files] == [True] * 3


def test_a_file_in_between_must_not_be_missing() -> None:
    """checkSelf of 5.3.3 only logs it."""
    disk = SimulatedDisk()
    a_queue(disk, 3)
    disk.remove("/q/00000000000000004096")
    with pytest.raises(CorruptLogError, match="expected 00000000000000004096"):
        loaded(disk)


def test_an_offset_is_found_in_its_file_and_no_other() -> None:
    """MappedFileQueue.findMappedFileByOffset, without its exception for offset 0."""
    disk = SimulatedDisk()
    a_queue(disk, 3)
    disk.remove("/q/00000000000000000000")
    queue = loaded(disk)
    for offset in (-1, 0, 4095, 12288, 10**12):
        assert queue.find_by_offset(offset) is None
    for offset in (4096, 8191, 8192, 12287):
        file = queue.find_by_offset(offset)
        assert file is not None
        assert file.file_from_offset == offset - offset % SIZE


def test_flushed_where_stops_at_the_first_byte_that_is_not_on_disk() -> None:
    queue = a_queue(SimulatedDisk(), 3, wrote=100)
    assert queue.flushed_where == 0
    queue.files[0].flushed_position = 50
    assert queue.flushed_where == 50
    queue.files[0].flushed_position = SIZE
    assert queue.flushed_where == SIZE
    queue.files[1].flushed_position = SIZE
    assert queue.flushed_where == 2 * SIZE
    queue.files[2].flushed_position = 100
    assert queue.flushed_where == 2 * SIZE + 100


def test_dirty_files_come_oldest_first() -> None:
    queue = a_queue(SimulatedDisk(), 3, wrote=100)
    assert queue.dirty_files(0) == queue.files
    assert queue.dirty_files(2) == queue.files[:2]
    queue.files[0].flushed_position = SIZE
    assert queue.dirty_files(0) == queue.files[1:]
    queue.sync_all()
    assert queue.dirty_files(0) == []
    assert queue.flushed_where == queue.max_offset


@pytest.mark.parametrize(
    ("offset", "left", "wrote"),
    [
        (3 * SIZE, ["0", "4096", "8192"], SIZE),
        (2 * SIZE + 1, ["0", "4096", "8192"], 1),
        (2 * SIZE, ["0", "4096"], SIZE),
        (2 * SIZE - 1, ["0", "4096"], SIZE - 1),
        (1, ["0"], 1),
        (0, ["0"], 0),
    ],
)
def test_a_cut_deletes_later_files_and_zeroes_later_bytes(
    offset: int, left: list[str], wrote: int
) -> None:
    """MappedFileQueue.truncateDirtyFiles, which leaves the bytes standing."""
    disk = SimulatedDisk()
    for file in a_queue(disk, 3).files:
        file.buffer[:] = b"x" * SIZE
        file.file.sync()
    queue = loaded(disk)
    for _ in range(2):
        queue.truncate_dirty_files(offset)
        assert names(disk) == left
        assert queue.max_offset == offset
        last = queue.last
        assert last is not None
        assert (last.wrote_position, last.flushed_position) == (wrote, wrote)
        assert bytes(last.buffer[:]) == b"x" * wrote + bytes(SIZE - wrote)
    # The zeros are on disk: a power loss must not bring back what they cover.
    after = disk.open(f"/q/{queue.files[-1].file_from_offset:020d}")
    assert after.durable == b"x" * wrote + bytes(SIZE - wrote)


def test_a_cut_in_front_of_all_files_deletes_them() -> None:
    disk = SimulatedDisk()
    a_queue(disk, 3)
    disk.remove("/q/00000000000000000000")
    queue = loaded(disk)
    queue.truncate_dirty_files(SIZE - 1)
    assert names(disk) == []
    assert queue.last is None


def test_destroying_deletes_every_file() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 3)
    queue.destroy()
    assert (names(disk), queue.max_offset) == ([], 0)


def test_without_room_for_a_file_nothing_changes() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 1)
    disk.capacity_bytes = disk.used_bytes
    for _ in range(2):
        with pytest.raises(StoreFullError, match="/q/00000000000000004096"):
            queue.last_or_create(0)
    assert (len(queue.files), queue.max_offset) == (1, SIZE)


@pytest.mark.parametrize(
    ("wrote", "wanted"), [(0, False), (SIZE // 4, False), (SIZE // 4 + 1, True), (SIZE, True)]
)
def test_the_next_file_is_wanted_once_a_quarter_of_the_last_is_used(
    wrote: int, *, wanted: bool
) -> None:
    assert a_queue(SimulatedDisk(), 2, wrote=wrote).wants_next == wanted


async def test_a_prepared_file_is_taken_and_not_made_twice() -> None:
    """AllocateMappedFileService."""
    disk = SimulatedDisk()
    queue = a_queue(disk, 1)
    await queue.prepare_next()
    assert names(disk) == ["0", "4096"]
    assert not queue.wants_next
    assert queue.max_offset == SIZE
    disk.capacity_bytes = disk.used_bytes  # a new one could not be made
    assert queue.last_or_create(0).file_from_offset == SIZE
    assert (len(queue.files), queue.wants_next) == (2, False)


async def test_a_prepared_file_that_was_not_needed_is_deleted_at_the_end() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 1)
    await queue.prepare_next()
    queue.close()
    queue.close()
    assert names(disk) == ["0"]


async def test_a_prepared_file_left_by_a_crash_goes_with_the_first_cut() -> None:
    """Section "The end of the log after recovery": a zero-filled next file is harmless."""
    disk = SimulatedDisk()
    await a_queue(disk, 1, wrote=3000).prepare_next()
    queue = loaded(disk)
    queue.truncate_dirty_files(3000)
    assert names(disk) == ["0"]
    queue.close()


async def test_the_log_may_be_faster_than_the_preparation(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 1.0)
    queue = a_queue(disk, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.prepare_next)
        await trio.sleep(0.5)
        mine = queue.last_or_create(0)
        mine.buffer[0:4] = b"mine"
    assert queue.last is mine
    assert names(disk) == ["0", "4096"]
    assert (disk.read("/q/00000000000000004096") or b"")[:4] == b"mine"
    assert queue.last_or_create(0) is mine


async def test_a_log_that_begins_elsewhere_has_no_use_for_the_first_file(
    autojump_clock: MockClock,
) -> None:
    """A slave's log begins where its master tells it to, perhaps while file 0 is being prepared."""
    for moment in (0.5, 1.5):
        disk = SimulatedDisk(sync_seconds=lambda: 1.0)
        queue = a_queue(disk)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queue.prepare_next)
            await trio.sleep(moment)
            assert queue.last_or_create(8 * SIZE).file_from_offset == 8 * SIZE
        assert names(disk) == [str(8 * SIZE)]


async def test_without_room_nothing_is_prepared() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 1)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StoreFullError):
        await queue.prepare_next()
    assert (names(disk), queue.wants_next) == (["0"], True)


def test_a_reserved_file_is_the_next_one() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 1, wrote=3000)
    queue.reserve_next()
    queue.reserve_next()
    assert names(disk) == ["0", "4096"]
    disk.capacity_bytes = disk.used_bytes
    assert queue.last_or_create(0).file_from_offset == 0
    assert queue.create_next().file_from_offset == SIZE
