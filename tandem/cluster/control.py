"""How other processes talk to a cluster's supervisor.

One request and one reply per connection, each a line of JSON, over a Unix socket. The socket is
in a directory of the user's own under the temporary directory, because the path of a Unix socket
may not be longer than 107 bytes while a cluster file may be anywhere; its name is a digest of the
cluster file's path.

Beside it is a lock file that the supervisor holds for as long as it lives. The holder of the lock
owns the socket path, so a socket that a killed supervisor left is simply replaced. A second lock,
in the data directory, leads to the supervisor from where the temporary directory is another one:
see `tandem.cluster.supervisor_lock`.
"""

import fcntl
import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from tandem.cluster.errors import (
    AlreadyRunningError,
    NotRunningError,
    OrderRefusedError,
    SocketDirectoryError,
    SupervisorGoneError,
)
from tandem.cluster.node_lifecycle import NodeStatus
from tandem.cluster.spec import ClusterSpec, read_spec
from tandem.cluster.supervisor_lock import Supervisor, supervising, supervisor_of
from tandem.cluster_file.errors import ClusterError
from tandem.wire.untrusted import UnreadableError, decode_json

SOCKET_PATH_BYTES_MAX: Final = 107
"""Source: unix(7), `sun_path` has 108 bytes with its final zero."""

PRIVATE: Final = 0o700
"""The mode of a directory that only its user may enter."""

REQUEST_BYTES_MAX: Final = 65_536

REPLY_SECONDS_MAX: Final = 360.0
"""Longer than the longest command, a restart, can take."""

VERSION: Final = 1
"""Of requests and replies. Fields may come without another one: who does not know them leaves them
out. A supervisor refuses requests of a higher one, and says so."""

Command = Literal["status", "down", "start", "stop", "kill", "restart", "pause", "resume"]


class Request(msgspec.Struct, frozen=True):
    """One command; `node` is needed by all but `status`, `down` and `start`."""

    command: Command
    node: str | None = None
    version: int = VERSION


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `error` is empty if it was done."""

    error: str = ""
    refusal: str = ""
    """The name of the class of that error."""
    pid: int
    nodes: list[NodeStatus]
    coordinator_trouble: str = ""
    """Why the coordinator of fenced groups cannot be asked who is master; empty if it can."""
    coordinator_last_end: str = ""
    """Why the embedded coordinator has ended by itself the last time; empty if it never has."""
    version: int = VERSION
    program: str = ""
    """The supervisor's version of TandemMQ; empty for one from before it said so."""


def socket_path(config: Path) -> Path:
    """Where the supervisor of this cluster file listens. The directory is made if it is missing."""
    digest = hashlib.sha256(os.fsencode(config.resolve())).hexdigest()[:16]
    directory = Path(tempfile.gettempdir()) / f"tandem-{os.getuid()}"
    if len(os.fsencode(directory / f"{digest}.sock")) > SOCKET_PATH_BYTES_MAX:
        directory = Path("/tmp") / directory.name
    directory.mkdir(mode=PRIVATE, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        raise SocketDirectoryError(directory)
    if stat.S_IMODE(status.st_mode) != PRIVATE:
        directory.chmod(PRIVATE)
    return directory / f"{digest}.sock"


@contextmanager
def ownership(spec: ClusterSpec) -> Iterator[Path]:
    """Be the only supervisor of a cluster file and its data; yield the path to listen on.

    Raises:
        AlreadyRunningError: Another process is it already.
        ClusterError: The data directory cannot be written.
    """
    path = socket_path(spec.file)
    with path.with_suffix(".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AlreadyRunningError(spec.file, int(lock.read() or 0)) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        with supervising(spec.file, spec.data_directory, path):
            path.unlink(missing_ok=True)
            try:
                yield path
            finally:
                # Before the locks go: after them, the path may belong to the next supervisor.
                path.unlink(missing_ok=True)


def send_request(config: Path, request: Request) -> Reply:
    """Ask the supervisor of a cluster file; block until it has answered.

    Raises:
        NotRunningError: There is no supervisor.
        OrderRefusedError: It refused, with its words.
        SupervisorGoneError: It went away or was silent, or cannot be reached from here.
    """
    with _connected(config) as connection:
        connection.settimeout(REPLY_SECONDS_MAX)
        try:
            connection.sendall(msgspec.json.encode(request) + b"\n")
            connection.shutdown(socket.SHUT_WR)
            line = b"".join(iter(lambda: connection.recv(REQUEST_BYTES_MAX), b""))
        except OSError as error:
            raise SupervisorGoneError(f"the supervisor did not answer: {error}") from error
    try:
        reply = decode_json(line, Reply)
    except UnreadableError as error:
        raise SupervisorGoneError("the supervisor ended before it answered") from error
    if reply.error:
        raise OrderRefusedError(reply.error, reply.refusal)
    return reply


def _connected(config: Path) -> socket.socket:
    """Return a connection to the supervisor, where this process would listen or where it does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(str(socket_path(config)))
            return connection
        _connect_elsewhere(connection, config)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_elsewhere(connection: socket.socket, config: Path) -> None:
    """Connect to the supervisor that has the data directory."""
    found = _supervisor_of(config)
    if found is None:
        raise NotRunningError(config)
    try:
        connection.connect(found.socket)
    except OSError as error:
        raise SupervisorGoneError(
            f"the supervisor of {config}, process {found.pid}, cannot be asked at"
            f" {found.socket or 'its socket'}: {error.strerror}; ask as its user, where it was"
            " started"
        ) from error


def _supervisor_of(config: Path) -> Supervisor | None:
    with suppress(ClusterError):  # a spoilt file is looked at by who needs what is in it
        return supervisor_of(read_spec(config).data_directory)
    return None
