"""Files of this machine: how one comes into being whole, is mapped, and is closed.

Facts that decide this:

- Blocks are allocated with `posix_fallocate` before they are written to through the mapping: of
  most files all before it is mapped, of one that grows in steps. A write to a hole of a mapping on
  a full disk kills the process with SIGBUS, which Python cannot catch; on a tmpfs a read does, too.
- A crash while a file is made must leave neither a short file, which would keep the store from
  opening, nor a name that is no number, which would keep RocketMQ from opening it. So a file has
  no name as long as it is not finished, where Linux and the file system can do that. A file that
  grows has its name at once: it gets its whole length in one call, and a last file of no length
  is deleted by the next start, ours or RocketMQ's.
- A descriptor that is lent to a thread is closed after the call: its number could belong to
  another file by then.
- The first touch of a page brings in what is around it, as much as the disk's `read_ahead_kb` says:
  8 MiB of zeros and 2 ms on some machines, for a queue of one message. So the mapping of a file
  with few blocks is MADV_RANDOM.
- To take back the pages of a large mapping, and to give back the blocks of a large file, takes the
  system long: 20 and 50 ms for 256 MiB. A thread does both, some time after the file was closed and
  its name deleted.
"""

import errno
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

from store.machine import kept_threads
from store.machine.disk import TEMPORARY_SUFFIX, check_range, check_size
from store.machine.errors import DiskFailedError, StoreError, StoreFullError
from store.machine.many_syncs import at_once
from tandem.wire.store_layout import PAGE_BYTES


class UnsyncedNames:
    """Directories in which something was made whose name is not durable yet.

    Such a name is made durable with the first sync of its file. One sync of a directory serves all
    that was made in it before. The thread of the store says what was made, and those of its syncs
    what is durable: nobody takes away what another one has said meanwhile.
    """

    def __init__(self) -> None:
        self._made: dict[str, int] = {}
        """By directory, which count something was made at last. Changed by the store's thread."""
        self._synced: dict[str, int] = {}
        """Up to which count its names are durable."""
        self._count = 0

    def made_in(self, directory: str) -> None:
        """Take note that something was made there."""
        self._count += 1
        self._made[directory] = self._count
        if len(self._synced) > _SYNCED_MAX:
            self._forget_synced()

    def _forget_synced(self) -> None:
        for directory, count in list(self._synced.items()):
            if self._made.get(directory, 0) <= count:
                self._made.pop(directory, None)
            self._synced.pop(directory, None)

    @property
    def count(self) -> int:
        """How many times something was made."""
        return self._count

    def are_durable(self, directory: str, count: int) -> None:
        """Take note that all names below a directory are that were made when `count` was this."""
        below = f"{directory}/"
        for each, made in list(self._made.items()):
            if made <= count and (each == directory or each.startswith(below)):
                del self._made[each]

    def sync(self, paths: Iterable[str]) -> None:
        """Make all names on the way to these files durable.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        if not self._made:
            return
        wanted: dict[str, int] = {}
        for path in paths:
            directory = os.path.dirname(path)
            while directory not in wanted and len(directory) > 1:
                wanted[directory] = self._made.get(directory, 0)
                directory = os.path.dirname(directory)
        synced = self._synced
        made = {each: count for each, count in wanted.items() if count > synced.get(each, 0)}
        at_once(_sync_directory_that_is_there, list(made))
        synced.update(made)


_SYNCED_MAX: Final = 1024
"""Directories that may stay noted though their names are durable."""

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)

LARGE_FILE_BYTES: Final = 4 << 20
"""To unmap or delete that may take the system a millisecond."""

READ_AROUND_BYTES_MIN: Final = 1 << 20
"""A file with fewer blocks is read page by page; one with more is worth reading ahead."""


def _sync_directory_that_is_there(directory: str) -> None:
    # What was deleted meanwhile has no names.
    with suppress(FileNotFoundError):
        sync_directory(directory)


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
        names: UnsyncedNames | None = None,
    ) -> None:
        self.path = path
        self.size = size
        self.allocated = size if allocated is None else allocated
        self._names = names
        self.grows = names is not None
        """Whether its name, where it was made by this process, is durable with its first sync."""
        self._descriptor = descriptor
        self._calls = 0
        self.is_closed = False
        access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
        self.buffer = mmap.mmap(descriptor, size, access=access)
        if self.allocated < min(size, READ_AROUND_BYTES_MIN):
            self.buffer.madvise(mmap.MADV_RANDOM)

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
        """Block until all bytes are durable, and its name."""
        if self._names is not None:
            self._names.sync([self.path])
        os.fdatasync(self._descriptor)

    def read_around(self, start: int, end: int, *, wanted: bool) -> None:
        """See `DiskFile.read_around`."""
        if start < end and not self.is_closed:
            advice = mmap.MADV_NORMAL if wanted else mmap.MADV_RANDOM
            self.buffer.madvise(advice, start, end - start)

    def let_go(self) -> None:
        """See `DiskFile.let_go`."""
        self.is_closed = True
        self._close_descriptor()
        del self.buffer

    def close(self) -> None:
        """Unmap and close; a buffer still in use is unmapped when its last view goes."""
        if self.is_closed:
            return
        self.is_closed = True
        self._close_descriptor()
        if self.size >= LARGE_FILE_BYTES:
            kept_threads.do_later(partial(_unmap, self.buffer))
        else:
            _unmap(self.buffer)

    def _close_descriptor(self) -> None:
        if self.is_closed and not self._calls and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _unmap(buffer: mmap.mmap) -> None:
    # A buffer still in use is unmapped when its last view goes.
    with suppress(BufferError):
        buffer.close()


_O_TMPFILE: Final = getattr(os, "O_TMPFILE", 0)
_DESCRIPTORS: Final = "/proc/self/fd"
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def make_file(path: str, size: int, *, unfinished_name: str = "") -> tuple[int, str]:
    """Make a file of zeros that is to be `path`; return its descriptor and its passing name or "".

    It has all of its blocks. Directories that are missing are made, durably.

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
        allocate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        if unfinished:
            os.unlink(unfinished)
        raise translated(error, path, size) from error
    return descriptor, unfinished


