import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from tandem.drill import plots
from tandem.drill.outcomes import SEND_OK, STATUSES
from tandem.drill.plots import (
    FAULT_COLOUR,
    INK,
    STATUS_COLOURS,
    Columns,
    colour_of,
    details_svg,
    first_seconds,
    svg_of,
)
from tandem.drill.timeline import Fault, Timeline
from tests.tandem.drill import samples

pytestmark = pytest.mark.slow  # matplotlib


def test_every_outcome_has_a_colour_of_its_own() -> None:
    assert set(STATUS_COLOURS) == set(STATUSES)
    assert len(set(STATUS_COLOURS.values())) == len(STATUSES)


def test_the_picture_is_one_svg_element_with_real_text_in_the_colours_of_the_page() -> None:
    svg = details_svg(samples.timeline(), 9.0)

    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "slaves-down" in "".join(root.itertext())
    assert "var(--soft)" in svg
    assert INK not in svg


def test_a_drill_that_was_stopped_at_once_is_drawn_too() -> None:
    timeline = Timeline()
    timeline.start_phase(0.0, "slave-loss", "start")

    assert "<svg" in details_svg(timeline, 0.0)
    assert "<svg" in details_svg(Timeline(), 0.0)


def test_a_phase_before_the_picture_begins_takes_no_room_of_it() -> None:
    """Brokers take a minute to start; matplotlib warns of axes without room, which is an error."""
    timeline = Timeline()
    timeline.start_phase(0.0, "steady", "start")
    phase = timeline.start_phase(67.0, "steady 1", "steady")
    timeline.sent()
    timeline.answered(68.0, phase, "sync", SEND_OK, reason="", send_id="a", latency_ms=1.0)
    timeline.end_phase(79.0)

    words = "".join(ET.fromstring(details_svg(timeline, 79.0)).itertext())

    assert "steady" in words
    assert "start" not in words.replace("started", "")


def test_the_same_drill_is_the_same_picture_and_names_differ_between_figures() -> None:
    timeline = samples.timeline()
    assert details_svg(timeline, 9.0) == details_svg(timeline, 9.0)
    figure = Figure()
    figure.subplots().plot([1, 2])
    assert svg_of(figure, "one") != svg_of(figure, "other")


def test_what_helps_is_not_red() -> None:
    assert colour_of(Fault(1.0, "kill -9 a")) == FAULT_COLOUR
    assert colour_of(Fault(1.0, "start a", hurts=False)) == INK


def test_a_picture_begins_with_the_load() -> None:
    timeline = Timeline()
    assert first_seconds(timeline) == 0.0
    phase = timeline.start_phase(0.0, "slave-loss", "start")
    timeline.sent()
    timeline.answered(10.0, phase, "sync", SEND_OK, reason="", send_id="x", latency_ms=1.0)
    assert first_seconds(timeline) == 9.0


def test_a_long_drill_has_several_buckets_to_a_column() -> None:
    timeline = samples.timeline()

    columns = Columns(timeline, columns_max=10)

    assert columns.width == 4
    sent = sum(columns.rates(SEND_OK)) * columns.seconds
    assert sent == pytest.approx(
        sum(phase.count(mode, SEND_OK) for phase in timeline.phases for mode in plots.MODE_COLOURS)
    )
