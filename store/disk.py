"""The only door to the file system, and the only module that uses threads.

Everything above talks to a `Disk`; the simulation puts its own behind the same protocol. Three
facts decide what is in here:

- A file is allocated with `posix_fallocate` before it is mapped. A sparse mapping on a full disk
  kills the process with SIGBUS, which Python cannot catch.
- A mapping is made durable with `os.fdatasync` on the file, in a thread. `mmap.flush` holds the
  interpreter lock for as long as the disk takes.
- Threads run one system call on a file descriptor and touch no object of ours.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

import trio

from store.errors import (
    CorruptLogError,
    DiskFailedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
)

TEMPORARY_SUFFIX: Final = ".tmp"
"""Of a file that is not finished. `create` and `replace` overwrite what a crash left of one."""


class DiskFile(Protocol):
    """One file of fixed size, mapped for reading and writing.

    `buffer` supports slicing, `struct.pack_into` and the buffer protocol. A live memoryview of it
    delays the unmapping, never the deletion.
    """

    @property
    def path(self) -> str:
        """The name it was created or opened with."""

    @property
    def size(self) -> int:
        """Its length in bytes, all of it mapped."""

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """The bytes; a write is in the page cache when it returns."""

    def sync(self) -> None:
        """Block until all bytes are durable. For recovery and close only.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """

    def close(self) -> None:
        """Unmap and close. Harmless when repeated."""


class Disk(Protocol):
    """What the store needs of a file system. Paths are absolute or relative to the process."""

    def create(self, path: str, size: int) -> DiskFile:
        """Create a zero-filled file whose blocks are allocated, and its parent directories.

        Raises:
            StoreFullError: no room; no file is left behind.
            DiskFailedError: anything else; no file is left behind.
        """

    def open(self, path: str) -> DiskFile:
        """Map an existing file.

        Raises:
            CorruptLogError: it is empty.
        """

    def list_files(self, directory: str) -> list[tuple[str, int]]:
        """Return (name, size) of the files in `directory`, by name; empty if it is missing.

        What an interrupted `create` or `replace` left behind is not shown.
        """

    def list_directories(self, directory: str) -> list[str]:
        """Return the names of the directories in `directory`, sorted; empty if it is missing."""

    def exists(self, path: str) -> bool:
        """True if a file of that name exists."""

    def remove(self, path: str) -> None:
        """Delete a file, so that a power loss does not bring it back. A missing one is fine."""

    def read(self, path: str) -> bytes | None:
        """Return a small file whole, or None if it does not exist."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file so that a crash leaves the old content or the new, durable.

        Raises:
            StoreFullError: no room; the old content stands.
            DiskFailedError: anything else; the old content stands.
        """

    def lock(self, path: str) -> Callable[[], None]:
        """Take the exclusive lock RocketMQ takes (`lock` file); return the release.

        Raises:
            StoreLockedError: another process holds it.
        """

    def free_bytes(self, directory: str) -> int:
        """Return the free space of the file system that holds `directory`."""

    async def create_in_background(self, path: str, size: int) -> DiskFile | None:
        """The same as `create`, without stopping other tasks, with every page touched.

        The first touch of a fresh page costs more than the record written to it. None if a file of
        that name exists by the time this one is ready; that one is left alone.

        Raises:
            StoreFullError: no room; no file is left behind.
            DiskFailedError: anything else; no file is left behind.
        """

    async def sync(self, file: DiskFile) -> None:
        """Make durable what is in the file now, without stopping other tasks.

        Not cancellable while the system call runs.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """


class RealFile:
    """A file of this machine, mapped with MAP_SHARED."""

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self.buffer = mmap.mmap(descriptor, size)

    @property
    def descriptor(self) -> int:
        """The open file descriptor, for `fdatasync`."""
        return self._descriptor

    def sync(self) -> None:
        """Block until all bytes are durable."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Unmap and close; a buffer still in use is unmapped when its last view goes."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        try:
            self.buffer.close()
        except BufferError:
            return


