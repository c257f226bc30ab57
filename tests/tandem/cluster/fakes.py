"""Clusters whose nodes are `fake_node.py`: what a node does is chosen by name."""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from tandem.cluster import ClusterSpec, CoordinatorSettings, GroupSpec, NodeSpec
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.settings import GroupSettings
from tandem.cluster_file.store_settings import StoreSettings

FAKE_NODE = Path(__file__).with_name("fake_node.py")


def fake_spec(directory: Path, *names: str) -> ClusterSpec:
    """A cluster of nodes with these names, master first, under `directory`."""
    nodes = [
        NodeSpec(
            name=name,
            group="broker-a",
            broker_id=index,
            role="SLAVE" if index else "MASTER",
            address=f"127.0.0.{index + 1}",
            port=10911,
            ha_port=10912,
            name_server_port=1,
            replication_port=10913,
            directory=directory / "data" / name,
            commit_log_directories=(directory / "data" / name / "commitlog",),
        )
        for index, name in enumerate(names)
    ]
    return ClusterSpec(
        name="FakeCluster",
        file=directory / "cluster.yaml",
        data_directory=directory / "data",
        secret_file=directory / "secret",
        fingerprint="0123456789ab",
        groups={},
        nodes=nodes,
    )


def fenced_spec(directory: Path, port: int, *names: str) -> ClusterSpec:
    """The same as one fenced group, with an embedded coordinator at `port`."""
    spec = fake_spec(directory, *names)
    nodes = [msgspec.structs.replace(node, role="NODE") for node in spec.nodes]
    return msgspec.structs.replace(
        spec,
        nodes=nodes,
        groups={"broker-a": GroupSpec.of(GroupSettings(GroupKind.FENCED), StoreSettings())},
        coordinator=CoordinatorSettings(port=port),
    )


def fake_command(**behaviours: str) -> Callable[[Path, str], list[str]]:
    """The `command` of a LocalCluster: `{name: behaviour}`, "kind" for the rest."""

    def command(_config: Path, name: str) -> list[str]:
        # -S -E: a third of the start-up time.
        return [sys.executable, "-S", "-E", str(FAKE_NODE), behaviours.get(name, "kind")]

    return command
