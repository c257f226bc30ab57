import msgspec
import pytest

from tandem.data_file import DataFile
from tandem.log.log_end import find_log_end
from tandem.log.piece_check import BreakFacts, PieceCheck, Sound
from tandem.log.store_directory import Checkpoint, StoreDirectory
from tandem.wire.record_rule import ScanStop

KNOWN_MS = 1000


def a_store(*, has_abort: bool = False, known_ms: int = KNOWN_MS) -> StoreDirectory:
    checkpoint = Checkpoint(known_ms, known_ms, 0, 0, 0) if known_ms else None
    return StoreDirectory(
        path="store",
        commit_log=(DataFile("log", 0, 8192),),
        queues=(),
        index_files=(),
        checkpoint=checkpoint,
        checkpoint_bytes=4096,
        has_abort=has_abort,
        is_live=False,
        strays=(),
    )


def a_break(
    offset: int, behind: Sound | None, *, units: int = 0, zeros: bool = False
) -> BreakFacts:
    stop = ScanStop.ZEROS if zeros else ScanStop.CORRUPT
    return BreakFacts("record-corrupt", "log", offset, offset, stop, "why", 50, behind, units, 1)


def a_check(*breaks: BreakFacts, first: Sound | None = None, last: int = 700) -> PieceCheck:
    return PieceCheck(
        end=8192,
        record_count=9,
        unit_count=9,
        index_count=0,
        first=first,
        last_offset=last,
        newest_ms=KNOWN_MS,
        unsafe_offset=-1,
        breaks=list(breaks),
        findings=[],
    )


def sound(ms: int, *, has_unit: bool = False) -> Sound:
    return Sound(500, ms, has_unit)


def test_a_log_ends_where_nothing_but_zeros_follows() -> None:
    end = find_log_end(a_store(), [a_check(a_break(800, None, zeros=True))], 0)
    assert (end.offset, end.is_bare, end.damages) == (800, True, [])
    assert end.last_offset == 50


def test_a_log_without_a_break_ends_with_its_files() -> None:
    end = find_log_end(a_store(), [a_check()], 0)
    assert (end.offset, end.tail, end.last_offset) == (8192, None, 700)


@pytest.mark.parametrize(
    ("has_abort", "known_ms", "behind", "is_damage"),
    [
        # After a crash the checkpoint decides: what it knows was on disk.
        (True, KNOWN_MS, sound(999), True),
        (True, KNOWN_MS, sound(1000, has_unit=True), False),
        (True, 0, sound(5, has_unit=True), False),
        # After a clean stop everything had reached the disk.
        (False, KNOWN_MS, sound(1000), True),
        (False, KNOWN_MS, sound(1001), False),
        (False, KNOWN_MS, sound(1001, has_unit=True), True),
        (False, 0, sound(5), True),
    ],
)
def test_a_record_that_was_on_disk_makes_the_place_before_it_damage(
    *,
    has_abort: bool,
    known_ms: int,
    behind: Sound,
    is_damage: bool,
) -> None:
    store = a_store(has_abort=has_abort, known_ms=known_ms)
    end = find_log_end(store, [a_check(a_break(400, behind))], 0)
    assert [place.offset for place in end.damages] == ([400] if is_damage else [])
    assert end.offset == (8192 if is_damage else 400)


def test_the_record_behind_a_break_may_be_in_a_later_piece() -> None:
    empty = msgspec.structs.replace(a_check(a_break(400, None)), first=None)
    checks = [empty, a_check(first=None), a_check(first=sound(10))]
    end = find_log_end(a_store(), checks, 0)
    assert [place.offset for place in end.damages] == [400]


def test_units_that_lead_behind_the_end_are_counted() -> None:
    breaks = a_break(400, None, units=2), a_break(600, None, units=3)
    end = find_log_end(a_store(), [a_check(*breaks)], 4)
    assert (end.offset, end.units_past, end.is_bare) == (400, 9, False)
    assert end.entries_past == 2
