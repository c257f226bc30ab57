import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tandem.cluster import (
    ClusterConfigError,
    ClusterError,
    CoordinatorSettings,
    UnknownNodeError,
    WrongSystemError,
    default_config,
    read_spec,
)
from tandem.cluster.spec import check_system, config_to_start, node_command, node_environment
from tandem.cluster_file.choices import AckLevel, CoordinatorKind, GroupKind
from tandem.testing import write_cluster_file
from tests.support.paths import ROOT


def test_a_cluster_file_has_its_defaults_filled_in_and_its_paths_absolute(tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {
        "cluster": {"name": "Tried"},
        "replication": {"slave_timeout_ms": 1234},
    }
    spec = read_spec(write_cluster_file(tmp_path, 2, settings))
    assert spec.name == "Tried"
    assert spec.file == tmp_path / "cluster.yaml"
    assert spec.log_directory == tmp_path / "data/logs"
    assert spec.log_file("a") == tmp_path / "data/logs/a.log"
    assert [node.name for node in spec.nodes] == ["broker-a-0", "broker-a-1", "broker-a-2"]
    assert [node.role for node in spec.nodes] == ["MASTER", "SLAVE", "SLAVE"]
    assert spec.name_servers[0] == f"{spec.nodes[0].address}:10911"
    assert spec.groups["broker-a"].broker_role == "SYNC_MASTER"
    assert spec.node("broker-a-1").directory == tmp_path / "data/broker-a-1"
    assert spec.replication.slave_timeout_ms == 1234
    assert spec.store.max_message_size_bytes == 65_536


FENCED = """\
groups: {broker-a: {kind: fenced, min_isr: 1, ack_level: flushed}}
coordinator: {kind: etcd, endpoints: ["http://127.0.0.1:2379"], user: u, password_file: secret}
nodes:
- {name: a, group: broker-a, broker_id: 1, address: 127.0.0.1, port: 10911, ha_port: 10912,
   name_server_port: 9876, replication_port: 10914}
"""


def test_fenced_groups_come_with_their_coordinator(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FENCED)
    spec = read_spec(file)
    assert (spec.nodes[0].role, spec.nodes[0].replication_port) == ("NODE", 10_914)
    group = spec.groups["broker-a"]
    assert (group.kind, group.min_isr, group.ack_level) == (
        GroupKind.FENCED,
        1,
        AckLevel.FLUSHED,
    )
    assert spec.coordinator == CoordinatorSettings(
        kind=CoordinatorKind.ETCD,
        endpoints=["http://127.0.0.1:2379"],
        user="u",
        password_file=str(tmp_path / "secret"),
    )
    assert spec.coordinator_directory == spec.data_directory / "coordinator"


def test_complaints_come_with_file_line_key_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("replication:\n  slave_timeout: 5\n")
    with pytest.raises(ClusterConfigError) as caught:
        read_spec(file)
    complaint = str(caught.value)
    assert f"{file}:2: replication.slave_timeout: " in complaint
    assert "did you mean" in complaint
    assert "Traceback" not in complaint


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ClusterConfigError, match=r"absent\.yaml"):
        read_spec(tmp_path / "absent.yaml")


def test_an_unknown_node_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 1, {}))
    with pytest.raises(UnknownNodeError, match="'z'; the cluster has broker-a-0, broker-a-1"):
        spec.node("z")


def test_the_file_of_the_current_directory_comes_first_then_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_config().is_absolute()
    assert default_config().exists()
    (tmp_path / "tandem-data").mkdir()
    (tmp_path / "tandem-data/cluster.yaml").touch()
    assert default_config() == Path("tandem-data/cluster.yaml")
    (tmp_path / "cluster.yaml").touch()
    assert default_config() == Path("cluster.yaml")


def test_what_is_started_in_an_empty_directory_keeps_its_data_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = read_spec(default_config())
    file = config_to_start()
    assert file == Path("tandem-data/cluster.yaml")
    spec = read_spec(file)
    assert spec.fingerprint == example.fingerprint
    kept = [spec.log_directory, spec.secret_file, spec.coordinator_directory]
    kept += [path for node in spec.nodes for path in (node.directory, *node.commit_log_directories)]
    assert all(path.is_relative_to(tmp_path / "tandem-data") for path in kept)
    # Once more, and from all other commands: the same file.
    assert config_to_start() == default_config() == file


def test_a_cluster_file_of_ones_own_is_started_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").touch()
    assert config_to_start() == Path("cluster.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]


def test_where_nothing_can_be_written_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tandem-data").touch()
    with pytest.raises(ClusterError, match="go to a directory that you may write to, or give"):
        config_to_start()
    (tmp_path / "data").touch()
    spec = read_spec(write_cluster_file(tmp_path, 1, {}))
    with pytest.raises(ClusterError, match="data/logs cannot be made: Not a directory; let this"):
        spec.make_directories()


def test_the_example_is_a_valid_cluster_file() -> None:
    assert len(read_spec(ROOT / "cluster.yaml").nodes) == 3


def test_nodes_run_on_linux_alone_and_that_is_said() -> None:
    check_system("linux")
    with pytest.raises(WrongSystemError, match="start them in a container") as caught:
        check_system("darwin")
    assert caught.value.system == "darwin"


def test_a_node_is_given_its_file_and_its_name() -> None:
    command = node_command(Path("/etc/cluster.yaml"), "broker-a-0")
    assert command[1:] == [
        *["-P", "-m", "tandem_server", "node", "--config", "/etc/cluster.yaml"],
        *["--name", "broker-a-0", "--supervised"],
    ]


@pytest.mark.slow  # starts a node
def test_modules_of_the_user_are_not_in_the_way_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store.py").write_text("raise SystemExit('the wrong store')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in node_environment().get("PYTHONPATH", "").split(os.pathsep)
    check_by_a_node(write_cluster_file(tmp_path, 1, {}))


def check_by_a_node(config: Path) -> bytes:
    """What `python -m node check --format json` prints."""
    command = [sys.executable, "-P", "-m", "node", "check", "--format", "json"]
    command += ["--config", str(config)]
    return subprocess.run(command, env=node_environment(), capture_output=True, check=True).stdout


@pytest.mark.slow
def test_a_node_prints_the_same_as_is_read_here(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text(FENCED)
    printed = json.loads(check_by_a_node(config))
    assert printed == json.loads(msgspec.json.encode(read_spec(config), enc_hook=str))
    assert list(printed) == [
        *["name", "file", "data_directory", "secret_file", "fingerprint"],
        *["groups", "nodes"],
        *["store", "replication", "broker", "coordinator", "logging"],
        *["tls", "coordinator_tls", "takes_clear", "asks_for_users"],
    ]
    assert printed["groups"]["broker-a"] == {
        "kind": "fenced",
        "min_isr": 1,
        "ack_level": "flushed",
        "broker_role": "SYNC_MASTER",
        "flush_disk_type": "ASYNC_FLUSH",
    }
    assert printed["nodes"] == [
        {
            "name": "a",
            "group": "broker-a",
            "broker_id": 1,
            "role": "NODE",
            "address": "127.0.0.1",
            "port": 10911,
            "ha_port": 10912,
            "name_server_port": 9876,
            "replication_port": 10914,
            "directory": str(tmp_path / "data/a"),
            "commit_log_directories": [str(tmp_path / "data/a/commitlog")],
        }
    ]
