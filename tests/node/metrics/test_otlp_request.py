import pytest

from node.figures.families import FAMILIES, Base, Kind, sample_names
from node.figures.figure import NO_LABELS, Figure, Labels
from node.figures.histogram_figures import histogram_figures
from node.metrics.otlp_request import FIGURES_A_STEP, OTLPRequests, Times, rejected
from store.machine.histogram import Histogram
from tests.support.http_collector import Series

BASES = {
    Base.ROCKETMQ: Labels(cluster="C", node_type="broker", node_id="b"),
    Base.OURS: Labels(cluster="C", group="b", node="b-0"),
    Base.EXPORTER: Labels(cluster="C", broker="b"),
}
OURS = dict(BASES[Base.OURS].pairs)
TIMES = Times(now_ms=3_000, process_ms=1_000, store_ms=2_000)


def sent(
    *figures: Figure, series_max: int = 1_000, with_exporter_names: bool = False
) -> tuple[Series, list[bytes]]:
    requests = OTLPRequests(
        BASES,
        {"service.name": "x"},
        version="1",
        series_max=series_max,
        with_exporter_names=with_exporter_names,
    )
    parts = list(requests.write(figures, lambda: TIMES))
    return Series(b"".join(parts)), parts


def came(topic: str, count: int = 1) -> Figure:
    return Figure("rocketmq_messages_in_total", Labels(topic=topic), count)


def test_names_labels_and_numbers_are_those_of_an_exposition() -> None:
    found, _ = sent(came("T", 7), Figure("tandem_epoch", NO_LABELS, 3), came("U", 8))
    assert found.resource == {"service.name": "x"}
    assert found.values("rocketmq_messages_in_total", topic="T", node_id="b") == [7]
    assert found.values("rocketmq_messages_in_total", topic="U") == [8]
    assert found.values("tandem_epoch", **OURS) == [3]
    assert found.kinds == {"rocketmq_messages_in_total": "sum", "tandem_epoch": "gauge"}


def test_counters_are_cumulative_since_their_store_or_their_process() -> None:
    found, _ = sent(came("T"), Figure("process_cpu_seconds_total", NO_LABELS, 0.5))
    by_name = {name: point for (name, _), point in found.points.items()}
    assert by_name["rocketmq_messages_in_total"].start_time_unix_nano == 2_000 * 10**6
    assert by_name["process_cpu_seconds_total"].start_time_unix_nano == 1_000 * 10**6
    assert {point.time_unix_nano for point in by_name.values()} == {3_000 * 10**6}
    for scope in found.request.resource_metrics[0].scope_metrics:
        assert all(metric.sum.is_monotonic for metric in scope.metrics)
        assert {metric.sum.aggregation_temporality for metric in scope.metrics} == {2}


def test_a_histogram_is_one_point_wherever_a_part_ends() -> None:
    histogram = Histogram()
    for value in (0.00005, 0.3, 0.3, 99.0):
        histogram.count(value)
    for before in range(FIGURES_A_STEP + 1):
        figures = [
            *(came(f"T{number}") for number in range(before)),
            *histogram_figures("tandem_flush_wait_seconds", histogram),
        ]
        found, _ = sent(*figures)
        ((_, point),) = [
            (key, each) for key, each in found.points.items() if key[0].startswith("tandem_")
        ]
        assert (point.count, point.sum) == (4, histogram.sum)
        assert (point.explicit_bounds[0], len(point.explicit_bounds)) == (0.0001, 16)
        assert list(point.bucket_counts) == [1, *[0] * 10, 2, *[0] * 4, 1]
        assert not point.HasField("min")
        assert found.units["tandem_flush_wait_seconds"] == "s"


def test_histograms_of_two_labels_are_two() -> None:
    first, second = Histogram((1.0,)), Histogram((1.0,))
    first.count(0.5)
    name = "tandem_flush_wait_seconds"
    both = zip(
        histogram_figures(name, first, disk="a"),
        histogram_figures(name, second, disk="b"),
        strict=True,
    )
    found, _ = sent(*(figure for pair in both for figure in pair))
    counts = {dict(labels)["disk"]: point.count for (_, labels), point in found.points.items()}
    assert counts == {"a": 1, "b": 0}


def test_parts_are_small_and_together_one_request() -> None:
    found, parts = sent(*(came(f"T{number}", number) for number in range(500)))
    assert len(parts) == -(-500 // FIGURES_A_STEP)
    assert sorted(found.values("rocketmq_messages_in_total")) == list(range(500))


def test_a_stranger_makes_no_more_series_than_the_bound() -> None:
    found, _ = sent(*(came(f"T{number}") for number in range(130)), series_max=100)
    assert len(found.values("rocketmq_messages_in_total")) == 100
    left_out = found.values("tandem_series_left_out", family="rocketmq_messages_in_total")
    assert left_out == [30]


def test_the_exporters_names_are_sent_if_they_are_wanted() -> None:
    figure = Figure("rocketmq_producer_tps", Labels(topic="T"), 2.5)
    assert not sent(figure)[0].points
    assert sent(figure, with_exporter_names=True)[0].values("rocketmq_producer_tps") == [2.5]


@pytest.mark.parametrize("name", ["\ud800", 'q"\\\n', "\u6f22", "", "\x00"])
def test_any_name_can_be_sent(name: str) -> None:
    found, _ = sent(came(name))
    assert found.values("rocketmq_messages_in_total", topic=name.replace("\ud800", "?")) == [1]


def test_every_family_can_be_sent_with_the_unit_of_its_name() -> None:
    figures = [
        Figure(sample, NO_LABELS, 1)
        for name, family in FAMILIES.items()
        if family.kind is not Kind.HISTOGRAM
        for sample in sample_names(name, family)
    ]
    found, _ = sent(*figures, with_exporter_names=True)
    assert found.units["process_cpu_seconds_total"] == "s"
    assert found.units["rocketmq_consumer_lag_latency_milliseconds"] == "ms"
    assert found.units["rocketmq_storage_size_bytes"] == "By"
    assert found.units["rocketmq_messages_in_total"] == ""
    assert len(found.points) == len(figures)


def test_a_figure_of_no_family_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        sent(Figure("tandem_of_nothing", NO_LABELS, 1))


def test_an_answer_says_what_was_left_out() -> None:
    assert rejected(b"") == (0, "")
    assert rejected(b"\x0a\x06\x08\x03\x12\x02no") == (3, "no")
    assert rejected(b"<html>") is None
