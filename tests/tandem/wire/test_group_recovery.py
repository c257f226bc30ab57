"""recover-group: which log a group goes on with, and when that is refused."""

import msgspec
import pytest

from tandem.wire.group_recovery import (
    Doubt,
    Group,
    LogRange,
    Recovery,
    Refusal,
    plan_recovery,
)
from tandem.wire.group_state import EPOCH_MAX, GroupState, LeaderRecord, LifeRecord, NodeRecord
from tandem.wire.switch_cause import SwitchCause

NAMES = ("a", "b", "c")
STATE = GroupState(epoch=5, master="a", isr={"a": "a1", "b": "b1"}, min_isr=2)


def node(name: str, *, epoch: int = 5, end: int = 1000, confirm: int = 900) -> NodeRecord:
    return NodeRecord(
        node=name,
        session=f"s-{name}",
        incarnation=f"{name}1",
        epoch=epoch,
        data_epoch=epoch,
        end=end,
        confirm=confirm,
        promised=epoch,
    )


def plan(
    state: GroupState | None,
    *nodes: NodeRecord,
    leader: LeaderRecord | None = None,
    lives: tuple[LifeRecord, ...] = (),
    accept_loss: bool = False,
) -> Recovery:
    group = Group(
        name="g",
        state=state,
        leader=leader,
        nodes={record.node: record for record in nodes},
        lives={record.node: record for record in lives},
        members=NAMES,
    )
    return plan_recovery(group, min_isr=2, accept_loss=accept_loss)


def life(name: str, *, epoch: int = 5, confirm: int = 900) -> LifeRecord:
    return LifeRecord(
        node=name, life=3, token="t", incarnation=f"{name}1", epoch=epoch, confirm=confirm
    )


def test_a_lost_record_is_made_anew_from_the_longest_log_of_all() -> None:
    result = plan(None, node("a", epoch=4, end=9000), node("b", end=1100), node("c"))
    assert result.state == GroupState(
        epoch=5,
        master="",
        isr={"b": "b1"},
        min_isr=2,
        reason="an operator recovered g with the log of b",
        cause=SwitchCause.RECOVERED,
        version=1,
        recoveries=1,
    )
    assert (result.refusal, result.nodes, result.doubts) == (None, ("b",), ())
    assert result.lost_bytes == 0


def test_a_record_that_a_node_has_seen_a_newer_one_of_is_no_reason_to_wait() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert plan(STATE, *nodes).state is None
    nodes[2] = msgspec.structs.replace(nodes[2], seen_epoch=5, seen_version=1)
    result = plan(STATE, *nodes)
    assert result.state is not None
    assert result.state.age == (5, 2), "newer than what c has seen"


def test_the_next_epoch_is_the_one_after_all_that_may_have_had_a_master() -> None:
    promised = msgspec.structs.replace(node("c"), promised=9)
    result = plan(None, node("a"), node("b"), promised)
    assert result.state is not None
    assert result.state.epoch == 8, "9 was promised to a candidate, and is the next"


def test_an_epoch_that_a_node_has_only_read_of_had_a_master() -> None:
    reader = msgspec.structs.replace(node("c"), seen_epoch=8, seen_version=2)
    result = plan(None, node("a"), node("b"), reader)
    assert result.state is not None
    assert result.state.age == (8, 3)


def test_an_epoch_that_is_remembered_of_a_node_that_is_gone_had_a_master() -> None:
    gone = life("c", epoch=8)
    result = plan(None, node("a"), node("b"), lives=(gone,), accept_loss=True)
    assert result.state is not None
    assert result.state.epoch == 8


def test_changes_of_older_epochs_do_not_count() -> None:
    reader = msgspec.structs.replace(node("c"), seen_epoch=4, seen_version=90)
    result = plan(None, node("a"), node("b"), reader)
    assert result.state is not None
    assert result.state.age == (5, 1)


def test_after_the_last_epoch_there_is_none() -> None:
    nodes = [node(name, epoch=EPOCH_MAX) for name in NAMES]
    result = plan(None, *nodes)
    assert result.state is None
    assert result.refusal is Refusal.LAST_EPOCH
    before = [node(name, epoch=EPOCH_MAX - 1) for name in NAMES]
    assert plan(None, *before).state is not None


def test_a_loss_that_was_accepted_before_stays_accepted() -> None:
    state = msgspec.structs.replace(STATE, loss_accepted=3)
    result = plan(state, *(node(name, epoch=8) for name in NAMES))
    assert result.state is not None
    assert result.state.loss_accepted == 3


