"""One file of the log or of a queue: positions, reads and what counts as dirty."""

import pytest

from store.mapped_file import OS_PAGE_SIZE, MappedFile
from tests.support.simulated_disk import SimulatedDisk


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


def test_positions_are_set_together() -> None:
    file = a_file()
    file.set_positions(77)
    assert (file.wrote_position, file.flushed_position) == (77, 77)
    file.set_positions(file.size)
    assert file.is_full
    with pytest.raises(AssertionError):
        file.set_positions(file.size + 1)
