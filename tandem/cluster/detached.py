"""A supervisor in the background: `tandem cluster up --detach`.

The supervisor is a process of its own in a session of its own. It is given one end of a pipe and
writes one line of JSON to it: that all nodes serve, or why not. Its words after that go to
`supervisor.log`, beside the logs of the nodes.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import msgspec
import trio

from tandem.cluster.control import Reply
from tandem.cluster.errors import ControlError
from tandem.cluster.local_cluster import LocalCluster
from tandem.cluster.node_lifecycle import NodeStatus
from tandem.cluster.spec import ClusterSpec, check_system, node_environment, read_spec
from tandem.cluster.supervisor import reply_of, supervise
from tandem.cluster_file.errors import ClusterError
from tandem.process_log import start_log
from tandem.wire.untrusted import UnreadableError, decode_json

_log = logging.getLogger(__name__)

STOP_SECONDS_MAX: Final = 30.0
"""Longer than the grace that nodes get; then the supervisor is killed, and they die with it."""


def supervisor_log(spec: ClusterSpec) -> Path:
    """Where a supervisor in the background writes."""
    return spec.log_file("supervisor")


def up_detached(spec: ClusterSpec) -> Reply:
    """Start a supervisor in the background; block until all nodes serve.

    If the caller is interrupted meanwhile, the supervisor goes on; `down` stops it.

    Raises:
        ControlError: It could not start the cluster, with its words, and has ended.
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
    spec.make_directories()
    news_read, news_write = os.pipe()
    command = [sys.executable, "-P", "-m", "tandem.cluster", str(spec.file), str(news_write)]
    with os.fdopen(news_read, "rb") as news, supervisor_log(spec).open("ab") as log:
        with os.fdopen(news_write, "wb"):
            process = subprocess.Popen(
                [*command, "--lifeline"] if lifeline else command,
                env=node_environment(),
                stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[news_write],
                start_new_session=True,
            )
        line = news.read()
    reply = _news(line)
    if reply is not None and not reply.error:
        return process, reply
    process.communicate()
    raise ControlError(reply.error if reply else f"it did not start; see {supervisor_log(spec)}")


def _news(line: bytes) -> Reply | None:
    """What the process said before it closed its pipe; None if it ended before it had said it."""
    try:
        return decode_json(line, Reply)
    except UnreadableError:
        return None


def run_detached(config: Path, news_fd: int, *, lifeline: bool) -> int:
    """What the background process does; returns its exit status."""
    with os.fdopen(news_fd, "wb") as news:
        try:
            spec = read_spec(config)
            start_log("supervisor", spec.logging, supervisor_log(spec))
            trio.run(_supervise, spec, news, lifeline)
        except ClusterError as error:
            _log.critical("%s", error)
            _tell(news, Reply(error=str(error), pid=os.getpid(), nodes=[]))
            return 1
    return 0


async def _supervise(spec: ClusterSpec, news: IO[bytes], lifeline: bool) -> None:  # noqa: FBT001
    def ready(cluster: LocalCluster) -> None:
        _tell(news, reply_of(cluster))

    lifeline_fd = sys.stdin.fileno() if lifeline else None
    await supervise(spec, ready=ready, observer=_log_status, lifeline_fd=lifeline_fd)


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
