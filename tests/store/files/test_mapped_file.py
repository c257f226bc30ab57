"""One file of the log or of a queue: positions, reads, commits, and how it comes to its end."""

from contextlib import suppress
from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from store.files.mapped_file import OS_PAGE_SIZE, MappedFile
from store.files.transient_store_pool import TransientStorePool
from store.machine.real_disk import RealDisk
from tests.store.step_disk import Interrupted, StepDisk, die_at


def a_file(size: int = 8 * OS_PAGE_SIZE, from_offset: int = 1 << 20) -> MappedFile:
    return MappedFile(SimulatedDisk().create("/f", size), from_offset)


def test_a_new_file_is_empty() -> None:
    file = a_file()
    assert (file.wrote_position, file.flushed_position) == (0, 0)
    assert file.end_offset == file.file_from_offset == 1 << 20
    assert not file.is_full
    assert not file.is_able_to_flush(0)
    assert "wrote 0 of 32768" in repr(file)


def test_only_written_bytes_can_be_selected() -> None:
    """DefaultMappedFile.selectMappedBuffer."""
    file = a_file()
    file.buffer[0:5] = b"abcde"
    file.wrote_position = 5
    whole = file.select(0, 5)
    assert whole is not None
    assert bytes(whole) == b"abcde"
    part = file.select(2, 2)
    assert part is not None
    assert bytes(part) == b"cd"
    for position, size in ((0, 6), (5, 1), (-1, 2), (3, -1), (6, 0)):
        assert file.select(position, size) is None


@pytest.mark.parametrize(
    ("wrote", "flushed", "least_pages", "able"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (1, 1, 0, False),
        (1, 0, 1, False),
        (OS_PAGE_SIZE, 0, 1, True),
        (OS_PAGE_SIZE, 1, 1, True),
        (2 * OS_PAGE_SIZE - 1, OS_PAGE_SIZE, 1, False),
        (5 * OS_PAGE_SIZE, OS_PAGE_SIZE, 4, True),
        (5 * OS_PAGE_SIZE, OS_PAGE_SIZE + 1, 4, True),
        (5 * OS_PAGE_SIZE - 1, OS_PAGE_SIZE, 4, False),
        (8 * OS_PAGE_SIZE, 8 * OS_PAGE_SIZE - 1, 4, True),
        (8 * OS_PAGE_SIZE, 8 * OS_PAGE_SIZE, 4, False),
    ],
)
def test_a_flush_is_due_after_enough_pages_or_when_full(
    wrote: int, flushed: int, least_pages: int, *, able: bool
) -> None:
    """DefaultMappedFile.isAbleToFlush: whole pages are counted, not bytes."""
    file = a_file()
    file.wrote_position, file.flushed_position = wrote, flushed
    assert file.is_able_to_flush(least_pages) == able


