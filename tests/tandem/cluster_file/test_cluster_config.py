from pathlib import Path

import pytest

from tandem.cluster_file.choices import BrokerRole, GroupKind
from tandem.cluster_file.errors import ClusterConfigError
from tests.tandem.cluster_file.files import FENCED, MINIMAL, load


def test_a_relative_data_directory_counts_from_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, "cluster:\n  data_directory: here/stores\n" + MINIMAL)
    assert config.node("broker-a-1").directory == tmp_path / "here/stores/broker-a-1"


def test_an_absolute_directory_of_a_node_is_taken_as_it_is(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL + "    directory: /srv/second\n")
    assert config.node("broker-a-0").directory == tmp_path / "data/broker-a-0"
    assert config.node("broker-a-1").directory == Path("/srv/second")


def test_a_commit_log_lies_in_the_store_unless_it_has_places_of_its_own(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL + "    store_path_commit_log: fast/log, /srv/log\n")
    assert config.node("broker-a-0").commit_log_directories == (
        tmp_path / "data/broker-a-0/commitlog",
    )
    assert config.node("broker-a-1").commit_log_directories == (
        tmp_path / "fast/log",
        Path("/srv/log"),
    )


def test_a_node_sees_its_master_and_the_slaves_of_its_group(tmp_path: Path) -> None:
    slave = load(tmp_path, MINIMAL).node("broker-a-1")
    assert slave.master.name == "broker-a-0"
    assert [node.name for node in slave.slaves] == ["broker-a-1"]
    assert slave.broker_role is BrokerRole.SYNC_MASTER


def test_an_unknown_node_name_lists_the_known_ones(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    with pytest.raises(ClusterConfigError, match=r"broker-b.*broker-a-0, broker-a-1"):
        config.node("broker-b")


def test_the_fingerprint_ignores_paths_and_sees_settings(tmp_path: Path) -> None:
    first = load(tmp_path, MINIMAL)
    moved = load(
        tmp_path,
        "cluster: {data_directory: elsewhere}\n" + MINIMAL + "    store_path_commit_log: fast\n",
    )
    changed = load(tmp_path, "replication: {slave_timeout_ms: 2999}\n" + MINIMAL)
    assert first.fingerprint == moved.fingerprint
    assert first.fingerprint != changed.fingerprint


def test_a_node_of_a_fenced_group_knows_its_peers_and_where_to_dial_them(tmp_path: Path) -> None:
    text = FENCED.replace("127.0.0.1}", "127.0.0.1, reach: {broker-a-2: 127.1.0.2}}")
    node = load(tmp_path, text).node("broker-a-0")
    assert node.is_fenced
    assert node.group.kind is GroupKind.FENCED
    assert [(peer.name, node.address_of(peer)) for peer in node.peers] == [
        ("broker-a-1", "127.0.0.2"),
        ("broker-a-2", "127.1.0.2"),
    ]


def test_the_fingerprint_does_not_see_by_which_way_others_are_reached(tmp_path: Path) -> None:
    text = FENCED.replace("127.0.0.1}", "127.0.0.1, reach: {coordinator: 127.1.0.2}}")
    fingerprint = load(tmp_path, text).fingerprint
    assert fingerprint == load(tmp_path, FENCED).fingerprint
    assert fingerprint != load(tmp_path, "coordinator: {lease_ttl_ms: 9000}\n" + FENCED).fingerprint
