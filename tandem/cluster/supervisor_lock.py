"""Who supervises a data directory: a lock in it, and in its file where that supervisor listens.

The socket of a supervisor is in a temporary directory, which is another one for another user, shell
or container. The data directory is the same for all of them, so who has the lock in it has the
nodes, and is found by it. The lock is of the open file and goes with its process.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from tandem.cluster.errors import AlreadyRunningError
from tandem.cluster_file.errors import ClusterError
from tandem.wire.untrusted import UnreadableError, decode_json

LOCK_NAME: Final = "supervisor.lock"
"""The file in the data directory."""

_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux


class Supervisor(msgspec.Struct, frozen=True):
    """A supervisor that has the lock; pid 0 and no socket if it has not said so yet."""

    pid: int = 0
    socket: str = ""


@contextmanager
def supervising(config: Path, data_directory: Path, socket: Path) -> Iterator[None]:
    """Be the only supervisor of a data directory, which is made if it is missing.

    Raises:
        AlreadyRunningError: Another process is it already.
        ClusterError: The system refuses.
    """
    file = data_directory / LOCK_NAME
    try:
        data_directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ClusterError(
            f"{file} cannot be written: {error.strerror}; let this user write there, or set"
            f" cluster.data_directory in {config}"
        ) from error
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole(fcntl.F_WRLCK))
        except (BlockingIOError, PermissionError):
            other = _said_in(descriptor)
            raise AlreadyRunningError(config, other.pid) from None
        own = msgspec.json.encode(Supervisor(os.getpid(), str(socket)))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, own, 0)
        yield
    finally:
        os.close(descriptor)


def supervisor_of(data_directory: Path) -> Supervisor | None:
    """Return the supervisor that has a data directory now; None if there is none, or not for us."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(data_directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    if descriptor is None:
        return None
    try:
        answer: bytes = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole(fcntl.F_RDLCK))
        return None if _FLOCK.unpack(answer)[0] == fcntl.F_UNLCK else _said_in(descriptor)
    finally:
        os.close(descriptor)


def _whole(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _said_in(descriptor: int) -> Supervisor:
    try:
        return decode_json(os.pread(descriptor, 65_536, 0), Supervisor)
    except UnreadableError:
        return Supervisor()
