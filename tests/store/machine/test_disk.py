"""Ranges of bytes that no disk takes; what each call does with them is in the contracts."""

import pytest

from node.simulated.disk import SimulatedDisk
from store.machine.disk import check_pages, check_range, check_size


@pytest.mark.parametrize(("start", "size"), [(0, 0), (0, 5000), (4999, 1), (5000, 0)])
def test_a_range_within_a_file_is_taken(start: int, size: int) -> None:
    check_range(SimulatedDisk().create("/f", 5000), start, size)


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, -1), (0, 5001), (5000, 1), (5001, 0)])
def test_a_range_that_leaves_a_file_is_refused(start: int, size: int) -> None:
    file = SimulatedDisk().create("/f", 5000)
    with pytest.raises(ValueError, match=f"/f: {size} bytes from {start} on"):
        check_range(file, start, size)
    with pytest.raises(ValueError, match=f"/f: {size} bytes from {start} on"):
        check_pages(file, start, size)


def test_pages_begin_where_pages_begin() -> None:
    file = SimulatedDisk().create("/f", 5000)
    check_pages(file, 4096, 904)
    with pytest.raises(ValueError, match="/f: 4095 is not where a page"):
        check_pages(file, 4095, 0)


def test_a_file_has_a_byte() -> None:
    check_size("/f", 1)
    with pytest.raises(ValueError, match="/f: a file of 0 bytes"):
        check_size("/f", 0)
