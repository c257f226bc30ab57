import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tandem.cli.output import CommandError
from tandem.cluster.spec import node_by_itself, read_spec
from tandem.cluster_file.choices import GroupKind


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(*arguments: str) -> Result:
    line = ["cluster", "init", *arguments]
    return CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem")


def test_a_file_is_written_here_that_a_cluster_starts_from() -> None:
    result = init()
    assert result.exit_code == 0
    assert "start it with `tandem cluster up`\n" in result.stdout
    spec = read_spec(Path("cluster.yaml"))
    assert [node.address for node in spec.nodes] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert [path.name for path in Path().iterdir()] == ["cluster.yaml"]


def test_what_was_chosen_is_written() -> None:
    options = ["--nodes", "2", "--classic", "--broker-name", "east", "--port", "20000"]
    result = init("east.yaml", *options, "--name-server-port", "9000", "--cluster-name", "Shop")
    assert "tandem cluster up -c east.yaml" in result.stdout
    spec = read_spec(Path("east.yaml"))
    assert (spec.name, spec.groups["east"].kind) == ("Shop", GroupKind.CLASSIC)
    assert [(node.name, node.port, node.name_server_port) for node in spec.nodes] == [
        ("east-0", 20000, 9000),
        ("east-1", 20000, 9000),
    ]


def test_a_file_that_is_there_is_kept_unless_force_is_used() -> None:
    Path("cluster.yaml").write_text("mine")
    with pytest.raises(CommandError, match="--force"):
        init()
    assert Path("cluster.yaml").read_text() == "mine"
    assert init("--force").exit_code == 0
    assert len(read_spec(Path("cluster.yaml")).nodes) == 3


def test_nothing_is_written_that_would_not_start() -> None:
    Path("cluster.yaml").write_text("mine")
    with pytest.raises(CommandError) as caught:
        init("--force", "--address", "1.2.3.400")
    assert caught.value.exit_status == 2
    with pytest.raises(CommandError) as caught:
        init("no-such-directory/cluster.yaml")
    assert caught.value.exit_status == 2
    assert Path("cluster.yaml").read_text() == "mine"
    assert [path.name for path in Path().iterdir()] == ["cluster.yaml"]


@pytest.mark.parametrize(
    ("options", "addresses"),
    [
        (["--address", "127.0.0.9"], ["127.0.0.9"]),
        (["--address", "127.0.0.9", "--nodes", "2"], ["127.0.0.9", "127.0.0.9"]),
        (["--address", "127.0.0.9", "--address", "127.0.0.8"], ["127.0.0.9", "127.0.0.8"]),
    ],
)
def test_addresses_say_how_many_nodes_there_are(options: list[str], addresses: list[str]) -> None:
    init(*options)
    assert [node.address for node in read_spec(Path("cluster.yaml")).nodes] == addresses


def test_addresses_that_do_not_fit_the_nodes_are_a_usage_error() -> None:
    result = init("--address", "127.0.0.1", "--address", "127.0.0.2", "--nodes", "3")
    assert result.exit_code == 2
    assert "one for all of them" in result.stderr


def test_what_has_to_be_done_besides_is_said() -> None:
    result = init("--address", "10.0.0.1", "--address", "10.0.0.2")
    assert "security.clients: authorized" in result.stderr
    assert "give --etcd" in result.stderr
    assert "three survive the loss of one" in result.stderr
    result = init("--address", "10.0.0.1", "--etcd", "http://10.0.0.9:2379", "--force")
    assert "--etcd" not in result.stderr


def test_nodes_of_several_machines_are_started_each_by_itself() -> None:
    result = init("--address", "10.0.0.1", "--address", "10.0.0.2")
    assert node_by_itself(Path("cluster.yaml"), "NODE") in result.stdout
    assert "tandem cluster up" not in result.stdout
    result = init("--address", "10.0.0.1", "--force")
    assert "tandem cluster up" in result.stdout


def test_programs_get_json() -> None:
    record = json.loads(init("--nodes", "1", "--format", "json").stdout)
    assert record == {
        "file": str(Path.cwd() / "cluster.yaml"),
        "kind": "fenced",
        "nodes": ["broker-a-0"],
    }
