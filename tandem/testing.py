"""A real cluster in a test: a few nodes, each a process, ready in about two seconds.

In the `conftest.py` at the top of the tests:

    pytest_plugins = ["tandem.testing"]

and in a test, with or without trio:

    def test_orders_survive_the_loss_of_a_slave(tandem_cluster):
        with tandem.BlockingProducer(tandem_cluster.name_servers, group="test") as producer:
            tandem_cluster.kill("broker-a-1")
            result = producer.send(tandem.Message("orders", b"one"))

`tandem_cluster` is a classic group; `tandem_fenced_cluster` is a fenced one of three nodes, which
replaces a lost master by itself:

    def test_orders_survive_the_loss_of_the_master(tandem_fenced_cluster):
        with tandem.BlockingProducer(tandem_fenced_cluster.name_servers, group="test") as producer:
            tandem_fenced_cluster.kill_master()
            result = producer.send(tandem.Message("orders", b"one"))

Each cluster has loopback addresses of its own, so that tests may run side by side, beside a cluster
that is up as well; this needs Linux, where all of 127.0.0.0/8 exists. Its files are small and are
in the test's temporary directory. No process is left, whatever happens to the test.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pytest

from tandem.client import BlockingAdmin, ClientError
from tandem.cluster.control import Command, Request, send_request
from tandem.cluster.detached import up_for_block
from tandem.cluster.node_lifecycle import NodeState, NodeStatus
from tandem.cluster.spec import ClusterSpec, read_spec
from tandem.cluster_file.choices import GroupKind
from tandem.process_log import parts_of
from tandem.wire.ha_status import FencedStatus

SLAVES_COUNT_DEFAULT: Final = 1
FENCED_NODES_COUNT_DEFAULT: Final = 3
MASTER_SECONDS_MAX: Final = 30.0
GROUP: Final = "broker-a"
IN_SYNC_SECONDS_MAX: Final = 20.0
POLL_SECONDS: Final = 0.05

_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "store": {
        "mapped_file_size_commit_log_bytes": 1_048_576,
        "mapped_file_size_consume_queue_bytes": 20_000,
        "max_message_size_bytes": 65_536,
    },
    # Short, because a test waits for what a person would not notice.
    "replication": {"ha_reconnect_interval_ms": 100},
    "broker": {"register_broker_interval_ms": 500, "slave_synchronize_interval_ms": 500},
}


Kind = Literal["classic", "fenced"]


class RunningCluster:
    """A cluster that is up. Nodes are named `broker-a-0`, the master, `broker-a-1`, ...

    Those of a fenced group begin with `broker-a-1`, and any of them may be the master.

    Every command blocks until it is done and raises `tandem.cluster.ControlError` if it cannot be.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec

    @property
    def name_servers(self) -> list[str]:
        """What clients take: every node's `host:port`."""
        return self.spec.name_servers

    @property
    def secret(self) -> str:
        """What `tandem.Admin` has to know to give orders."""
        return self.spec.read_secret()

    def store_directory(self, node: str) -> Path:
        """Where a node keeps its store."""
        return self.spec.node(node).directory

    def log_text(self, node: str) -> str:
        """What a node has logged so far and is kept."""
        parts = parts_of(self.spec.log_file(node))
        return "".join(part.read_text(errors="replace") for part in parts)

    def status(self) -> list[NodeStatus]:
        """The state of every node, master first."""
        return self._send("status")

    def kill(self, node: str) -> None:
        """End a node with SIGKILL, as a crash would."""
        self._send("kill", node)

    def stop(self, node: str) -> None:
        """Stop a node in an orderly way."""
        self._send("stop", node)

    def start(self, node: str) -> None:
        """Start a node that has no process, and wait until it serves."""
        self._send("start", node)

    def restart(self, node: str) -> None:
        """Stop a node if it runs, start it, and wait until it serves."""
        self._send("restart", node)

    def wait_in_sync(self, *, seconds_max: float = IN_SYNC_SECONDS_MAX) -> None:
        """Block until every node that has a process has the master's whole log, or is in sync.

        Raises:
            TimeoutError: One is not.
        """
        if self.is_fenced:
            self._wait_in_sync_set(seconds_max)
            return
        slaves_count = sum(node.pid is not None for node in self.status()[1:])
        deadline = time.monotonic() + seconds_max
        with BlockingAdmin(self.name_servers) as admin:
            while admin.ha_runtime_info(self.name_servers[0]).in_sync_slave_nums < slaves_count:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{slaves_count} nodes not in sync in {seconds_max:g} s")
                time.sleep(POLL_SECONDS)  # noqa: TID251 - a test's own thread, not a node's

    @property
    def is_fenced(self) -> bool:
        """Whether the group elects its master."""
        return self.spec.groups[GROUP].kind is GroupKind.FENCED

    def master(self) -> str:
        """The node that is master now and takes messages; empty if there is none."""
        status = self._master_status()
        return status.node if status is not None else ""

    def wait_for_master(
        self, *, other_than: str = "", seconds_max: float = MASTER_SECONDS_MAX
    ) -> str:
        """Block until a fenced group has a master that takes messages; return its name.

        Raises:
            TimeoutError: It has none.
        """
        deadline = time.monotonic() + seconds_max
        while (name := self.master()) in ("", other_than):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no master in {seconds_max:g} s")
            time.sleep(POLL_SECONDS)  # noqa: TID251 - a test's own thread, not a node's
        return name

    def kill_master(self) -> str:
        """End the master of a fenced group with SIGKILL; return its name. Another takes over."""
        name = self.wait_for_master()
        self.kill(name)
        return name

    def _master_status(self) -> FencedStatus | None:
        claims = []
        with BlockingAdmin(self.name_servers) as admin:
            for node in self.status():
                if node.pid is None or node.state is NodeState.PAUSED:
                    continue
                try:
                    status = admin.fenced_status(self.spec.node(node.name).client_address)
                except ClientError:
                    continue
                if status.role == "MASTER" and not status.refusal:
                    claims.append(status)
        return max(claims, key=lambda status: status.epoch, default=None)

    def _wait_in_sync_set(self, seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while True:
            alive = {node.name for node in self.status() if node.pid is not None}
            status = self._master_status()
            in_sync = set(status.isr) if status is not None else set()
            if alive <= in_sync:
                return
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(alive - in_sync))
                raise TimeoutError(f"{missing} not in sync in {seconds_max:g} s")
            time.sleep(POLL_SECONDS)  # noqa: TID251 - a test's own thread, not a node's

    def pause(self, node: str) -> None:
        """Freeze a node: its connections stay open and silent."""
        self._send("pause", node)

    def resume(self, node: str) -> None:
        """Let a frozen node go on."""
        self._send("resume", node)

    def _send(self, command: Command, node: str | None = None) -> list[NodeStatus]:
        return send_request(self.spec.file, Request(command, node)).nodes


