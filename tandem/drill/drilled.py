"""A running cluster as scenarios see it: nodes to be hurt, links to be cut."""

import random
import sys
from collections.abc import Sequence
from typing import Final, Protocol

import trio

from tandem.client import ClientError
from tandem.cluster.errors import NodeCommandError
from tandem.cluster.local_cluster import LocalCluster
from tandem.cluster.node_lifecycle import NodeState
from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.cluster_file.errors import ClusterError
from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.preflight import Group, ports_of
from tandem.drill.proxied_pair import FlowRule
from tandem.drill.scenario import NodeFailedError, NotPossibleError, OutOfPlaceError
from tandem.drill.versions import NO_OTHER_VERSION, Versions
from tandem.drill.watched_group import WatchedGroup
from tandem.wire.ha_status import FencedCommand, FencedCommandResult

NONSENSE_SECONDS: Final = 0.5
"""How long a stranger stays connected; the node may throw him out earlier."""

COMMAND_SECONDS_MAX: Final = 20.0


class Orders(Protocol):
    """Tells a node of a fenced group what an operator wants."""

    async def fenced_command(self, address: str, command: FencedCommand) -> FencedCommandResult:
        """Send it; raises ClientError."""
        ...


class CoordinatorProcess(Protocol):
    """The embedded coordinator of a local cluster, to be restarted."""

    async def stop_coordinator(self) -> None:
        """End it; its journal stays."""
        ...

    async def start_coordinator(self) -> None:
        """Serve again, from its journal."""
        ...


class DrilledNodes:
    """A LocalCluster to be hurt. Of a fenced group, `watched` hears of every end of a process."""

    def __init__(
        self,
        cluster: LocalCluster,
        *,
        watched: WatchedGroup | None = None,
        orders: Orders | None = None,
        versions: Versions | None = None,
        coordinator: CoordinatorProcess | None = None,
        group: str = "",
        now: "Clock" = trio.current_time,
    ) -> None:
        self._cluster = cluster
        self._watched = watched
        self._orders = orders
        self._versions = versions
        self._coordinator = coordinator
        self._coordinator_serves = coordinator is not None
        self._group = group
        self._now = now

    async def start(self, node: str) -> None:
        """Start a node that is not running; returns once it serves."""
        try:
            if node == COORDINATOR:
                await self._the_coordinator().start_coordinator()
                self._coordinator_serves = True
            else:
                await self._cluster.start(node)
        except ClusterError as error:
            raise _failed(error) from error

    async def stop(self, node: str) -> None:
        """Stop a node in an orderly way; returns when it is gone."""
        try:
            if node == COORDINATOR:
                await self._the_coordinator().stop_coordinator()
                self._coordinator_serves = False
                return
            await self._cluster.stop(node)
        except ClusterError as error:
            raise _failed(error) from error
        self._ended(node)

    async def kill(self, node: str) -> None:
        """End a node with SIGKILL; returns when it is gone."""
        try:
            await self._cluster.kill(node)
        except ClusterError as error:
            raise _failed(error) from error
        self._ended(node)

    async def freeze(self, node: str) -> None:
        """Stop the process of a node with SIGSTOP."""
        await trio.lowlevel.checkpoint()
        try:
            self._cluster.pause(node)
        except ClusterError as error:
            raise _failed(error) from error

    async def wake(self, node: str) -> None:
        """Let a frozen process go on."""
        await trio.lowlevel.checkpoint()
        try:
            self._cluster.resume(node)
        except ClusterError as error:
            raise _failed(error) from error

    async def resign(self, node: str) -> None:
        """Ask a master to give up."""
        await self._order(node, FencedCommand(command="resign"))

    async def promote(self, node: str) -> None:
        """Ask the master of now to hand over to this node."""
        master = self._watched.master if self._watched is not None else ""
        if not master:
            raise NodeFailedError("there is no master to ask")
        await self._order(master, FencedCommand(command="promote", node=node))

    async def by_hand(self, *order: str) -> str:
        """Run `tandem ha ORDER` on this cluster; return what it said, in one line.

        Refusals are answers: an operator may ask for the wrong thing.
        """
        command = [sys.executable, "-P", "-c", "from tandem.cli import main; main()", "ha", *order]
        command += ["--config", str(self._cluster.spec.file)]
        if order[0] == "recover-group":
            command.insert(-2, self._group)
        with trio.move_on_after(COMMAND_SECONDS_MAX):
            done = await trio.run_process(
                command, capture_stdout=True, capture_stderr=True, check=False
            )
            return " ".join((done.stdout + done.stderr).decode(errors="replace").split())[:500]
        return f"no answer in {COMMAND_SECONDS_MAX:.0f} s"

    def upgrade(self, node: str) -> None:
        """Let the next start of a node be of this version."""
        self._the_versions().upgrade(node)

    def go_back(self, node: str) -> None:
        """Let the next start of a node be of the version before."""
        self._the_versions().go_back(node)

    def runs(self, node: str) -> bool:
        """Whether a node has a process, or the coordinator serves."""
        if node == COORDINATOR:
            return self._coordinator_serves
        return self._cluster.state(node) not in (NodeState.STOPPED, NodeState.FAILED)

    def unexpected_exits(self) -> list[str]:
        """Nodes that ended although nobody stopped them."""
        return [
            f"{status.name} {status.last_exit}"
            for status in self._cluster.status()
            if status.state is NodeState.FAILED
        ]

    def _ended(self, node: str) -> None:
        if self._watched is not None:
            self._watched.node_ended(self._now(), node)

    def _the_versions(self) -> Versions:
        if self._versions is None:
            raise NotPossibleError(NO_OTHER_VERSION)
        return self._versions

    def _the_coordinator(self) -> CoordinatorProcess:
        if self._coordinator is None:
            raise OutOfPlaceError("this cluster's coordinator is not ours to restart")
        return self._coordinator

    async def _order(self, node: str, command: FencedCommand) -> None:
        if self._orders is None:
            raise OutOfPlaceError("a classic group takes no orders")
        address = self._cluster.spec.node(node).client_address
        try:
            with trio.fail_after(COMMAND_SECONDS_MAX):
                result = await self._orders.fenced_command(address, command)
        except (ClientError, trio.TooSlowError) as error:
            raise NodeFailedError(f"{node} did not answer {command.command}: {error}") from error
        if not result.done:
            raise NodeFailedError(f"{node} refused to {command.command}: {result.text}")


