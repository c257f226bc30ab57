"""A supervisor in the background: `tandem cluster up --detach`.

The supervisor is a process of its own in a session of its own. It is given one end of a pipe and
writes one line of JSON to it: that all nodes serve, or why not. Its words after that go to
`supervisor.log`, beside the logs of the nodes.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import msgspec
import trio

from tandem.cluster.control import Reply
from tandem.cluster.errors import ClusterError, ControlError
from tandem.cluster.local_cluster import LocalCluster, NodeStatus
from tandem.cluster.spec import ClusterSpec, node_environment, read_spec
from tandem.cluster.supervisor import supervise


def supervisor_log(spec: ClusterSpec) -> Path:
    """Where a supervisor in the background writes."""
    return spec.log_directory / "supervisor.log"


def up_detached(spec: ClusterSpec) -> Reply:
    """Start a supervisor in the background; block until all nodes serve.

    If the caller is interrupted meanwhile, the supervisor goes on; `down` stops it.

    Raises:
        ControlError: It could not start the cluster, with its words, and has ended.
    """
    spec.log_directory.mkdir(parents=True, exist_ok=True)
    news_read, news_write = os.pipe()
    command = [sys.executable, "-P", "-m", "tandem.cluster", str(spec.file), str(news_write)]
    with os.fdopen(news_read, "rb") as news, supervisor_log(spec).open("ab") as log:
        with os.fdopen(news_write, "wb"):
            subprocess.Popen(
                command,
                env=node_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[news_write],
                start_new_session=True,
            )
        line = news.read()
    if not line:
        raise ControlError(f"the supervisor ended while starting; see {supervisor_log(spec)}")
    reply = msgspec.json.decode(line, type=Reply)
    if reply.error:
        raise ControlError(reply.error)
    return reply


def run_detached(config: Path, news_fd: int) -> int:
    """What the background process does; returns its exit status."""
    with os.fdopen(news_fd, "wb") as news:
        try:
            trio.run(_supervise, read_spec(config), news)
        except ClusterError as error:
            _log(f"error: {error}")
            if not news.closed:
                news.write(msgspec.json.encode(Reply(error=str(error), pid=os.getpid(), nodes=[])))
            return 1
    return 0


async def _supervise(spec: ClusterSpec, news: IO[bytes]) -> None:
    def ready(cluster: LocalCluster) -> None:
        news.write(msgspec.json.encode(Reply(pid=os.getpid(), nodes=cluster.status())))
        news.close()

    await supervise(spec, ready=ready, observer=_log_status)


def _log_status(node: NodeStatus) -> None:
    pid = f" (pid {node.pid})" if node.pid else ""
    _log(f"{node.name} {node.state.value}{pid} {node.last_exit}".rstrip())


def _log(text: str) -> None:
    print(time.strftime("%Y-%m-%dT%H:%M:%S%z"), text, file=sys.stderr, flush=True)  # noqa: T201
