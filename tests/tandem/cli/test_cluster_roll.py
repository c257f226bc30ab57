from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tandem.cli.cluster_roll import (
    Halt,
    Restarter,
    RollError,
    by_command,
    restart_line,
    restart_one,
)
from tandem.views.cluster_look import ClusterLook
from tandem.views.fenced_group import FencedGroup
from tandem.views.restart_order import Restart
from tandem.wire.group_state import GroupState, NodeRecord
from tandem.wire.ha_status import FencedCommandResult, ReplicaStatus
from tests.tandem.views.fake_group import KEYS, Nodes, group_of
from tests.tandem.views.group_samples import master, status


def step(node: str, successor: str = "") -> Restart:
    address = f"10.0.0.{'abc'.index(node[0]) + 1}:10911"
    return Restart(node=node, group="g", address=address, role="FOLLOWER", successor=successor)


def whole(nodes: Nodes, session: str, node: str) -> None:
    """All are in sync, and one is registered by another process."""
    isr = {name: f"incarnation-{name}" for name in "abc"}
    nodes.elect("a", 7)
    nodes.records.write(
        KEYS.state, GroupState(epoch=7, master="a", isr=isr, min_isr=2, reason="test")
    )
    replicas = [
        ReplicaStatus(name=name, incarnation=isr[name], connected=True, in_sync=True, lag_bytes=0)
        for name in "bc"
    ]
    nodes.statuses["a"] = master("a", epoch=7, isr=list(isr), replicas=replicas)
    nodes.records.write(
        KEYS.node(node),
        NodeRecord(node=node, session=session, incarnation=isr[node], epoch=7, end=900),
    )


def looker(group: FencedGroup) -> Callable[[], Awaitable[ClusterLook]]:
    async def look() -> ClusterLook:
        return ClusterLook([], [await group.view()])

    return look


def restarter(done: list[str], action: Callable[[], None] = lambda: None) -> Restarter:
    async def restart(each: Restart) -> None:
        done.append(each.node)
        action()

    return restart


def world() -> tuple[Nodes, AbstractAsyncContextManager[FencedGroup]]:
    nodes = Nodes()
    whole(nodes, "before", "b")
    return nodes, group_of(nodes)


async def test_a_node_is_back_when_another_process_of_it_is_in_sync(
    autojump_clock: MockClock,
) -> None:
    nodes, opened = world()
    done: list[str] = []
    async with opened as group:
        comes_back = restarter(done, lambda: whole(nodes, "after", "b"))
        await restart_one(looker(group), group, step("b"), comes_back, 10)
    assert done == ["b"]
    assert nodes.orders == []


async def test_a_command_that_has_restarted_nothing_is_no_restart(
    autojump_clock: MockClock,
) -> None:
    _, opened = world()
    async with opened as group:
        with pytest.raises(RollError) as caught:
            await restart_one(looker(group), group, step("b"), restarter([]), 10)
    assert caught.value.halt is Halt.NOT_WHOLE


async def test_one_that_is_not_in_sync_in_time_is_the_last(autojump_clock: MockClock) -> None:
    nodes, opened = world()

    def down() -> None:
        whole(nodes, "after", "b")
        nodes.statuses["b"] = status("b", refusal="opens its store")
        isr = {"a": "incarnation-a", "c": "incarnation-c"}
        nodes.records.write(KEYS.state, GroupState(epoch=7, master="a", isr=isr, min_isr=2))

    async with opened as group:
        with pytest.raises(RollError) as caught:
            await restart_one(looker(group), group, step("b"), restarter([], down), 10)
    assert caught.value.halt is Halt.NOT_WHOLE


async def test_one_that_has_handed_over_is_restarted_once_it_is_somebody_again(
    autojump_clock: MockClock,
) -> None:
    nodes, opened = world()
    del nodes.records.values[KEYS.node("b")]
    done: list[str] = []

    async def begins_anew() -> None:
        await trio.sleep(3)
        whole(nodes, "before", "b")

    async with opened as group, trio.open_nursery() as nursery:
        nursery.start_soon(begins_anew)
        comes_back = restarter(done, lambda: whole(nodes, "after", "b"))
        await restart_one(looker(group), group, step("b"), comes_back, 10)
    assert done == ["b"]


async def test_one_that_stays_nobody_is_not_restarted(autojump_clock: MockClock) -> None:
    nodes, opened = world()
    del nodes.records.values[KEYS.node("b")]
    done: list[str] = []
    async with opened as group:
        with pytest.raises(RollError) as caught:
            await restart_one(looker(group), group, step("b"), restarter(done), 10)
    assert (done, caught.value.halt) == ([], Halt.NOT_WELL)


async def test_a_master_that_nobody_replaces_is_not_restarted(autojump_clock: MockClock) -> None:
    nodes, opened = world()
    nodes.result = FencedCommandResult(done=False, text="b lacks messages")
    done: list[str] = []
    async with opened as group:
        with pytest.raises(RollError) as caught:
            await restart_one(looker(group), group, step("a", "b"), restarter(done), 10)
    assert (done, caught.value.halt) == ([], Halt.NO_SUCCESSOR)
    assert [order.node for _, order in nodes.orders] == ["b"]


async def test_the_operators_command_gets_name_and_address_as_words(tmp_path: Path) -> None:
    strange = Restart(node="a; touch x", group="g", address="10.0.0.1:10911", role="MASTER")
    line = restart_line("ssh root@{address} restart {node}", strange)
    assert line == "ssh root@10.0.0.1 restart 'a; touch x'"
    said = tmp_path / "said"
    await by_command(f"echo {{node}} at {{address}} > {said}")(strange)
    assert said.read_text() == "a; touch x at 10.0.0.1\n"


async def test_a_command_that_fails_ends_it_with_its_words() -> None:
    with pytest.raises(RollError) as caught:
        await by_command("echo no such host >&2; exit 3")(step("b"))
    assert caught.value.halt is Halt.NOT_RESTARTED
    assert "no such host" in str(caught.value)
