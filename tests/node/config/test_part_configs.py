from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ha.classic.config import SlaveNode
from ha.fenced.config import AckLevel
from node.config.node_config import NodeConfig
from node.config.part_configs import fenced_config, ha_config, learner_config
from tandem.wire.message import Host
from tests.node.fenced_world import fenced_cluster
from tests.node.world import cluster_config

if TYPE_CHECKING:
    from pathlib import Path


def test_a_replica_knows_its_peers_and_how_to_reach_them(tmp_path: Path) -> None:
    node = fenced_cluster(tmp_path).node("a2")
    moved = msgspec.structs.replace(node.node, reach={"a3": "127.9.9.9"})
    config = fenced_config(NodeConfig(node.cluster, moved))
    assert [(peer.name, peer.replication) for peer in config.peers] == [
        ("a1", Host("10.0.0.1", 10913)),
        ("a3", Host("127.9.9.9", 10913)),
    ]
    assert config.client_address == "10.0.0.2:10911"
    assert config.secret.startswith("0123")
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
