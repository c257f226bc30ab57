from pathlib import Path
from typing import Any

import pytest

from tandem.cluster.spec import read_spec
from tandem.cluster_file.choices import BrokerRole, GroupKind
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.load import load_config
from tandem.testing.addresses import Network, Ports
from tandem.testing.cluster_files import NODES_MAX, Kind, proxied_pairs, write_cluster_file

NETWORK = Network(prefix="127.4.5", ports=Ports.beginning_at(20_000))


@pytest.mark.parametrize(("kind", "nodes"), [("classic", 2), ("fenced", 3), ("fenced", NODES_MAX)])
def test_each_node_dials_every_other_by_way_of_a_proxy_of_its_own(
    tmp_path: Path, kind: Kind, nodes: int
) -> None:
    file = write_cluster_file(tmp_path, nodes - 1, {}, kind=kind, network=NETWORK, proxied=True)
    config = load_config(file)
    pairs = proxied_pairs(NETWORK, nodes - 1, kind)
    targets = nodes if kind == "fenced" else nodes - 1
    assert len(pairs) == nodes * targets
    used = [pair.listen_address for pair in pairs] + [node.address for node in config.nodes]
    assert len({*used, config.coordinator.address}) == len(used) + 1
    for node in config.nodes:
        reached = {pair.target: pair.listen_address for pair in pairs if pair.source == node.name}
        assert node.reach == reached
        assert len(reached) == targets


def test_a_proxy_serves_every_port_that_is_dialled(tmp_path: Path) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 1, {}, kind="fenced", network=NETWORK))
    ports = {pair.target: set(pair.ports) for pair in proxied_pairs(NETWORK, 1, "fenced")}
    assert ports == {
        **{
            node.name: {node.port, node.ha_port, node.name_server_port, node.replication_port}
            for node in spec.nodes
        },
        "coordinator": {spec.coordinator.port},
    }


def test_settings_are_added_to_those_that_make_it_small(tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {
        "broker": {"auto_create_topic_enable": False},
        "coordinator": {"lease_ttl_ms": 2_000},
        "logging": {"level": "warning"},
    }
    spec = read_spec(write_cluster_file(tmp_path, 2, settings, kind="fenced", network=NETWORK))
    assert not spec.broker.auto_create_topic_enable
    assert spec.broker.register_broker_interval_ms == 500
    assert spec.coordinator.lease_ttl_ms == 2_000
    assert spec.coordinator.address == "127.4.5.254"
    assert [node.port for node in spec.nodes] == [20_000] * 3


def test_a_lone_fenced_node_acknowledges_alone(tmp_path: Path) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 0, {}, kind="fenced", network=NETWORK))
    assert spec.groups["broker-a"].min_isr == 1


def test_settings_of_its_group_are_added_to_what_the_group_is(tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {"groups": {"broker-a": {"min_isr": 3}}}
    spec = read_spec(write_cluster_file(tmp_path, 2, settings, kind="fenced", network=NETWORK))
    assert spec.groups["broker-a"].kind is GroupKind.FENCED
    assert spec.groups["broker-a"].min_isr == 3
    settings = {"groups": {"broker-a": {"broker_role": "ASYNC_MASTER"}}}
    spec = read_spec(write_cluster_file(tmp_path, 1, settings, network=NETWORK))
    assert spec.groups["broker-a"].kind is GroupKind.CLASSIC
    assert spec.groups["broker-a"].broker_role is BrokerRole.ASYNC_MASTER


@pytest.mark.parametrize("group", [1, None, [], "x"])
def test_a_group_that_is_none_is_complained_about(tmp_path: Path, group: object) -> None:
    file = write_cluster_file(tmp_path, 2, {"groups": {"broker-a": group}}, kind="fenced")
    with pytest.raises(ClusterConfigError):
        read_spec(file)


def test_a_fenced_group_may_have_an_address_for_its_master(tmp_path: Path) -> None:
    file = write_cluster_file(
        tmp_path, 8, {}, kind="fenced", network=NETWORK, proxied=True, has_master_address=True
    )
    assert load_config(file).groups["broker-a"].master_address == "127.4.5.200:20000"
