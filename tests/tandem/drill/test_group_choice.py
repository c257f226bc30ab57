from pathlib import Path

import pytest
import yaml

from tandem.cluster.spec import example_text, read_spec
from tandem.drill.errors import BadOptionsError, NoPromiseError
from tandem.drill.group_choice import choose_groups, multiplied, read_groups
from tandem.drill.preflight import ports_of
from tandem.testing import write_cluster_file


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(example_text())
    return path


def test_groups_are_named_by_letters_and_share_no_port(example: Path) -> None:
    spec = read_groups(example, 3)
    assert [*spec.groups] == ["broker-a", "broker-b", "broker-c"]
    groups = choose_groups(spec, "", 1)
    ports = [
        (node.address, port)
        for group in groups
        for node in group.nodes
        for port in ports_of(group, node)
    ]
    coordinator = (spec.coordinator.address, spec.coordinator.port)
    assert len({*ports, coordinator}) == len(ports) + 1
    assert len({group.kind for group in groups}) == 1


def test_one_group_is_the_file_as_it_is(example: Path) -> None:
    document = yaml.safe_load(example.read_text())
    assert multiplied(document, 1) == document
    assert read_groups(example, 1).file == read_spec(example).file


def test_groups_of_nodes_at_one_address_share_no_port(tmp_path: Path) -> None:
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    document = yaml.safe_load(config.read_text())
    for number, node in enumerate(document["nodes"]):
        node.update(address="127.0.0.1", port=20_000 + 10 * number, ha_port=20_001 + 10 * number)
        node.update(replication_port=20_002 + 10 * number, name_server_port=30_000 + 10 * number)
    config.write_text(yaml.safe_dump(document))
    nodes = read_groups(config, 4).nodes
    ports = [port for node in nodes for port in (node.port, node.ha_port, node.name_server_port)]
    assert len(ports) == len({*ports}) == 36


def test_the_one_to_hurt_is_the_first_by_name_or_by_seed(example: Path) -> None:
    spec = read_groups(example, 3)
    assert [group.name for group in choose_groups(spec, "broker-b", 1)] == [
        "broker-b",
        "broker-a",
        "broker-c",
    ]
    firsts = {choose_groups(spec, "", seed)[0].name for seed in range(30)}
    assert firsts == {*spec.groups}
    assert choose_groups(spec, "", 7) == choose_groups(spec, "", 7)
    with pytest.raises(BadOptionsError):
        choose_groups(spec, "broker-d", 1)


def test_a_file_of_several_groups_is_not_multiplied(tmp_path: Path, example: Path) -> None:
    several = tmp_path / "several.yaml"
    several.write_text(yaml.safe_dump(multiplied(yaml.safe_load(example.read_text()), 2)))
    assert len(choose_groups(read_groups(several, 1), "", 1)) == 2
    with pytest.raises(NoPromiseError) as caught:
        read_groups(several, 2)
    assert caught.value.setting == "groups"
