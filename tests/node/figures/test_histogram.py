from __future__ import annotations

from node.figures.figure import Labels
from node.figures.histogram import Histogram


def test_each_bucket_has_what_is_below_it_too() -> None:
    histogram = Histogram((0.1, 1.0))
    for value, times in ((0.1, 1), (0.5, 2), (9.0, 3)):
        histogram.count(value, times)
    figures = {(each.name, each.labels): each.value for each in histogram.figures("h")}
    assert figures == {
        ("h_bucket", Labels(le="0.1")): 1,
        ("h_bucket", Labels(le="1.0")): 3,
        ("h_bucket", Labels(le="+Inf")): 6,
        ("h_sum", Labels()): 28.1,
        ("h_count", Labels()): 6,
    }


def test_a_histogram_that_counted_nothing_is_all_zeros() -> None:
    assert {each.value for each in Histogram().figures("h", {"kind": "log"})} == {0}
