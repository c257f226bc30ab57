import os
import signal
from pathlib import Path

import pytest
import trio

from tandem.cluster.errors import NodeCommandError, NodeStartError
from tandem.cluster.local_cluster import LocalCluster
from tandem.cluster.node_lifecycle import NodeState
from tandem.cluster_file.choices import GroupKind
from tandem.drill.drilled import DrilledNetwork, DrilledNodes
from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.preflight import Group
from tandem.drill.scenario import NodeFailedError, NotPossibleError, OutOfPlaceError
from tandem.drill.versions import Versions
from tandem.drill.watched_group import WatchedGroup
from tandem.wire.group_state import GroupState, LeaderRecord
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tests.support.patience import until
from tests.tandem.cluster.fakes import fake_command, fake_spec
from tests.tandem.drill.samples import status

pytestmark = pytest.mark.slow  # processes


async def test_nodes_are_killed_and_started_again(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a", "b"), command=fake_command()) as cluster:
        nodes = DrilledNodes(cluster)
        await nodes.start("a")
        await nodes.kill("a")
        assert nodes.unexpected_exits() == []
        await nodes.start("a")
        assert cluster.state("a") is NodeState.RUNNING


async def test_a_node_that_does_not_start_says_why(tmp_path: Path) -> None:
    spec, command = fake_spec(tmp_path, "a"), fake_command(a="broken")
    async with LocalCluster(spec, command=command) as cluster:
        with pytest.raises(NodeFailedError) as caught:
            await DrilledNodes(cluster).start("a")
    assert not isinstance(caught.value, OutOfPlaceError)
    assert isinstance(caught.value.__cause__, NodeStartError)
    assert str(caught.value) == str(caught.value.__cause__)


async def test_a_node_that_is_not_there_cannot_be_killed(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        with pytest.raises(OutOfPlaceError) as caught:
            await DrilledNodes(cluster).kill("a")
    assert isinstance(caught.value.__cause__, NodeCommandError)


async def test_a_node_that_ends_by_itself_is_told_of(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        nodes = DrilledNodes(cluster)
        await nodes.start("a")
        (found,) = cluster.status()
        assert found.pid is not None
        os.kill(found.pid, signal.SIGKILL)
        await until(lambda: bool(nodes.unexpected_exits()))
        assert nodes.unexpected_exits() == ["a ended by SIGKILL"]


async def test_a_frozen_node_wakes_again(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        nodes = DrilledNodes(cluster)
        await nodes.start("a")
        await nodes.freeze("a")
        assert cluster.state("a") is NodeState.PAUSED
        assert nodes.runs("a")
        await nodes.wake("a")
        assert cluster.state("a") is NodeState.RUNNING
        await nodes.stop("a")
        assert not nodes.runs("a")
        for act in (nodes.freeze, nodes.wake, nodes.stop):
            with pytest.raises(NodeFailedError) as caught:
                await act("a")
            assert isinstance(caught.value.__cause__, NodeCommandError)


class Obedient:
    """Takes orders, or refuses them."""

    def __init__(self, *, done: bool = True) -> None:
        self.done = done
        self.heard: list[tuple[str, FencedCommand]] = []

    async def fenced_command(self, address: str, command: FencedCommand) -> FencedCommandResult:
        await trio.lowlevel.checkpoint()
        self.heard.append((address, command))
        return FencedCommandResult(done=self.done, text="not now")


async def test_orders_go_to_the_master_of_now(tmp_path: Path) -> None:
    watched = WatchedGroup(["a", "b"])
    state = GroupState(epoch=1, master="b", isr={}, min_isr=2)
    watched.coordinator_said(0, 0, state, LeaderRecord(node="b", session="s", epoch=1))
    orders = Obedient()
    nodes = DrilledNodes(
        LocalCluster(fake_spec(tmp_path, "a", "b")), watched=watched, orders=orders
    )
    with pytest.raises(NodeFailedError, match="no master to ask"):
        await nodes.promote("a")
    watched.node_said(0, 0, "b", status("b", "b", 1))
    await nodes.promote("a")
    await nodes.resign("b")
    assert orders.heard == [
        ("127.0.0.2:10911", FencedCommand(command="promote", node="a")),
        ("127.0.0.2:10911", FencedCommand(command="resign")),
    ]
    orders.done = False
    with pytest.raises(NodeFailedError, match="b refused to resign: not now"):
        await nodes.resign("b")


async def test_a_classic_group_takes_no_orders_and_has_no_coordinator(tmp_path: Path) -> None:
    nodes = DrilledNodes(LocalCluster(fake_spec(tmp_path, "a")))
    with pytest.raises(NodeFailedError, match="takes no orders"):
        await nodes.resign("a")
    with pytest.raises(NodeFailedError, match="not ours to restart"):
        await nodes.stop("coordinator")


async def test_a_killed_node_is_history_at_once(tmp_path: Path) -> None:
    watched = WatchedGroup(["a"])
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        nodes = DrilledNodes(cluster, watched=watched)
        await nodes.start("a")
        await nodes.kill("a")
    assert [change.kind for change in watched.history] == ["ended"]


async def test_strangers_are_let_go_even_if_nobody_listens(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    group = Group(name="broker-a", kind=GroupKind.FENCED, nodes=spec.nodes)
    network = DrilledNetwork(FaultProxy([]), group)
    assert await network.disturb("a") == "16 strangers sent nonsense"


async def test_replication_is_cut_by_its_port_alone(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a", "b")
    group = Group(name="broker-a", kind=GroupKind.FENCED, nodes=spec.nodes)
    proxy = FaultProxy([])
    network = DrilledNetwork(proxy, group)
    network.cut("a", "b", replication_only=True)
    assert proxy.rules.of("a", "b", 10_913).stalled
    assert not proxy.rules.of("a", "b", 10_911).stalled
    network.slow("b", "a", delay_seconds=0.05)
    assert proxy.rules.of("b", "a", 10_911).delay_seconds == 0.05
    await network.heal()
    assert not proxy.rules.of("a", "b", 10_913).stalled


async def test_a_version_can_be_changed_where_there_is_another_one(tmp_path: Path) -> None:
    cluster = LocalCluster(fake_spec(tmp_path, "a"))
    file = Path("cluster.yaml")
    versions = Versions(Path("/other/python"), ["a"])
    nodes = DrilledNodes(cluster, versions=versions)
    nodes.upgrade("a")
    assert "/other/python" not in versions.command(file, "a")
    nodes.go_back("a")
    assert "/other/python" in versions.command(file, "a")
    alone = DrilledNodes(cluster)
    for change in (alone.upgrade, alone.go_back):
        with pytest.raises(NotPossibleError):
            change("a")
