import math

import msgspec
import pytest

from tandem.drill.outcomes import NOT_SENT, SEND_OK, SLAVE_NOT_AVAILABLE
from tandem.drill.scenario import ScenarioRun
from tandem.drill.story import LABEL_MAX, labels, longest, masters, outages, with_role
from tandem.drill.switches import Band, Switch
from tandem.drill.timeline import Fault, Timeline
from tandem.drill.watched_group import Change
from tests.tandem.drill import samples

SWITCH = Switch(
    scenario="master-freeze",
    epoch=2,
    previous_master="a",
    master="b",
    reason="",
    fault="freeze a",
    fault_at_seconds=10.0,
    detect_seconds=4.5,
    fence_seconds=4.5,
    elect_seconds=4.75,
    open_seconds=5.0,
    first_ack_seconds=5.1,
)


def run(start: float, seconds: float) -> ScenarioRun:
    return msgspec.structs.replace(
        samples.RUN, unavailable_from_seconds=start, unavailable_seconds=seconds
    )


def test_a_switch_that_waited_for_the_lease_says_so() -> None:
    (found,) = outages([run(9.9, 5.2)], Timeline(), [SWITCH], 5000)

    assert found.cause == "lease 5 s"
    assert found.fault == "freeze master a"
    assert found.because == (
        "4.50 s until the lease of 5 s was over, 0.25 s to elect a master, 0.25 s to open it,"
        " 0.10 s to the first SEND_OK"
    )
    assert found.end_seconds == pytest.approx(15.1)


def test_a_switch_after_a_kill_names_its_longest_step() -> None:
    quick = msgspec.structs.replace(
        SWITCH, detect_seconds=0.1, elect_seconds=0.5, open_seconds=None, first_ack_seconds=0.6
    )
    (found,) = outages([run(9.9, 0.7)], Timeline(), [quick], 5000)

    assert found.cause == "election"
    assert found.because.startswith("0.10 s to notice it, 0.40 s to elect a master")


def test_a_switch_of_another_time_explains_nothing() -> None:
    (found,) = outages([run(30.0, 1.0)], Timeline(), [SWITCH], 5000)
    assert (found.cause, found.fault) == ("no answer", "")


def test_where_async_sends_were_answered_it_was_the_sync_ones_that_were_not() -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "s", "p")
    for at in (30.1, 30.6):
        timeline.sent()
        timeline.answered(at, phase, "async", "SEND_OK", reason="", send_id="x", latency_ms=1.0)
    (found,) = outages([run(30.0, 1.0)], timeline, [], 5000)
    assert found.cause == "no answer to sync sends"
    (found,) = outages([run(30.05, 0.5)], timeline, [], 5000)
    assert found.cause == "no answer"  # its first and its last bucket are those of others, too


@pytest.mark.parametrize(
    ("status", "cause"), [(SLAVE_NOT_AVAILABLE, "too few replicas"), (NOT_SENT, "no master")]
)
def test_without_a_switch_the_answers_say_why(status: str, cause: str) -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "slave-loss", "down")
    timeline.fault(0.8, "start c", hurts=False)
    timeline.fault(1.0, "kill -9 b")
    timeline.fault(1.1, "start b", hurts=False)
    for at, what in ((0.9, SEND_OK), (1.2, status), (1.9, status), (2.2, SEND_OK)):
        timeline.sent()
        timeline.answered(at, phase, "sync", what, reason="", send_id="x", latency_ms=1.0)

    (found,) = outages([run(0.9, 1.3)], timeline, [], 5000)

    assert (found.cause, found.fault) == (cause, "kill -9 b")


def test_a_run_that_hurt_nothing_has_no_outage() -> None:
    calm = msgspec.structs.replace(samples.RUN, unavailable_seconds=None)
    assert outages([calm], Timeline(), [], 5000) == []
    assert longest([]) is None


def test_the_longest_is_that_of_all_runs() -> None:
    found = outages([run(1.0, 0.5), run(3.0, 2.5), run(8.0, 1.0)], Timeline(), [], 5000)
    assert longest(found) == found[1]


def test_a_classic_master_is_master_while_it_answers() -> None:
    timeline = Timeline()
    for at, lag in ((0.0, math.nan), (1.0, 5.0), (2.0, 0.0), (3.0, math.nan), (4.0, 1.0)):
        timeline.lagged(at, "b", lag, connected=True)
    timeline.lagged(5.0, "b", 1.0, connected=True)

    assert masters(timeline, [], 9.0, "a") == [Band("a", 0, 1.0, 3.0), Band("a", 0, 4.0, 5.0)]
    assert masters(Timeline(), [], 9.0, "a") == []


def test_a_fenced_group_says_itself_who_is_master() -> None:
    history = [Change(0.5, "open", "b", 1)]
    assert masters(Timeline(), history, 9.0, "a") == [Band("b", 1, 0.5, 9.0)]


def test_faults_say_when_they_hit_the_master() -> None:
    bands = [Band("a", 1, 0.0, 5.0), Band("b", 2, 6.0, 9.0)]
    faults = [
        Fault(4.9, "kill -9 a"),
        Fault(5.2, "freeze a"),
        Fault(8.0, "start a", hurts=False),
        Fault(8.5, "kill -9 a, b"),
        Fault(8.6, "promote a, now master is b"),
    ]

    shown = labels(faults, bands)

    assert [fault.text for fault in shown] == [
        "kill -9 master a",
        "freeze master a",
        "start a",
        "kill -9 a, master b",
        "promote a, now master is b",
    ]
    assert [fault.hurts for fault in shown] == [True, True, False, True, True]
    assert with_role(faults[0], "") == "kill -9 a"


def test_a_long_answer_is_cut_in_a_picture() -> None:
    (shown,) = labels([Fault(1.0, "tandem ha rejoin a: " + "word " * 50 + "\nmore")], [])
    assert len(shown.text) == LABEL_MAX
    assert shown.text.endswith("…")
