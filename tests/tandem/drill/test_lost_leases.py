import pytest

from tandem.drill.lost_leases import Late, lost_leases
from tandem.drill.timeline import Fault
from tandem.drill.watched_group import Change
from tandem.wire.switch_cause import SwitchCause

FIRST = Change(1.0, "epoch", "a", 1, "the group's first master")
GONE = Change(20.0, "leader-gone", "a", 1)
NEXT = Change(21.0, "epoch", "b", 2, cause=SwitchCause.LEASE_ENDED)
LOST = [FIRST, GONE, NEXT]


def nodes(history: list[Change], *faults: Fault) -> list[str]:
    return [each.node for each in lost_leases(history, faults, [], 5.0)]


def test_a_lease_that_ends_without_a_fault_is_lost() -> None:
    (lost,) = lost_leases(LOST, [], [], 5.0)
    assert (lost.at_seconds, lost.node, lost.epoch) == (20.0, "a", 1)
    assert nodes([FIRST, GONE]) == ["a"]  # nobody was elected after it
    assert nodes([FIRST]) == []
    assert nodes([]) == []


def test_a_fault_under_the_same_master_may_explain_it() -> None:
    assert nodes(LOST, Fault(15.0, "kill -9 b")) == []
    assert nodes(LOST, Fault(20.3, "freeze a")) == []
    assert nodes(LOST, Fault(15.0, "start b", hurts=False)) == ["a"]
    assert nodes(LOST, Fault(22.0, "kill -9 a")) == ["a"]


def test_what_was_done_before_its_election_explains_it_only_if_it_lasts() -> None:
    later = [Change(10.0, "epoch", "c", 1), *LOST[1:]]
    history = [
        each if each.node != "a" else Change(each.at_seconds, each.kind, "c", 1) for each in later
    ]
    assert nodes(history, Fault(5.0, "kill -9 a")) == ["c"]
    cut = Fault(5.0, "cut a from everything")
    assert nodes(history, cut) == []
    assert nodes(history, cut, Fault(7.0, "heal the network", hurts=False)) == ["c"]
    assert nodes(history, Fault(5.0, "freeze a")) == []
    assert nodes(history, Fault(5.0, "cut the last 20 bytes of the log of a")) == ["c"]
    assert nodes(history, Fault(5.0, "cut the power of a")) == ["c"]
    assert nodes(history, Fault(5.0, "let syncs of c take 0.5 s longer")) == []
    assert nodes(history, Fault(5.0, "set the clock of c ahead by 30 s")) == []


def test_a_master_that_gave_its_lease_back_or_was_ended_has_not_lost_it() -> None:
    gave = Change(21.0, "epoch", "b", 2, "its lease", SwitchCause.STEPPED_DOWN)
    assert nodes([FIRST, GONE, gave]) == []
    assert nodes([FIRST, Change(19.0, "ended", "a", 1), GONE, NEXT]) == []


def test_that_a_lease_is_over_may_be_known_from_the_record_of_the_successor_alone() -> None:
    (lost,) = lost_leases([FIRST, NEXT], [], [], 5.0)
    assert lost.at_seconds == 21.0  # nobody saw that there was no leader


@pytest.mark.parametrize(
    ("late", "is_slow"),
    [
        (Late(18.0, 1.5), True),
        (Late(18.0, 0.5), True),
        (Late(18.0, 0.4), False),
        (Late(20.4, 1.5), True),  # it saw the end a little later itself
        (Late(20.6, 1.5), False),  # what comes after the end did not end it
        (Late(2.0, 9.0), False),
    ],
)
def test_the_machine_was_slow_if_the_drill_was_late_at_that_time(
    late: Late, *, is_slow: bool
) -> None:
    (lost,) = lost_leases(LOST, [], [late], 5.0)
    assert lost.machine_was_slow == is_slow
    assert ("the machine was too slow" in lost.in_words()) == is_slow


@pytest.mark.parametrize(("lease_seconds", "enough"), [(1.0, 0.25), (5.0, 0.5), (30.0, 3.0)])
def test_how_late_is_too_late_is_a_share_of_the_lease(lease_seconds: float, enough: float) -> None:
    for seconds, is_slow in ((enough, True), (enough - 0.01, False)):
        (lost,) = lost_leases(LOST, [], [Late(20.0, seconds)], lease_seconds)
        assert lost.machine_was_slow == is_slow
