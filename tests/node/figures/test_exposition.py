import time

import pytest

from node.figures.exposition import LINES_A_STEP, Exposition, Format, wanted_format
from node.figures.families import Base
from node.figures.figure import NO_LABELS, Figure, Labels
from node.figures.histogram_figures import histogram_figures
from store.machine.histogram import Histogram

BASES = {
    Base.ROCKETMQ: Labels(cluster="C", node_type="broker", node_id="b"),
    Base.OURS: Labels(cluster="C", group="b", node="b-0"),
    Base.EXPORTER: Labels(cluster="C", broker="b"),
}


def text_of(
    *figures: Figure,
    format_: Format = Format.TEXT,
    series_max: int = 100,
    with_exporter_names: bool = False,
) -> str:
    exposition = Exposition(BASES, series_max=series_max, with_exporter_names=with_exporter_names)
    return b"".join(exposition.write(figures, format_)).decode()


def came(topic: str, count: int = 1) -> Figure:
    return Figure("rocketmq_messages_in_total", Labels(topic=topic), count)


def test_a_family_is_written_with_its_help_and_kind() -> None:
    text = text_of(came("T", 7), Figure("tandem_epoch", NO_LABELS, 3), came("U"))
    assert text.splitlines()[:7] == [
        "# HELP rocketmq_messages_in_total Messages that came into a topic, also in batches",
        "# TYPE rocketmq_messages_in_total counter",
        'rocketmq_messages_in_total{cluster="C",node_type="broker",node_id="b",topic="T"} 7',
        'rocketmq_messages_in_total{cluster="C",node_type="broker",node_id="b",topic="U"} 1',
        "# HELP tandem_epoch Epoch that the node knows of",
        "# TYPE tandem_epoch gauge",
        'tandem_epoch{cluster="C",group="b",node="b-0"} 3',
    ]


def test_open_metrics_names_counters_without_their_ending_and_says_when_it_is_over() -> None:
    text = text_of(came("T"), format_=Format.OPEN_METRICS)
    assert "# TYPE rocketmq_messages_in counter\nrocketmq_messages_in_total{" in text
    assert text.endswith("\n# EOF\n")


def test_a_histogram_is_one_family() -> None:
    histogram = Histogram((0.5,))
    histogram.count(0.1)
    text = text_of(*histogram_figures("tandem_loop_late_seconds", histogram))
    assert text.count("# TYPE tandem_loop_late_seconds histogram") == 1
    own = '{cluster="C",group="b",node="b-0"'
    assert f'tandem_loop_late_seconds_bucket{own},le="+Inf"}} 1\n' in text
    assert f"tandem_loop_late_seconds_sum{own}}} 0.1\n" in text


def test_a_stranger_makes_no_more_series_than_the_bound() -> None:
    text = text_of(*(came(f"T{n}") for n in range(130)), Figure("tandem_epoch", NO_LABELS, 1))
    assert text.count("rocketmq_messages_in_total{") == 100
    left_out = 'tandem_series_left_out{cluster="C",group="b",node="b-0",family='
    assert f'{left_out}"rocketmq_messages_in_total"}} 30\n' in text
    assert "tandem_epoch{" in text


def test_the_exporters_names_are_written_if_they_are_wanted() -> None:
    figure = Figure("rocketmq_producer_tps", Labels(topic="T"), 2.5)
    after = Figure("tandem_epoch", NO_LABELS, 1)
    assert "rocketmq_producer_tps" not in text_of(figure, after)
    wanted = text_of(figure, after, with_exporter_names=True)
    assert 'rocketmq_producer_tps{cluster="C",broker="b",topic="T"} 2.5\n' in wanted


def test_others_have_their_turn_while_much_is_written() -> None:
    exposition = Exposition(BASES, series_max=10_000)
    many = (came(f"T{number}") for number in range(3 * LINES_A_STEP))
    parts = list(exposition.write(many, Format.TEXT))
    assert parts.count(b"") == 3


def test_a_figure_that_is_in_no_catalogue_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        text_of(Figure("tandem_nonsense", NO_LABELS, 1))


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("text/html", Format.TEXT),
        ("application/openmetrics-text", Format.OPEN_METRICS),
        (
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5",
            Format.OPEN_METRICS,
        ),
        ("application/openmetrics-text;q=0.1,text/plain", Format.TEXT),
        ("application/openmetrics-text;q=many", Format.TEXT),
    ],
)
def test_who_asks_says_what_it_reads(accept: str, wanted: Format) -> None:
    assert wanted_format(accept) is wanted


def test_ten_thousand_series_take_some_milliseconds() -> None:
    """Ten times what it takes on a quiet machine; docs/performance.md has the figure."""
    exposition = Exposition(BASES, series_max=10_000)
    figures = [came(f"Topic-{number}", number) for number in range(10_000)]
    took = []
    for _ in range(5):
        began = time.process_time()
        b"".join(exposition.write(figures, Format.TEXT))
        took.append(time.process_time() - began)
    assert min(took) < 0.04
