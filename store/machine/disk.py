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
import logging
import mmap
import os
import resource
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias, cast

import msgspec
import trio

from store.machine.errors import (
    CorruptLogError,
    DiskFailedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
)

_log = logging.getLogger(__name__)

Buffer: TypeAlias = mmap.mmap | bytearray
"""Memory that can be sliced and written to, of a file or of nobody."""

READ_BYTES_MAX: Final = 1 << 30
"""More than any file has that is read whole. They are small, unless somebody has damaged them."""

TEMPORARY_SUFFIX: Final = ".tmp"
"""Of a file that is not finished. `create` and `replace` overwrite what a crash left of one."""


class DiskSpace(msgspec.Struct, frozen=True):
    """How full a file system is. What is set aside for root is part of neither number."""

    used_bytes: int
    usable_bytes: int


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
    def buffer(self) -> Buffer:
        """The bytes; a write is in the page cache when it returns."""

    def write(self, position: int, data: memoryview) -> None:
        """Put `data` into the page cache without touching the mapping, which shows it at once.

        Raises:
            OSError: the disk failed; some of it may be there.
        """

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

    def open(self, path: str, *, read_only: bool = False) -> DiskFile:
        """Map an existing file. Its modification time stays as it is.

        If `read_only`, the file is not touched in any way, and writing to its buffer is a
        TypeError.

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

    def remove_directory(self, path: str) -> None:
        """Delete a directory if it is empty; otherwise, and if it is missing, do nothing."""

    def read(self, path: str) -> bytes | None:
        """Return a small file whole, or None if it does not exist.

        Raises:
            OSError: it cannot be read, is no ordinary file, or is larger than 1 GiB.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file so that a crash leaves the old content or the new, durable.

        Raises:
            StoreFullError: no room; the old content stands.
            DiskFailedError: anything else; the old content stands.
        """

    def rename(self, path: str, new_path: str) -> bool:
        """Give a file or a directory another name on the same file system, durably.

        Directories of the new name are created. Return False if nothing has the old name.

        Raises:
            DiskFailedError: the new name is taken, or on another file system; nothing was changed.
        """

    def lock(self, path: str) -> Callable[[], None]:
        """Take the exclusive lock RocketMQ takes (`lock` file); return the release.

        Raises:
            StoreLockedError: another process holds it.
        """

    def free_bytes(self, directory: str) -> int:
        """Return the free space of the file system that holds `directory`."""

    def space(self, directory: str) -> DiskSpace:
        """Return how full the file system of `directory` is; 0 and 0 if it does not exist."""

    def modified_ms(self, path: str) -> int:
        """Return when the content of an existing file changed last, in ms since 1970."""

    def allocate_buffer(self, size: int) -> Buffer:
        """Return memory of zeros that belongs to no file, locked into memory where allowed.

        Raises:
            StoreFullError: there is not that much memory.
        """

    async def lock_in_memory(self, file: DiskFile) -> None:
        """Keep the pages of a file from being paged out until it is unlocked or unmapped.

        Best effort: where the system forbids it (RLIMIT_MEMLOCK) this is logged, once.

        Source: DefaultMappedFile.mlock.
        """

    async def unlock_memory(self, file: DiskFile) -> None:
        """Take `lock_in_memory` back. Harmless for a file that is not locked, or closed."""

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

        Not cancellable while the system call runs. A file that was closed is left alone: it has
        been deleted while its turn was to come.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """


