"""Files laid end to end: loading, growing, cutting.

Where they go when there are several directories, and how old ones are deleted.
"""

import os
from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.files.transient_store_pool import TransientStorePool
from store.machine.errors import (
    CorruptLogError,
    LogFault,
    NoBufferError,
    SettingError,
    StoreFullError,
)
from store.machine.real_disk import RealDisk
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.support.logged import logged

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
    with pytest.raises(CorruptLogError) as caught:
        loaded(disk)
    assert caught.value.fault is LogFault.MISSING_FILE
    assert caught.value.path == "/q/00000000000000008192"


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


def test_a_cut_that_has_nothing_to_erase_does_not_count_as_a_sync() -> None:
    queue = a_queue(SimulatedDisk(), 2, wrote=100)
    queue.truncate_dirty_files(SIZE + 100)
    assert queue.flushed_where == 0
    queue.files[0].flushed_position = SIZE
    queue.files[1].flushed_position = 50
    queue.truncate_dirty_files(SIZE + 60)
    assert queue.flushed_where == SIZE + 50
    queue.truncate_dirty_files(SIZE + 40)
    assert queue.flushed_where == queue.max_offset == SIZE + 40


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
        with pytest.raises(StoreFullError) as caught:
            queue.last_or_create(0)
        assert caught.value.path == "/q/00000000000000004096"
    assert (len(queue.files), queue.max_offset) == (1, SIZE)


# -- several directories ---------------------------------------------------------------------------

A, B, C = "/a", "/b", "/c"


def spread(
    disk: SimulatedDisk,
    directories: tuple[str, ...] = (A, B),
    read_only: tuple[str, ...] = (),
    full: tuple[str, ...] = (),
) -> MappedFileQueue:
    return MappedFileQueue(
        directories,
        SIZE,
        disk,
        read_only_directories=read_only,
        is_directory_full=lambda directory: directory in full,
    )


def filled(queue: MappedFileQueue, count: int) -> MappedFileQueue:
    for _ in range(count):
        queue.last_or_create(0).wrote_position = SIZE
    return queue


def places(queue: MappedFileQueue) -> str:
    """The directories of the files, in the order of the files."""
    return "".join(file.file.path[1] for file in queue.files)


