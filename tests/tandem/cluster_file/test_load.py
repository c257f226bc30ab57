from pathlib import Path

import pytest

from tandem.cluster_file.choices import (
    AckLevel,
    BrokerRole,
    FlushDiskType,
    GroupKind,
    LogFormat,
    LogLevel,
)
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.load import load_config
from tandem.cluster_file.settings import (
    HA_TRANSFER_BATCH_SIZE_BYTES_MAX,
    BrokerSettings,
    GroupSettings,
    LoggingSettings,
    NodeSettings,
    ReplicationSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tests.support.paths import ROOT
from tests.support.secret import write_secret
from tests.tandem.cluster_file.files import FENCED, MINIMAL, load, problems

EXAMPLE = ROOT / "cluster.yaml"
CLASSIC = ROOT / "examples" / "classic.yaml"


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


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    assert config.store == StoreSettings()
    assert config.replication == ReplicationSettings()
    assert config.broker == BrokerSettings()
    assert config.groups == {"broker-a": GroupSettings()}
    assert config.nodes[1] == NodeSettings("broker-a-1", "broker-a", 1, "127.0.0.2")


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
    "bit maps without a place": (
        "broker:\n  enable_calc_filter_bit_map: true\n",
        ":2: broker.enable_calc_filter_bit_map: true has nowhere to keep the bit maps; set"
        " store.enable_consume_queue_ext: true as well, or this to false",
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


def test_the_secret_is_read_from_its_file(tmp_path: Path) -> None:
    write_secret(tmp_path / "secret", "0123456789abcdef\n")
    text = "cluster: {secret_file: secret}\n" + FENCED
    assert load(tmp_path, text).secret == "0123456789abcdef"
    (tmp_path / "secret").write_text("short\n")
    assert problems(tmp_path, text)[0].startswith(
        "cluster.yaml:1: cluster.secret_file: secret holds less than 16 bytes: too easy to guess"
    )
    (tmp_path / "secret").unlink()
    assert (
        "cluster.secret_file: secret cannot be read: No such file or directory;"
        " copy it there from another machine of the cluster"
    ) in problems(tmp_path, text)[0]


def test_a_file_without_nodes_is_refused(tmp_path: Path) -> None:
    assert "cluster.yaml:1: nodes: no node is described; add at least a master" in problems(
        tmp_path, ""
    )


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    found = problems(tmp_path, "cluster:\n  name: 'open\n")
    assert found[0].startswith("cluster.yaml:3: not valid YAML: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterConfigError, match=r"absent\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "absent.yaml")


def test_how_to_log_may_be_another_on_each_machine(tmp_path: Path) -> None:
    text = "logging: {level: error, format: json, rotate_bytes: 65536, rotate_count: 1}\n"
    config = load(tmp_path, text + MINIMAL)
    assert config.logging == LoggingSettings(LogLevel.ERROR, LogFormat.JSON, 65536, 1)
    assert config.fingerprint == load(tmp_path, MINIMAL).fingerprint


def test_what_cannot_be_a_log_is_refused_with_what_can(tmp_path: Path) -> None:
    assert problems(tmp_path, "logging: {level: debug, rotate_bytes: 1}\n" + MINIMAL) == [
        "cluster.yaml:1: logging.level: 'debug' is not valid; give info or warning or error",
        "cluster.yaml:1: logging.rotate_bytes: '1' is not valid; give a whole number from 65536 to"
        " 1099511627776 (bytes)",
    ]