class RealDisk:
    """The disk of this machine."""

    def __init__(self) -> None:
        # Syncs of several files may overlap; more than a few only queue up in the kernel.
        self._limiter = trio.CapacityLimiter(4)

    def create(self, path: str, size: int) -> RealFile:
        """See `Disk.create`."""
        # Under another name until it has its full length: a crash in between must not leave a
        # short file, which would keep the store from opening.
        temporary = path + TEMPORARY_SUFFIX
        try:
            _make_directories(os.path.dirname(path))
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o644)
        except OSError as error:
            raise _translated(error, path, size) from error
        try:
            _allocate(descriptor, size)
            file = RealFile(path, descriptor, size)
        except OSError as error:
            os.close(descriptor)
            os.unlink(temporary)
            raise _translated(error, path, size) from error
        os.rename(temporary, path)
        _sync_directory(os.path.dirname(path))
        return file

    def open(self, path: str) -> RealFile:
        """See `Disk.open`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        size = os.fstat(descriptor).st_size
        if size == 0:
            os.close(descriptor)
            raise CorruptLogError(f"{path}: the file is empty", path=path)
        try:
            # A file copied with holes in it must not run into a full disk later.
            _allocate(descriptor, size)
            return RealFile(path, descriptor, size)
        except OSError as error:
            os.close(descriptor)
            raise _translated(error, path, size) from error

    def list_files(self, directory: str) -> list[tuple[str, int]]:
        """See `Disk.list_files`."""
        if not os.path.isdir(directory):
            return []
        with os.scandir(directory) as entries:
            return sorted(
                (e.name, e.stat().st_size)
                for e in entries
                if e.is_file() and not e.name.endswith(TEMPORARY_SUFFIX)
            )

    def list_directories(self, directory: str) -> list[str]:
        """See `Disk.list_directories`."""
        if not os.path.isdir(directory):
            return []
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if e.is_dir())

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return os.path.isfile(path)

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        if os.path.exists(path):
            os.unlink(path)
            _sync_directory(os.path.dirname(path))

    def read(self, path: str) -> bytes | None:
        """See `Disk.read`."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: str, data: bytes) -> None:
        """See `Disk.replace`."""
        directory = os.path.dirname(path)
        temporary = path + TEMPORARY_SUFFIX
        try:
            _make_directories(directory)
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fdatasync(file.fileno())
        except OSError as error:
            Path(temporary).unlink(missing_ok=True)
            raise _translated(error, path, len(data)) from error
        os.replace(temporary, path)
        _sync_directory(directory)

    def lock(self, path: str) -> Callable[[], None]:
        """See `Disk.lock`. Like RocketMQ: the first byte of the file, as a POSIX record lock."""
        _make_directories(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLockedError(
                f"{path}: another process has this store open; stop it or use another directory"
            ) from error
        os.pwrite(descriptor, b"lock", 0)
        return lambda: os.close(descriptor)

    def free_bytes(self, directory: str) -> int:
        """See `Disk.free_bytes`."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    async def create_in_background(self, path: str, size: int) -> RealFile | None:
        """See `Disk.create_in_background`."""
        waiting = f"{os.path.dirname(path)}/next{TEMPORARY_SUFFIX}"
        run_sync = trio.to_thread.run_sync
        file = await run_sync(self.create, waiting, size, limiter=self._limiter)
        try:
            if _madvise is not None:
                address = ctypes.addressof(ctypes.c_char.from_buffer(file.buffer))
                await run_sync(_madvise, address, size, _MADV_POPULATE_WRITE, limiter=self._limiter)
            # Not a rename: `create` may have made a file of that name meanwhile.
            os.link(waiting, path)
        except FileExistsError:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        finally:
            os.unlink(waiting)
        # The file has its name: whoever cancels still gets it, and knows to delete it.
        with trio.CancelScope(shield=True):
            await run_sync(_sync_directory, os.path.dirname(path), limiter=self._limiter)
        file.path = path
        return file

    async def sync(self, file: DiskFile) -> None:
        """See `Disk.sync`."""
        descriptor = cast("RealFile", file).descriptor
        await trio.to_thread.run_sync(os.fdatasync, descriptor, limiter=self._limiter)


def _find_madvise() -> Callable[[int, int, int], int] | None:
    """Return madvise(2), which `mmap.madvise` would call with the interpreter lock held."""
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    function.restype = ctypes.c_int
    return cast("Callable[[int, int, int], int]", function)


# Advice only: kernels before 5.14 answer an error, and the pages are touched as they are written.
_MADV_POPULATE_WRITE: Final = 23
_madvise = _find_madvise()


def _allocate(descriptor: int, size: int) -> None:
    # macOS has no posix_fallocate; there a full disk can still end in SIGBUS.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def _make_directories(directory: str) -> None:
    """Create what is missing of a path, so that a power loss does not take it back."""
    if not os.path.isdir(directory):
        parent = os.path.dirname(directory) or "."
        _make_directories(parent)
        os.makedirs(directory, exist_ok=True)
        _sync_directory(parent)


def _sync_directory(directory: str) -> None:
    """Make a new or renamed name durable; without it a power loss can undo the creation."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _translated(error: OSError, path: str, size: int) -> StoreError:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFailedError(
            f"{path}: {error.strerror}; check the disk and who may write to it, then start again"
        )
    return StoreFullError(
        f"{path}: no room for {size} bytes ({os.strerror(error.errno)});"
        " free space on that disk, then send again",
        path=path,
    )
