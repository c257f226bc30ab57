import msgspec
import pytest

from tandem.views.classic_nodes import NodeReplication
from tandem.views.cluster_check import Check, Verdict, check
from tandem.views.group_view import GroupView, NodeView, Switch


def node(name: str, role: str = "FOLLOWER", **changes: object) -> NodeView:
    facts = {"node": name, "address": "x", "role": role, "in_sync": True, **changes}
    return NodeView(**facts)  # type: ignore[arg-type]


WELL = GroupView(
    group="g",
    epoch=1,
    master="a",
    takes_messages=True,
    reasons=[],
    min_isr=2,
    ack_level="written",
    in_sync=["a", "b"],
    last_switch=Switch(),
    nodes=[node("a", "MASTER"), node("b")],
)


def group(**changes: object) -> Check:
    return check([], [msgspec.structs.replace(WELL, **changes)])


def row(name: str, role: str, state: str, **changes: str) -> NodeReplication:
    facts = {"node": name, "group": "old", "role": role, "address": "x", "state": state, **changes}
    return NodeReplication(**facts)  # type: ignore[arg-type]


def test_every_verdict_has_a_status_of_its_own_and_none_is_that_of_a_wrong_command() -> None:
    statuses = [each.value for each in Verdict]
    assert len(set(statuses)) == len(statuses)
    assert 2 not in statuses


def test_a_group_that_is_well() -> None:
    assert group() == Check("well", 0, [])
    assert group().words == "well"


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        (
            {"takes_messages": False, "reasons": ["a: only 1 in sync"]},
            3,
            "g takes no messages: a: only 1 in sync",
        ),
        ({"takes_messages": False, "master": ""}, 3, "g takes no messages: nobody says why"),
        (
            {"nodes": [node("a", "MASTER"), node("b", "down", trouble="refused")]},
            4,
            "b: down: refused",
        ),
        (
            {"nodes": [node("a", "MASTER"), node("b", in_sync=False, trouble="is behind")]},
            4,
            "b: not in sync; is behind",
        ),
        ({"nodes": [node("a", "MASTER", is_damaged=True), node("b")]}, 4, "a: its log is damaged"),
        ({"coordinator_trouble": "no answer"}, 4, "the coordinator of g: no answer"),
        ({"nodes": [node("a", "down", trouble="no route")]}, 1, "no route"),
    ],
)
def test_the_worst_decides(changes: dict[str, object], status: int, words: str) -> None:
    found = group(**changes)
    assert (found.exit_status, found.problems) == (status, [words])


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([row("m", "MASTER", "master"), row("s", "SLAVE", "in sync")], 0),
        ([row("m", "MASTER", "master"), row("s", "SLAVE", "behind", reason="312 MiB")], 4),
        ([row("m", "MASTER", "master", damage="its log is damaged")], 4),
        ([row("m", "MASTER", "down", reason="refused"), row("s", "SLAVE", "alone")], 3),
        ([row("m", "MASTER", "down"), row("s", "SLAVE", "down")], 1),
    ],
)
def test_classic_groups_are_judged_alike(rows: list[NodeReplication], status: int) -> None:
    assert check(rows, []).exit_status == status


def test_what_takes_no_messages_comes_before_what_is_only_impaired() -> None:
    ill = msgspec.structs.replace(WELL, takes_messages=False, reasons=["why"])
    found = check([row("m", "MASTER", "master"), row("s", "SLAVE", "behind")], [ill])
    assert found.exit_status == 3
    assert found.problems == ["g takes no messages: why", "s: behind"]