@contextmanager
def running_cluster(
    directory: Path,
    *,
    slaves_count: int = SLAVES_COUNT_DEFAULT,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[RunningCluster]:
    """Have a cluster up in `directory` while the block runs; its nodes are in sync at the start.

    `settings` are sections of a cluster file, such as `{"replication": {"slave_timeout_ms": 500}}`;
    what they leave out is as small and quick as a test wants it.

    Raises:
        ClusterConfigError: The settings are wrong.
        ControlError: A node did not start.
    """
    with _running(write_cluster_file(directory, slaves_count, settings or {})) as cluster:
        yield cluster


@contextmanager
def running_fenced_cluster(
    directory: Path,
    *,
    nodes_count: int = FENCED_NODES_COUNT_DEFAULT,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[RunningCluster]:
    """Have a cluster of one fenced group up; it has a master, and all are in sync, at the start.

    `settings`, errors: as for `running_cluster`.
    """
    file = write_cluster_file(directory, nodes_count - 1, settings or {}, kind="fenced")
    with _running(file) as cluster:
        yield cluster


@contextmanager
def _running(file: Path) -> Iterator[RunningCluster]:
    spec = read_spec(file)
    with up_for_block(spec):
        cluster = RunningCluster(spec)
        cluster.wait_in_sync()
        yield cluster


def write_cluster_file(
    directory: Path,
    slaves_count: int,
    settings: Mapping[str, Mapping[str, Any]],
    *,
    kind: Kind = "classic",
) -> Path:
    """Write a `cluster.yaml` with loopback addresses that nobody else is likely to have.

    A fenced group has `1 + slaves_count` nodes, too.
    """
    # 1 of 65,000 pairs: a collision ends in an error that names the port, not in a wrong result.
    # 127.0 is left out, for that is where clusters of people are.
    network = f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}"
    sections = {
        name: {**_SETTINGS.get(name, {}), **settings.get(name, {})}
        for name in {**_SETTINGS, **settings}
    }
    is_fenced = kind == "fenced"
    group = {"kind": kind} if is_fenced else {"kind": kind, "broker_role": "SYNC_MASTER"}
    groups: dict[str, Any] = {GROUP: group}
    if is_fenced:
        sections["coordinator"] = {"address": f"{network}.254", **sections.get("coordinator", {})}
    first_id = 1 if is_fenced else 0
    content = {
        **sections,
        "groups": groups | sections.get("groups", {}),
        "nodes": [
            {
                "name": f"{GROUP}-{broker_id}",
                "group": GROUP,
                "broker_id": broker_id,
                "address": f"{network}.{broker_id + 1}",
            }
            for broker_id in range(first_id, first_id + 1 + slaves_count)
        ],
    }
    file = directory / "cluster.yaml"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content)))  # JSON is YAML
    return file


@pytest.fixture
def tandem_fenced_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """A fenced group of three nodes; the master may be killed."""
    with running_fenced_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def tandem_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """A master and one slave that serve, and whose replication waits for the slave."""
    with running_cluster(tmp_path) as cluster:
        yield cluster
