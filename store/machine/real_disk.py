"""RealDisk: the disk of this machine.

Its threads are those of `kept_threads.py`, `many_syncs.py` and `many_lists.py`.

- A mapping is made durable with `os.fdatasync` on the file, in a thread. `mmap.flush` holds the
  interpreter lock for as long as the disk takes.
- Threads run one system call on a file descriptor and touch no object of ours.

With `real_file.py` this is the only door to the file system.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final, cast

import trio

from store.machine import kept_threads
from store.machine.disk import (
    TEMPORARY_SUFFIX,
    DiskFile,
    DiskSpace,
    FoundFile,
    all_of_them,
    check_pages,
    check_size,
)
from store.machine.drafts import Drafts, put_in_place, write_durably
from store.machine.errors import CorruptLogError, LogFault, StoreFullError, StoreLockedError
from store.machine.kept_files import KeptFiles
from store.machine.many_lists import list_directories, list_files, list_trees, read_first_pages
from store.machine.many_syncs import at_once, sync_file_system
from store.machine.real_file import (
    LARGE_FILE_BYTES,
    RealFile,
    UnsyncedNames,
    allocate,
    end_of_data,
    gone_if_refused,
    link,
    make_directories,
    make_file,
    make_growing_file,
    mapped,
    named,
    read_past_cache,
    sync_directory,
    translated,
)
from tandem.wire.store_layout import PAGE_BYTES

_log = logging.getLogger(__name__)

CALLS_AT_ONCE: Final = 4
"""Syncs of several files may overlap; more than a few only queue up in the kernel."""

MANY_FILES: Final = 1024
"""One by one they take half a second; where others write much a whole file system takes longer."""

_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)

READ_BYTES_MAX: Final = 1 << 30
"""More than any file has that is read whole. They are small, unless somebody has damaged them."""


class RealDisk:
    """The disk of this machine."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(CALLS_AT_ONCE)
        self._has_warned = False
        self.many_files = MANY_FILES
        self.kept = KeptFiles()
        self._drafts = Drafts()
        self._names = UnsyncedNames()
        self._locked: dict[str, int] = {}
        """Descriptors of locks, by their directories: opened before any other file in them."""
        self._devices: set[int] = set()
        """File systems that files of queues were on."""

    @property
    def open_files_max(self) -> int:
        """See `Disk.open_files_max`. Each takes two descriptors, and twice as many may be."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8

    def create(self, path: str, size: int, *, grows: bool = False) -> RealFile:
        """See `Disk.create`."""
        self.kept.forget(path)
        if grows:
            return self._create_growing(path, size)
        descriptor, unfinished = make_file(path, size)
        return named(descriptor, unfinished, path, size)

    def _create_growing(self, path: str, size: int) -> RealFile:
        allocated = min(size, PAGE_BYTES)
        descriptor = make_growing_file(path, size, allocated, self._names)
        self._devices.add(os.fstat(descriptor).st_dev)
        return mapped(path, descriptor, size, path, allocated, self._names)

    def open(self, path: str, *, read_only: bool = False, grows: bool = False) -> RealFile:
        """See `Disk.open`."""
        mode = os.O_RDONLY if read_only else os.O_RDWR
        descriptor = os.open(path, mode | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        size = status.st_size
        if grows:
            self._devices.add(status.st_dev)
        if size == 0:
            os.close(descriptor)
            raise CorruptLogError(f"{path}: the file is empty", path=path, fault=LogFault.LENGTH)
        try:
            # A file copied with holes in it must not run into a full disk later. Only then: the
            # call sets the modification time, by which old files are found.
            allocated = end_of_data(descriptor, size) if grows else size
            if not read_only and status.st_blocks * 512 < allocated:
                allocate(descriptor, allocated)
            return RealFile(
                path,
                descriptor,
                size,
                read_only=read_only,
                allocated=allocated,
                names=self._names if grows else None,
            )
        except OSError as error:
            os.close(descriptor)
            raise translated(error, path, size) from error

    def list_files(self, directory: str) -> list[tuple[str, int]]:
        """See `Disk.list_files`."""
        return [(name, size) for name, size, _ in self.list_files_with_times(directory)]

    def list_files_with_times(self, directory: str) -> list[FoundFile]:
        """See `Disk.list_files_with_times`."""
        return list_files(directory)

    def list_directories(self, directory: str) -> list[str]:
        """See `Disk.list_directories`."""
        return list_directories(directory)

    def list_trees(
        self, directory: str, is_wanted: Callable[[str, str], bool] = all_of_them
    ) -> Iterator[tuple[str, str, list[FoundFile]]]:
        """See `Disk.list_trees`."""
        return list_trees(directory, is_wanted)

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return os.path.isfile(path)

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        self.kept.forget(path)
        if not os.path.exists(path):
            return
        held = _held(path)
        try:
            os.unlink(path)
            sync_directory(os.path.dirname(path))
        finally:
            if held >= 0:
                kept_threads.do_later(partial(os.close, held))

    def remove_directory(self, path: str) -> None:
        """See `Disk.remove_directory`."""
        if os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)
            sync_directory(os.path.dirname(path))

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
        temporary = self._drafts.take(path, data)
        try:
            if temporary is None:
                temporary = path + TEMPORARY_SUFFIX
                make_directories(directory)
                write_durably(temporary, data)
            put_in_place(temporary, path)
        except OSError as error:
            raise translated(error, path, len(data)) from error
        self.kept.forget(path)
        sync_directory(directory)

    def will_replace(self, path: str, data: bytes) -> None:
        """See `Disk.will_replace`."""
        self._drafts.will_replace(path, data)

    async def write_ahead(self) -> None:
        """See `Disk.write_ahead`."""
        await self._drafts.write(self._limiter)

    def rename(self, path: str, new_path: str) -> bool:
        """See `Disk.rename`."""
        if not os.path.lexists(path):
            return False
        self.kept.forget(path)
        try:
            make_directories(os.path.dirname(new_path))
            if os.path.lexists(new_path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_path)
            os.rename(path, new_path)
        except OSError as error:
            raise translated(error, new_path, 0) from error
        sync_directory(os.path.dirname(new_path))
        sync_directory(os.path.dirname(path))
        return True

    def lock(self, path: str) -> Callable[[], None]:
        """See `Disk.lock`. Like RocketMQ: the first byte of the file, as a POSIX record lock."""
        make_directories(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise translated(error, path, 0) from error
            raise StoreLockedError(
                f"{path}: another process has this store open; stop it or use another directory"
            ) from error
        os.pwrite(descriptor, b"lock", 0)
        directory = os.path.dirname(path)
        self._locked[directory] = descriptor

        def release() -> None:
            del self._locked[directory]
            os.close(descriptor)

        return release

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
        check_size("memory", size)
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
        if cast("RealFile", file).is_closed:
            await trio.lowlevel.checkpoint()
            return
        # This reference keeps the mapping in place while the thread is at it.
        start = ctypes.c_char.from_buffer(file.buffer)
        error = await kept_threads.run_sync(
            _lock_memory, ctypes.addressof(start), file.size, limiter=self._limiter
        )
        self._warn_unlocked(file.size, error)

    async def unlock_memory(self, file: DiskFile) -> None:
        """See `Disk.unlock_memory`."""
        try:
            start = ctypes.c_char.from_buffer(file.buffer)
        except ValueError:  # closed, and with that unlocked
            return
        await kept_threads.run_sync(
            _libc.munlock, ctypes.addressof(start), file.size, limiter=self._limiter
        )

    def _warn_unlocked(self, size: int, error: int) -> None:
        if error and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%d bytes cannot be locked into memory (%s; the limit is %d): the store goes on"
                " without, slower when memory is short; raise the limit (ulimit -l, LimitMEMLOCK=)",
                size,
                os.strerror(error),
                resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            )

    async def create_in_background(self, path: str, size: int) -> RealFile | None:
        """See `Disk.create_in_background`."""
        run_sync = kept_threads.run_sync
        make = partial(make_file, path, size, unfinished_name=f"next{TEMPORARY_SUFFIX}")
        descriptor, unfinished = await run_sync(make, limiter=self._limiter)
        file = mapped(path, descriptor, size, unfinished)
        try:
            # Not a rename: `create` may have made a file of that name meanwhile.
            if unfinished:
                os.link(unfinished, path)
            else:
                with file.descriptor_in_use() as descriptor:
                    link(descriptor, path)
        except OSError as error:
            file.close()
            if isinstance(error, FileExistsError):
                return None
            raise translated(error, path, size) from error
        finally:
            if unfinished:
                os.unlink(unfinished)
        # The file has its name: a caller that cancels still gets it, and knows to delete it.
        with trio.CancelScope(shield=True), gone_if_refused(file):
            await run_sync(sync_directory, os.path.dirname(path), limiter=self._limiter)
        return file

    async def touch(self, file: DiskFile, start: int, size: int, *, clean: bool = False) -> None:
        """See `Disk.touch`."""
        check_pages(file, start, size)
        is_linux = sys.platform.startswith("linux")
        if size == 0 or not is_linux or cast("RealFile", file).is_closed:
            await trio.lowlevel.checkpoint()
            return
        # This reference keeps the mapping in place; `mmap.madvise` would hold the interpreter lock.
        first = ctypes.c_char.from_buffer(file.buffer, start)
        advice = _MADV_POPULATE_READ if clean else _MADV_POPULATE_WRITE
        populate = (ctypes.addressof(first), size, advice)
        await kept_threads.run_sync(_libc.madvise, *populate, limiter=self._limiter)

    async def read_from_disk(self, path: str, start: int, size: int) -> bytes:
        """See `Disk.read_from_disk`."""
        return await kept_threads.run_sync(
            read_past_cache, path, start, size, limiter=self._limiter
        )

    async def sync(self, file: DiskFile) -> None:
        """See `Disk.sync`."""
        await self.sync_together([file])

    async def sync_together(self, files: Sequence[DiskFile]) -> None:
        """See `Disk.sync_together`."""
        with _lent(files) as (lent, grown):
            if not lent:
                await trio.lowlevel.checkpoint()
                return
            run_sync = kept_threads.run_sync
            await run_sync(_sync_all, lent, self._names, grown, limiter=self._limiter)

    def sync_tree_now(self, directory: str) -> bool:
        """See `Disk.sync_tree_now`."""
        descriptor, made = self._whole_tree(directory), self._names.count
        is_synced = descriptor is not None and sync_file_system(descriptor)
        if is_synced:
            self._names.are_durable(directory, made)
        return is_synced

    async def sync_tree(self, directory: str) -> bool:
        """See `Disk.sync_tree`."""
        descriptor, made = self._whole_tree(directory), self._names.count
        if descriptor is None:
            await trio.lowlevel.checkpoint()
            return False
        run_sync = kept_threads.run_sync
        is_synced = await run_sync(sync_file_system, descriptor, limiter=self._limiter)
        if is_synced:
            self._names.are_durable(directory, made)
        return is_synced

    def _whole_tree(self, directory: str) -> int | None:
        """Return the descriptor of its lock, if all files of queues are on the same file system."""
        descriptor = self._locked.get(directory)
        if descriptor is None or self._devices - {os.fstat(descriptor).st_dev}:
            return None
        return descriptor

    def sync_now(self, files: Sequence[DiskFile]) -> None:
        """See `Disk.sync_now`."""
        with _lent(files) as (lent, grown):
            _sync_all(lent, self._names, grown)

    def sync_closed_now(self, paths: Sequence[str]) -> None:
        """See `Disk.sync_closed_now`."""
        self._names.sync(paths)
        at_once(_sync_closed, paths)

    def read_ahead(self, paths: Sequence[str]) -> None:
        """See `Disk.read_ahead`."""
        read_first_pages(paths)

    def sync_names(self, directories: Iterable[str]) -> None:
        """See `Disk.sync_names`."""
        at_once(sync_directory, [each for each in directories if os.path.isdir(each)])


@contextmanager
def _lent(files: Sequence[DiskFile]) -> Iterator[tuple[list[tuple[str, int]], list[str]]]:
    """Lend the descriptors of files that are open, with their paths; and those that have grown."""
    with ExitStack() as stack:
        found = [file for file in cast("Sequence[RealFile]", files) if not file.is_closed]
        lent = [(file.path, stack.enter_context(file.descriptor_in_use())) for file in found]
        yield lent, [file.path for file in found if file.grows]


def _sync_all(files: list[tuple[str, int]], names: UnsyncedNames, grown: list[str]) -> None:
    """Make files durable, by path and descriptor, and the names of those that have `grown`."""
    names.sync(grown)
    at_once(_sync_bytes, files)


def _sync_bytes(file: tuple[str, int]) -> None:
    path, descriptor = file
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _sync_closed(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _sync_bytes((path, descriptor))
    finally:
        os.close(descriptor)


def _held(path: str) -> int:
    """Return a descriptor that keeps a large file, whoever deletes its name; -1: it is not large.

    The system gives back blocks and pages with the last descriptor: 50 ms for 256 MiB, in which the
    caller would stand still.
    """
    with suppress(OSError):
        if os.path.getsize(path) >= LARGE_FILE_BYTES:
            return os.open(path, _O_PATH | os.O_CLOEXEC)
    return -1


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
_MADV_POPULATE_READ: Final = 22
_MADV_POPULATE_WRITE: Final = 23
_libc: Final = _load_libc()


def _address(buffer: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def _lock_memory(address: int, size: int) -> int:
    """Call mlock(2); return 0 or the error number, which belongs to the calling thread."""
    return ctypes.get_errno() if _libc.mlock(address, size) else 0
