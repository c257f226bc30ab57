import xml.etree.ElementTree as ET

import msgspec
import numpy as np
import pytest

from tandem.drill.outcomes import SEND_OK, STATUSES
from tandem.drill.story import Outage
from tandem.drill.story_plot import (
    NARROW_INCHES,
    SENDS,
    Span,
    arrange,
    between_bars,
    silent_columns,
    story_svg,
)
from tandem.drill.timeline import Fault, Timeline
from tandem.drill.watched_group import Change
from tests.tandem.drill import samples

pytestmark = pytest.mark.slow  # matplotlib

OUTAGE = Outage(
    scenario="slave-loss",
    start_seconds=3.0,
    seconds=2.0,
    fault="kill -9 broker-a-1",
    cause="lease 5 s",
    because="",
)
HISTORY = [
    Change(0.5, "open", "broker-a-1", 1),
    Change(3.5, "ended", "broker-a-1", 1),
    Change(4.0, "open", "broker-a-0", 2),
]


@pytest.mark.parametrize(
    ("start", "seconds", "shaded"),
    [(3.0, 2.0, (3.0, 5.0)), (3.1, 2.0, (3.25, 5.0)), (3.05, 0.1, (3.25, 3.25))],
)
def test_no_bar_is_within_the_time_without_an_answer(
    start: float, seconds: float, shaded: tuple[float, float]
) -> None:
    outage = msgspec.structs.replace(OUTAGE, start_seconds=start, seconds=seconds)
    assert between_bars(outage, 0.25) == pytest.approx(shaded)


def test_shares_of_other_columns_do_not_reach_into_a_time_without_an_answer() -> None:
    middles = np.arange(0.125, 8.0, 0.25)
    total = np.where((middles > 3.0) & (middles < 5.0), 0.0, 10.0)
    total[0] = 0.0
    silent = silent_columns(middles, total, [OUTAGE], 0.25)
    assert middles[silent].tolist() == [each for each in middles if 3.0 < each < 5.0]


def words_of(svg: str) -> str:
    return " ".join("".join(ET.fromstring(svg).itertext()).split())


def test_the_picture_says_what_was_done_who_was_master_and_how_long_nothing_was_acknowledged() -> (
    None
):
    for width in (11.0, NARROW_INCHES):
        shown = words_of(
            story_svg(samples.timeline(), 9.0, HISTORY, [OUTAGE], samples.NODES, width_inches=width)
        )

        assert "kill -9 master broker-a-1, broker-a-2" in shown
        assert "2.00 s: lease 5 s" in shown
        assert "broker-a-0" in shown
        for word in (*SENDS, "Behind the master"):
            assert word in shown


def test_every_outcome_of_a_send_is_drawn_once() -> None:
    drawn = [status for statuses, _ in SENDS.values() for status in statuses]
    assert sorted(drawn) == sorted(STATUSES)


def test_a_drill_that_was_stopped_at_once_is_drawn_too() -> None:
    timeline = Timeline()
    timeline.start_phase(0.0, "slave-loss", "start")

    assert "<svg" in story_svg(timeline, 0.0, [], [], samples.NODES)
    assert "<svg" in story_svg(Timeline(), 0.0, [], [], samples.NODES)


@pytest.mark.parametrize("buckets", [1, 2, 7])
def test_a_short_drill_is_drawn_too(buckets: int) -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "slave-loss", "start")
    for bucket in range(buckets):
        timeline.sent()
        timeline.answered(
            bucket * 0.25, phase, "sync", SEND_OK, reason="", send_id="x", latency_ms=1.0
        )

    assert "<svg" in story_svg(timeline, buckets * 0.25, [], [], samples.NODES)


def test_texts_cover_neither_each_other_nor_the_lines_that_lead_to_others() -> None:
    span = Span(0.0, 100.0, 10.0)
    first, second = Fault(10.0, "kill -9 master broker-a-0"), Fault(12.0, "start broker-a-0")
    later, last = Fault(60.0, "freeze broker-a-1"), Fault(99.0, "resume broker-a-1")

    found = {words.fault: words for words in arrange([first, second, later, last], span)}

    assert found[second].row < found[first].row, "the line to the second passes below the first"
    assert found[later].row == 0
    assert found[first].side == "left"
    assert found[last].side == "right", "there is no room to its right"


def test_texts_without_room_are_left_out() -> None:
    faults = [Fault(10.0 + number / 100, "kill -9 broker-a-0") for number in range(50)]
    assert 0 < len(arrange(faults, Span(0.0, 100.0, 10.0))) < 50
