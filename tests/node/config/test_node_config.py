from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ha.fenced.config import AckLevel
from node.config.fenced_settings import CoordinatorSettings, GroupKind
from node.config.node_config import (
    HA_TRANSFER_BATCH_SIZE_BYTES_MAX,
    BrokerRole,
    BrokerSettings,
    ClusterConfig,
    ClusterSettings,
    GroupSettings,
    NodeSettings,
    ReplicationSettings,
    load_config,
)
from node.config.store_settings import FlushDiskType, StoreSettings
from node.errors import ConfigError
from tests.support.paths import ROOT

EXAMPLE = ROOT / "cluster.yaml"
CLASSIC = ROOT / "examples" / "classic.yaml"

MINIMAL = """\
groups:
  broker-a: {}
nodes:
  - name: broker-a-0
    group: broker-a
    broker_id: 0
    address: 127.0.0.1
  - name: broker-a-1
    group: broker-a
    broker_id: 1
    address: 127.0.0.2
"""


def load(tmp_path: Path, text: str) -> ClusterConfig:
    file = tmp_path / "cluster.yaml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    prefix = f"{tmp_path}/"
    return [problem.removeprefix(prefix) for problem in caught.value.problems]


def test_the_classic_example_is_valid_and_describes_a_master_and_two_slaves() -> None:
    config = load_config(CLASSIC)
    assert config.groups["broker-a"].kind is GroupKind.CLASSIC
    roles = [(node.name, node.is_master, node.broker_address) for node in config.nodes]
    assert roles == [
        ("broker-a-0", True, "127.0.0.1:10911"),
        ("broker-a-1", False, "127.0.0.2:10911"),
        ("broker-a-2", False, "127.0.0.3:10911"),
    ]
    assert config.groups["broker-a"].broker_role is BrokerRole.SYNC_MASTER
    assert config.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH


def test_the_example_is_valid_and_describes_three_nodes_that_elect_their_master() -> None:
    config = load_config(EXAMPLE)
    group = config.groups["broker-a"]
    assert (group.kind, group.min_isr, group.ack_level) == (GroupKind.FENCED, 2, AckLevel.WRITTEN)
    assert [(node.name, node.broker_id, node.is_master) for node in config.nodes] == [
        ("broker-a-0", 1, False),
        ("broker-a-1", 2, False),
        ("broker-a-2", 3, False),
    ]
    assert config.coordinator == CoordinatorSettings()


def test_the_example_names_every_setting() -> None:
    text = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    for section, record in (
        ("store", StoreSettings),
        ("replication", ReplicationSettings),
        ("broker", BrokerSettings),
        ("coordinator", CoordinatorSettings),
        ("cluster", ClusterSettings),
    ):
        assert list(text[section]) == list(record.__struct_fields__), section
    assert list(text["groups"]["broker-a"]) == list(GroupSettings.__struct_fields__)


def test_there_are_at_most_sixty_five_settings() -> None:
    records = (
        StoreSettings,
        ReplicationSettings,
        BrokerSettings,
        GroupSettings,
        CoordinatorSettings,
        ClusterSettings,
    )
    assert sum(len(record.__struct_fields__) for record in records) <= 65


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    assert config.store == StoreSettings()
    assert config.replication == ReplicationSettings()
    assert config.broker == BrokerSettings()
    assert config.groups == {"broker-a": GroupSettings()}
    assert config.nodes[1] == NodeSettings("broker-a-1", "broker-a", 1, "127.0.0.2")


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
    with pytest.raises(ConfigError, match=r"broker-b.*broker-a-0, broker-a-1"):
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


def test_all_problems_are_reported_together_with_their_lines(tmp_path: Path) -> None:
    text = (
        "replication:\n  slave_timeout_ms: 0\n  slave_timeout: 5\nstore:\n"
        "  flush_disk_type: SOMETIMES\n" + MINIMAL + "    prot: 10999\n"
    )
    assert problems(tmp_path, text) == [
        "cluster.yaml:2: replication.slave_timeout_ms: '0' is not valid;"
        " give a whole number from 1 to 86400000 (milliseconds)",
        "cluster.yaml:3: replication.slave_timeout: unknown key; did you mean 'slave_timeout_ms'?",
        "cluster.yaml:5: store.flush_disk_type: 'SOMETIMES' is not valid;"
        " give ASYNC_FLUSH or SYNC_FLUSH",
        "cluster.yaml:17: nodes[1].prot: unknown key; did you mean 'port'?",
    ]