@pytest.mark.parametrize("size", [1, 100, OS_PAGE_SIZE, (1 << 20) + 1, 3 << 20])
def test_everything_behind_a_position_is_zeroed(size: int) -> None:
    file = a_file(size)
    file.buffer[:] = b"x" * size
    assert file.last_used_position() == size
    for position in sorted({size, size - 1, size // 2, 0}, reverse=True):
        assert file.zero_from(position) == (position < size)
        assert file.last_used_position() == position
        assert not file.zero_from(position)
        assert bytes(file.buffer[:]) == b"x" * position + bytes(size - position)


def test_without_a_pool_what_is_written_can_be_read_and_there_is_nothing_to_commit() -> None:
    """DefaultMappedFile.getReadPosition, commit."""
    file = a_file()
    assert file.write_buffer is file.buffer
    file.wrote_position = 5000
    assert (file.committed_position, file.read_position) == (5000, 5000)
    assert not file.has_pool_buffer
    assert not file.is_able_to_commit(0)
    assert not file.commit(0)


# -- with a buffer of a pool -----------------------------------------------------------------------

POOLED_BYTES = 8 * OS_PAGE_SIZE


def a_pooled_file(disk: SimulatedDisk | None = None) -> tuple[MappedFile, TransientStorePool]:
    disk = disk or SimulatedDisk()
    pool = TransientStorePool(1, POOLED_BYTES, disk, fast_fail=True)
    file = disk.create("/q/f", POOLED_BYTES)
    return MappedFile(file, 0, pool=pool, write_buffer=pool.borrow_buffer("/q/f")), pool


def put(file: MappedFile, data: bytes) -> None:
    end = file.wrote_position + len(data)
    file.write_buffer[file.wrote_position : end] = data
    file.wrote_position = end


def test_readers_see_only_what_was_committed() -> None:
    """Section 8, TransientStorePool: readers never see past the committed position."""
    file, _ = a_pooled_file()
    put(file, b"first")
    assert (file.wrote_position, file.committed_position, file.read_position) == (5, 0, 0)
    assert file.select(0, 1) is None
    assert file.buffer[:5] == bytes(5)
    assert not file.is_able_to_flush(0)
    assert file.commit(0)
    put(file, b"second")
    assert (file.wrote_position, file.committed_position, file.read_position) == (11, 5, 5)
    assert file.is_able_to_flush(0)
    assert file.select(0, 6) is None
    view = file.select(0, 5)
    assert view is not None
    assert bytes(view) == b"first"
    assert file.commit(0)
    assert not file.commit(0)
    assert file.buffer[:12] == b"firstsecond\0"


@pytest.mark.parametrize(
    ("wrote", "committed", "least_pages", "able"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (4 * OS_PAGE_SIZE - 1, 0, 4, False),
        (4 * OS_PAGE_SIZE, 0, 4, True),
        (5 * OS_PAGE_SIZE - 1, OS_PAGE_SIZE, 4, False),
        (POOLED_BYTES, POOLED_BYTES - 1, 4, True),
    ],
)
def test_a_commit_is_due_after_enough_pages_or_when_full(
    wrote: int, committed: int, least_pages: int, *, able: bool
) -> None:
    """DefaultMappedFile.isAbleToCommit."""
    file, _ = a_pooled_file()
    put(file, b"x" * committed)
    file.commit(0)
    put(file, b"y" * (wrote - committed))
    assert file.is_able_to_commit(least_pages) == able
    assert file.commit(least_pages) == able
    assert file.committed_position == (wrote if able else committed)


def test_a_full_file_returns_its_buffer_with_zeros_once_all_is_committed() -> None:
    file, pool = a_pooled_file()
    put(file, b"a" * 5000)
    file.commit(0)
    # Not everything that counts as written was: the rest behind a blank record, for instance.
    file.wrote_position = POOLED_BYTES
    assert pool.available_buffer_nums == 0
    file.commit(4)
    assert not file.has_pool_buffer
    assert file.write_buffer is file.buffer
    assert file.buffer[:] == b"a" * 5000 + bytes(POOLED_BYTES - 5000)
    assert (file.committed_position, file.is_full) == (POOLED_BYTES, True)
    buffer = pool.borrow_buffer("/g")
    assert buffer is not None
    assert buffer[:] == bytes(POOLED_BYTES)


def test_a_file_closed_early_returns_its_buffer_with_zeros() -> None:
    file, pool = a_pooled_file()
    put(file, b"a" * 5000)
    file.commit(0)
    put(file, b"b" * 100)
    file.shutdown(0, 0)
    buffer = pool.borrow_buffer("/g")
    assert buffer is not None
    assert buffer[:] == bytes(POOLED_BYTES)
    assert file.buffer[4990:5010] == b"a" * 10 + bytes(10)


def test_a_commit_that_fails_moves_no_position() -> None:
    """RocketMQ only logs it and goes on as if the bytes were there."""
    disk = SimulatedDisk()
    file, _ = a_pooled_file(disk)
    put(file, b"data")
    disk.sync_fails = True
    with pytest.raises(OSError, check=lambda error: error.filename == "/q/f"):
        file.commit(0)
    assert (file.committed_position, file.select(0, 4)) == (0, None)


def test_a_process_that_dies_in_a_commit_leaves_all_of_it_or_nothing() -> None:
    """The first bytes of the run, the size of its first record, are written last."""
    outcomes = set()
    for step in range(1, 5):
        disk = StepDisk()
        file, _ = a_pooled_file(disk)
        put(file, b"\0\0\0\x08AAAA")
        file.commit(0)
        put(file, b"\0\0\0\x08BBBB" * 2)
        disk.on_step = die_at(step)
        with suppress(Interrupted):
            file.commit(0)
        found = disk.crashed().read("/q/f") or b""
        assert found[:8] == b"\0\0\0\x08AAAA"
        size = int.from_bytes(found[8:12], "big")
        assert size == 0 or found[8:24] == b"\0\0\0\x08BBBB" * 2
        outcomes.add(size)
    assert outcomes == {0, 8}


def test_what_was_not_committed_dies_with_the_process() -> None:
    disk = SimulatedDisk()
    file, _ = a_pooled_file(disk)
    put(file, b"committed")
    file.commit(0)
    put(file, b" and not")
    assert (disk.crashed().read("/q/f") or b"").rstrip(b"\0") == b"committed"


# -- life ------------------------------------------------------------------------------------------


def state(file: MappedFile) -> str:
    if file.is_available:
        return "available"
    return "cleaned up" if file.is_cleanup_over else "closing"


def test_a_file_is_closed_when_the_last_of_its_holders_lets_go() -> None:
    """ReferenceResource.hold, release, shutdown."""
    file = a_file()
    assert file.hold()
    assert file.hold()
    file.shutdown(0, 1000)
    assert state(file) == "closing"
    assert not file.hold()
    file.release()
    assert state(file) == "closing"
    file.release()
    assert state(file) == "cleaned up"
    file.shutdown(10_000, 0)
    assert state(file) == "cleaned up"


def test_a_file_that_nobody_holds_is_closed_at_once() -> None:
    file = a_file()
    assert file.hold()
    file.release()
    assert state(file) == "available"
    file.shutdown(0, 120_000)
    assert state(file) == "cleaned up"


def test_a_holder_is_overruled_after_the_interval_and_not_before() -> None:
    """ReferenceResource.shutdown: the interval counts from the first call."""
    file = a_file()
    file.hold()
    file.shutdown(1_000, 120_000)
    file.shutdown(120_999, 120_000)
    assert state(file) == "closing"
    file.shutdown(121_000, 120_000)
    assert state(file) == "cleaned up"
    file.release()
    assert state(file) == "cleaned up"


def test_an_interval_of_nothing_overrules_every_holder_now() -> None:
    file = a_file()
    file.hold()
    file.shutdown(5_000, 0)
    assert state(file) == "cleaned up"


def test_a_file_that_was_shut_down_shows_nothing_new() -> None:
    """DefaultMappedFile.selectMappedBuffer: null if hold fails."""
    file = a_file()
    file.buffer[0:5] = b"abcde"
    file.wrote_position = 5
    before = file.select(0, 5)
    file.hold()
    file.shutdown(0, 1000)
    assert file.select(0, 5) is None
    assert before is not None
    assert bytes(before) == b"abcde"


def test_destroying_deletes_the_name_once_nobody_holds_the_file() -> None:
    """DefaultMappedFile.destroy."""
    disk = SimulatedDisk()
    file = MappedFile(disk.create("/q/f", 4096), 0)
    file.hold()
    assert not file.destroy(disk, 0, 1000)
    assert disk.exists("/q/f")
    assert not file.destroy(disk, 999, 1000)
    file.release()
    assert file.destroy(disk, 999, 1000)
    assert not disk.exists("/q/f")
    assert file.destroy(disk, 999, 1000)


def test_a_read_only_file_is_closed_but_not_deleted() -> None:
    disk = SimulatedDisk()
    disk.create("/q/f", 4096)
    file = MappedFile(disk.open("/q/f", read_only=True), 0, is_read_only=True)
    assert file.destroy(disk, 0, 0)
    assert disk.exists("/q/f")


def test_readers_keep_what_they_read_when_the_file_is_deleted(tmp_path: Path) -> None:
    """RocketMQ unmaps it under them; here the name goes at once, the memory with the last one."""
    disk = RealDisk()
    path = f"{tmp_path}/f"
    file = MappedFile(disk.create(path, 4096), 0)
    file.buffer[0:5] = b"abcde"
    file.wrote_position = 5
    view = file.select(0, 5)
    assert file.destroy(disk, 0, 1000)
    assert not Path(path).exists()
    assert view is not None
    assert bytes(view) == b"abcde"
    del file
    assert bytes(view) == b"abcde"
    assert f"{path} (deleted)" in Path("/proc/self/maps").read_text()
    del view
    assert f"{path} (deleted)" not in Path("/proc/self/maps").read_text()


def test_positions_are_set_together() -> None:
    file = a_file()
    file.set_positions(77)
    assert (file.wrote_position, file.flushed_position) == (77, 77)
    file.set_positions(file.size)
    assert file.is_full
    with pytest.raises(AssertionError):
        file.set_positions(file.size + 1)