def test_a_promise_of_more_than_the_next_epoch_shows_that_the_record_is_older() -> None:
    promised = msgspec.structs.replace(node("b"), promised=7)
    result = plan(STATE, node("a"), promised, node("c"))
    assert result.state is not None, result.text
    assert result.state.epoch == 6


def test_a_missing_node_may_have_more() -> None:
    result = plan(None, node("a"), node("b"))
    assert result.state is None
    assert (result.refusal, result.doubts) == (Refusal.MAY_LOSE, (Doubt.ABSENT,))
    assert "but c is not registered" in result.text
    assert "--accept-loss" in result.text
    accepted = plan(None, node("a"), node("b"), accept_loss=True)
    assert accepted.state is not None
    assert (accepted.refusal, accepted.doubts) == (None, (Doubt.ABSENT,))


def test_a_log_that_has_all_that_was_confirmed_is_preferred_to_one_of_a_newer_epoch() -> None:
    restored = msgspec.structs.replace(node("a", epoch=6, end=500, confirm=400), data_epoch=4)
    result = plan(None, restored, node("b"), node("c", end=1001))
    assert result.state is not None
    assert result.state.isr == {"c": "c1"}
    assert result.state.epoch == 6
    assert result.state.loss_accepted == 0


def test_a_log_of_a_newer_epoch_may_have_confirmed_what_the_longer_one_lacks() -> None:
    result = plan(None, node("a", epoch=6, end=500, confirm=450), node("b"), node("c", end=1001))
    assert result.state is None
    assert (result.nodes, result.doubts) == (("c",), (Doubt.NEWER_EPOCH,))


def test_a_log_of_a_newer_epoch_that_has_confirmed_nothing_lacks_for_nobody() -> None:
    result = plan(None, node("a", epoch=6, end=500, confirm=0), node("b"), node("c", end=1001))
    assert result.state is not None, result.text
    assert result.state.isr == {"c": "c1"}


def test_what_was_confirmed_elsewhere_is_counted() -> None:
    gone = life("c", confirm=1400)
    result = plan(None, node("a", end=500, confirm=400), node("b"), lives=(gone,))
    assert result.state is None
    assert result.nodes == ("b",)
    assert result.doubts == (Doubt.ABSENT, Doubt.CONFIRMED_ELSEWHERE)
    assert "400 bytes" in result.text
    accepted = plan(None, node("a"), node("b"), lives=(gone,), accept_loss=True)
    assert accepted.state is not None
    assert accepted.state.loss_accepted == accepted.state.epoch == 5


def test_what_can_be_counted_is_named() -> None:
    short = node("a", end=500, confirm=400)
    shorter = node("b", end=450, confirm=430)
    result = plan(None, short, shorter, lives=(life("c", confirm=1400),))
    assert result.lost == ()
    elsewhere = msgspec.structs.replace(node("b", end=700, confirm=650), epoch=4, data_epoch=4)
    result = plan(None, short, elsewhere, lives=(life("c", confirm=1400),), accept_loss=True)
    assert result.lost == (LogRange("b", 500, 650),)
    assert result.lost_bytes == 150


def test_what_several_nodes_have_confirmed_is_lost_once() -> None:
    chosen = node("a", epoch=6, end=500, confirm=400)
    others = [
        msgspec.structs.replace(node(name, end=end, confirm=end), data_epoch=4)
        for name, end in (("b", 650), ("c", 600))
    ]
    result = plan(None, chosen, *others, lives=(life("d", confirm=1400),), accept_loss=True)
    assert result.lost == (LogRange("b", 500, 650), LogRange("c", 500, 600))
    assert result.lost_bytes == 150


def test_a_node_in_quarantine_may_be_chosen() -> None:
    contradicted = msgspec.structs.replace(
        node("b", end=9000, confirm=8900), trouble="its log says otherwise", quarantined=True
    )
    state = msgspec.structs.replace(STATE, epoch=6, isr={"a": "a1"}, recoveries=2)
    restored = msgspec.structs.replace(node("a", epoch=6, end=500, confirm=400), data_epoch=4)
    result = plan(state, restored, contradicted, node("c"), accept_loss=True)
    assert result.state is not None, result.text
    assert result.state.isr == {"b": "b1"}
    assert result.state.recoveries == 3