def on_disk(disk: SimulatedDisk) -> dict[str, list[int]]:
    return {d: [int(name) // SIZE for name, _ in disk.list_files(d)] for d in (A, B, C)}


def test_files_go_to_the_directories_in_turn() -> None:
    """MultiPathMappedFileQueue.tryCreateMappedFile: by the number of the file."""
    queue = filled(spread(SimulatedDisk(), (B, A)), 5)
    assert places(queue) == "ababa"
    late = spread(SimulatedDisk(), (B, A))
    assert late.last_or_create(7 * SIZE + 5).file.path == f"/b/{7 * SIZE:020d}"


def test_a_full_or_read_only_directory_gets_no_file() -> None:
    disk = SimulatedDisk()
    assert places(filled(spread(disk, (A, B, C), full=(B,)), 4)) == "acac"
    disk = SimulatedDisk()
    assert places(filled(spread(disk, (A, B, C), read_only=(C, "/d")), 4)) == "abab"


def test_if_all_directories_are_full_the_writable_ones_are_used_all_the_same() -> None:
    queue = filled(spread(SimulatedDisk(), (A, B, C), read_only=(A,), full=(A, B, C)), 3)
    assert places(queue) == "bcb"


def test_a_queue_needs_a_directory_it_may_write_to() -> None:
    with pytest.raises(SettingError) as caught:
        spread(SimulatedDisk(), (A, B), read_only=(B, A))
    assert caught.value.setting == "read_only_commit_log_store_paths"


def test_what_is_in_several_directories_is_loaded_as_one_log() -> None:
    """MultiPathMappedFileQueue.load."""
    disk = SimulatedDisk()
    filled(spread(disk, (A, B)), 4)
    for directories, read_only in (((A, B), ()), ((B, A), ()), ((B,), (A,)), ((C, A, B), ("/b/",))):
        queue = spread(disk, directories, read_only)
        queue.load()
        assert places(queue) == "abab"
        assert (queue.min_offset, queue.max_offset) == (0, 4 * SIZE)
        assert queue.check_self() == []
        queue.close()


def test_a_missing_directory_is_a_gap() -> None:
    disk = SimulatedDisk()
    filled(spread(disk, (A, B)), 4)
    with pytest.raises(CorruptLogError) as caught:
        spread(disk, (A,)).load()
    assert caught.value.fault is LogFault.MISSING_FILE
    assert caught.value.path == f"{A}/{2 * SIZE:020d}"


def test_one_name_in_two_directories_is_refused() -> None:
    disk = SimulatedDisk()
    filled(spread(disk, (A,)), 2)
    filled(spread(disk, (B,)), 2)
    with pytest.raises(CorruptLogError) as caught:
        spread(disk).load()
    assert caught.value.fault is LogFault.SAME_NAME
    assert caught.value.path == f"{B}/{0:020d}"


def test_in_a_read_only_directory_nothing_is_changed() -> None:
    disk = SimulatedDisk()
    for file in filled(spread(disk), 4).files:
        file.buffer[:] = b"x" * SIZE
        file.file.sync()
    events: list[str] = []
    disk.on_event = events.append
    before = {name: disk.read(f"{A}/{name}") for name, _ in disk.list_files(A)}
    queue = spread(disk, (A, B), read_only=(A,))
    queue.load()
    assert [file.is_read_only for file in queue.files] == [True, False, True, False]
    for cut in (0, SIZE - 1, SIZE, 2 * SIZE, 3 * SIZE - 1):
        with pytest.raises(CorruptLogError) as caught:
            queue.truncate_dirty_files(cut)
        assert caught.value.fault is LogFault.READ_ONLY
        assert caught.value.path.startswith(f"{A}/")
        assert caught.value.offset == cut
        assert places(queue) == "abab"
    with pytest.raises(CorruptLogError) as caught:
        queue.reset_offset(3 * SIZE - 1)
    assert caught.value.fault is LogFault.READ_ONLY
    assert caught.value.path.startswith(f"{A}/")
    queue.truncate_dirty_files(3 * SIZE + 10)
    queue.truncate_dirty_files(3 * SIZE)
    assert places(queue) == "aba"
    filled(queue, 2)
    assert places(queue) == "ababb"
    queue.sync_all()
    queue.close()
    assert {name: disk.read(f"{A}/{name}") for name, _ in disk.list_files(A)} == before
    assert [event for event in events if "/a/" in event] == []


def test_an_empty_last_file_of_a_read_only_directory_is_left_alone() -> None:
    disk = SimulatedDisk()
    filled(spread(disk, (A,)), 1)
    disk.replace(f"{C}/{SIZE:020d}", b"")
    queue = spread(disk, (A,), read_only=(C,))
    queue.load()
    assert places(queue) == "a"
    assert disk.exists(f"{C}/{SIZE:020d}")


def test_old_read_only_files_leave_the_log_but_not_their_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk(now_ms=lambda: 0)
    filled(spread(disk, (A,)), 2)
    queue = spread(disk, (B,), read_only=(A,))
    queue.load()
    filled(queue, 3)
    assert places(queue) == "aabbb"
    gone = delete_by_time(queue, now_ms=1000, expired_time_ms=1000, delete_file_batch_max=3)
    assert [file.file.path[1] for file in gone] == ["a", "a", "b"]
    assert on_disk(disk) == {A: [0, 1], B: [3, 4], C: []}
    queue.close()
    again = spread(disk, (B,), read_only=(A,))
    again.load()
    assert places(again) == "bb"
    assert (again.min_offset, again.max_offset) == (3 * SIZE, 5 * SIZE)
    assert len(logged(caplog, "store.files.mapped_file_queue")) == 1


def test_a_short_disk_does_not_make_read_only_files_leave_for_nothing() -> None:
    disk = SimulatedDisk(now_ms=lambda: 500)
    filled(spread(disk, (A,)), 2)
    queue = spread(disk, (B,), read_only=(A,))
    queue.load()
    filled(queue, 1)
    assert delete_by_time(queue, now_ms=600, clean_immediately=True) == []
    filled(queue, 1)
    assert len(delete_by_time(queue, now_ms=600, clean_immediately=True)) == 3
    assert on_disk(disk) == {A: [0, 1], B: [3], C: []}


def test_a_read_only_directory_of_this_machine_is_only_read(tmp_path: Path) -> None:
    disk = RealDisk()
    old, new = tmp_path / "old", tmp_path / "new"
    filled(MappedFileQueue(str(old), SIZE, disk), 2).close()
    for path in old.iterdir():
        path.write_bytes(b"x" * SIZE)
        path.chmod(0o400)
    old.chmod(0o500)
    before = [(p.name, p.stat().st_mtime_ns) for p in sorted(old.iterdir())]
    queue = MappedFileQueue(str(new), SIZE, disk, read_only_directories=[str(old)])
    queue.load()
    following = queue.last_or_create(0)
    assert following.file.path == f"{new}/{2 * SIZE:020d}"
    view = queue.files[0].select(10, 3)
    assert view is not None
    assert bytes(view) == b"xxx"
    with pytest.raises(TypeError):
        queue.files[0].buffer[0:1] = b"y"
    del view
    queue.close()
    assert [(p.name, p.stat().st_mtime_ns) for p in sorted(old.iterdir())] == before
    old.chmod(0o700)


# -- deleting at the front -------------------------------------------------------------------------


def delete_by_time(
    queue: MappedFileQueue,
    *,
    now_ms: int,
    expired_time_ms: int = 1_000_000,
    interval_forcibly_ms: int = 120_000,
    delete_file_batch_max: int = 10,
    clean_immediately: bool = False,
) -> list[MappedFile]:
    return queue.delete_expired_file_by_time(
        now_ms=now_ms,
        expired_time_ms=expired_time_ms,
        interval_forcibly_ms=interval_forcibly_ms,
        delete_file_batch_max=delete_file_batch_max,
        clean_immediately=clean_immediately,
    )


def aged(disk: SimulatedDisk, *modified_ms: int) -> MappedFileQueue:
    """Return a queue of full files that were changed last at these times."""
    queue = a_queue(disk, len(modified_ms))
    for file, at in zip(queue.files, modified_ms, strict=True):
        disk.open(file.file.path).modified_ms = at
    return queue


def numbers(files: list[MappedFile]) -> list[int]:
    return [file.file_from_offset // SIZE for file in files]


def test_files_are_deleted_by_the_time_of_their_last_change_oldest_first() -> None:
    """MappedFileQueue.deleteExpiredFileByTime."""
    disk = SimulatedDisk()
    queue = aged(disk, 1000, 2000, 3000, 4000)
    assert delete_by_time(queue, now_ms=1_000_999) == []
    assert numbers(delete_by_time(queue, now_ms=1_002_000)) == [0, 1]
    assert names(disk) == [str(2 * SIZE), str(3 * SIZE)]
    assert (queue.min_offset, queue.max_offset) == (2 * SIZE, 4 * SIZE)
    assert queue.find_by_offset(2 * SIZE - 1) is None
    assert queue.find_by_offset(2 * SIZE) is queue.files[0]
    assert loaded(disk).min_offset == 2 * SIZE


def test_no_file_in_the_middle_and_never_the_last_one_is_deleted() -> None:
    queue = aged(SimulatedDisk(), 1000, 5_000_000, 1000)
    assert numbers(delete_by_time(queue, now_ms=2_000_000)) == [0]
    assert delete_by_time(queue, now_ms=2_000_000) == []
    assert numbers(delete_by_time(queue, now_ms=9_000_000)) == [1]
    assert delete_by_time(queue, now_ms=9_000_000, clean_immediately=True) == []
    assert delete_by_time(a_queue(SimulatedDisk()), now_ms=9_000_000) == []


def test_when_space_is_short_age_does_not_count() -> None:
    queue = aged(SimulatedDisk(), 1000, 2000, 3000)
    assert numbers(delete_by_time(queue, now_ms=3000, clean_immediately=True)) == [0, 1]


def test_no_more_files_are_deleted_at_once_than_a_batch() -> None:
    queue = aged(SimulatedDisk(), *range(15))
    assert len(delete_by_time(queue, now_ms=1_000_100)) == 10
    assert len(delete_by_time(queue, now_ms=1_000_100, delete_file_batch_max=1)) == 1
    assert len(delete_by_time(queue, now_ms=1_000_100, delete_file_batch_max=0)) == 0
    assert len(queue.files) == 4


def test_a_file_that_is_held_hangs_until_it_is_let_go() -> None:
    """DefaultMappedFile.destroy fails; nothing behind the file is deleted either."""
    disk = SimulatedDisk()
    queue = aged(disk, 1000, 2000, 3000)
    first = queue.files[0]
    assert first.hold()
    assert delete_by_time(queue, now_ms=2_000_000) == []
    assert (names(disk)[0], len(queue.files)) == ("0", 3)
    assert (queue.min_offset, first.select(0, 1)) == (SIZE, None)
    assert queue.retry_delete_first_file(2_000_001, 120_000) is None
    first.release()
    assert queue.retry_delete_first_file(2_000_002, 120_000) is first
    assert names(disk) == [str(SIZE), str(2 * SIZE)]
    assert queue.retry_delete_first_file(2_000_003, 120_000) is None
    assert a_queue(disk).retry_delete_first_file(0, 0) is None


@pytest.mark.parametrize("by_retry", [False, True])
def test_a_file_that_hangs_too_long_is_deleted_under_its_holder(*, by_retry: bool) -> None:
    """destroyMapedFileIntervalForcibly, counted from the first attempt."""
    disk = SimulatedDisk()
    queue = aged(disk, 1000, 2000, 3000)
    queue.files[0].hold()

    def delete(now_ms: int) -> None:
        if by_retry:
            queue.retry_delete_first_file(now_ms, 120_000)
        else:
            delete_by_time(queue, now_ms=now_ms, delete_file_batch_max=1)

    delete_by_time(queue, now_ms=2_000_000)
    delete(2_119_999)
    assert len(queue.files) == 3
    delete(2_120_000)
    assert numbers(queue.files) == [1, 2]
    assert names(disk) == [str(SIZE), str(2 * SIZE)]


def test_files_of_a_queue_are_deleted_by_their_last_unit() -> None:
    """MappedFileQueue.deleteExpiredFileByOffset."""
    queue = a_queue(SimulatedDisk(), 4)

    def last_unit(file: MappedFile) -> int:
        return file.file_from_offset + 100

    assert queue.delete_expired_file_by_offset(100, last_unit) == []
    assert numbers(queue.delete_expired_file_by_offset(SIZE + 101, last_unit)) == [0, 1]
    assert numbers(queue.delete_expired_file_by_offset(1 << 40, last_unit)) == [2]
    assert queue.delete_expired_file_by_offset(1 << 40, last_unit) == []


def test_a_file_of_a_queue_that_hangs_is_tried_again_without_a_look_inside() -> None:
    """ "Found a hanged consume queue file, attempting to delete it"."""
    queue = a_queue(SimulatedDisk(), 3)
    first = queue.files[0]
    first.hold()
    assert queue.delete_expired_file_by_offset(1, lambda _: 0, now_ms=5) == []
    first.release()
    assert numbers(queue.delete_expired_file_by_offset(0, lambda _: 9, now_ms=6)) == [0]


@pytest.mark.parametrize("step", range(1, 4))
def test_a_process_that_dies_while_files_are_deleted_leaves_a_log_without_gaps(step: int) -> None:
    disk = StepDisk()
    queue = aged(disk, 1000, 2000, 3000, 4000)
    disk.on_step = die_at(step)
    with pytest.raises(Interrupted):
        delete_by_time(queue, now_ms=9_000_000)
    assert loaded(disk.crashed()).min_offset == (step - 1) * SIZE


def test_deleted_files_of_this_machine_are_gone_at_once_and_readable_to_the_end(
    tmp_path: Path,
) -> None:
    disk = RealDisk()
    queue = MappedFileQueue(str(tmp_path), SIZE, disk)
    filled(queue, 3)
    queue.files[0].buffer[:4] = b"read"
    view = queue.files[0].select(0, 4)
    for file in queue.files:
        os.utime(file.file.path, ns=(5_000_000, 5_000_000))
    assert delete_by_time(queue, now_ms=1_000_004) == []
    assert len(delete_by_time(queue, now_ms=1_000_005)) == 2
    assert [path.name for path in tmp_path.iterdir()] == [f"{2 * SIZE:020d}"]
    assert view is not None
    assert bytes(view) == b"read"
    queue.close()


@pytest.mark.parametrize(
    ("back", "goes"), [(0, True), (1, True), (2 * SIZE, True), (2 * SIZE + 1, False), (-1, False)]
)
def test_the_end_goes_back_two_files_at_most(back: int, *, goes: bool) -> None:
    """MappedFileQueue.resetOffset."""
    disk = SimulatedDisk()
    queue = a_queue(disk, 4)
    assert queue.reset_offset(4 * SIZE - back) == goes
    assert queue.max_offset == 4 * SIZE - (back if goes else 0)
    assert len(names(disk)) == -(-queue.max_offset // SIZE)


def test_a_gap_between_files_is_told() -> None:
    """MappedFileQueue.checkSelf."""
    queue = a_queue(SimulatedDisk(), 4)
    assert queue.check_self() == []
    del queue.files[1]
    (fault,) = queue.check_self()
    assert fault == f"/q/{2 * SIZE:020d} does not follow /q/{0:020d}"


# -- with a pool -----------------------------------------------------------------------------------


def pooled(
    disk: SimulatedDisk, buffers: int = 2, *, fast_fail: bool = False, warm: bool = False
) -> tuple[MappedFileQueue, TransientStorePool]:
    pool = TransientStorePool(buffers, SIZE, disk, fast_fail=fast_fail)
    return MappedFileQueue("/q", SIZE, disk, pool=pool, warm=warm), pool


def put(queue: MappedFileQueue, data: bytes) -> None:
    """Append `data`, all of it to one file."""
    file = queue.last_or_create(0)
    file.write_buffer[file.wrote_position : file.wrote_position + len(data)] = data
    file.wrote_position += len(data)


def test_with_a_pool_the_log_can_be_read_up_to_where_it_was_committed() -> None:
    disk = SimulatedDisk()
    queue, pool = pooled(disk)
    assert (queue.committed_where, queue.commit(0)) == (0, False)
    put(queue, b"a" * 3000)
    assert (queue.max_offset, queue.committed_where, queue.flushed_where) == (3000, 0, 0)
    assert queue.dirty_files(0) == []
    assert queue.commit(0)
    assert not queue.commit(0)
    assert (queue.committed_where, queue.flushed_where) == (3000, 0)
    put(queue, b"b" * (SIZE - 3000))
    put(queue, b"c" * 100)
    assert (queue.max_offset, queue.committed_where) == (SIZE + 100, 3000)
    assert pool.available_buffer_nums == 0
    # The first file is full, and so due; the second has not a page yet.
    assert queue.commit(4)
    assert (queue.committed_where, pool.available_buffer_nums) == (SIZE, 1)
    assert queue.dirty_files(4) == queue.files[:1]
    queue.sync_all()
    assert queue.committed_where == queue.flushed_where == queue.max_offset == SIZE + 100
    queue.close()
    assert pool.available_buffer_nums == 2
    assert disk.read(f"/q/{SIZE:020d}") == b"c" * 100 + bytes(SIZE - 100)


def test_without_a_buffer_left_a_file_is_written_directly_and_can_be_read() -> None:
    """In RocketMQ its committed position never moves, so nobody ever reads it."""
    queue, pool = pooled(SimulatedDisk(), 1)
    put(queue, b"a" * SIZE)
    put(queue, b"b" * SIZE)
    put(queue, b"c" * 10)
    assert [file.has_pool_buffer for file in queue.files] == [True, False, False]
    # Not before the file in front of it, though: a log is read from its start.
    assert queue.committed_where == 0
    assert queue.commit(4)
    assert queue.committed_where == queue.max_offset == 2 * SIZE + 10
    assert pool.available_buffer_nums == 1
    view = queue.files[1].select(0, SIZE)
    assert view is not None
    assert bytes(view) == b"b" * SIZE
    assert queue.dirty_files(0) == queue.files


def test_without_a_buffer_left_the_log_does_not_grow_if_it_must_fail_fast() -> None:
    disk = SimulatedDisk()
    queue, _ = pooled(disk, 1, fast_fail=True)
    put(queue, b"a" * SIZE)
    for _ in range(2):
        with pytest.raises(NoBufferError):
            queue.last_or_create(0)
        assert (names(disk), queue.max_offset) == (["0"], SIZE)
    queue.commit(0)
    put(queue, b"b")
    assert len(queue.files) == 2


async def test_a_prepared_file_needs_no_buffer_before_it_is_written_to() -> None:
    disk = SimulatedDisk()
    queue, pool = pooled(disk, 1, fast_fail=True)
    put(queue, b"a" * SIZE)
    await queue.next_file.prepare()
    with pytest.raises(NoBufferError):
        queue.last_or_create(0)
    queue.commit(0)
    disk.capacity_bytes = disk.used_bytes
    put(queue, b"b")
    assert (names(disk), pool.available_buffer_nums) == (["0", "4096"], 0)


def test_a_file_that_cannot_be_made_keeps_no_buffer() -> None:
    disk = SimulatedDisk(capacity_bytes=0)
    queue, pool = pooled(disk)
    with pytest.raises(StoreFullError) as caught:
        queue.last_or_create(0)
    assert type(caught.value) is StoreFullError
    assert pool.available_buffer_nums == 2


def test_a_loaded_file_is_written_directly() -> None:
    disk = SimulatedDisk()
    a_queue(disk, 1)
    queue, pool = pooled(disk)
    queue.load()
    queue.truncate_dirty_files(10)
    put(queue, b"x")
    assert (queue.committed_where, pool.available_buffer_nums) == (11, 2)


@pytest.mark.parametrize("offset", [0, 10, 3000, SIZE, SIZE + 50, SIZE + 100])
def test_a_cut_commits_what_it_keeps(offset: int) -> None:
    disk = SimulatedDisk()
    queue, pool = pooled(disk)
    put(queue, b"a" * 3000)
    queue.commit(0)
    put(queue, b"a" * (SIZE - 3000))
    put(queue, b"b" * 100)
    queue.truncate_dirty_files(offset)
    assert queue.max_offset == queue.committed_where == offset
    # Nothing of this was synced before; the sync that the cut needs takes in its whole file.
    assert queue.flushed_where in (0, offset)
    queue.sync_all()
    assert queue.flushed_where == offset
    content = b"".join(disk.read(file.file.path) or b"" for file in queue.files)
    kept = (b"a" * SIZE + b"b" * 100)[:offset]
    assert content == kept + bytes(len(content) - len(kept))
    put(queue, b"c" * 7)
    queue.commit(0)
    queue.close()
    assert pool.available_buffer_nums == 2
    assert (disk.read(f"/q/{offset // SIZE * SIZE:020d}") or b"")[
        offset % SIZE : offset % SIZE + 8
    ] == b"c" * 7 + b"\0"


def test_destroying_returns_all_buffers() -> None:
    queue, pool = pooled(SimulatedDisk())
    put(queue, b"a" * SIZE)
    put(queue, b"b")
    queue.destroy()
    assert (pool.available_buffer_nums, queue.committed_where, queue.max_offset) == (2, 0, 0)


def test_deleting_old_files_returns_buffers_that_were_never_committed() -> None:
    queue, pool = pooled(SimulatedDisk())
    put(queue, b"a" * SIZE)
    put(queue, b"b")
    assert len(delete_by_time(queue, now_ms=9, clean_immediately=True)) == 1
    assert pool.available_buffer_nums == 1
    queue.commit(0)
    assert queue.committed_where == SIZE + 1


# -- warm ------------------------------------------------------------------------------------------
