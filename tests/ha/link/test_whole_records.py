import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.errors import CorruptTransferError
from ha.link.whole_records import WholeRecords
from tests.ha.small_logs import FILE_SIZE_BYTES, RECORD_BYTES_MAX, build_log, record
from tests.support.log_builder import blank, record_starts

LOG = build_log([bytes([i]) * (i * 37 % 700) for i in range(40)])


def new_records(start: int = 0) -> WholeRecords:
    records = WholeRecords(
        file_size_bytes=FILE_SIZE_BYTES, record_bytes_max=RECORD_BYTES_MAX, check_crc=True
    )
    records.begin(start)
    return records


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=30), st.integers(0, 39))
def test_whatever_the_cuts_only_whole_records_leave_and_none_is_late(
    sizes: list[int], first: int
) -> None:
    starts = record_starts(LOG)
    start = position = starts[first]
    records = new_records(start)
    log = bytearray()
    for size in sizes:
        piece = LOG[position : position + size]
        position += len(piece)
        records.add(piece)
        while (taken := records.take()) is not None:
            assert taken.offset == start + len(log)
            assert taken.offset // FILE_SIZE_BYTES == taken.last_record_offset // FILE_SIZE_BYTES
            assert taken.last_record_offset in starts
            log += taken.body
        assert not records.is_ready
        assert start + len(log) == max(s for s in (*starts, len(LOG)) if s <= position)
        assert records.end == position
        assert records.held_bytes == position - start - len(log)
    assert bytes(log) == LOG[start : start + len(log)]


def test_good_records_leave_before_a_bad_one_is_told() -> None:
    starts = record_starts(LOG)
    records = new_records()
    records.add(LOG[: starts[2]] + b"\xff" * 200)
    taken = records.take()
    assert taken is not None
    assert taken.body == LOG[: starts[2]]
    with pytest.raises(CorruptTransferError, match=f"bad record at offset {starts[2]}"):
        records.take()


@pytest.mark.parametrize(
    "bad",
    [bytes(100), blank(100), record(7), record(0)[:-1] + b"\x00\x00", b"\xff" * 100],
    ids=["zeros", "a blank too short", "of another place", "a byte too much", "no record"],
)
def test_what_is_no_record_of_this_place_is_refused(bad: bytes) -> None:
    records = new_records()
    records.add(bad + record(len(bad)))
    with pytest.raises(CorruptTransferError):
        while records.take() is not None:
            pass


@given(
    st.integers(0, 39),
    st.integers(0, 12),
    st.integers(-1, 1),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=1),
)
def test_what_is_taken_at_once_is_what_would_leave(
    first: int, count: int, more: int, damage: list[tuple[int, int]]
) -> None:
    starts = [*record_starts(LOG), len(LOG)]
    start, end = starts[first], starts[min(first + count, 40)] + more
    piece = bytearray(LOG[start : max(start, end)])
    for at, value in damage:
        if piece:
            piece[at % len(piece)] = value
    at_once, plain = new_records(start), new_records(start)
    taken = at_once.take_at_once(memoryview(piece))
    if taken is None:
        assert (at_once.end, at_once.held_bytes) == (start, 0)
        return
    plain.add(bytes(piece))
    assert plain.take() == taken
    assert (at_once.end, at_once.held_bytes) == (plain.end, plain.held_bytes)


def test_whole_records_are_taken_at_once_unless_something_is_held() -> None:
    starts = record_starts(LOG)
    records = new_records()
    taken = records.take_at_once(memoryview(LOG)[: starts[2]])
    assert taken is not None
    assert (taken.offset, taken.body, taken.last_record_offset) == (0, LOG[: starts[2]], starts[1])
    assert records.take_at_once(memoryview(LOG)[starts[2] : starts[3] + 1]) is None
    records.add(LOG[starts[2] : starts[2] + 9])
    assert records.take_at_once(memoryview(LOG)[starts[2] + 9 : starts[3]]) is None


def test_nothing_is_taken_at_once_while_something_is_held() -> None:
    records = new_records()
    records.add(LOG[:9])
    assert records.take_at_once(memoryview(record(9))) is None


@pytest.mark.parametrize(("left", "is_taken"), [(8, True), (7, False), (0, False)])
def test_what_is_taken_at_once_leaves_room_for_the_end_of_file_record(
    left: int, *, is_taken: bool
) -> None:
    start = FILE_SIZE_BYTES - left - len(record(0))
    taken = new_records(start).take_at_once(memoryview(record(start)))
    assert (taken is not None) == is_taken
