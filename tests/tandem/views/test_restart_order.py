import msgspec
import pytest

from tandem.views.classic_nodes import NodeReplication
from tandem.views.cluster_look import ClusterLook
from tandem.views.restart_order import restart_order, unknown_nodes
from tests.tandem.views.group_samples import view

GROUP = view()


def classic(name: str, role: str) -> NodeReplication:
    return NodeReplication(
        node=name,
        group="old",
        role=role,
        address="10.0.1.1:10911",
        state="master" if role == "MASTER" else "in sync",
    )


def test_the_master_comes_last_and_another_takes_its_place_before() -> None:
    steps = restart_order(ClusterLook([], [GROUP]))
    assert [step.node for step in steps] == ["b", "c", "a"]
    assert [step.successor for step in steps] == ["", "", "b"]


def test_only_what_is_wanted_is_restarted() -> None:
    steps = restart_order(ClusterLook([], [GROUP]), ["a", "c"])
    assert [step.node for step in steps] == ["c", "a"]


def test_nobody_who_is_not_in_sync_is_a_successor_and_a_group_without_one_stops() -> None:
    alone = msgspec.structs.replace(GROUP, in_sync=["a"])
    steps = {step.node: step for step in restart_order(ClusterLook([], [alone]))}
    assert steps["a"].successor == ""
    assert steps["a"].stops_group


@pytest.mark.parametrize(("min_isr", "stops"), [(1, False), (2, True)])
def test_a_group_stops_that_is_left_with_too_few(min_isr: int, *, stops: bool) -> None:
    two = msgspec.structs.replace(GROUP, in_sync=["a", "b"], min_isr=min_isr)
    steps = {step.node: step.stops_group for step in restart_order(ClusterLook([], [two]))}
    assert (steps["a"], steps["b"]) == (stops, stops)


def test_slaves_come_before_the_master_that_nobody_replaces() -> None:
    rows = [classic("old-0", "MASTER"), classic("old-1", "SLAVE")]
    steps = restart_order(ClusterLook(rows, [GROUP]))
    assert [step.node for step in steps] == ["b", "c", "a", "old-1", "old-0"]
    assert [step.stops_group for step in steps[3:]] == [False, True]


def test_names_that_no_node_has_are_said() -> None:
    seen = ClusterLook([classic("old-0", "MASTER")], [GROUP])
    assert unknown_nodes(seen, ["a", "old-0", "x"]) == ["x"]
