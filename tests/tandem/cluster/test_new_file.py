from pathlib import Path
from string import ascii_lowercase

import pytest

from tandem.cluster.new_file import (
    NewCluster,
    is_beyond_this_machine,
    loopback_addresses,
    new_file_text,
)
from tandem.cluster.spec import ClusterSpec, read_spec
from tandem.cluster_file.choices import CoordinatorKind, GroupKind
from tests.support.paths import ROOT

EXAMPLE = (ROOT / "cluster.yaml").read_text(encoding="utf-8")


def read(directory: Path, wanted: NewCluster) -> ClusterSpec:
    file = directory / "cluster.yaml"
    file.write_text(new_file_text(EXAMPLE, wanted), encoding="utf-8")
    return read_spec(file)


@pytest.mark.parametrize("kind", GroupKind)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_a_new_file_of_any_size_and_kind_is_one_that_is_accepted(
    tmp_path: Path, kind: GroupKind, count: int
) -> None:
    spec = read(tmp_path, NewCluster(addresses=loopback_addresses(count), kind=kind))
    assert [node.address for node in spec.nodes] == [f"127.0.0.{n + 1}" for n in range(count)]
    assert [node.name for node in spec.nodes] == [f"broker-a-{n}" for n in range(count)]
    first = 1 if kind is GroupKind.FENCED else 0
    assert [node.broker_id for node in spec.nodes] == [n + first for n in range(count)]
    group = spec.groups["broker-a"]
    assert group.kind is kind
    assert kind is GroupKind.CLASSIC or group.min_isr == count // 2 + 1
    of_fenced = ("    replication_port: ", "    min_isr: ", "    ack_level: ")
    text = spec.file.read_text(encoding="utf-8")
    assert {setting in text for setting in of_fenced} == {kind is GroupKind.FENCED}


def test_the_example_is_what_three_nodes_get() -> None:
    text = new_file_text(EXAMPLE, NewCluster(addresses=loopback_addresses(3)))
    assert text.split("\n")[1:] == EXAMPLE.split("\n")[1:]


@pytest.mark.parametrize("kind", GroupKind)
@pytest.mark.parametrize("count", [2, 3, 26])
def test_each_of_several_groups_has_a_node_at_each_address_with_ports_of_its_own(
    tmp_path: Path, kind: GroupKind, count: int
) -> None:
    wanted = NewCluster(addresses=loopback_addresses(3), kind=kind, groups_count=count)
    spec = read(tmp_path, wanted)
    assert list(spec.groups) == [f"broker-{letter}" for letter in ascii_lowercase[:count]]
    second = [node for node in spec.nodes if node.group == "broker-b"]
    assert [node.name for node in second] == ["broker-b-0", "broker-b-1", "broker-b-2"]
    assert [node.address for node in second] == list(wanted.addresses)
    assert {node.port for node in second} == {10921}
    assert {node.name_server_port for node in second} == {9886}
    assert len({(node.address, node.port) for node in spec.nodes}) == 3 * count


def test_groups_at_one_address_share_it_by_ports(tmp_path: Path) -> None:
    spec = read(tmp_path, NewCluster(addresses=("127.0.0.1",) * 2, groups_count=2))
    assert [node.port for node in spec.nodes] == [10911, 10921, 10931, 10941]


def test_groups_of_another_name_have_its_letters(tmp_path: Path) -> None:
    wanted = NewCluster(addresses=loopback_addresses(1), broker_name="shop", groups_count=2)
    assert list(read(tmp_path, wanted).groups) == ["shop-a", "shop-b"]


def test_every_choice_is_written(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        NewCluster(
            addresses=("10.0.0.1", "10.0.0.2"),
            name="Shop",
            broker_name="east",
            port=20000,
            name_server_port=9000,
            etcd_endpoints=("http://10.0.0.8:2379", "http://10.0.0.9:2379"),
        ),
    )
    assert spec.name == "Shop"
    assert list(spec.groups) == ["east"]
    node = spec.nodes[1]
    assert (node.name, node.group, node.address) == ("east-1", "east", "10.0.0.2")
    ports = (node.port, node.ha_port, node.replication_port, node.name_server_port)
    assert ports == (20000, 20001, 20002, 9000)
    assert spec.coordinator.kind is CoordinatorKind.ETCD
    assert len(spec.coordinator.endpoints) == 2
    assert spec.coordinator.port == 20009


def test_nodes_at_one_address_get_ports_of_their_own(tmp_path: Path) -> None:
    spec = read(tmp_path, NewCluster(addresses=("127.0.0.1",) * 12))
    assert [node.port for node in spec.nodes[:3]] == [10911, 10921, 10931]
    assert [node.name_server_port for node in spec.nodes[:3]] == [9876, 9886, 9896]


def test_comments_stay_in_their_columns() -> None:
    wanted = NewCluster(addresses=loopback_addresses(1), name="A-name-that-takes-more-than-room")
    lines = new_file_text(EXAMPLE, wanted).split("\n")
    assert "  name: A-name-that-takes-more-than-room # clients see it as" in "\n".join(lines)
    short = new_file_text(EXAMPLE, NewCluster(addresses=loopback_addresses(1), name="x"))
    (line,) = [line for line in short.split("\n") if "clients see it as" in line]
    (before,) = [line for line in EXAMPLE.split("\n") if "clients see it as" in line]
    assert line.index("#") == before.index("#")


def test_the_first_lines_say_what_it_is_and_name_the_file() -> None:
    wanted = NewCluster(addresses=loopback_addresses(1), broker_name="east")
    head = new_file_text(EXAMPLE, wanted, "east.yaml").split("\n\n")[0]
    assert head.startswith("# DefaultCluster: one node, which nobody can replace.")
    assert "east.yaml --name east-0" in head
    assert "cluster.yaml" not in head


def test_addresses_that_others_can_reach_are_known() -> None:
    assert is_beyond_this_machine("10.0.0.1")
    assert not is_beyond_this_machine("127.3.0.1")
    assert not is_beyond_this_machine("no address")
