from enum import Enum
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from ha.classic.config import HAConfig, SlaveNode
from ha.fenced.config import FencedConfig
from node.config.part_configs import fenced_config, ha_config, learner_config, store_config
from store import StoreConfig
from tandem.cluster_file.choices import AckLevel
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.cluster_file.settings import GroupSettings, ReplicationSettings
from tandem.cluster_file.store_settings import StoreSettings
from tandem.wire.message import Host
from tandem.wire.secret_keys import Purpose, key_of
from tests.node.world import cluster_config, fenced_cluster
from tests.support.secret import SECRET


def test_a_replica_knows_its_peers_and_how_to_reach_them(tmp_path: Path) -> None:
    node = fenced_cluster(tmp_path).node("a2")
    moved = msgspec.structs.replace(node.node, reach={"a3": "127.9.9.9"})
    config = fenced_config(NodeConfig(node.cluster, moved))
    assert [(peer.name, peer.replication) for peer in config.peers] == [
        ("a1", Host("10.0.0.1", 10913)),
        ("a3", Host("127.9.9.9", 10913)),
    ]
    assert config.client_address == "10.0.0.2:10911"
    assert config.secret == key_of(SECRET, Purpose.LINK).hex()
    assert (config.min_isr, config.ack_level) == (2, AckLevel.WRITTEN)


def test_a_lease_is_renewed_several_times_before_it_ends(tmp_path: Path) -> None:
    config = fenced_config(fenced_cluster(tmp_path).node("a1"))
    assert config.keepalive_interval_ms * 5 <= config.lease_ttl_ms


def test_learners_are_slaves_of_whoever_is_master(tmp_path: Path) -> None:
    config = learner_config(fenced_cluster(tmp_path, learners="10.0.0.7").node("a1"))
    assert config.master is None
    assert config.slaves == (SlaveNode("10.0.0.7", "10.0.0.7"),)


def test_a_classic_slave_dials_the_master_of_the_file(tmp_path: Path) -> None:
    config = ha_config(cluster_config(tmp_path).node("a2"))
    assert config.master == Host("10.0.0.1", 10912)
    assert [slave.name for slave in config.slaves] == ["a1", "a2"]


def test_a_classic_slave_dials_the_master_where_the_file_says_that_it_reaches_it(
    tmp_path: Path,
) -> None:
    node = cluster_config(tmp_path).node("a2")
    moved = msgspec.structs.replace(node.node, reach={"a0": "127.9.9.9"})
    assert ha_config(NodeConfig(node.cluster, moved)).master == Host("127.9.9.9", 10912)


SettingsT = TypeVar("SettingsT", bound=Struct)


def other_values(settings: SettingsT) -> SettingsT:
    """The same settings, none of them as it was."""
    values = {name: other(value) for name, value in msgspec.structs.asdict(settings).items()}
    return msgspec.structs.replace(settings, **values)


def other(value: object) -> object:
    if isinstance(value, Enum):
        return next(member for member in type(value) if member is not value)
    return not value if isinstance(value, bool) else 7


def with_other_values(config: NodeConfig) -> NodeConfig:
    cluster = config.cluster
    groups = {name: other_values(group) for name, group in cluster.groups.items()}
    changed = msgspec.structs.replace(
        cluster,
        store=other_values(cluster.store),
        replication=other_values(cluster.replication),
        groups=groups,
    )
    return NodeConfig(changed, config.node)


def test_every_setting_but_the_time_out_of_a_put_reaches_the_store(tmp_path: Path) -> None:
    config = with_other_values(cluster_config(tmp_path).node("a0"))
    store, settings = store_config(config), config.cluster.store
    names = set(StoreSettings.__struct_fields__) - {"sync_flush_timeout_ms"}
    assert names <= set(StoreConfig.__struct_fields__)
    for name in names - {"delete_when"}:
        assert getattr(store, name) == getattr(settings, name), name
        assert getattr(store, name) != getattr(StoreSettings(), name), name
    assert store.delete_when == (7,)
    assert store.commit_log_directories == (str(tmp_path / "data/a0/commitlog"),)


def test_every_setting_of_replication_reaches_a_classic_group(tmp_path: Path) -> None:
    config = with_other_values(cluster_config(tmp_path).node("a0"))
    names = set(ReplicationSettings.__struct_fields__)
    assert names <= set(HAConfig.__struct_fields__)
    for name in names:
        assert getattr(ha_config(config), name) == getattr(config.cluster.replication, name), name


def test_a_fenced_group_takes_what_it_has_a_use_for(tmp_path: Path) -> None:
    config = with_other_values(fenced_cluster(tmp_path).node("a1"))
    found = fenced_config(config)
    taken = {
        GroupSettings: {"min_isr", "ack_level"},
        ReplicationSettings: {
            "slave_timeout_ms",
            "ha_transfer_batch_size_bytes",
            "check_crc_on_append",
        },
    }
    sections = {GroupSettings: config.group, ReplicationSettings: config.cluster.replication}
    for kind, names in taken.items():
        assert names == set(kind.__struct_fields__) & set(FencedConfig.__struct_fields__)
        for name in names:
            assert getattr(found, name) == getattr(sections[kind], name), name


def test_settings_have_one_default_but_where_the_file_says_why(tmp_path: Path) -> None:
    """RocketMQ's own are right for a disk and a network that belong to the broker."""
    pairs = ((StoreSettings(), store_defaults()), (ReplicationSettings(), ha_defaults()))
    differing = {
        name
        for settings, defaults in pairs
        for name, value in msgspec.structs.asdict(settings).items()
        if name in defaults and defaults[name] != value
    }
    assert differing == {
        "mapped_file_size_commit_log_bytes",
        "mapped_file_size_consume_queue_ext_bytes",
        "max_hash_slot_num",
        "max_index_num",
        "delete_when",  # the same hour, as text
        "disk_space_clean_forcibly_ratio",
        "disk_space_warning_level_ratio",
    }


def store_defaults() -> dict[str, object]:
    return msgspec.structs.asdict(StoreConfig(directory=""))


def ha_defaults() -> dict[str, object]:
    return msgspec.structs.asdict(HAConfig(name="", address="", ha_port=0))


def test_bytes_of_the_log_are_authenticated_where_others_than_root_could_change_them(
    tmp_path: Path,
) -> None:
    beyond = fenced_cluster(tmp_path)
    here = msgspec.structs.replace(
        beyond,
        nodes=tuple(
            msgspec.structs.replace(node, address=f"127.0.0.{node.broker_id}")
            for node in beyond.nodes
        ),
    )
    assert fenced_config(beyond.node("a1")).digests_bodies
    assert not fenced_config(here.node("a1")).digests_bodies
    for config in (beyond, here):
        for wanted in (True, False):
            security = msgspec.structs.replace(config.security, authenticate_log_bytes=wanted)
            told = msgspec.structs.replace(config, security=security)
            assert fenced_config(told.node("a1")).digests_bodies is wanted
