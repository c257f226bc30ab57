"""Real nodes that die by SIGKILL at a named point, under load: nothing acknowledged is lost.

Each point is a question: what was true when the process died, and does the group still know?
`killing_node.POINTS` says what is true at each.
"""

import sys
from functools import partial
from pathlib import Path

import pytest

from tandem.cluster import LocalCluster, NodeStartError, NodeState
from tests.faults.killing_node import POINTS, arm_file
from tests.faults.real_group import Group, under_load, write_group
from tests.support.patience import until

pytestmark = [pytest.mark.fault, pytest.mark.slow]

IN_THE_ORDINARY_RUN = ("one-of-two-acks",)
"""The others are `long`: each takes about ten seconds."""

ALL_POINTS = [
    pytest.param(point, marks=() if point in IN_THE_ORDINARY_RUN else pytest.mark.long)
    for point in POINTS
]

CANDIDATE_POINTS = ("elected", "epoch-appended", "epoch-file", "epoch-file-copy")
"""Reached by whoever takes over."""

STORE = {"flush_interval_commit_log_ms": 50, "flush_commit_log_least_pages": 0}


def killing_command(point: str, config: Path, name: str) -> list[str]:
    """A node that knows the point."""
    module = ["-P", "-m", "tests.faults.killing_node", point]
    return [sys.executable, *module, "--config", str(config), "--name", name, "--supervised"]


async def bring_about(group: Group, point: str) -> str:
    """Do what makes a node come by the point; return who died there."""
    master = await group.master()
    slave = next(node.name for node in group.spec.nodes if node.name != master)
    if point == "isr-expand":
        await group.cluster.kill(slave)
        await group.in_sync(2)
        await group.acked_more()
    elif point.startswith("cut-"):
        await group.leave_a_tail_on(master)
        await group.acked_more()
    armed = arm_file(group.spec.nodes[0].directory)
    armed.touch()
    if point in CANDIDATE_POINTS:
        await group.cluster.kill(master)
    elif point == "isr-shrink":
        await group.cluster.kill(slave)
    elif point == "isr-expand":
        await group.cluster.start(slave)
    elif point.startswith("cut-"):
        await start_kindly(group.cluster, master)
    # Of several armed nodes the one that removes the file dies.
    await until(lambda: not armed.exists())
    await until(lambda: bool(dead(group)))
    return dead(group)[0]


async def start_kindly(cluster: LocalCluster, name: str) -> None:
    """Start a node that may die while it starts: that is what it is here for."""
    try:
        await cluster.start(name)
    except NodeStartError:
        return


def dead(group: Group) -> list[str]:
    """Nodes that ended by themselves."""
    return [n.name for n in group.spec.nodes if group.cluster.state(n.name) is NodeState.FAILED]


@pytest.mark.parametrize("point", ALL_POINTS)
async def test_nothing_acknowledged_is_lost_when_a_node_dies(point: str, tmp_path: Path) -> None:
    spec = write_group(tmp_path, store=STORE, coordinator={"lease_ttl_ms": 2_000})
    async with under_load(spec, command=partial(killing_command, point)) as group:
        died = await bring_about(group, point)
        states = [group.cluster.state(node.name) for node in spec.nodes]
        if states.count(NodeState.RUNNING) < 2:  # one alone acknowledges nothing
            await group.cluster.start(died)
        await group.acked_more(50)
