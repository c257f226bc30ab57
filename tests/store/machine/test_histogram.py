from store.machine.histogram import Histogram


def test_each_bucket_has_what_is_below_it_too() -> None:
    histogram = Histogram((0.1, 1.0))
    for value, times in ((0.1, 1), (0.5, 2), (9.0, 3)):
        histogram.count(value, times)
    assert histogram.buckets() == [("0.1", 1), ("1.0", 3), ("+Inf", 6)]
    assert histogram.sum == 28.1