class RealFile:
    """A file of this machine, mapped with MAP_SHARED."""

    def __init__(self, path: str, descriptor: int, size: int, *, read_only: bool = False) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self._calls = 0
        self.is_closed = False
        access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
        self.buffer = mmap.mmap(descriptor, size, access=access)

    @contextmanager
    def descriptor_in_use(self) -> Iterator[int]:
        """Lend the descriptor to a system call in a thread.

        If the file is closed meanwhile, the descriptor is closed behind the call: its number could
        belong to another file by then.
        """
        self._calls += 1
        try:
            yield self._descriptor
        finally:
            self._calls -= 1
            self._close_descriptor()

    def write(self, position: int, data: memoryview) -> None:
        """See `DiskFile.write`."""
        try:
            while data:
                written = os.pwrite(self._descriptor, data, position)
                position += written
                data = data[written:]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error

    def sync(self) -> None:
        """Block until all bytes are durable."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Unmap and close; a buffer still in use is unmapped when its last view goes."""
        if self.is_closed:
            return
        self.is_closed = True
        self._close_descriptor()
        try:
            self.buffer.close()
        except BufferError:
            return

    def _close_descriptor(self) -> None:
        if self.is_closed and not self._calls and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """The disk of this machine."""

    def __init__(self) -> None:
        # Syncs of several files may overlap; more than a few only queue up in the kernel.
        self._limiter = trio.CapacityLimiter(4)
        self._has_warned = False

    def create(self, path: str, size: int) -> RealFile:
        """See `Disk.create`."""
        descriptor, unfinished = _make_file(path, size)
        if unfinished:
            os.rename(unfinished, path)
        else:
            _link(descriptor, path, replace=True)
            # By its name, so that the mapping goes by it too, wherever mappings are listed.
            os.close(descriptor)
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        file = _mapped(path, descriptor, size, path)
        _sync_directory(os.path.dirname(path))
        return file

    def open(self, path: str, *, read_only: bool = False) -> RealFile:
        """See `Disk.open`."""
        mode = os.O_RDONLY if read_only else os.O_RDWR
        descriptor = os.open(path, mode | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        size = status.st_size
        if size == 0:
            os.close(descriptor)
            raise CorruptLogError(f"{path}: the file is empty", path=path)
        try:
            # A file copied with holes in it must not run into a full disk later. Only then: the
            # call sets the modification time, by which old files are found.
            if not read_only and status.st_blocks * 512 < size:
                _allocate(descriptor, size)
            return RealFile(path, descriptor, size, read_only=read_only)
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

    def remove_directory(self, path: str) -> None:
        """See `Disk.remove_directory`."""
        if os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)
            _sync_directory(os.path.dirname(path))

    def read(self, path: str) -> bytes | None:
        """See `Disk.read`."""
        try:
            with open(path, "rb", opener=_open_without_waiting) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "Not an ordinary file", path)
                if status.st_size > READ_BYTES_MAX:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
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

    def rename(self, path: str, new_path: str) -> bool:
        """See `Disk.rename`."""
        if not os.path.lexists(path):
            return False
        try:
            _make_directories(os.path.dirname(new_path))
            if os.path.lexists(new_path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_path)
            os.rename(path, new_path)
        except OSError as error:
            raise _translated(error, new_path, 0) from error
        _sync_directory(os.path.dirname(new_path))
        _sync_directory(os.path.dirname(path))
        return True

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

    def space(self, directory: str) -> DiskSpace:
        """See `Disk.space`."""
        try:
            status = os.statvfs(directory)
        except FileNotFoundError:
            return DiskSpace(0, 0)
        used_blocks = status.f_blocks - status.f_bfree
        return DiskSpace(used_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def modified_ms(self, path: str) -> int:
        """See `Disk.modified_ms`."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def allocate_buffer(self, size: int) -> mmap.mmap:
        """See `Disk.allocate_buffer`."""
        try:
            buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise StoreFullError(
                f"no memory for a buffer of {size} bytes ({error.strerror});"
                " use fewer or smaller ones (transient_store_pool_size)",
                path="memory",
            ) from error
        self._warn_unlocked(size, _lock_memory(_address(buffer), size))
        return buffer

    async def lock_in_memory(self, file: DiskFile) -> None:
        """See `Disk.lock_in_memory`."""
        # This reference keeps the mapping in place while the thread is at it.
        start = ctypes.c_char.from_buffer(file.buffer)
        error = await trio.to_thread.run_sync(
            _lock_memory, ctypes.addressof(start), file.size, limiter=self._limiter
        )
        self._warn_unlocked(file.size, error)

    async def unlock_memory(self, file: DiskFile) -> None:
        """See `Disk.unlock_memory`."""
        try:
            start = ctypes.c_char.from_buffer(file.buffer)
        except ValueError:  # closed, and with that unlocked
            return
        await trio.to_thread.run_sync(
            _libc.munlock, ctypes.addressof(start), file.size, limiter=self._limiter
        )

    def _warn_unlocked(self, size: int, error: int) -> None:
        if error and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "cannot lock %d bytes into memory (%s; the limit is %d): the store goes on without,"
                " slower when memory is short; raise the limit (ulimit -l, LimitMEMLOCK=)",
                size,
                os.strerror(error),
                resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            )

    async def create_in_background(self, path: str, size: int) -> RealFile | None:
        """See `Disk.create_in_background`."""
        run_sync = trio.to_thread.run_sync
        make_file = partial(_make_file, path, size, unfinished_name=f"next{TEMPORARY_SUFFIX}")
        descriptor, unfinished = await run_sync(make_file, limiter=self._limiter)
        file = _mapped(path, descriptor, size, unfinished)
        try:
            if sys.platform.startswith("linux"):
                # `mmap.madvise` would hold the interpreter lock.
                populate = (_address(file.buffer), size, _MADV_POPULATE_WRITE)
                await run_sync(_libc.madvise, *populate, limiter=self._limiter)
            # Not a rename: `create` may have made a file of that name meanwhile.
            if unfinished:
                os.link(unfinished, path)
            else:
                with file.descriptor_in_use() as descriptor:
                    _link(descriptor, path)
        except FileExistsError:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        finally:
            if unfinished:
                os.unlink(unfinished)
        # The file has its name: whoever cancels still gets it, and knows to delete it.
        with trio.CancelScope(shield=True):
            await run_sync(_sync_directory, os.path.dirname(path), limiter=self._limiter)
        return file

    async def sync(self, file: DiskFile) -> None:
        """See `Disk.sync`."""
        real = cast("RealFile", file)
        if real.is_closed:
            await trio.lowlevel.checkpoint()
            return
        with real.descriptor_in_use() as descriptor:
            await trio.to_thread.run_sync(os.fdatasync, descriptor, limiter=self._limiter)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file for reading; a pipe would keep us waiting for somebody to write to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for function in (libc.mlock, libc.munlock):
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


# Advice only: kernels before 5.14 answer an error, and the pages are touched as they are written.
_MADV_POPULATE_WRITE: Final = 23
_libc: Final = _load_libc()


def _address(buffer: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def _lock_memory(address: int, size: int) -> int:
    """Call mlock(2); return 0 or the error number, which belongs to the calling thread."""
    return ctypes.get_errno() if _libc.mlock(address, size) else 0


_O_TMPFILE: Final = getattr(os, "O_TMPFILE", 0)
_DESCRIPTORS: Final = "/proc/self/fd"


def _make_file(path: str, size: int, *, unfinished_name: str = "") -> tuple[int, str]:
    """Make a file of zeros that is to be `path`; return its descriptor and its passing name or "".

    A crash in between must not leave a short file, which would keep the store from opening, nor one
    whose name is no number, which would keep RocketMQ from opening it. So it has no name as long as
    it is not finished, where Linux and the file system can do that.

    Raises:
        StoreFullError: no room; nothing is left.
        DiskFailedError: the directory cannot be written to.
    """
    directory = os.path.dirname(path)
    unfinished = f"{directory}/{unfinished_name or os.path.basename(path) + TEMPORARY_SUFFIX}"
    try:
        _make_directories(directory)
        descriptor = _open_nameless(directory)
        if descriptor >= 0:
            unfinished = ""
        else:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(unfinished, flags, 0o644)
    except OSError as error:
        raise _translated(error, path, size) from error
    try:
        _allocate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        if unfinished:
            os.unlink(unfinished)
        raise _translated(error, path, size) from error
    return descriptor, unfinished


def _link(descriptor: int, path: str, *, replace: bool = False) -> None:
    """Give a file that was made without a name the one it is to have.

    Raises:
        FileExistsError: another file has that name, and is not to be replaced.
    """
    if replace:
        Path(path).unlink(missing_ok=True)
    # A directory is named so that Python calls linkat(2), which follows the symbolic link.
    os.link(f"{_DESCRIPTORS}/{descriptor}", path, src_dir_fd=descriptor)


def _mapped(path: str, descriptor: int, size: int, name: str) -> RealFile:
    """Map a file that was just made; if that fails, close it and delete its `name`."""
    try:
        return RealFile(path, descriptor, size)
    except OSError as error:
        os.close(descriptor)
        if name:
            os.unlink(name)
        raise _translated(error, path, size) from error


def _open_nameless(directory: str) -> int:
    """Open a new file without a name; -1 where that cannot be, as on NFS and macOS."""
    if not _O_TMPFILE or not os.path.isdir(_DESCRIPTORS):
        return -1
    try:
        return os.open(directory, os.O_RDWR | _O_TMPFILE | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return -1
        raise


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
