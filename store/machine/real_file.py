"""Files of this machine: how one comes into being whole, is mapped, and is closed.

Facts that decide this:

- Blocks are allocated with `posix_fallocate` before they are written to through the mapping: of
  most files all before it is mapped, of one that grows in steps. A write to a hole of a mapping on
  a full disk kills the process with SIGBUS, which Python cannot catch; on a tmpfs a read does, too.
- A crash while a file is made must leave neither a short file, which would keep the store from
  opening, nor a name that is no number, which would keep RocketMQ from opening it. So a file has
  no name as long as it is not finished, where Linux and the file system can do that.
- A descriptor that is lent to a thread is closed after the call: its number could belong to
  another file by then.
"""

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from store.machine.disk import TEMPORARY_SUFFIX, check_range, check_size
from store.machine.errors import DiskFailedError, StoreError, StoreFullError
from tandem.wire.store_layout import PAGE_BYTES


class RealFile:
    """A file of this machine, mapped with MAP_SHARED."""

    def __init__(
        self,
        path: str,
        descriptor: int,
        size: int,
        *,
        read_only: bool = False,
        allocated: int | None = None,
    ) -> None:
        self.path = path
        self.size = size
        self.allocated = size if allocated is None else allocated
        self._descriptor = descriptor
        self._calls = 0
        self.is_closed = False
        access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
        self.buffer = mmap.mmap(descriptor, size, access=access)

    @contextmanager
    def descriptor_in_use(self) -> Iterator[int]:
        """Lend the descriptor to a system call in a thread.

        If the file is closed meanwhile, the descriptor is closed after the call.
        """
        self._calls += 1
        try:
            yield self._descriptor
        finally:
            self._calls -= 1
            self._close_descriptor()

    def allocate(self, end: int) -> None:
        """See `DiskFile.allocate`."""
        if 0 <= end <= self.allocated:
            return
        check_range(self, end, 0)
        try:
            allocate(self._descriptor, end - self.allocated, start=self.allocated)
        except OSError as error:
            raise translated(error, self.path, end - self.allocated) from error
        self.allocated = end

    def write(self, position: int, data: memoryview) -> None:
        """See `DiskFile.write`."""
        check_range(self, position, len(data))
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


_O_TMPFILE: Final = getattr(os, "O_TMPFILE", 0)
_DESCRIPTORS: Final = "/proc/self/fd"


def make_file(
    path: str, size: int, *, unfinished_name: str = "", allocated: int | None = None
) -> tuple[int, str]:
    """Make a file of zeros that is to be `path`; return its descriptor and its passing name or "".

    It has blocks up to `allocated`, or for all of it.

    Raises:
        ValueError: no bytes.
        StoreFullError: no room; nothing is left.
        DiskFailedError: the directory cannot be written to.
    """
    check_size(path, size)
    directory = os.path.dirname(path)
    unfinished = f"{directory}/{unfinished_name or os.path.basename(path) + TEMPORARY_SUFFIX}"
    try:
        make_directories(directory)
        descriptor = _open_nameless(directory)
        if descriptor >= 0:
            unfinished = ""
        else:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(unfinished, flags, 0o644)
    except OSError as error:
        raise translated(error, path, size) from error
    try:
        if allocated is not None:
            os.ftruncate(descriptor, size)
        allocate(descriptor, size if allocated is None else allocated)
    except OSError as error:
        os.close(descriptor)
        if unfinished:
            os.unlink(unfinished)
        raise translated(error, path, size) from error
    return descriptor, unfinished


def link(descriptor: int, path: str, *, replace: bool = False) -> None:
    """Give a file that was made without a name the one it is to have.

    Raises:
        FileExistsError: another file has that name, and is not to be replaced.
    """
    if replace:
        Path(path).unlink(missing_ok=True)
    # A directory is named so that Python calls linkat(2), which follows the symbolic link.
    os.link(f"{_DESCRIPTORS}/{descriptor}", path, src_dir_fd=descriptor)


def mapped(
    path: str, descriptor: int, size: int, name: str, allocated: int | None = None
) -> RealFile:
    """Map a file that was just made; if that fails, close it and delete its `name`."""
    try:
        return RealFile(path, descriptor, size, allocated=allocated)
    except OSError as error:
        os.close(descriptor)
        if name:
            os.unlink(name)
        raise translated(error, path, size) from error


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


def allocate(descriptor: int, size: int, *, start: int = 0) -> None:
    """Give a file blocks for `size` bytes from `start` on, and at least that length.

    Raises:
        OSError: no room, or the disk failed.
    """
    # macOS has no posix_fallocate; there a full disk can still end in SIGBUS.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, size)
    elif os.fstat(descriptor).st_size < start + size:
        os.ftruncate(descriptor, start + size)


def end_of_data(descriptor: int, size: int) -> int:
    """Return the offset after the last byte of a file that is not in a hole; `size` if unknown."""
    end = 0
    try:
        while end < size:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        return end if error.errno == errno.ENXIO else size
    return end


def read_past_cache(path: str, start: int, size: int) -> bytes:
    """Return bytes of a file as the disk has them; through the cache where O_DIRECT is not known.

    Raises:
        OSError: the disk does not give them.
    """
    # O_DIRECT reads into memory that begins with a page, as a mapping does.
    with mmap.mmap(-1, max(size + -size % PAGE_BYTES, PAGE_BYTES)) as buffer:
        for flag in filter(None, (getattr(os, "O_DIRECT", 0), os.O_RDONLY | os.O_CLOEXEC)):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flag)
            except OSError as error:
                if error.errno == errno.EINVAL and flag != os.O_CLOEXEC:
                    continue
                raise
            try:
                count = os.preadv(descriptor, [buffer], start)
            except OSError as error:
                if error.errno == errno.EINVAL and flag != os.O_CLOEXEC:
                    continue
                raise OSError(error.errno, error.strerror, path) from error
            finally:
                os.close(descriptor)
            return buffer[: min(count, size)]
    return b""


def make_directories(directory: str) -> None:
    """Create what is missing of a path, so that a power loss does not take it back."""
    if not os.path.isdir(directory):
        parent = os.path.dirname(directory) or "."
        make_directories(parent)
        os.makedirs(directory, exist_ok=True)
        sync_directory(parent)


def sync_directory(directory: str) -> None:
    """Make a new or renamed name durable; without it a power loss can undo the creation."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def translated(error: OSError, path: str, size: int) -> StoreError:
    """Return what a failed system call means for a store: the disk is full, or it has failed."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFailedError(
            f"{path}: {error.strerror}; check the disk and who may write to it, then start again",
            path=path,
        )
    return StoreFullError(
        f"{path}: no room for {size} bytes ({os.strerror(error.errno)});"
        " free space on that disk, then send again",
        path=path,
    )