def make_growing_file(path: str, size: int, allocated: int, names: UnsyncedNames) -> int:
    """Make a file of zeros with blocks up to `allocated`; return its descriptor.

    There may be many thousands of them, so it takes as few calls as can be. Directories that are
    missing are made; their names, and the file's, are to be synced later.

    Raises:
        ValueError: no bytes.
        StoreFullError: no room; nothing is left.
        DiskFailedError: the directory cannot be written to.
    """
    check_size(path, size)
    directory = path.rpartition("/")[0]
    try:
        try:
            descriptor = os.open(path, _NEW_FILE, 0o644)
        except FileNotFoundError:
            for parent in _made_directories(directory):
                names.made_in(parent)
            descriptor = os.open(path, _NEW_FILE, 0o644)
        except FileExistsError:
            os.unlink(path)
            descriptor = os.open(path, _NEW_FILE, 0o644)
    except OSError as error:
        raise translated(error, path, size) from error
    names.made_in(directory)
    try:
        os.ftruncate(descriptor, size)
        allocate(descriptor, allocated)
    except OSError as error:
        os.close(descriptor)
        os.unlink(path)
        raise translated(error, path, size) from error
    return descriptor


def link(descriptor: int, path: str, *, replace: bool = False) -> None:
    """Give a file that was made without a name the one it is to have.

    Raises:
        FileExistsError: another file has that name, and is not to be replaced.
    """
    # A directory is named so that Python calls linkat(2), which follows the symbolic link.
    call = partial(os.link, f"{_DESCRIPTORS}/{descriptor}", path, src_dir_fd=descriptor)
    try:
        call()
    except FileExistsError:
        if not replace:
            raise
        Path(path).unlink(missing_ok=True)
        call()


def mapped(
    path: str,
    descriptor: int,
    size: int,
    name: str,
    allocated: int | None = None,
    names: UnsyncedNames | None = None,
) -> RealFile:
    """Map a file that was just made; if that fails, close it and delete its `name`."""
    try:
        file = RealFile(path, descriptor, size, allocated=allocated, names=names)
    except OSError as error:
        os.close(descriptor)
        if name:
            os.unlink(name)
        raise translated(error, path, size) from error
    file.read_around(0, size, wanted=False)
    return file


def named(descriptor: int, unfinished: str, path: str, size: int) -> RealFile:
    """Give a file that `make_file` made its name, durably, in the place of another one; map it.

    Raises:
        StoreFullError, DiskFailedError: the system refuses; nothing is left.
    """
    try:
        if unfinished:
            os.rename(unfinished, path)
        else:
            link(descriptor, path, replace=True)
        # By its name, so that the mapping goes by it too, wherever mappings are listed.
        ready = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        _unlink_own(descriptor, unfinished, path)
        raise translated(error, path, size) from error
    finally:
        os.close(descriptor)
    file = mapped(path, ready, size, path)
    with gone_if_refused(file):
        sync_directory(os.path.dirname(path))
    return file


@contextmanager
def gone_if_refused(file: RealFile) -> Iterator[None]:
    """Have a new file go again if the system refuses what it lacks, and say so as `named` does."""
    try:
        yield
    except OSError as error:
        with file.descriptor_in_use() as descriptor:
            _unlink_own(descriptor, file.path)
        file.close()
        raise translated(error, file.path, file.size) from error


def _unlink_own(descriptor: int, *names: str) -> None:
    for name in names:
        with suppress(OSError):  # another file may have it
            if os.path.samestat(os.fstat(descriptor), os.stat(name)):
                os.unlink(name)


@cache
def _has_descriptors() -> bool:
    return os.path.isdir(_DESCRIPTORS)


def _open_nameless(directory: str) -> int:
    """Open a new file without a name; -1 where that cannot be, as on NFS and macOS."""
    if not _O_TMPFILE or not _has_descriptors():
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
        try:
            os.posix_fallocate(descriptor, start, size)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            # What was deleted just now may not have given its blocks back yet.
            kept_threads.finish()
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
    for parent in new_directories(directory):
        sync_directory(parent)


def new_directories(directory: str) -> list[str]:
    """Create what is missing of a path; return the directories to sync for it, outermost first."""
    if os.path.isdir(directory):
        return []
    try:
        return _made_directories(directory)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise
        return [os.path.dirname(directory) or "."]  # another process was faster


def _made_directories(directory: str) -> list[str]:
    """Do the same for a directory that was not there just now."""
    parent = os.path.dirname(directory) or "."
    try:
        os.mkdir(directory)
    except FileNotFoundError:
        above = new_directories(parent)
        os.makedirs(directory, exist_ok=True)
        return [*above, parent]
    return [parent]


def sync_directory(directory: str) -> None:
    """Make a new or renamed name durable; without it a power loss can undo the creation."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def translated(error: OSError, path: str, size: int) -> StoreError:
    """Return what a failed system call means for a store: the disk is full, or it has failed."""
    if error.errno not in (*_NO_ROOM, errno.EFBIG):
        return DiskFailedError(
            f"{path}: {error.strerror}; check the disk and who may write to it, then start again",
            path=path,
        )
    return StoreFullError(
        f"{path}: no room for {size} bytes ({os.strerror(error.errno)});"
        " free space on that disk, then send again",
        path=path,
    )
