"""A cluster that is up, for a test to look at and to hurt."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from tandem.client import BlockingAdmin, ClientError
from tandem.client.cluster_access import ClusterAccess
from tandem.cluster.control import Command, Request, send_request
from tandem.cluster.node_lifecycle import NodeState, NodeStatus
from tandem.cluster.spec import ClusterSpec
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.drill.proxied_pair import FlowRule
from tandem.process_log import parts_of
from tandem.testing.ballast import fill, free
from tandem.testing.cluster_files import GROUP
from tandem.testing.errors import FaultNeed, FaultNotPossibleError
from tandem.testing.faults import (
    Direction,
    Fault,
    Flow,
    combined,
    flows_of_link,
    flows_of_partition,
    slowness,
)
from tandem.testing.network import NetworkControl
from tandem.wire.ha_status import FencedStatus

MASTER_SECONDS_MAX: Final = 60.0
IN_SYNC_SECONDS_MAX: Final = 60.0
"""Many times what either takes: tests run beside others, and on machines with little to spare."""

POLL_SECONDS: Final = 0.01
QUEUES_DEFAULT: Final = 4
"""As many as a producer asks for when it creates a topic by sending."""


class RunningCluster:
    """A cluster that is up. Nodes are named `broker-a-0`, the master, `broker-a-1`, ...

    Those of a fenced group begin with `broker-a-1`, and any of them may be the master.

    Every method blocks until what it does is done, and may be called from any thread. It raises
    `tandem.cluster.ControlError` if it cannot be done, and `tandem.cluster.UnknownNodeError` if
    there is no such node.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        network: NetworkControl | None = None,
        root: Path | None = None,
    ) -> None:
        """Take a cluster that is up. `root`: below which its stores are, if they have own disks."""
        self.spec = spec
        self._network = network
        self._root = root
        self._flows: dict[Fault, list[Flow]] = {}
        self._faults: list[Fault] = []
        self.is_hurt = False
        """Whether a node was ended or a fault begun since the last `recover`."""

    # --- what there is -------------------------------------------------------------------------

    @property
    def name_servers(self) -> list[str]:
        """What clients take: every node's `host:port`."""
        return self.spec.name_servers

    @property
    def access(self) -> ClusterAccess:
        """The same with the secret of the cluster, for orders to it."""
        return ClusterAccess(
            self.name_servers,
            secret=self.secret,
            as_operator=self.spec.asks_for_users,
            tls=self.spec.tls,
        )

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [node.name for node in self.spec.nodes]

    @property
    def file(self) -> Path:
        """The cluster file: what `--config` of the command line takes."""
        return self.spec.file

    @property
    def secret(self) -> str:
        """What `tandem.Admin` has to know to give orders."""
        return self.spec.read_secret()

    @property
    def is_fenced(self) -> bool:
        """Whether the group elects its master."""
        return self.spec.groups[GROUP].kind is GroupKind.FENCED

    def store_directory(self, node: str) -> Path:
        """Where a node keeps its store. On a disk of its own, it is there while the cluster is."""
        directory = self.spec.node(node).directory
        return directory if self._root is None else self._root / directory.relative_to("/")

    def log_text(self, node: str) -> str:
        """What a node has logged so far and is kept."""
        parts = parts_of(self.spec.log_file(self.spec.node(node).name))
        return "".join(part.read_text(errors="replace") for part in parts)

    def status(self) -> list[NodeStatus]:
        """The state of every node, in the order of `nodes`."""
        return self._send("status")

    def topic(self, *, queues: int = QUEUES_DEFAULT) -> str:
        """Create a topic that no other test has; return its name."""
        name = f"test-{secrets.token_hex(6)}"
        with BlockingAdmin(self.access) as admin:
            admin.create_topic(name, queue_nums=queues)
        return name

    def master(self) -> str:
        """The node that is master now and takes messages; empty if there is none."""
        with BlockingAdmin(self.access) as admin:
            return self._master(admin)

    def _master(self, admin: BlockingAdmin) -> str:
        if not self.is_fenced:
            node = self.status()[0]
            return node.name if node.state is NodeState.RUNNING else ""
        status = self._master_status(admin)
        return status.node if status is not None else ""

    # --- waiting -------------------------------------------------------------------------------

    def wait_for_master(
        self, *, other_than: str = "", seconds_max: float = MASTER_SECONDS_MAX
    ) -> str:
        """Block until the group has a master that takes messages; return its name.

        Raises:
            TimeoutError: It has none.
        """
        found = ""

        def is_there() -> bool:
            nonlocal found
            found = self._master(admin)
            return found not in ("", other_than)

        with BlockingAdmin(self.access) as admin:
            _wait(
                is_there,
                seconds_max,
                lambda: "no master" + (f" other than {other_than}" if other_than else ""),
            )
        # Not asked again: meanwhile the other one may be it again.
        return found

    def wait_in_sync(self, *, seconds_max: float = IN_SYNC_SECONDS_MAX) -> None:
        """Block until every node that has a process has the master's whole log, or is in sync.

        Raises:
            TimeoutError: One is not.
        """
        with BlockingAdmin(self.access) as admin:
            if self.is_fenced:
                _wait(
                    lambda: not self._missing(admin),
                    seconds_max,
                    lambda: f"{', '.join(self._missing(admin))} not in sync",
                )
                return
            slaves_count = sum(node.pid is not None for node in self.status()[1:])
            _wait(
                lambda: self._in_sync_slaves(admin) >= slaves_count,
                seconds_max,
                lambda: f"{slaves_count} slaves not in sync",
            )

    def _in_sync_slaves(self, admin: BlockingAdmin) -> int:
        return admin.ha_runtime_info(self.name_servers[0]).in_sync_slave_nums

    def _missing(self, admin: BlockingAdmin) -> list[str]:
        alive = {node.name for node in self.status() if node.pid is not None}
        status = self._master_status(admin)
        if status is None:
            return sorted(alive)
        # One that has just ended, or begun anew, is a member of the recorded set for a while yet.
        follow = {each.name for each in status.replicas if each.connected and each.in_sync}
        return sorted(alive - follow - {status.node})

    def _master_status(self, admin: BlockingAdmin) -> FencedStatus | None:
        claims = []
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

    # --- processes -----------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """End a node with SIGKILL, as a crash would."""
        self._hurt("kill", node)

    def kill_master(self) -> str:
        """End the master with SIGKILL; return its name. In a fenced group, another takes over."""
        name = self.wait_for_master()
        self.kill(name)
        return name

    def stop(self, node: str) -> None:
        """Stop a node in an orderly way."""
        self._hurt("stop", node)

    def start(self, node: str) -> None:
        """Start a node that has no process, and wait until it serves."""
        self._send("start", node)

    def restart(self, node: str) -> None:
        """Stop a node if it runs, start it, and wait until it serves."""
        self._hurt("restart", node)

    def freeze(self, node: str) -> Fault:
        """Freeze a node with SIGSTOP: its connections stay open and silent. It ends by `thaw`."""
        self._hurt("pause", node)
        return self._begun(Fault(lambda: self._thaw_if_frozen(node)))

    def thaw(self, node: str) -> None:
        """Let a frozen node go on."""
        self._send("resume", node)

    def _thaw_if_frozen(self, node: str) -> None:
        if any(each.name == node and each.state is NodeState.PAUSED for each in self.status()):
            self.thaw(node)

    # --- network -------------------------------------------------------------------------------

    def partition(self, *nodes: str, direction: Direction = "both") -> Fault:
        """Cut nodes off from all other nodes, and in a fenced group from the coordinator.

        What they send is held up (`direction="out"`), or what they are sent ("in"), or both. The
        nodes named still reach each other. Clients still reach every node. As with a pulled cable,
        nothing is lost and no connection is closed: bytes wait, and go on when the fault ends.

        Raises:
            ValueError: These are no nodes, or all of a classic group: nothing would be cut.
            FaultNotPossibleError: The cluster has no network that can be hurt.
        """
        self._hurtable()
        for node in nodes:
            self.spec.node(node)
        return self._change_flows(
            flows_of_partition(nodes, self.nodes, is_fenced=self.is_fenced, direction=direction)
        )

    def cut(self, node: str, other: str, *, direction: Direction = "both") -> Fault:
        """Cut one link: what two nodes, or a node and the "coordinator", send each other.

        `direction` is as `node` sees it: "out" holds up only what it sends. Else as `partition`.

        Raises:
            FaultNotPossibleError: The cluster has no network that can be hurt.
        """
        self._check_link(node, other)
        return self._change_flows(
            flows_of_link(node, other, FlowRule(stalled=True), direction=direction)
        )

    def slow_link(
        self,
        node: str,
        other: str,
        *,
        delay_ms: float = 0,
        bytes_per_second: float = 0,
        direction: Direction = "both",
    ) -> Fault:
        """Let what two nodes, or a node and the "coordinator", send each other arrive late.

        `delay_ms` is for each direction; `bytes_per_second` 0 is as fast as they come.

        Raises:
            ValueError: Nothing would be slow.
            FaultNotPossibleError: The cluster has no network that can be hurt.
        """
        self._check_link(node, other)
        rule = slowness(delay_ms, bytes_per_second)
        return self._change_flows(flows_of_link(node, other, rule, direction=direction))

    def _check_link(self, node: str, other: str) -> None:
        self._hurtable()
        for name in (node, other):
            if name != COORDINATOR or not self.is_fenced:
                self.spec.node(name)
        if node == other:
            text = f"{node} has no link to itself; name two nodes"
            raise FaultNotPossibleError(text, FaultNeed.OTHER_NODE)

    def _hurtable(self) -> NetworkControl:
        if self._network is None:
            raise FaultNotPossibleError(
                "this cluster has no network that can be hurt: it has one node, or was started"
                " without proxies; use make_tandem_cluster(nodes=2), or running_cluster(...,"
                " proxied=True)",
                FaultNeed.PROXIES,
            )
        return self._network

    def _change_flows(self, flows: list[Flow]) -> Fault:
        fault = Fault(lambda: self._undo_flows(fault))
        self._flows[fault] = flows
        self._hurtable().change(combined(self._flows.values()))
        self.is_hurt = True
        return self._begun(fault)

    def _undo_flows(self, fault: Fault) -> None:
        self._flows.pop(fault, None)
        self._hurtable().change(combined(self._flows.values()))

    # --- disks ---------------------------------------------------------------------------------

    def fill_disk(self, node: str) -> Fault:
        """Write to the file system of a node's store until there is no room left.

        Raises:
            FaultNotPossibleError: The store is not on a disk of its own: see
                `make_tandem_cluster(disk_mib=...)`.
        """
        place = self.store_directory(node)
        if self._root is None:
            raise FaultNotPossibleError(
                f"the store of {node} is not on a disk of its own, and yours is not filled;"
                " use make_tandem_cluster(disk_mib=64), or running_cluster(..., disk_mib=64)",
                FaultNeed.DISKS,
            )
        fill(place)
        self.is_hurt = True
        return self._begun(Fault(lambda: free(place)))

    # --- the end of all that --------------------------------------------------------------------

    def heal(self) -> None:
        """End every fault: links work, frozen nodes go on, disks have room. Dead nodes stay so."""
        while self._faults:
            self._faults.pop().undo()
        # Somebody may have frozen it by the command line.
        for node in self.status():
            if node.state is NodeState.PAUSED:
                self.thaw(node.name)

    def recover(self) -> None:
        """Heal, start the nodes that have no process, and block until all are in sync.

        Raises:
            TimeoutError: They are not.
        """
        self.heal()
        if any(node.pid is None for node in self.status()):
            self._send("start")
        self.wait_in_sync()
        self.is_hurt = False

    def _begun(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def _hurt(self, command: Literal["kill", "stop", "restart", "pause"], node: str) -> None:
        self.spec.node(node)
        self.is_hurt = True
        self._send(command, node)

    def _send(self, command: Command, node: str | None = None) -> list[NodeStatus]:
        if node is not None:
            self.spec.node(node)
        return send_request(self.spec.file, Request(command, node)).nodes


def _wait(holds: Callable[[], bool], seconds_max: float, what: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds_max
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what()} in {seconds_max:g} s")
        time.sleep(POLL_SECONDS)  # noqa: TID251 - a test's own thread, not a node's
