"""Keeps a cluster up, and does what `tandem cluster ...` asks meanwhile.

It ends by `down`, SIGINT, SIGTERM or SIGHUP, or by the end of its lifeline, if it has one; a
second signal means SIGKILL for the nodes that are still stopping. A node that ends by itself is
reported and left as it is: this is a cluster to break, and a restart that nobody asked for would
hide what happened.
"""

import logging
import os
import signal
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from tandem import __version__
from tandem.cluster.control import REQUEST_BYTES_MAX, VERSION, Command, Reply, Request, ownership
from tandem.cluster.errors import NoNodeNamedError, OrderVersionError
from tandem.cluster.local_cluster import STOP_GRACE_SECONDS, LocalCluster, Observer
from tandem.cluster.node_process import OpenProcess, open_process
from tandem.cluster.order_trail import OrderTrail, Peer, order_trail
from tandem.cluster.owners import check_addresses
from tandem.cluster.spec import ClusterSpec, node_command
from tandem.cluster_file.errors import ClusterError
from tandem.wire.untrusted import UnreadableError, decode_json

_log = logging.getLogger(__name__)

REQUEST_SECONDS_MAX: Final = 5.0
"""How long a client may take to send its one line."""

ANSWER_SECONDS_MAX: Final = 1.0
"""How long answers may take to leave once everything has stopped."""

MASTERS_SECONDS_MAX: Final = 10.0
"""How long the report that the cluster is up waits for the first election. An election takes half
a second once all nodes are there, and some on a machine with too much to do; if there is none,
`tandem ha status` says why."""

_UCRED: Final = struct.Struct("iII")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def supervise(
    spec: ClusterSpec,
    *,
    ready: Callable[[LocalCluster], None],
    observer: Observer | None = None,
    lifeline_fd: int | None = None,
    command: Callable[[Path, str], list[str]] = node_command,
    open_node: OpenProcess = open_process,
    grace_seconds: float = STOP_GRACE_SECONDS,
) -> None:
    """Start the cluster, call `ready` once all nodes serve, and keep it up until it is stopped.

    If a fenced group has no master yet, `ready` comes a little later, so that it can tell who is.

    `lifeline_fd` is a pipe to read whose end is an order to stop; it is closed here. At the end
    nodes may take `grace_seconds` to stop; then, or on cancellation, they end with SIGKILL.

    Raises:
        AlreadyRunningError: Another process supervises this cluster file, or its data directory.
        NotOursError: Nodes belong to other machines; nothing was touched.
        NodeStartError: A node did not start; all others were stopped again.
        AuditFileError: Who orders what cannot be written.
    """
    check_addresses(spec)
    with ownership(spec) as path:
        async with LocalCluster(
            spec, observer=observer, command=command, open_node=open_node
        ) as cluster:
            with order_trail(spec) as trail:
                await _Supervisor(cluster, grace_seconds, trail).run(path, ready, lifeline_fd)


