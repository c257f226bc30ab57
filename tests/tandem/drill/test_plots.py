import xml.etree.ElementTree as ET

import pytest

from tandem.drill import plots
from tandem.drill.outcomes import SEND_OK, STATUSES
from tandem.drill.plots import STATUS_COLOURS, timeline_svg
from tandem.drill.timeline import Timeline
from tests.tandem.drill import samples

pytestmark = pytest.mark.slow  # matplotlib


def test_every_outcome_has_a_colour_of_its_own() -> None:
    assert set(STATUS_COLOURS) == set(STATUSES)
    assert len(set(STATUS_COLOURS.values())) == len(STATUSES)


def test_the_picture_is_one_svg_element_with_real_text() -> None:
    svg = timeline_svg(samples.timeline(), 9.0)

    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = "".join(root.itertext())
    assert "SLAVE_NOT_AVAILABLE" in text
    assert "broker-a-1" in text
    assert "slaves-down" in text


def test_a_drill_that_was_stopped_at_once_is_drawn_too() -> None:
    timeline = Timeline()
    timeline.start_phase(0.0, "slave-loss", "start")

    assert "<svg" in timeline_svg(timeline, 0.0)
    assert "<svg" in timeline_svg(Timeline(), 0.0)


@pytest.mark.parametrize("buckets", [1, 2, 7])
def test_a_short_drill_is_drawn_too(buckets: int) -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "slave-loss", "start")
    for bucket in range(buckets):
        timeline.sent()
        timeline.answered(
            bucket * 0.25, phase, "sync", SEND_OK, reason="", send_id="x", latency_ms=1.0
        )

    assert "<svg" in timeline_svg(timeline, buckets * 0.25)


def test_the_same_drill_is_the_same_picture() -> None:
    assert timeline_svg(samples.timeline(), 9.0) == timeline_svg(samples.timeline(), 9.0)


def test_a_long_drill_has_several_buckets_to_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "_COLUMNS_MAX", 10)
    timeline = samples.timeline()

    columns = plots._Columns(timeline)

    assert columns.width == 4
    sent = sum(columns.rates("sync", SEND_OK)) * columns.seconds
    assert sent == pytest.approx(sum(phase.count("sync", SEND_OK) for phase in timeline.phases))
