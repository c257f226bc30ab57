"""`tandem testing serve`: a cluster for a program in any language, which is the parent process.

    parent --- stdin: orders ---> this process --- lifelines ---> supervisor, proxies
       ^------ stdout: answers ------'    `------- a pipe ------> sweeper of its directory

It ends with its parent, however that ends: with the end of standard input, or when the process
that has started it is gone. If it is itself killed, the lifelines end all that it has started.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from tandem import __version__
from tandem.cluster_file.errors import ClusterConfigError, ClusterError
from tandem.testing.cluster import RunningCluster
from tandem.testing.cluster_files import GROUP, Kind
from tandem.testing.parent_process import ParentProcess
from tandem.testing.serve_orders import EXPECTED, ClusterOrders
from tandem.testing.serve_protocol import (
    Code,
    ErrorLine,
    LineCutter,
    Ready,
    ReadyLine,
    ServedNode,
    Trouble,
    encoded,
)
from tandem.testing.start import running_group
from tandem.testing.sweeper import Sweeper

_READ_BYTES: Final = 65_536

PREFIX: Final = "tandem-testing-"
"""Of the names of temporary directories."""


class DirectoryInUseError(ClusterError):
    """The directory for a cluster has something in it, or another cluster is about to have."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directory = directory

    def __str__(self) -> str:
        return (
            f"{self.directory} is not empty, or is another cluster's that starts; name a directory"
            " that is empty or not there yet"
        )


class WantedTopic(msgspec.Struct, frozen=True):
    """A topic that is there from the start."""

    name: str
    queues: int


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which cluster."""

    kind: Kind
    nodes: int
    topics: tuple[WantedTopic, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = {}
    disk_mib: int = 0
    directory: Path | None = None
    """Where its files go and stay; None: to a temporary directory that goes with it."""


class Session:
    """One cluster: starts it, answers lines until there are no more, ends it.

    `answer_lines` runs in a thread of its own, and blocks; `close` is for when that has ended or
    is not waited for any more.
    """

    def __init__(self, options: ServeOptions, stdin: int, stdout: int) -> None:
        self._options = options
        self._stdin = stdin
        self._stdout = stdout
        self._up: ExitStack | None = None

    def answer_lines(self) -> None:
        """Start the cluster, say that it is ready, and answer each line.

        Raises:
            ClusterError, ValueError, OSError: There is no such cluster, as by `running_group`.
            ClientError: A topic could not be made.
            BrokenPipeError: Nobody reads the answers.
        """
        try:
            with ExitStack() as stack:
                orders, ready = _started(self._options, stack)
                self._up = stack.pop_all()
        except EXPECTED as error:
            is_config = isinstance(error, ClusterConfigError)
            code = Code.WRONG_SETTINGS if is_config else Code.NOT_STARTED
            self._write(encoded(ErrorLine(error=Trouble(code, str(error)))))
            raise
        self._write(encoded(ReadyLine(ready)))
        cutter = LineCutter()
        while data := os.read(self._stdin, _READ_BYTES):
            for line in cutter.feed(data):
                self._write(orders.answer(line))
        for line in cutter.end():
            self._write(orders.answer(line))

    def close(self) -> None:
        """End the cluster, if it is up. One that is just being started ends with this process."""
        up, self._up = self._up, None
        if up is not None:
            up.close()

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._stdout, data) :]


def _started(options: ServeOptions, stack: ExitStack) -> tuple[ClusterOrders, Ready]:
    cluster = stack.enter_context(
        running_group(
            _directory(options, stack),
            kind=options.kind,
            nodes_count=options.nodes,
            settings=options.settings,
            proxied=options.nodes > 1,
            disk_mib=options.disk_mib,
            # RocketMQ's clients look for another master every 30 s: they find it here.
            has_master_address=options.kind == "fenced" and options.nodes > 1,
        )
    )
    orders = ClusterOrders(cluster)
    orders.wait_known()
    for topic in options.topics:
        orders.make_topic(topic.name, topic.queues)
    return orders, _ready(options, cluster)


def _directory(options: ServeOptions, stack: ExitStack) -> Path:
    """Make the directory for the cluster's files, and a temporary one that goes with it."""
    kept = _kept(options.directory, stack) if options.directory is not None else None
    sweeper = stack.enter_context(Sweeper())
    temporary = Path(tempfile.mkdtemp(prefix=PREFIX))
    sweeper.watch(temporary)
    stack.callback(shutil.rmtree, temporary, ignore_errors=True)
    # The supervisor's socket and lock go there, too.
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    return kept or temporary


def _kept(directory: Path, stack: ExitStack) -> Path:
    """Make it, and claim it: of two that find it empty at the same time, one gets it."""
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    claim = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, claim)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DirectoryInUseError(directory) from error
    if any(directory.iterdir()):
        raise DirectoryInUseError(directory)
    return directory


def _ready(options: ServeOptions, cluster: RunningCluster) -> Ready:
    spec = cluster.spec
    return Ready(
        name_servers=";".join(cluster.name_servers),
        group=GROUP,
        kind=options.kind,
        master=cluster.wait_for_master(),
        nodes=[
            ServedNode(
                name=node.name,
                address=node.client_address,
                log_file=str(spec.log_file(node.name)),
            )
            for node in spec.nodes
        ],
        topics=[topic.name for topic in options.topics],
        cluster_file=str(spec.file),
        ca_file=spec.tls.ca_file if spec.tls is not None else "",
        pid=os.getpid(),
        version=__version__,
    )


async def serve(session: Session, parent: ParentProcess) -> None:
    """Serve one cluster until there are no more lines, the parent is gone, or this is cancelled.

    Raises:
        ClusterError, ValueError, OSError, ClientError: As `Session.answer_lines`.
    """
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, parent.wait_end, nursery.cancel_scope.cancel)
            await trio.to_thread.run_sync(session.answer_lines, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()
    finally:
        # It takes a moment, and there is nobody else here who would be kept waiting.
        session.close()


async def _cancel_after(wait: Callable[[], Any], cancel: Callable[[], None]) -> None:
    await wait()
    cancel()
