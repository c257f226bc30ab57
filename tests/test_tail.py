"""The benchmark of the longest latencies: which times it looks at."""

from benchmarks.tail import LateTime, late_times


def test_late_sends_that_overlap_are_one_time_and_the_longest_comes_first() -> None:
    late = [(10, 20), (100, 140), (15, 30), (30, 35), (120, 125)]
    assert late_times(late) == [LateTime(100, 140, 2), LateTime(10, 35, 3)]
    assert [each.ns for each in late_times(late)] == [40, 25]
    assert late_times([]) == []
