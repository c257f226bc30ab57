import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.cli.output import CommandError
from tandem.cluster import NotRunningError, OrderRefusedError, UnknownNodeError
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
    (first, *_) = json.loads(tandem("cluster", "status", "--format", "json").stdout)["nodes"]
    assert (first["node"], first["state"]) == ("broker-a-0", "RUNNING")
    assert first["disk_bytes"] > 0


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
    with pytest.raises(OrderRefusedError, match="broker-a-0, broker-a-1") as caught:
        tandem("cluster", "kill", "z")
    assert caught.value.refusal == UnknownNodeError.__name__


def test_without_a_supervisor_the_way_to_start_one_is_told(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cluster.yaml"
    file.touch()
    with pytest.raises(NotRunningError, match="start it with `tandem cluster up`"):
        CliRunner().invoke(app, ["cluster", "status", "-c", str(file)], catch_exceptions=False)


def test_why_nobody_is_known_to_be_master_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def answer(_file: Path, _request: Request) -> Reply:
        return Reply(pid=1, nodes=[], coordinator_trouble="no connection to [::1]:1: no")

    monkeypatch.setattr("tandem.cluster.control.send_request", answer)
    file = tmp_path / "cluster.yaml"
    file.touch()
    result = CliRunner().invoke(app, ["cluster", "status", "-c", str(file)])
    assert "the coordinator does not say who is master: no connection to [::1]:1: no" in (
        result.stderr
    )
    # The file was spoilt while its cluster is up: that is said, and the rest is shown all the same.
    assert "cannot be read" in result.stderr
    assert result.exit_code == 0
    result = CliRunner().invoke(app, ["cluster", "status", "-c", str(file), "--format", "json"])
    assert json.loads(result.stdout)["coordinator_trouble"] == "no connection to [::1]:1: no"


def test_that_the_coordinator_was_started_again_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def answer(_file: Path, _request: Request) -> Reply:
        return Reply(pid=1, nodes=[], coordinator_last_end="its journal failed")

    monkeypatch.setattr("tandem.cluster.control.send_request", answer)
    file = tmp_path / "cluster.yaml"
    file.touch()
    result = CliRunner().invoke(app, ["cluster", "status", "-c", str(file)])
    assert "the coordinator has ended and was started again: its journal failed" in result.stderr
    result = CliRunner().invoke(app, ["cluster", "status", "-c", str(file), "--format", "json"])
    assert json.loads(result.stdout)["coordinator_last_end"] == "its journal failed"


def test_a_cluster_file_that_is_not_there_is_told_with_how_to_write_one(tmp_path: Path) -> None:
    file = tmp_path / "typo.yaml"
    with pytest.raises(
        CommandError, match=r"typo\.yaml is not there; write it with `tandem cluster init"
    ):
        CliRunner().invoke(app, ["cluster", "kill", "x", "-c", str(file)], catch_exceptions=False)
