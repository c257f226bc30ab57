import msgspec

from tandem.drill.watched_group import Change, WatchedGroup
from tandem.wire.group_state import GroupState, LeaderRecord
from tests.tandem.drill.samples import status

NODES = ("a", "b", "c")
CAUSE = "promoted"


def state(epoch: int, master: str) -> GroupState:
    return GroupState(
        epoch=epoch,
        master=master,
        isr={"b": "2", "a": "1"},
        min_isr=2,
        reason="why",
        cause="promoted",
    )


def leader(epoch: int, node: str) -> LeaderRecord:
    return LeaderRecord(node=node, session="s", epoch=epoch)


def test_a_master_counts_when_the_records_and_its_own_word_agree() -> None:
    group = WatchedGroup(NODES)
    assert (group.epoch, group.master, group.in_sync) == (0, "", [])
    group.coordinator_said(0.0, 0.1, state(1, "a"), leader(1, "a"))
    assert group.master == ""
    group.node_said(0.1, 0.2, "a", status("a", "a", 1))
    assert (group.epoch, group.master, group.in_sync) == (1, "a", ["a", "b"])
    assert str(group) == "epoch 1, master a, in sync: a, b"
    group.coordinator_said(0.2, 0.3, state(1, "a"), None)
    assert group.master == ""


def test_what_changes_is_history_and_what_stays_is_not() -> None:
    group = WatchedGroup(NODES)
    group.coordinator_said(0.0, 0.0, state(1, "a"), leader(1, "a"))
    for at in (1.0, 2.0):
        group.node_said(at, at, "a", status("a", "a", 1))
        group.coordinator_said(at, at, state(1, "a"), leader(1, "a"))
    group.coordinator_said(3.0, 3.0, state(1, "a"), None)
    group.coordinator_said(4.0, 4.0, state(2, "b"), leader(2, "b"))
    group.node_said(5.0, 5.0, "b", status("b", "b", 2))
    group.node_said(6.0, 6.0, "a", status("a", "b", 2, refusal="not master"))
    group.node_ended(7.0, "b")
    assert group.history == [
        Change(0.0, "epoch", "a", 1, "why", CAUSE),
        Change(1.0, "open", "a", 1),
        Change(3.0, "leader-gone", "a", 1),
        Change(4.0, "epoch", "b", 2, "why", CAUSE),
        Change(5.0, "open", "b", 2),
        Change(6.0, "stepped-down", "a", 1, "not master"),
        Change(7.0, "ended", "b", 2),
    ]


def test_a_leader_that_was_replaced_between_two_looks_was_gone() -> None:
    group = WatchedGroup(NODES)
    group.coordinator_said(0.0, 0.0, state(1, "a"), leader(1, "a"))
    group.coordinator_said(1.0, 1.0, state(2, "b"), leader(2, "b"))
    assert [change.kind for change in group.history] == ["epoch", "leader-gone", "epoch"]


def test_a_silent_node_says_nothing_and_its_confirm_is_remembered() -> None:
    group = WatchedGroup(NODES)
    group.node_said(0.0, 0.0, "a", status("a", "a", 1))
    group.node_silent(1.0, "a")
    assert group.statuses["a"] is None
    assert group.confirms == {"a": 1000}
    assert group.asked_at["a"] == 1.0


def test_a_master_whose_lease_is_over_has_stepped_down_whatever_it_calls_itself() -> None:
    group = WatchedGroup(NODES)
    said = status("a", "a", 1)
    group.node_said(0.0, 0.0, "a", said)
    group.node_said(1.0, 1.0, "a", msgspec.structs.replace(said, lease_left_ms=0))
    assert [change.kind for change in group.history] == ["open", "stepped-down"]


def test_only_masters_that_may_answer_are_counted() -> None:
    group = WatchedGroup(NODES)
    group.node_said(0.0, 0.0, "a", status("a", "a", 1, refusal="its lease is over"))
    group.node_said(0.0, 0.0, "b", status("b", "b", 2))
    assert group.masters == ["b"]


def test_two_masters_at_once_are_those_that_were_asked_when_the_newer_one_was_there() -> None:
    watched = WatchedGroup(["a", "b", "c"])
    watched.node_said(1.0, 1.1, "a", status("a", "a", 1))
    watched.node_said(1.9, 2.0, "b", status("b", "b", 2))
    assert watched.masters == ["a", "b"]
    assert watched.masters_at_once == ["b"], "a may have given up since"

    watched.node_said(1.95, 2.1, "a", status("a", "a", 1))
    assert watched.masters_at_once == ["b"]
    watched.node_said(2.05, 2.2, "a", status("a", "a", 1))
    assert watched.masters_at_once == ["a", "b"]
    watched.node_said(2.3, 2.4, "b", status("b", "b", 2))
    assert watched.masters_at_once == ["a", "b"], "it is master since 2.0"
    watched.node_said(2.5, 2.6, "a", status("a", "b", 2))
    assert watched.masters_at_once == ["b"]


def test_what_a_node_says_of_a_slow_machine_is_kept_though_it_is_over() -> None:
    group = WatchedGroup(NODES)
    group.node_said(0.0, 0.1, "a", msgspec.structs.replace(status("a", "a", 1), too_slow="late"))
    group.node_said(1.0, 1.1, "a", status("a", "a", 1))
    assert group.too_slow == {"a": "late"}
