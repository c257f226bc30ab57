from itertools import pairwise

import pytest

from node.simulated.disk import SimulatedDisk
from store.services.file_look import FileLook
from tests.store.store_world import a_message, open_store, put

FILE_BYTES = 8192


def looked_at(slice_bytes: int, hurt: int = -1) -> tuple[list[tuple[int, int]], int, FileLook]:
    """Look at a closed file of records of 800 bytes, of which one byte may be changed."""
    store = open_store(SimulatedDisk(), commit_log_bytes=FILE_BYTES)
    while len(store.commit_log.files.files) < 2:
        put(store, a_message(store.reads.max_offset_in_queue("TopicA", 0), body_bytes=700))
    file = store.commit_log.files.files[0]
    if hurt >= 0:
        file.buffer[hurt] ^= 1
    look = FileLook(file, None)
    bad, count = [], 0
    for start in range(0, FILE_BYTES, slice_bytes):
        data = bytes(file.buffer[start : start + slice_bytes])
        bad += [(begin, end) for begin, end, _ in look.records(start, data, check_crc=True)]
        count += sum(len(columns) for _, columns in look.take_columns())
    return bad, count, look


@pytest.mark.parametrize("slice_bytes", [512, 1000, 4096, FILE_BYTES])
def test_records_are_found_however_the_file_is_cut_into_slices(slice_bytes: int) -> None:
    bad, count, look = looked_at(slice_bytes)
    assert (bad, look.is_sound) == ([], True)
    assert count == looked_at(FILE_BYTES)[1] > 5


@pytest.mark.parametrize("slice_bytes", [1000, FILE_BYTES])
def test_a_bad_record_is_one_place_and_the_next_ones_are_looked_at(slice_bytes: int) -> None:
    whole = looked_at(FILE_BYTES)[1]
    bad, count, look = looked_at(slice_bytes, hurt=1500)
    ((begin, end),) = bad
    assert begin <= 1500 < end
    assert end - begin < 1000
    assert (count, look.is_sound) == (whole - 1, False)


def test_places_are_in_order_and_apart() -> None:
    for hurt in range(0, FILE_BYTES, 97):
        bad, _, look = looked_at(1000, hurt)
        assert look.is_sound is not bool(bad)
        assert all(first[1] <= second[0] for first, second in pairwise(bad))


def test_after_a_slice_that_is_not_there_nothing_is_said() -> None:
    _, _, look = looked_at(FILE_BYTES)
    again = FileLook(look.file, None)
    again.lost()
    assert not again.is_sound
    assert list(again.records(0, b"x" * 1000, check_crc=True)) == []
