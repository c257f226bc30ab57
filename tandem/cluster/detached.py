"""A supervisor in the background: `tandem cluster up --detach`.

The supervisor is a process of its own in a session of its own. It is given one end of a pipe and
writes one line of JSON to it: that all nodes serve, or why not. Its words after that go to
`supervisor.log`, beside the logs of the nodes.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import msgspec
import trio

from tandem.cluster.control import Reply
from tandem.cluster.errors import ControlError, OrderRefusedError, SupervisorGoneError
from tandem.cluster.local_cluster import STOP_GRACE_SECONDS, LocalCluster
from tandem.cluster.node_forker import NodeForker
from tandem.cluster.node_lifecycle import NodeStatus
from tandem.cluster.node_process import OpenProcess, open_process
from tandem.cluster.owners import check_addresses
from tandem.cluster.private_disks import mount_private_disks
from tandem.cluster.spec import SUPERVISOR, ClusterSpec, check_system, node_environment, read_spec
from tandem.cluster.supervisor import reply_of, supervise
from tandem.cluster_file.errors import ClusterError
from tandem.process_log import start_log
from tandem.wire.untrusted import UnreadableError, decode_json

_log = logging.getLogger(__name__)

STOP_SECONDS_MAX: Final = 30.0
"""Longer than the grace that nodes get; then the supervisor is killed, and they die with it."""


def supervisor_log(spec: ClusterSpec) -> Path:
    """Where a supervisor in the background writes."""
    return spec.log_file(SUPERVISOR)


def up_detached(spec: ClusterSpec) -> Reply:
    """Start a supervisor in the background; block until all nodes serve.

    If the caller is interrupted meanwhile, the supervisor goes on; `down` stops it.

    Raises:
        ControlError: It could not start the cluster, with its words, and has ended.
        NotOursError: Nodes belong to other machines; nothing was touched.
    """
    process, reply = _start_supervisor(spec, lifeline=False)
    # It outlives us: without this, Popen would warn that nobody waits for it.
    process.returncode = 0
    return reply


@contextmanager
def up_for_block(spec: ClusterSpec) -> Iterator[Reply]:
    """Have the cluster up while the block runs, or until this process ends, however it ends.

    For callers that run no trio; others have `LocalCluster`.

    Raises:
        ControlError: As for `up_detached`.
    """
    process, reply = _start_supervisor(spec, lifeline=True)
    assert process.stdin is not None
    with process:
        try:
            yield reply
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()


def _start_supervisor(
    spec: ClusterSpec, *, lifeline: bool
) -> "tuple[subprocess.Popen[bytes], Reply]":
    check_system()
    check_addresses(spec)
    spec.make_directories()
    news_read, news_write = os.pipe()
    command = [sys.executable, "-P", "-m", "tandem.cluster", str(spec.file), str(news_write)]
    options = msgspec.json.encode(DetachedOptions(lifeline=lifeline)).decode()
    with os.fdopen(news_read, "rb") as news, supervisor_log(spec).open("ab") as log:
        with os.fdopen(news_write, "wb"):
            process = subprocess.Popen(
                [*command, options],
                env=node_environment(),
                stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[news_write],
                start_new_session=True,
            )
        line = news.read()
    try:
        return process, read_news(spec, line)
    except ControlError:
        process.communicate()
        raise


def read_news(spec: ClusterSpec, line: bytes) -> Reply:
    """What a supervisor said before it closed its pipe.

    Raises:
        OrderRefusedError: It could not start the cluster.
        SupervisorGoneError: It has ended before it had said anything.
    """
    try:
        reply = decode_json(line, Reply)
    except UnreadableError:
        raise SupervisorGoneError(f"it did not start; see {supervisor_log(spec)}") from None
    if reply.error:
        raise OrderRefusedError(reply.error, reply.refusal)
    return reply


class DetachedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor in the background is asked to do beside keeping a cluster up."""

    lifeline: bool = False
    """Whether the end of standard input is an order to stop."""
    forks: bool = False
    """Whether nodes are forked, which is quicker: see `tandem.cluster.node_forker`."""
    kills: bool = False
    """Whether nodes are killed at the end, which is quicker, too."""
    disk_mib: int = 0
    """Size of a disk of its own for each store: see `tandem.cluster.private_disks`. 0: none."""


def main(arguments: Sequence[str]) -> int:
    """What the background process does: cluster file, descriptor for the news, options as JSON."""
    file, news_fd, *options = arguments
    return run_detached(
        Path(file),
        int(news_fd),
        decode_json(options[0].encode(), DetachedOptions) if options else DetachedOptions(),
    )


def run_detached(config: Path, news_fd: int, options: DetachedOptions) -> int:
    """What the background process does; returns its exit status."""
    with os.fdopen(news_fd, "wb") as news:
        try:
            spec = read_spec(config)
            if options.disk_mib:
                mount_private_disks([node.directory for node in spec.nodes], options.disk_mib)
            start_log(SUPERVISOR, spec.logging, supervisor_log(spec))
            if options.forks:
                # Before trio: a fork of it would be a scheduler that nobody runs.
                with NodeForker.started() as forker:
                    trio.run(_supervise, spec, news, options, forker.open)
            else:
                trio.run(_supervise, spec, news, options, open_process)
        except ClusterError as error:
            _log.critical("%s", error)
            refusal = type(error).__name__
            _tell(news, Reply(error=str(error), refusal=refusal, pid=os.getpid(), nodes=[]))
            return 1
    return 0


async def _supervise(
    spec: ClusterSpec, news: IO[bytes], options: DetachedOptions, open_node: OpenProcess
) -> None:
    def ready(cluster: LocalCluster) -> None:
        _tell(news, reply_of(cluster))

    await supervise(
        spec,
        ready=ready,
        observer=_log_status,
        lifeline_fd=sys.stdin.fileno() if options.lifeline else None,
        open_node=open_node,
        grace_seconds=0.0 if options.kills else STOP_GRACE_SECONDS,
    )


def _tell(news: IO[bytes], reply: Reply) -> None:
    """Send the one line of news, and close the pipe: the starter reads to its end."""
    if news.closed:
        return
    # The starter may be gone; a cluster that is up does not go down for that.
    with suppress(BrokenPipeError):
        news.write(msgspec.json.encode(reply))
        news.close()


def _log_status(node: NodeStatus) -> None:
    pid = f" (pid {node.pid})" if node.pid else ""
    end = f" {node.last_exit}" if node.last_exit else ""
    _log.info("%s %s%s%s", node.name, node.state.value, pid, end)