def _failed(error: ClusterError) -> NodeFailedError:
    """Return the same in words of scenarios: to start what runs, or to end what does not."""
    kind = OutOfPlaceError if isinstance(error, NodeCommandError) else NodeFailedError
    return kind(str(error))


class Clock(Protocol):
    """Seconds since the drill started."""

    def __call__(self) -> float:
        """Return the time."""
        ...


class DrilledNetwork:
    """The fault proxy in the words of scenarios."""

    def __init__(self, proxy: FaultProxy, group: Group) -> None:
        self._proxy = proxy
        self._group = group

    def cut(self, source: str, target: str, *, replication_only: bool = False) -> None:
        """Hold all bytes from one to the other."""
        self._change(source, target, FlowRule(stalled=True), replication_only=replication_only)

    async def cut_off(self, node: str, others: Sequence[str]) -> None:
        """Hold all bytes between a node and each of the others."""
        await trio.lowlevel.checkpoint()
        for other in others:
            self.cut(node, other)
            self.cut(other, node)

    def slow(
        self, source: str, target: str, *, delay_seconds: float = 0, bytes_per_second: float = 0
    ) -> None:
        """Let bytes from one to the other arrive late, or few of them a second."""
        rule = FlowRule(delay_seconds=delay_seconds, bytes_per_second=bytes_per_second)
        self._change(source, target, rule, replication_only=False)

    def reset(self, node: str) -> None:
        """Break all connections of a node that exist."""
        self._proxy.reset(node)

    async def heal(self) -> None:
        """Let everything pass."""
        await trio.lowlevel.checkpoint()
        self._proxy.rules.heal()

    async def disturb(self, node: str) -> str:
        """Connect to all ports of a node and send nonsense, as a stranger would."""
        spec = next(each for each in self._group.nodes if each.name == node)
        nonsense = (
            random.Random(7).randbytes(512),
            (2**62).to_bytes(8, "big") * 8,
            (-1).to_bytes(8, "big", signed=True) * 8,
            b"\0" * 7,
        )
        ports = ports_of(self._group, spec)
        async with trio.open_nursery() as nursery:
            for port in ports:
                for data in nonsense:
                    nursery.start_soon(_talk_nonsense, spec.address, port, data)
        return f"{len(ports) * len(nonsense)} strangers sent nonsense"

    def _change(self, source: str, target: str, rule: FlowRule, *, replication_only: bool) -> None:
        if not replication_only:
            self._proxy.rules.change(source, target, rule)
            return
        for port in sorted({node.replication_port for node in self._group.nodes}):
            self._proxy.rules.change(source, target, rule, port)


async def _talk_nonsense(address: str, port: int, data: bytes) -> None:
    """A node may hang up at any moment, or not listen at all."""
    with trio.move_on_after(NONSENSE_SECONDS):
        try:
            async with await trio.open_tcp_stream(address, port) as stream:
                for start in range(0, len(data), 7):
                    await stream.send_all(data[start : start + 7])
                while await stream.receive_some():
                    pass
        except (OSError, trio.BrokenResourceError):
            return
