"""The command line against a fenced group of real processes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.page_room import tool_forker
from tests.support.patience import PASSES, PATIENT_LEASE, wait_until
from tests.support.terminal import lines_on_terminal

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.xdist_group("fenced group of the command line"),
]


@pytest.fixture(scope="module")
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("fenced")
    with running_fenced_cluster(directory, settings=PATIENT_LEASE) as running:
        yield running


def ha(cluster: RunningCluster, *arguments: str) -> Result:
    """Give an order, again while what is in its way passes; return the last answer."""
    line = ["ha", *arguments, "-c", str(cluster.spec.file)]
    answers: list[Result] = []

    def is_answered() -> bool:
        answers.append(CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem"))
        return not any(words in answers[-1].stderr for words in PASSES)

    wait_until(is_answered)
    return answers[-1]


def test_the_status_shows_master_epoch_and_in_sync_set(fenced: RunningCluster) -> None:
    master = fenced.wait_for_master()
    fenced.wait_in_sync()
    result = ha(fenced, "status")
    assert result.exit_code == 0
    assert f"broker-a: {master} is master, epoch " in result.stdout
    assert "(3 of 3 nodes; " in result.stdout
    (group,) = json.loads(ha(fenced, "status", "--format", "json").stdout)["groups"]
    assert (group["master"], group["takes_messages"]) == (master, True)
    assert group["coordinator_trouble"] == ""
    assert {node["lag_bytes"] for node in group["nodes"]} == {0}


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_status_fits_on_a_terminal_and_cuts_nothing(
    width: int, fenced: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fenced.wait_for_master()
    fenced.wait_in_sync()
    with tool_forker(tmp_path_factory.mktemp("tools")) as forker:
        lines = lines_on_terminal(forker, width, "ha", "status", "-c", str(fenced.spec.file))
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    nodes = [node.name for node in fenced.status()]
    for name in (*nodes, "MASTER", "confirmed", "log epoch"):
        assert name in text
    assert text.count("FOLLOWER") == 2


def test_an_operator_moves_the_master_and_no_message_is_lost(fenced: RunningCluster) -> None:
    before = fenced.wait_for_master()
    fenced.wait_in_sync()
    wanted = next(node.name for node in fenced.status() if node.name != before)
    lines = "\n".join(f"line {number}" for number in range(100))
    servers = ["-n", fenced.name_servers[0], "-n", fenced.name_servers[1]]
    sent = CliRunner().invoke(app, ["produce", "moved", *servers], input=lines)
    assert sent.exit_code == 0
    result = ha(fenced, "promote", wanted)
    assert result.exit_code == 0, result.output
    assert f"{wanted} is master of broker-a, epoch " in result.stdout
    assert ha(fenced, "promote", wanted).stdout.startswith(
        f"{wanted} is master of broker-a already"
    )
    read = CliRunner().invoke(app, ["consume", "moved", *servers])
    assert sorted(read.stdout.splitlines()) == sorted(lines.splitlines())


def test_a_master_resigns(fenced: RunningCluster) -> None:
    before = fenced.wait_for_master()
    fenced.wait_in_sync()
    result = ha(fenced, "resign")
    assert result.exit_code == 0, result.output
    assert fenced.wait_for_master(other_than=before) != before


def test_a_group_that_is_well_is_not_recovered(fenced: RunningCluster) -> None:
    fenced.wait_for_master()
    result = ha(fenced, "recover-group", "broker-a")
    assert result.exit_code == 1
    assert "nothing to recover" in result.stderr


def test_a_node_gives_up_its_copy_and_makes_another(fenced: RunningCluster) -> None:
    master = fenced.wait_for_master()
    fenced.wait_in_sync()
    follower = next(node.name for node in fenced.status() if node.name != master)
    # Refused, and nothing done, until its copy was compared with that of this master.
    wait_until(lambda: ha(fenced, "rejoin", follower).exit_code == 0)
    fenced.wait_in_sync()


def test_the_master_does_not_give_up_its_copy(fenced: RunningCluster) -> None:
    result = ha(fenced, "rejoin", fenced.wait_for_master())
    assert result.exit_code == 1
    assert "refused" in result.stderr


def test_the_loss_of_the_master_is_shown_and_why_another_one_is_it(
    fenced: RunningCluster, tmp_path: Path
) -> None:
    fenced.wait_in_sync()
    killed = fenced.kill_master()
    try:
        master = fenced.wait_for_master(other_than=killed)
        (group,) = json.loads(ha(fenced, "status", "--format", "json").stdout)["groups"]
        assert group["master"] == master
        assert group["last_switch"]["previous_master"] == killed
        assert group["last_switch"]["reason"]
        assert next(node for node in group["nodes"] if node["node"] == killed)["role"] == "down"
    finally:
        fenced.start(killed)
        fenced.wait_in_sync()
