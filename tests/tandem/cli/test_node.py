import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tandem.cli.output import CommandError
from tandem.cluster.spec import read_spec
from tandem.cluster_file.errors import ClusterConfigError
from tandem.testing import write_cluster_file
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]


def invoke(*line: str) -> Result:
    return CliRunner().invoke(app, [*line], catch_exceptions=False, prog_name="tandem")


@pytest.mark.slow
def test_what_a_start_refuses_is_said_with_its_status(tmp_path: Path) -> None:
    file = write_cluster_file(tmp_path, 1, {}, kind="fenced")
    first, second = read_spec(file).nodes
    with socket.create_server((second.address, second.port)):
        done = invoke("node", "check", "-c", str(file), "--format", "jsonl")
        assert done.exit_code == 3
        refused = [
            each for each in map(json.loads, done.stdout.splitlines()) if each["exit_status"]
        ]
        assert [(each["node"], each["subject"]) for each in refused] == [(second.name, "ports")]
        assert invoke("node", "check", first.name, "-c", str(file)).exit_code == 0


def test_a_file_that_is_wrong_is_said_as_everywhere(tmp_path: Path) -> None:
    with pytest.raises(ClusterConfigError):
        invoke("node", "check", "-c", str(tmp_path / "none.yaml"))


@pytest.mark.slow
def test_nodes_of_other_machines_have_to_be_named(tmp_path: Path) -> None:
    file = write_cluster_file(tmp_path, 0, {}, kind="fenced")
    (node,) = read_spec(file).nodes
    file.write_text(file.read_text().replace(node.address, "198.51.100.7"))
    with pytest.raises(CommandError) as caught:
        invoke("node", "check", "-c", str(file))
    assert caught.value.exit_status == 2


def test_the_unit_is_printed_as_it_is_to_be_written() -> None:
    done = invoke("node", "unit", "--user", "mq", "--python", "/opt/x/bin/python3")
    assert done.stdout.endswith("WantedBy=multi-user.target\n")
    assert "User=mq\n" in done.stdout
    assert "ExecStart=/opt/x/bin/python3 -P -m tandem_server node" in done.stdout


def test_paths_of_a_unit_begin_at_the_root() -> None:
    done = invoke("node", "unit", "--config", "c.yaml", "--data", "")
    assert f"WorkingDirectory={Path.cwd()}\n" in done.stdout
    assert f"ReadWritePaths={Path.cwd()}\n" in done.stdout


@pytest.mark.parametrize("option", ["--config", "--data", "--python", "--user"])
@pytest.mark.parametrize("word", ["a b", 'a"b', "a\nb", "a$b", "a\\b", "a\tb"])
def test_what_a_unit_cannot_have_as_it_is_is_refused(option: str, word: str) -> None:
    with pytest.raises(CommandError, match=f"^{option} "):
        invoke("node", "unit", option, word)


def test_a_node_of_a_classic_group_is_left_as_it_is(tandem: Tandem) -> None:
    done = tandem("node", "leave", "broker-a-0")
    assert done.exit_code == 0
