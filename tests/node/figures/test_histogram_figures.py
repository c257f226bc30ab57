from node.figures.figure import Labels
from node.figures.histogram_figures import histogram_figures
from store.machine.histogram import Histogram


def test_a_histogram_has_its_buckets_its_sum_and_its_count() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.count(0.5, 2)
    figures = {
        (each.name, each.labels): each.value
        for each in histogram_figures("h", histogram, kind="log")
    }
    assert figures == {
        ("h_bucket", Labels(kind="log", le="0.1")): 0,
        ("h_bucket", Labels(kind="log", le="1.0")): 2,
        ("h_bucket", Labels(kind="log", le="+Inf")): 2,
        ("h_sum", Labels(kind="log")): 1.0,
        ("h_count", Labels(kind="log")): 2,
    }
