import os
import signal
from pathlib import Path

import pytest
import trio

from tandem.cluster.local_cluster import LocalCluster
from tandem.cluster.node_lifecycle import NodeState
from tandem.drill.play import DrilledNodes
from tandem.drill.scenario import NodeFailedError
from tests.tandem.cluster.fakes import fake_command, fake_spec

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
        with pytest.raises(NodeFailedError, match=r"a did not start: port .* is taken"):
            await DrilledNodes(cluster).start("a")


async def test_a_node_that_is_not_there_cannot_be_killed(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        with pytest.raises(NodeFailedError, match="a is STOPPED"):
            await DrilledNodes(cluster).kill("a")


async def test_a_node_that_ends_by_itself_is_told_of(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        nodes = DrilledNodes(cluster)
        await nodes.start("a")
        (status,) = cluster.status()
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)
        with trio.fail_after(5):
            while not nodes.unexpected_exits():
                await trio.sleep(0.01)
        assert nodes.unexpected_exits() == ["a ended by SIGKILL"]
