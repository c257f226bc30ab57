from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.cluster import ControlError, NotRunningError
from tandem.cluster.control import Reply, Request
from tandem.testing import RunningCluster
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]


def test_status_shows_every_node(tandem: Tandem, cluster: RunningCluster) -> None:
    result = tandem("cluster", "status")
    assert result.stdout.count("RUNNING") == 3
    for node in cluster.spec.nodes:
        assert node.name in result.stdout
        assert node.client_address in result.stdout


def test_nodes_are_killed_started_paused_resumed_restarted_and_stopped(
    tandem: Tandem, cluster: RunningCluster
) -> None:
    assert "ended by SIGKILL" in tandem("cluster", "kill", "broker-a-2").stdout
    assert tandem("cluster", "start").stdout.count("RUNNING") == 3
    assert "PAUSED" in tandem("cluster", "pause", "broker-a-2").stdout
    assert "PAUSED" not in tandem("cluster", "resume", "broker-a-2").stdout
    assert tandem("cluster", "restart", "broker-a-2").stdout.count("RUNNING") == 3
    assert "ended with status 0" in tandem("cluster", "stop", "broker-a-2").stdout
    tandem("cluster", "start", "broker-a-2")
    cluster.wait_in_sync()


def test_a_node_that_is_not_there_is_told_with_those_that_are(tandem: Tandem) -> None:
    with pytest.raises(ControlError, match="no node is named 'z'; the cluster has broker-a-0"):
        tandem("cluster", "kill", "z")


def test_without_a_supervisor_the_way_to_start_one_is_told(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cluster.yaml"
    with pytest.raises(NotRunningError, match="start it with `tandem cluster up`"):
        CliRunner().invoke(app, ["cluster", "status", "-c", str(file)], catch_exceptions=False)


def test_why_nobody_is_known_to_be_master_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def answer(_file: Path, _request: Request) -> Reply:
        return Reply(pid=1, nodes=[], coordinator_trouble="no connection to [::1]:1: no")

    monkeypatch.setattr("tandem.cluster.control.send_request", answer)
    result = CliRunner().invoke(app, ["cluster", "status", "-c", str(tmp_path / "cluster.yaml")])
    assert "the coordinator does not say who is master: no connection to [::1]:1: no" in (
        result.stdout.replace("\n", " ")
    )
