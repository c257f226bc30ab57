from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.config.checked_cluster import checked_cluster
from tests.node.config.test_fenced_settings import FENCED
from tests.node.config.test_node_config import MINIMAL, load

if TYPE_CHECKING:
    from pathlib import Path


def test_the_checked_form_is_json_with_absolute_paths(tmp_path: Path) -> None:
    checked = msgspec.json.decode(msgspec.json.encode(checked_cluster(load(tmp_path, MINIMAL))))
    assert checked["nodes"][1] == {
        "name": "broker-a-1",
        "group": "broker-a",
        "broker_id": 1,
        "role": "SLAVE",
        "address": "127.0.0.2",
        "port": 10911,
        "ha_port": 10912,
        "name_server_port": 9876,
        "replication_port": 10913,
        "directory": str(tmp_path / "data/broker-a-1"),
        "commit_log_directories": [str(tmp_path / "data/broker-a-1/commitlog")],
    }
    assert checked["groups"]["broker-a"] == {
        "kind": "classic",
        "min_isr": 2,
        "ack_level": "written",
        "broker_role": "SYNC_MASTER",
        "flush_disk_type": "ASYNC_FLUSH",
    }
    assert checked["file"] == str(tmp_path / "cluster.yaml")


def test_the_nodes_of_a_fenced_group_are_replicas_until_one_is_elected(tmp_path: Path) -> None:
    checked = checked_cluster(load(tmp_path, FENCED))
    assert [node.role for node in checked.nodes] == ["NODE", "NODE", "NODE"]


def test_files_of_the_coordinator_have_absolute_paths(tmp_path: Path) -> None:
    etcd = (
        "coordinator: {kind: etcd, endpoints: ['https://a:2379'], ca_file: ca.pem,"
        " user: root, password_file: /etc/password}\n"
    )
    checked = checked_cluster(load(tmp_path, etcd + FENCED))
    assert checked.coordinator.ca_file == str(tmp_path / "ca.pem")
    assert checked.coordinator.password_file == "/etc/password"
    assert not checked.coordinator.key_file
