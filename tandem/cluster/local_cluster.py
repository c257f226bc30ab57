"""The processes of a local cluster: starts, reaps, signals. The rules are in `node_lifecycle`.

No node outlives this process, not even if it is killed with SIGKILL:

- each node's standard input is a pipe that only we hold; its end is the node's order to stop;
- each node is alone in a process group of our session. A terminal's Ctrl-C therefore reaches us
  and not the nodes, which we stop in our own way. And when we die, those groups are orphaned: the
  kernel sends SIGHUP and SIGCONT to one that has a frozen member, which could not see its pipe end.
"""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import trio

from tandem.cluster.coordination import Coordination
from tandem.cluster.errors import ForkServerError, NodeStartError, NotOursError
from tandem.cluster.node_lifecycle import NodeExit, NodeLifecycle, NodeState, NodeStatus
from tandem.cluster.node_process import NodeProcess, OpenProcess, open_process
from tandem.cluster.owners import check_addresses, check_free
from tandem.cluster.spec import (
    ClusterSpec,
    NodeSpec,
    check_system,
    node_command,
    node_environment,
    read_spec,
)
from tandem.cluster_file.secret_file import make_secret
from tandem.coordinator.client import EtcdClient
from tandem.process_log import LogPlace, last_line

START_SECONDS_MAX: Final = 300.0
"""How long a node may take to recover its log and listen: 100 GB of it at 0.4 GB a second, or six
nodes that begin at once on a machine with too much to do."""

STOP_GRACE_SECONDS: Final = 10.0
"""How long a node may take to stop kindly; it waits 3 s for requests in flight, then flushes."""

_LINE_BYTES_MAX: Final = 65_536

Observer = Callable[[NodeStatus], None]