CASES = {
    "frame above a Java slave's buffer": (
        f"replication:\n  ha_transfer_batch_size_bytes: {HA_TRANSFER_BATCH_SIZE_BYTES_MAX + 1}\n",
        ":2: replication.ha_transfer_batch_size_bytes: '4194293' is not valid;"
        " give a whole number from 1 to 4194292 (bytes)",
    ),
    "heartbeat slower than housekeeping": (
        "replication:\n  ha_housekeeping_interval_ms: 5000\n",
        ":2: replication.ha_housekeeping_interval_ms: 5000 leaves no room for a heartbeat every"
        " 5000 ms: idle links would be cut; give more than 5000",
    ),
    "expiry before registration": (
        "broker:\n  broker_expired_timeout_ms: 5000\n",
        ":2: broker.broker_expired_timeout_ms: 5000 leaves no room for a registration every"
        " 5000 ms: live brokers would vanish from the route; give more than 5000",
    ),
    "more replicas than nodes": (
        "replication:\n  in_sync_replicas: 3\n",
        ":2: replication.in_sync_replicas: 3 replicas cannot be in sync: group broker-a has"
        " 2 nodes; give at most 2, or null for RocketMQ 4's rule",
    ),
    "unknown section": ("replicaton: {}\n", ":1: replicaton: unknown key; did you mean"),
    "a section that is a list": (
        "store: [1]\n",
        ":1: store: must be a block of 'key: value' lines",
    ),
    "a value that is a list": (
        "broker:\n  connections_max: [1]\n",
        ":2: broker.connections_max: must be a single value: a whole number from 1 to 65536"
        " (connections)",
    ),
    "a key given twice": (
        "broker:\n  connections_max: 1\n  connections_max: 2\n",
        ":3: broker.connections_max: is given twice; remove one",
    ),
    "text for a flag": (
        "broker:\n  auto_create_topic_enable: perhaps\n",
        ":2: broker.auto_create_topic_enable: 'perhaps' is not valid; give true or false",
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_wrong_setting_is_named_with_a_remedy(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text + MINIMAL)
    assert len(found) == 1
    assert found[0].startswith("cluster.yaml" + expected)


NODE_CASES = {
    "two masters": (
        "broker_id: 1",
        "broker_id: 0",
        "cluster.yaml:10: nodes[1].broker_id: group broker-a has two masters, broker-a-0 and"
        " broker-a-1; only one node of a group may have broker_id 0",
    ),
    "no master": (
        "broker_id: 0",
        "broker_id: 2",
        "cluster.yaml:2: groups.broker-a: has no master; give one of its nodes broker_id: 0",
    ),
    "unknown group": (
        "    group: broker-a\n    broker_id: 1",
        "    group: broker-aa\n    broker_id: 1",
        "cluster.yaml:9: nodes[1].group: no group is named 'broker-aa'; did you mean 'broker-a'?",
    ),
    "a host name": (
        "127.0.0.2",
        "localhost",
        "cluster.yaml:11: nodes[1].address: 'localhost' is not an IP address; give an IPv4"
        " address of the machine, such as 127.0.0.1",
    ),
    "IPv6": (
        "127.0.0.2",
        '"::1"',
        "cluster.yaml:11: nodes[1].address: ::1 is IPv6, which clients of RocketMQ 4 cannot read;"
        " give an IPv4 address of the machine, such as 127.0.0.1",
    ),
    "every address": (
        "127.0.0.2",
        "0.0.0.0",
        "cluster.yaml:11: nodes[1].address: 0.0.0.0 is not the address of one machine; give an"
        " IPv4 address of the machine, such as 127.0.0.1",
    ),
    "a missing key": (
        "    address: 127.0.0.2\n",
        "",
        "cluster.yaml:8: nodes[1].address: is missing; add it",
    ),
    "one port for two things": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    ha_port: 10911\n",
        "cluster.yaml:12: nodes[1].ha_port: ha_port 10911 at 127.0.0.2 is already the port of"
        " broker-a-1; give another",
    ),
    "a port out of range": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    port: 65536\n",
        "cluster.yaml:12: nodes[1].port: '65536' is not valid; give a whole number from 1 to"
        " 65535 (a TCP port)",
    ),
    "two nodes of one name": (
        "name: broker-a-1",
        "name: broker-a-0",
        "cluster.yaml:8: nodes[1].name: two nodes are named 'broker-a-0'; rename one",
    ),
    "a name with a slash": (
        "name: broker-a-1",
        "name: broker/1",
        "cluster.yaml:8: nodes[1].name: 'broker/1' is not valid; give letters, digits, '-' and"
        " '_', at most 64, starting with a letter or digit",
    ),
    "a shared commit log": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    store_path_commit_log: /srv/a,/srv/a\n",
        "cluster.yaml:12: nodes[1].store_path_commit_log: /srv/a is a directory of broker-a-1"
        " already; give another",
    ),
    "an empty path": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    store_path_commit_log: /srv/a,\n",
        "cluster.yaml:12: nodes[1].store_path_commit_log: one of the paths is empty; give one, or"
        " several with ',' between",
    ),
    "a shared directory": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    directory: data/broker-a-0\n",
        "cluster.yaml:12: nodes[1].directory: shares its directory with broker-a-0; give each its"
        " own",
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), NODE_CASES.values(), ids=NODE_CASES.keys())
def test_a_wrong_node_is_named_with_a_remedy(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in MINIMAL
    assert problems(tmp_path, MINIMAL.replace(old, new)) == [expected]


def test_nodes_of_one_group_need_addresses_of_their_own(tmp_path: Path) -> None:
    text = MINIMAL.replace("127.0.0.2", "127.0.0.1") + "    port: 1\n    ha_port: 2\n"
    found = problems(tmp_path, text + "    name_server_port: 3\n")
    assert len(found) == 1
    assert found[0].startswith(
        "cluster.yaml:11: nodes[1].address: 127.0.0.1 is taken by broker-a-0 of the same group"
    )


def test_a_file_without_nodes_is_refused(tmp_path: Path) -> None:
    assert "cluster.yaml:1: nodes: no node is described; add at least a master" in problems(
        tmp_path, ""
    )


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    found = problems(tmp_path, "cluster:\n  name: 'open\n")
    assert found[0].startswith("cluster.yaml:3: not valid YAML: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "absent.yaml")
