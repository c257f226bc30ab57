"""recover-group: which log a group goes on with, and when that is refused."""

import msgspec
import pytest

from tandem.wire.group_recovery import Recovery, plan_recovery
from tandem.wire.group_state import GroupState, LeaderRecord, NodeRecord

NAMES = ("a", "b", "c")
STATE = GroupState(epoch=5, master="a", isr={"a": "a1", "b": "b1"}, min_isr=2)


def node(name: str, *, epoch: int = 5, end: int = 1000, confirm: int = 900) -> NodeRecord:
    return NodeRecord(
        node=name,
        session=f"s-{name}",
        incarnation=f"{name}1",
        epoch=epoch,
        end=end,
        confirm=confirm,
        promised=epoch,
    )


def plan(
    state: GroupState | None,
    *nodes: NodeRecord,
    leader: LeaderRecord | None = None,
    accept_loss: bool = False,
) -> Recovery:
    return plan_recovery(
        group="g",
        state=state,
        leader=leader,
        nodes={record.node: record for record in nodes},
        members=NAMES,
        min_isr=2,
        accept_loss=accept_loss,
    )


def test_a_lost_record_is_made_anew_from_the_longest_log_of_all() -> None:
    result = plan(None, node("a", epoch=4, end=9000), node("b", end=1100), node("c"))
    assert result.state == GroupState(
        epoch=6,
        master="",
        isr={"b": "b1"},
        min_isr=2,
        reason="an operator recovered g with the log of b",
    )
    assert "1100 bytes" in result.text
    assert result.lost_bytes == 0


def test_a_record_that_a_node_has_seen_a_newer_one_of_is_no_reason_to_wait() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert plan(STATE, *nodes).state is None
    nodes[2] = msgspec.structs.replace(nodes[2], seen_epoch=5, seen_version=1)
    result = plan(STATE, *nodes)
    assert result.state is not None
    assert result.state.epoch == 6


def test_the_next_epoch_is_above_everything_anybody_knows_of() -> None:
    promised = msgspec.structs.replace(node("c"), promised=9)
    result = plan(None, node("a"), node("b"), promised)
    assert result.state is not None
    assert result.state.epoch == 10


def test_a_missing_node_may_have_more() -> None:
    result = plan(None, node("a"), node("b"))
    assert result.state is None
    assert "c is not registered" in result.text
    assert "--accept-loss" in result.text
    accepted = plan(None, node("a"), node("b"), accept_loss=True)
    assert accepted.state is not None
    assert "accepting that c is not registered" in accepted.text


def test_what_was_confirmed_elsewhere_is_counted() -> None:
    result = plan(None, node("a", epoch=6, end=500), node("b", confirm=800), node("c"))
    assert result.state is None
    assert result.lost_bytes == 400
    assert "up to 400 bytes" in result.text


def test_a_group_that_can_elect_is_left_alone() -> None:
    result = plan(STATE, node("b"))
    assert result.state is None
    assert "b can be elected" in result.text


def test_a_group_with_a_master_is_left_alone() -> None:
    leader = LeaderRecord(node="a", session="s", epoch=5)
    result = plan(STATE, node("a"), node("b"), leader=leader)
    assert result.state is None
    assert "a is master" in result.text


def test_a_record_older_than_the_logs_is_replaced() -> None:
    result = plan(STATE, node("a", epoch=8), node("b", epoch=8, end=1001), node("c"))
    assert result.state is not None
    assert (result.state.epoch, result.state.isr) == (9, {"b": "b1"})
    assert result.state.previous_master == "a"


def test_a_node_outside_the_set_is_the_last_resort() -> None:
    result = plan(STATE, node("c"))
    assert result.state is None
    assert "not in the in-sync set (a, b)" in result.text
    accepted = plan(STATE, node("c"), accept_loss=True)
    assert accepted.state is not None
    assert accepted.state.isr == {"c": "c1"}


def test_a_member_that_has_lost_its_log_is_outside_the_set() -> None:
    lost = msgspec.structs.replace(node("b", epoch=0, end=0, confirm=0), incarnation="b2")
    result = plan(STATE, lost, node("c"))
    assert result.state is None
    assert "c has the longest log" in result.text


@pytest.mark.parametrize("state", [None, STATE])
def test_a_node_in_trouble_is_not_chosen(state: GroupState | None) -> None:
    sick = msgspec.structs.replace(node("b", end=5000), trouble="a sync failed")
    result = plan(state, sick, accept_loss=True)
    assert result.state is None
    assert "a sync failed" in result.text


def test_without_nodes_there_is_nothing_to_go_on_with() -> None:
    assert "start the nodes first" in plan(None).text
