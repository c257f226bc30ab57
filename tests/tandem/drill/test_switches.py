from tandem.drill.switches import Band, Gap, bands, longest_gap, switches_of
from tandem.drill.timeline import Fault
from tandem.drill.watched_group import Change

KILL = Fault(10.0, "kill -9 a")
HISTORY = [
    Change(0.5, "epoch", "a", 1),
    Change(0.6, "open", "a", 1),
    Change(10.02, "ended", "a", 1),
    Change(10.1, "leader-gone", "a", 1),
    Change(10.4, "epoch", "b", 2, "the leader is gone"),
    Change(10.6, "open", "b", 2),
]


def test_each_step_of_a_failover_is_counted_from_its_fault() -> None:
    (switch,) = switches_of(
        HISTORY, [KILL], [9.9, 10.7, 10.8], [(0.0, "master-kill"), (20.0, "other")]
    )
    assert (switch.previous_master, switch.master, switch.epoch) == ("a", "b", 2)
    assert (switch.scenario, switch.fault, switch.reason) == (
        "master-kill",
        "kill -9 a",
        "the leader is gone",
    )
    assert switch.fence_seconds == 0.02
    assert switch.detect_seconds == 0.1
    assert switch.elect_seconds == 0.4
    assert switch.open_seconds == 0.6
    assert switch.first_ack_seconds == 0.7


def test_an_answer_that_came_before_the_status_says_when_it_was_open() -> None:
    (switch,) = switches_of(HISTORY, [KILL], [10.5], [(0.0, "x")])
    assert switch.open_seconds == switch.first_ack_seconds == 0.5


def test_a_masters_word_may_be_heard_before_the_record_is_read() -> None:
    history = [*HISTORY[:4], Change(10.3, "open", "b", 2), Change(10.4, "epoch", "b", 2)]
    (switch,) = switches_of(history, [KILL], [10.5], [(0.0, "x")])
    assert switch.elect_seconds == switch.open_seconds == 0.3
    assert switch.first_ack_seconds == 0.5


def test_nobody_is_elected_before_the_leader_is_gone() -> None:
    """All of it was there when the coordinator was asked; only the order of the answers differs."""
    history = [*HISTORY[:3], Change(10.112, "open", "b", 2), *HISTORY[3:4]]
    history[-1] = Change(10.113, "leader-gone", "a", 1)
    (switch,) = switches_of([*history, Change(10.113, "epoch", "b", 2)], [KILL], [10.2], [(0, "x")])
    assert switch.detect_seconds == switch.elect_seconds == switch.open_seconds == 0.112


def test_a_frozen_master_is_fenced_when_its_lease_is_over() -> None:
    history = [change for change in HISTORY if change.kind != "ended"]
    (switch,) = switches_of(history, [KILL], [], [(0.0, "x")])
    assert switch.fence_seconds == switch.detect_seconds == 0.1
    assert switch.first_ack_seconds is None


def test_the_fault_that_hurt_the_master_is_blamed_and_not_a_later_one() -> None:
    faults = [KILL, Fault(10.2, "start c")]
    (switch,) = switches_of(HISTORY, faults, [], [(0.0, "x")])
    assert switch.fault == "kill -9 a"


def test_what_is_done_to_a_master_after_its_end_is_not_why_there_is_another_one() -> None:
    faults = [KILL, Fault(10.2, "lose the disk of a")]
    (switch,) = switches_of(HISTORY, faults, [], [(0.0, "x")])
    assert switch.fault == "kill -9 a"


def test_an_election_without_a_fault_is_told_as_such() -> None:
    (switch,) = switches_of(HISTORY, [], [], [(0.0, "x")])
    assert switch.fault == "nothing that the drill did"
    assert switch.elect_seconds == 0.0


def test_the_first_election_is_no_switch() -> None:
    assert switches_of(HISTORY[:2], [], [], []) == []


def test_the_longest_time_without_an_ack_counts_its_edges() -> None:
    assert longest_gap([1.0, 2.0, 5.0, 6.0], 0.5, 7.0) == Gap(2.0, 5.0)
    assert longest_gap([1.0, 9.0], 4.0, 7.0).seconds == 3.0
    assert longest_gap([1.0], 0.0, 7.0) == Gap(1.0, 7.0)


def test_bands_show_who_was_master_when() -> None:
    assert list(bands(HISTORY, 30.0)) == [Band("a", 1, 0.6, 10.02), Band("b", 2, 10.6, 30.0)]