class _Node:
    """A node's place in the cluster, and its process while there is one."""

    def __init__(self, spec: NodeSpec, log_file: Path) -> None:
        self.spec = spec
        self.log_file = log_file
        self.lifecycle = NodeLifecycle(spec.name)
        self.process: NodeProcess | None = None
        self.changed = trio.Event()
        self.released = trio.Event()
        """Set unless the lease of a process that has ended is being ended."""
        self.released.set()

    def status(self, role: str) -> NodeStatus:
        life = self.lifecycle
        return NodeStatus(
            name=life.name,
            role=role,
            address=self.spec.client_address,
            state=life.state,
            pid=life.pid,
            starts_count=life.starts_count,
            last_exit=life.last_exit.text if life.last_exit else "",
        )

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process. Nothing happens if it has ended and is about to be reaped."""
        assert self.process is not None
        self.process.send_signal(number)


class LocalCluster:
    """The node processes of one cluster file. Use with `async with`, which ends them all.

        async with LocalCluster("cluster.yaml") as cluster:
            await cluster.start()
            await cluster.kill("broker-a-1")

    `observer` is called with the new status of a node on every change. `command` gives the
    command line of a node, to which `--log-file FILE` is added; tests put other programs there.
    `open_node` starts such a command line. Entering it raises `NotOursError`, and touches nothing,
    if a node runs by itself or belongs to another machine.
    """

    def __init__(
        self,
        config: ClusterSpec | Path | str,
        *,
        observer: Observer | None = None,
        command: Callable[[Path, str], list[str]] = node_command,
        open_node: OpenProcess = open_process,
    ) -> None:
        self.spec = config if isinstance(config, ClusterSpec) else read_spec(Path(config))
        self._observer = observer
        self._command = command
        self._open_node = open_node
        self._nodes = {
            node.name: _Node(node, self.spec.log_file(node.name)) for node in self.spec.nodes
        }
        self._coordination = Coordination(self.spec)
        self._nursery_manager = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        check_system()
        check_addresses(self.spec)
        await check_free(self.spec, self.spec.nodes)
        self.spec.make_directories()
        make_secret(self.spec.secret_file)
        self._nursery = await self._nursery_manager.__aenter__()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        # Promise kept by the shield: no process is left. Bounded by the grace and then SIGKILL.
        with trio.CancelScope(shield=True):
            await self.stop(grace_seconds=STOP_GRACE_SECONDS if error is None else 0.0)
            for node in self._nodes.values():
                await node.released.wait()
            await self._coordination.close()
        if error is None or isinstance(error, trio.Cancelled):
            return await self._nursery_manager.__aexit__(error_type, error, traceback)
        # The nursery would wrap the caller's own error in a group; it has nothing to do with it.
        await self._nursery_manager.__aexit__(None, None, None)
        return None

    def status(self) -> list[NodeStatus]:
        """The state of every node, in the order of the cluster file."""
        return [self._status(node) for node in self._nodes.values()]

    def state(self, name: str) -> NodeState:
        """The state of one node."""
        return self._node(name).lifecycle.state

    def log_file(self, name: str) -> Path:
        """Where a node logs; its standard error goes there, too."""
        return self._node(name).log_file

    async def start(
        self, name: str | None = None, *, ready_seconds_max: float = START_SECONDS_MAX
    ) -> None:
        """Start one node, or all that have no process, and wait until they serve.

        Of all, the masters come first: a slave that finds none waits before it tries again. Before
        the first node comes the coordinator of the fenced groups, if it is the embedded one.
        Cancelling it leaves the processes as they are.

        Raises:
            NodeStartError: A node ended while starting, or did not become ready in time; it was
                killed then. Nodes that are up stay up.
            NodeCommandError: The named node has a process already.
            UnknownNodeError: There is no such node.
            CoordinatorStartError: The embedded coordinator cannot be served.
            NotOursError: A process that is not of this cluster has the node's store open.
        """
        await self._check_free(self._idle(name))
        self._idle(name)
        if not self._coordination.is_open:
            await self._coordination.open(self._entered())
        if name is not None:
            await self._start(self._node(name), ready_seconds_max)
            return
        idle = self._idle(None)
        refusals: list[NodeStartError] = []

        async def start_one(node: _Node) -> None:
            try:
                await self._start(node, ready_seconds_max)
            except NodeStartError as error:
                refusals.append(error)

        for roles in (("MASTER", "NODE"), ("SLAVE",)):
            async with trio.open_nursery() as nursery:
                for node in idle:
                    if node.spec.role in roles:
                        nursery.start_soon(start_one, node)
            if refusals:
                raise refusals[0]

    async def kill(self, name: str) -> None:
        """End a node with SIGKILL, as a crash would, and wait until it is gone.

        Raises:
            NodeCommandError: It has no process.
        """
        node = self._node(name)
        node.lifecycle.check("stopping", "killed")
        node.lifecycle.stopping()
        node.send_signal(signal.SIGKILL)
        self._tell(node)
        await self._wait_gone(node)

    async def stop(
        self, name: str | None = None, *, grace_seconds: float = STOP_GRACE_SECONDS
    ) -> None:
        """Stop one node, or all, with SIGTERM; after `grace_seconds` with SIGKILL.

        Raises:
            NodeCommandError: The named node has no process.
        """
        if name is not None:
            node = self._node(name)
            node.lifecycle.check("stopping", "stopped")
            await self._stop(node, grace_seconds)
            return
        async with trio.open_nursery() as nursery:
            for node in self._nodes.values():
                if node.lifecycle.has_process:
                    nursery.start_soon(self._stop, node, grace_seconds)

    async def restart(self, name: str) -> None:
        """Stop a node if it has a process, then start it and wait until it serves.

        Raises:
            NodeStartError: As `start`.
            NotOursError: It has none here, and a process that is not of this cluster has its store.
        """
        node = self._node(name)
        if node.lifecycle.has_process:
            await self._stop(node, STOP_GRACE_SECONDS)
        else:
            await self._check_free([node])
        await self._start(node, START_SECONDS_MAX)

    def pause(self, name: str) -> None:
        """Freeze a running node with SIGSTOP: its connections stay open and silent."""
        node = self._node(name)
        node.lifecycle.paused()
        node.send_signal(signal.SIGSTOP)
        if node.process is not None:
            # Until it has stopped, which takes microseconds: of a process that stops only after
            # we have died, the kernel does not know that it has to wake it.
            os.waitid(os.P_PID, node.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._tell(node)

    def resume(self, name: str) -> None:
        """Let a frozen node go on."""
        node = self._node(name)
        node.lifecycle.resumed()
        node.send_signal(signal.SIGCONT)
        self._tell(node)

    def coordinator_client(self) -> EtcdClient:
        """Return a client of the fenced groups' coordinator, for the caller to close.

        Raises:
            ClusterError: No group is fenced.
        """
        return self._coordination.client()

    @property
    def coordinator_trouble(self) -> str:
        """Why the coordinator of the fenced groups cannot be asked, in words; empty if it can."""
        return self._coordination.trouble

    @property
    def coordinator_last_end(self) -> str:
        """Why the embedded coordinator ended by itself the last time; empty if it never did."""
        return self._coordination.last_end

    async def wait_masters(self, seconds_max: float) -> None:
        """Wait until every fenced group has a master, but no longer than that.

        Nothing is raised if one has none. A coordinator that refuses us is not waited for.
        """
        await self._coordination.wait_masters(seconds_max)

    async def start_coordinator(self) -> None:
        """Serve the embedded coordinator again after `stop_coordinator`.

        Raises:
            ClusterError: This cluster has none, it runs, or it cannot be served.
        """
        await self._coordination.start(self._entered())

    async def stop_coordinator(self) -> None:
        """End the embedded coordinator as a crash would; what it has answered is kept.

        Raises:
            ClusterError: This cluster has none, or it does not run.
        """
        await self._coordination.stop()

    def pause_coordinator(self) -> None:
        """Let the embedded coordinator answer nothing. Raises `ClusterError` as stopping does."""
        self._coordination.pause()

    def resume_coordinator(self) -> None:
        """Let it go on. Leases are given back the time in which nobody could renew them."""
        self._coordination.resume()

    def _entered(self) -> trio.Nursery:
        assert self._nursery is not None, "use `async with LocalCluster(...)`"
        return self._nursery

    def _status(self, node: _Node) -> NodeStatus:
        return node.status(self._coordination.role(node.spec, lives=node.lifecycle.has_process))

    def _node(self, name: str) -> _Node:
        self.spec.node(name)
        return self._nodes[name]

    def _tell(self, node: _Node) -> None:
        node.changed.set()
        node.changed = trio.Event()
        if self._observer is not None:
            self._observer(self._status(node))

    async def _start(self, node: _Node, ready_seconds_max: float) -> None:
        node.lifecycle.check("spawned", "started")
        await self._make_room(node)
        await self._spawn(node)
        with trio.move_on_after(ready_seconds_max):
            while node.lifecycle.state in (NodeState.STARTING, NodeState.STOPPING):
                await node.changed.wait()
        if node.lifecycle.state is NodeState.STARTING:
            await self.kill(node.spec.name)
            reason = f"not ready after {ready_seconds_max:.0f} s"
            raise NodeStartError(node.spec.name, None, reason, node.log_file)
        if (end := node.lifecycle.last_exit) is not None:
            reason = end.last_line or end.text
            raise NodeStartError(node.spec.name, end.exit_status, reason, node.log_file)

    def _idle(self, name: str | None) -> list[_Node]:
        """Return what is to be started: a node that can be, or all without a process."""
        if name is None:
            return [node for node in self._nodes.values() if not node.lifecycle.has_process]
        self._node(name).lifecycle.check("spawned", "started")
        return [self._node(name)]

    async def _check_free(self, nodes: Sequence[_Node]) -> None:
        """Refuse nodes whose store somebody else has open; another order of ours may be first."""
        try:
            await check_free(self.spec, [node.spec for node in nodes])
        except NotOursError as error:
            if not all(self._nodes[name].lifecycle.has_process for name in error.names):
                raise

    async def _make_room(self, node: _Node) -> None:
        """End what an earlier life has left at the coordinator; the new one would wait for it.

        Before the process is there, or the lease that is ended could be its own.
        """
        await node.released.wait()
        node.lifecycle.check("spawned", "started")
        if node.lifecycle.starts_count == 0:
            await self._coordination.release(node.spec)
        node.lifecycle.check("spawned", "started")

    async def _release(self, node: _Node) -> None:
        try:
            await self._coordination.release(node.spec)
        finally:
            node.released.set()

    async def _spawn(self, node: _Node) -> None:
        nursery = self._entered()
        log, log_start = _open_log(node.spec.name, node.log_file)
        command = self._command(self.spec.file, node.spec.name)
        # Shielded, and with no other await before the watcher runs: a process that was started is
        # always watched.
        with log, trio.CancelScope(shield=True):
            try:
                process = await self._open_node(
                    [*command, "--log-file", str(node.log_file)], log, node_environment()
                )
            except ForkServerError as error:
                raise NodeStartError(node.spec.name, None, str(error), node.log_file) from error
        node.process = process
        node.lifecycle.spawned(process.pid)
        nursery.start_soon(self._watch, node, process, log_start)
        self._tell(node)

    async def _watch(self, node: _Node, process: NodeProcess, log_start: LogPlace) -> None:
        """Follow one process to its end."""
        # The promise: what was started is reaped. It ends because `stop` ends the process.
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_output, node, process)
                await process.wait()
                node.released = trio.Event()
                self._entered().start_soon(self._release, node)
                # A grandchild could hold the pipe open; what matters has been read.
                nursery.cancel_scope.deadline = trio.current_time() + 1.0
        assert process.stdin is not None
        assert process.returncode is not None
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
        node.process = None
        line = last_line(node.log_file, log_start)
        node.lifecycle.exited(NodeExit(process.returncode, line))
        self._tell(node)

    async def _read_output(self, node: _Node, process: NodeProcess) -> None:
        """Take the READY line; read on, so that a node that prints is never held up."""
        assert process.stdout is not None
        head = b""
        async with process.stdout:
            async for chunk in process.stdout:
                if node.lifecycle.state is not NodeState.STARTING:
                    continue
                head = (head + chunk)[-_LINE_BYTES_MAX:]
                if any(line.startswith(b"READY ") for line in head.split(b"\n")[:-1]):
                    node.lifecycle.ready()
                    self._tell(node)

    async def _stop(self, node: _Node, grace_seconds: float) -> None:
        was_paused = node.lifecycle.state is NodeState.PAUSED
        node.lifecycle.stopping()
        self._tell(node)
        if grace_seconds > 0:
            node.send_signal(signal.SIGTERM)
            if was_paused:
                node.send_signal(signal.SIGCONT)
            with trio.move_on_after(grace_seconds):
                await self._wait_gone(node)
        if node.lifecycle.has_process:
            node.send_signal(signal.SIGKILL)
            await self._wait_gone(node)

    async def _wait_gone(self, node: _Node) -> None:
        while node.lifecycle.state is NodeState.STOPPING:
            await node.changed.wait()


def _open_log(name: str, log_file: Path) -> tuple[IO[bytes], LogPlace]:
    """Open a log to append to; return also where it ends."""
    try:
        log = log_file.open("ab")
    except OSError as error:
        reason = f"its log cannot be written: {error.strerror}; let this user write there"
        raise NodeStartError(name, None, reason, log_file) from error
    return log, LogPlace(os.fstat(log.fileno()).st_ino, log.seek(0, os.SEEK_END))
