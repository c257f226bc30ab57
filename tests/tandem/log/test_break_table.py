import numpy as np

from tandem.data_file import DataFile
from tandem.log.break_table import BreakTable
from tandem.log.log_scan import LogBreak
from tandem.wire.record_rule import ScanStop

FILE = DataFile("log", 1000, 1000)


def a_break(start: int, end: int) -> LogBreak:
    return LogBreak(FILE, start, end, ScanStop.CORRUPT, "why")


def test_offsets_in_a_break_are_counted_by_where_it_starts() -> None:
    table = BreakTable([a_break(100, 200), a_break(300, 310)], np.array([1500]))
    offsets = np.array([1000, 1100, 1199, 1200, 1305, 1500, 1500])
    assert table.contain(offsets).tolist() == [False, True, True, False, True, False, False]
    assert table.contain(np.array([1100])).tolist() == [True]
    assert table.counts == {1100: 3, 1300: 1, 1500: 2}


def test_without_a_break_nothing_lies_in_one() -> None:
    table = BreakTable([], np.empty(0, np.int64))
    assert table.contain(np.array([5])).tolist() == [False]
    assert table.counts == {}
