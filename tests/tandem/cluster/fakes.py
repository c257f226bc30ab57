"""Clusters whose nodes are `fake_node.py`: what a node does is chosen by name."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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


_HOLD: Final = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(spec: ClusterSpec, name: str) -> Iterator[int]:
    """Another process has the store of a node open while the block runs."""
    directory = spec.node(name).directory
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-S", "-E", "-c", _HOLD, str(directory / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
