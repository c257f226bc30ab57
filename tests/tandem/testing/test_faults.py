from itertools import permutations

import pytest

from tandem.drill.proxied_pair import FlowRule
from tandem.testing.faults import (
    Fault,
    Flow,
    combined,
    flows_of_link,
    flows_of_partition,
    slowness,
)

STALLED = FlowRule(stalled=True)


def directions(flows: list[Flow]) -> set[tuple[str, str]]:
    return {(flow.source, flow.target) for flow in flows}


def test_a_fault_ends_once() -> None:
    ends = []
    with Fault(lambda: ends.append("ended")) as fault:
        assert ends == []
    fault.undo()
    assert ends == ["ended"]


def test_a_partition_holds_all_between_both_sides_and_nothing_within() -> None:
    flows = flows_of_partition(["a", "b"], ["a", "b", "c"], is_fenced=False, direction="both")
    assert directions(flows) == {("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")}
    assert all(flow.rule == STALLED for flow in flows)


def test_the_coordinator_is_on_the_other_side() -> None:
    flows = flows_of_partition(["a"], ["a", "b"], is_fenced=True, direction="both")
    assert directions(flows) == {
        ("a", "b"),
        ("b", "a"),
        ("a", "coordinator"),
        ("coordinator", "a"),
    }


def test_a_direction_is_as_the_first_node_sees_it() -> None:
    assert directions(flows_of_link("a", "b", STALLED, direction="out")) == {("a", "b")}
    assert directions(flows_of_link("a", "b", STALLED, direction="in")) == {("b", "a")}
    assert directions(flows_of_partition(["a"], ["b"], is_fenced=False, direction="in")) == {
        ("b", "a")
    }


def test_of_several_faults_the_worst_counts_and_what_ends_leaves_the_rest() -> None:
    slow = flows_of_link(
        "a", "b", FlowRule(delay_seconds=0.2, bytes_per_second=500), direction="out"
    )
    slower = flows_of_link(
        "a", "b", FlowRule(delay_seconds=0.1, bytes_per_second=100), direction="both"
    )
    cut = flows_of_link("a", "b", STALLED, direction="out")
    for faults in permutations([slow, slower, cut]):
        rules = {(flow.source, flow.target): flow.rule for flow in combined(faults)}
        assert rules == {
            ("a", "b"): FlowRule(stalled=True, delay_seconds=0.2, bytes_per_second=100),
            ("b", "a"): FlowRule(delay_seconds=0.1, bytes_per_second=100),
        }
    assert combined([slow])[0].rule == FlowRule(delay_seconds=0.2, bytes_per_second=500)
    assert combined([]) == []


def test_a_partition_of_nothing_is_refused() -> None:
    for inside in ([], ["a", "b"]):
        with pytest.raises(ValueError, match="nothing is cut off"):
            flows_of_partition(inside, ["a", "b"], is_fenced=False, direction="both")
    assert len(flows_of_partition(["a", "b"], ["a", "b"], is_fenced=True, direction="out")) == 2


def test_a_direction_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="direction is 'up'; give one of both, out, in"):
        flows_of_link("a", "b", STALLED, direction="up")  # type: ignore[arg-type]


def test_a_link_is_slow_in_one_way_or_both_or_it_is_refused() -> None:
    assert slowness(20, 0) == FlowRule(delay_seconds=0.02)
    assert slowness(0, 500) == FlowRule(bytes_per_second=500)
    for wrong in ((0, 0), (-1, 500), (5, -1)):
        with pytest.raises(ValueError, match="give a positive number"):
            slowness(*wrong)