class _Supervisor:
    """One cluster, its control socket, and the wish to stop."""

    def __init__(self, cluster: LocalCluster, grace_seconds: float, trail: OrderTrail) -> None:
        self._cluster = cluster
        self._trail = trail
        self._grace_seconds = grace_seconds
        self._starting = trio.CancelScope()
        self._stop = trio.Event()
        self._stopped = trio.Event()

    async def run(
        self, path: Path, ready: Callable[[LocalCluster], None], lifeline_fd: int | None
    ) -> None:
        listener = _listen(path)
        async with trio.open_nursery() as signals:
            await signals.start(self._receive_signals)
            if lifeline_fd is not None:
                signals.start_soon(self._hold_lifeline, lifeline_fd)
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as listeners:
                    serve = partial(
                        trio.serve_listeners,
                        self._answer,
                        [listener],
                        handler_nursery=connections,
                    )
                    await listeners.start(serve)
                    failure = await self._stay_up(ready)
                    listeners.cancel_scope.cancel()
                connections.cancel_scope.deadline = trio.current_time() + ANSWER_SECONDS_MAX
            signals.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _stay_up(self, ready: Callable[[LocalCluster], None]) -> ClusterError | None:
        """From the first start to the last stop. A failure is returned: nurseries would wrap it."""
        failure = None
        try:
            with self._starting:
                await self._cluster.start()
                await self._cluster.wait_masters(MASTERS_SECONDS_MAX)
                ready(self._cluster)
            await self._stop.wait()
        except ClusterError as error:
            failure = error
        self._request_stop()
        await self._cluster.stop(grace_seconds=self._grace_seconds)
        self._stopped.set()
        return failure

    def _request_stop(self) -> None:
        self._stop.set()
        self._starting.cancel()

    async def _receive_signals(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                self._trail.signalled(number)
                if self._stop.is_set():
                    await self._cluster.stop(grace_seconds=0.0)
                self._request_stop()

    async def _hold_lifeline(self, lifeline_fd: int) -> None:
        async with trio.lowlevel.FdStream(lifeline_fd) as lifeline:
            while await lifeline.receive_some():
                pass
        self._request_stop()

    async def _answer(self, stream: trio.SocketStream) -> None:
        """One client: read a request, carry it out, answer. A client that went away is let go."""
        try:
            async with stream:
                peer = peer_of(stream.socket)
                if not is_of_this_user(peer.uid, os.geteuid()):
                    self._trail.turned_away(peer)
                    return
                with trio.fail_after(REQUEST_SECONDS_MAX):
                    line = await _read_line(stream)
                reply = await self._reply(peer, line)
                await stream.send_all(msgspec.json.encode(reply) + b"\n")
        except (trio.BrokenResourceError, trio.TooSlowError):
            return

    async def _reply(self, peer: Peer, line: bytes) -> Reply:
        error_text, refusal = "", ""
        command, node = "none", None
        try:
            request = decode_json(line, Request)
            command, node = request.command, request.node
            _check_version(request)
            await self._carry_out(request.command, request.node)
        except ClusterError as error:
            error_text, refusal = str(error), type(error).__name__
        except UnreadableError as error:
            error_text, refusal = f"this is no request: {error}", type(error).__name__
        except Exception as error:  # noqa: BLE001 - whatever was asked, the cluster stays up
            _log.exception("a request of the control socket failed: a bug")
            refusal = type(error).__name__
            error_text = f"{refusal}: {error}: a bug; see the supervisor's log"
        if command != "status":
            self._trail.ordered(peer, command, node, refusal, error_text)
        return reply_of(self._cluster, error_text, refusal)

    async def _carry_out(self, command: Command, node: str | None) -> None:
        cluster = self._cluster
        match command, node:
            case "status", _:
                return
            case "down", _:
                self._request_stop()
                await self._stopped.wait()
            case "start", _:
                await cluster.start(node)
            case _, None:
                raise NoNodeNamedError(command)
            case "stop", str(name):
                await cluster.stop(name)
            case "kill", str(name):
                await cluster.kill(name)
            case "restart", str(name):
                await cluster.restart(name)
            case "pause", str(name):
                cluster.pause(name)
            case "resume", str(name):
                cluster.resume(name)


def _check_version(request: Request) -> None:
    """Look whether a request is one of this version.

    Raises:
        OrderVersionError: It is of a later one.
    """
    if request.version > VERSION:
        raise OrderVersionError(request.version, VERSION)


def reply_of(cluster: LocalCluster, error_text: str = "", refusal: str = "") -> Reply:
    """How the cluster is now."""
    return Reply(
        error=error_text,
        refusal=refusal,
        pid=os.getpid(),
        nodes=cluster.status(),
        coordinator_trouble=cluster.coordinator_trouble,
        coordinator_last_end=cluster.coordinator_last_end,
        program=__version__,
    )


def _listen(path: Path) -> trio.SocketListener:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    # Its directory is for this user alone already; nobody can connect before `listen`.
    path.chmod(0o600)
    listener.listen(16)
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


def peer_of(connected: trio.socket.SocketType) -> Peer:
    """The process at the other end of a Unix socket. Source: unix(7), SO_PEERCRED."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _gid = _UCRED.unpack(credentials)
    return Peer(pid, uid)


def is_of_this_user(peer: int, own: int) -> bool:
    """Whether a process may give orders here: one of the same user, or root's."""
    return peer in (own, 0)


async def _read_line(stream: trio.SocketStream) -> bytes:
    """All bytes up to the client's end of line or end of stream, at most `REQUEST_BYTES_MAX`."""
    line = b""
    while b"\n" not in line and len(line) < REQUEST_BYTES_MAX:
        data = await stream.receive_some(REQUEST_BYTES_MAX)
        if not data:
            break
        line += data
    return line
