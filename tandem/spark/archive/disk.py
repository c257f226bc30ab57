"""The few steps by which an archive or the state of a job changes on a disk.

Whatever is published goes through a `Disk`, a step at a time, so that tests can end the world
between any two of them. A step is durable when it returns.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from tandem.durable_file import make_directory, move_durably, write_draft
from tandem.spark.archive.errors import ArchiveBusyError

LOCK_NAME: Final = "lock"


class Disk(Protocol):
    """What publishing needs of a file system. What the system refuses is an OSError."""

    def write(self, path: Path, data: bytes) -> None:
        """Put a file with `data` at `path`: all of it or none, also in place of another."""

    def move(self, source: Path, target: Path) -> None:
        """Give a file another name on the same file system, also in place of another."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it, if it is there."""


class LocalDisk:
    """A file system of this machine, or one that looks like it."""

    def write(self, path: Path, data: bytes) -> None:
        """See `Disk`: a draft beside it, then its name."""
        self.move(write_draft(path, data), path)

    def move(self, source: Path, target: Path) -> None:
        """See `Disk`."""
        move_durably(source, target)

    def remove_tree(self, path: Path) -> None:
        """See `Disk`."""
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a directory for one job. The lock goes with the process, however that ends.

    Raises:
        ArchiveBusyError: another process has it.
    """
    make_directory(directory)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ArchiveBusyError(
                f"{directory} is in use by another job; wait until it has ended"
            ) from error
        yield
    finally:
        os.close(descriptor)
