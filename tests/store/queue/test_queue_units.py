"""What both kinds of queues do with columns of units. See also the tests of each kind."""

import numpy as np
import pytest

from node.simulated.disk import SimulatedDisk
from store.files.mapped_file import MappedFile
from store.queue.consume_queue import CQ_UNIT
from store.queue.queue_units import (
    ConfirmedUnits,
    QueueGapError,
    end_of_units,
    end_of_units_below,
    ends_in_doubt,
    first_not_below,
    units_of,
)
from tandem.wire.store_layout import CQ_STORE_UNIT, FILLER_SIZE

FILE_BYTES = 100


def files_with(*units: tuple[int, int]) -> list[MappedFile]:
    """Files of five units each that hold these: offset and size."""
    disk = SimulatedDisk()
    files = []
    for start in range(0, max(1, len(units)), 5):
        file = MappedFile(disk.create(f"/q/{start * 20:020d}", FILE_BYTES), start * 20)
        for number, (offset, size) in enumerate(units[start : start + 5]):
            CQ_STORE_UNIT.pack_into(file.buffer, number * 20, offset, size, 7)
        file.set_positions(FILE_BYTES)
        files.append(file)
    return files


def test_units_are_columns_of_what_is_written() -> None:
    (file,) = files_with((0, 100), (100, 50))
    file.wrote_position = 40
    units = units_of(file, CQ_UNIT.columns)
    assert units["offset"].tolist() == [0, 100]
    assert units["size"].tolist() == [100, 50]


@pytest.mark.parametrize(
    ("units", "end"),
    [
        ([], 0),
        ([(0, 100), (100, 50)], 40),
        ([(0, FILLER_SIZE), (300, 50)], 40),
        ([(0, 100), (99, 50)], 20),
        ([(0, 100), (-1, 50)], 20),
        ([(0, 100), (1 << 62, 50), ((1 << 63) - 50, 90)], 40),
        ([(10 * n, 10) for n in range(7)], 140),
        ([*((10 * n, 10) for n in range(5)), (49, 10)], 100),
    ],
)
def test_units_end_where_one_does_not_follow_the_one_before(
    units: list[tuple[int, int]], end: int
) -> None:
    assert end_of_units(files_with(*units), CQ_UNIT) == end


@pytest.mark.parametrize(
    ("offset", "end"), [(0, 20), (9, 20), (10, 40), (30, 80), (31, 80), (1 << 60, 140)]
)
def test_fillers_and_older_records_are_below(offset: int, end: int) -> None:
    files = files_with((0, FILLER_SIZE), *((10 * n, 10) for n in range(6)))
    files[-1].wrote_position = 40
    assert end_of_units_below(files, CQ_UNIT.columns, offset) == end


def test_nothing_is_below_the_first_unit_of_all() -> None:
    files = files_with(*((10 * n, 10) for n in range(10)))
    assert end_of_units_below(files[1:], CQ_UNIT.columns, 50) == 100
    assert end_of_units_below([], CQ_UNIT.columns, 50) == 0


@pytest.mark.parametrize("count", [2, 4])
def test_a_unit_too_many_or_too_few_is_a_gap(count: int) -> None:
    confirmed = ConfirmedUnits()
    confirmed.found_end, confirmed.count = 100, count
    with pytest.raises(QueueGapError):
        confirmed.confirm("T-0", 20, 80, 20)


def test_units_added_since_need_no_confirmation() -> None:
    confirmed = ConfirmedUnits()
    confirmed.found_end, confirmed.count = 60, 1
    confirmed.confirm("T-0", 40, 200, 20)
    with pytest.raises(QueueGapError):
        confirmed.confirm("T-0", 20, 200, 20)
    confirmed.count = 0
    confirmed.confirm("T-0", 80, 200, 20)


@pytest.mark.parametrize(
    ("units", "end", "in_doubt"),
    [
        ([(0, 100)], 20, False),
        ([(0, 100), (50, 100)], 20, True),
        ([(10 * n, 10) for n in range(5)], 100, True),
        ([(10 * n, 10) for n in range(6)], 120, False),
        ([(10 * n, 10) for n in range(6)], 100, True),
    ],
)
def test_an_end_is_in_doubt_where_something_follows_or_nothing_could(
    units: list[tuple[int, int]],
    end: int,
    in_doubt: bool,  # noqa: FBT001
) -> None:
    assert ends_in_doubt(files_with(*units), end) == in_doubt
    assert not ends_in_doubt([], 0)


@pytest.mark.parametrize(
    ("numbers", "lacks"),
    [([3, 4, 5], False), ([3, 4, 5, 6], True), ([5, 6, 0, 1], False), ([0, 1, 6], True)],
)
def test_numbers_the_queue_has_not_got_to_are_missing_unless_they_begin_again(
    numbers: list[int],
    lacks: bool,  # noqa: FBT001
) -> None:
    for size in (1, 2, 4):
        confirmed = ConfirmedUnits()
        for start in range(0, len(numbers), size):
            confirmed.met(np.array(numbers[start : start + size]), 6)
        assert confirmed.lacks_units == lacks
        if lacks:
            with pytest.raises(QueueGapError):
                confirmed.confirm("T-0", 0, 0, 20)


@pytest.mark.parametrize("high", [0, 1, 2, 3, 17, 100])
def test_the_first_number_that_is_not_below_is_found_from_the_end(high: int) -> None:
    for low in range(min(high, 3) + 1):
        for end in range(low, high + 1):
            assert first_not_below(low, high, end.__gt__) == end


def test_near_the_end_it_is_found_with_few_looks() -> None:
    looks: list[int] = []

    def is_below(number: int) -> bool:
        looks.append(number)
        return number < 999_990

    assert first_not_below(0, 1_000_000, is_below) == 999_990
    assert len(looks) < 10
