import pytest

from node.simulated.disk import SimulatedDisk
from store.files.whole_end import is_file_name, whole_end
from tandem.wire.store_layout import OFFSET_MAX

SIZE = 100


def _disk(*files: tuple[str, int]) -> SimulatedDisk:
    disk = SimulatedDisk()
    for name, size in files:
        disk.replace(f"/q/{name}", bytes(size))
    return disk


def _name(number: int) -> str:
    return f"{number * SIZE:020d}"


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        ([], []),
        ([(0, SIZE), (1, SIZE)], [0, 1]),
        ([(0, SIZE), (2, SIZE), (3, SIZE)], [2, 3]),
        ([(0, SIZE), (1, 7), (2, SIZE)], [2]),
        ([(0, SIZE), (1, SIZE), (2, SIZE - 1)], []),
        ([(0, SIZE), (1, SIZE + 1), (2, SIZE)], [2]),
    ],
)
def test_it_goes_back_to_the_first_file_that_is_missing_or_of_another_length(
    files: list[tuple[int, int]], whole: list[int]
) -> None:
    disk = _disk(*((_name(number), size) for number, size in files))
    found, others = whole_end(disk, ["/q"], SIZE)
    assert found == [(f"/q/{_name(number)}", number * SIZE) for number in whole]
    assert others == [f"/q/{_name(n)}" for n, _ in files if n not in whole]


def test_what_has_another_name_is_left_alone() -> None:
    disk = _disk((_name(0), SIZE), ("notes.txt", SIZE), (f"{SIZE + 1:020d}", SIZE))
    assert whole_end(disk, ["/q"], SIZE) == ([(f"/q/{_name(0)}", 0)], [])
    assert not is_file_name(f"{OFFSET_MAX - OFFSET_MAX % SIZE:020d}", SIZE)
    assert not is_file_name(_name(1)[1:], SIZE)
    assert not is_file_name("\u0660" * 20, SIZE)