def test_an_older_copy_that_is_master_is_named_beside_those_in_quarantine() -> None:
    contradicted = msgspec.structs.replace(node("b"), trouble="says otherwise", quarantined=True)
    leader = LeaderRecord(node="a", session="s", epoch=5)
    result = plan(STATE, node("a"), contradicted, leader=leader)
    assert result.state is None
    assert (result.refusal, result.nodes) == (Refusal.HAS_MASTER, ("a",))
    assert "In quarantine: b" in result.text


def test_a_member_that_lacks_what_was_confirmed_is_no_reason_to_wait() -> None:
    result = plan(STATE, node("b", end=500, confirm=400), node("c"), lives=(life("a"),))
    assert (result.refusal, result.nodes) == (Refusal.MAY_LOSE, ("c",))


def test_a_coordinator_that_was_set_back_is_no_reason_to_wait() -> None:
    seen = msgspec.structs.replace(node("b"), coordinator_is_old=True)
    result = plan(STATE, node("a"), seen, node("c"))
    assert result.state is not None, result.text


def test_a_group_that_can_elect_is_left_alone() -> None:
    result = plan(STATE, msgspec.structs.replace(node("b"), is_complete=True))
    assert result.state is None
    assert (result.refusal, result.nodes) == (Refusal.CAN_ELECT, ("b",))


def test_so_is_one_whose_members_show_together_that_nothing_is_missing() -> None:
    result = plan(STATE, node("a", end=900), node("b"))
    assert result.state is None
    assert (result.refusal, result.nodes) == (Refusal.CAN_ELECT, ("b",))
    lost = msgspec.structs.replace(node("a"), incarnation="a2")
    assert plan(STATE, lost, node("b")).refusal is Refusal.CAN_ELECT


def test_one_member_that_may_be_an_older_copy_is_taken_only_if_loss_is_accepted() -> None:
    assert plan(STATE, node("b")).refusal is Refusal.MAY_LOSE
    sick = msgspec.structs.replace(node("a", end=900), trouble="its disk is full")
    assert plan(STATE, sick, node("b"), node("c", end=1)).doubts == (Doubt.ABSENT,)
    result = plan(STATE, node("b"), accept_loss=True)
    assert result.state is not None
    assert result.state.isr == {"b": "b1"}


def test_a_group_with_a_master_is_left_alone() -> None:
    leader = LeaderRecord(node="a", session="s", epoch=5)
    result = plan(STATE, node("a"), node("b"), leader=leader)
    assert result.state is None
    assert (result.refusal, result.nodes) == (Refusal.HAS_MASTER, ("a",))


def test_a_record_older_than_the_logs_is_replaced() -> None:
    result = plan(STATE, node("a", epoch=8), node("b", epoch=8, end=1001), node("c"))
    assert result.state is not None
    assert (result.state.epoch, result.state.isr) == (8, {"b": "b1"})
    assert result.state.previous_master == "a"


def test_a_node_outside_the_set_is_the_last_resort() -> None:
    result = plan(STATE, node("c"))
    assert result.state is None
    assert result.doubts == (Doubt.ABSENT, Doubt.OUTSIDE)
    accepted = plan(STATE, node("c"), accept_loss=True)
    assert accepted.state is not None
    assert accepted.state.isr == {"c": "c1"}


def test_a_member_that_has_lost_its_log_is_outside_the_set() -> None:
    lost = msgspec.structs.replace(node("b", epoch=0, end=0, confirm=0), incarnation="b2")
    result = plan(STATE, lost, node("c"))
    assert result.state is None
    assert (result.refusal, result.nodes) == (Refusal.MAY_LOSE, ("c",))


@pytest.mark.parametrize("state", [None, STATE])
def test_a_node_in_trouble_is_not_chosen(state: GroupState | None) -> None:
    sick = msgspec.structs.replace(node("b", end=5000), trouble="a sync failed")
    result = plan(state, sick, accept_loss=True)
    assert result.state is None
    assert (result.refusal, result.nodes) == (Refusal.NO_NODE, ("b",))


def test_a_member_in_trouble_is_no_reason_to_wait() -> None:
    sick = msgspec.structs.replace(node("b"), trouble="a sync failed")
    result = plan(STATE, sick, node("c"), accept_loss=True)
    assert result.state is not None, result.text
    assert result.state.isr == {"c": "c1"}


def test_without_nodes_there_is_nothing_to_go_on_with() -> None:
    assert plan(None).refusal is Refusal.NO_NODE
