"""Syncs of many files: some at the same time, or all of a file system by one call.

syncfs(2) is as good as an fsync of every file only where all of this is so:

- Linux 5.8 or later: before, an error in writing something back was not reported.
- ext4, XFS or Btrfs. FUSE does not pass the call on, and overlayfs does not report all errors.
- The descriptor was opened before what is to be durable was written: errors since then are reported
  to it, also those of files that were closed meanwhile.

XFS may leave bytes in the cache of the disk if its own log has nothing to write: so a sync of one
file follows, which flushes all of the cache.

An error may be that of a file of somebody else. So one is no failure of ours: the caller then syncs
each file, and hears whose it is.
"""

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")

SYNCS_AT_ONCE: Final = 16
"""A file system brings what is asked of it at the same time to the disk in one go: see
benchmarks/scale.py."""

MAGIC_NUMBERS: Final = frozenset({0xEF53, 0x58465342, 0x9123683E})
"""Of ext2 to ext4, XFS and Btrfs in statfs(2)."""

_FIRST_KERNEL: Final = (5, 8)
_STATFS_BYTES: Final = 256
"""More than any system's `struct statfs`, which begins with the kind, a long."""


def at_once(sync: Callable[[T], None], things: Sequence[T]) -> None:
    """Sync each of these, some at the same time in threads; return when all are done.

    Raises:
        OSError: the disk failed; what is durable is unknown.
    """
    threads_count = min(SYNCS_AT_ONCE, len(things) // 2)
    if threads_count <= 1:
        for thing in things:
            sync(thing)
        return

    def sync_some(some: Sequence[T]) -> None:
        for thing in some:
            sync(thing)

    with ThreadPoolExecutor(threads_count, "sync") as threads:
        for _ in threads.map(sync_some, [things[i::threads_count] for i in range(threads_count)]):
            pass


def sync_file_system(descriptor: int) -> bool:
    """Block until all that is on the file system of this file is durable; False: it may not be."""
    if not _has_good_syncfs() or _kind_of(descriptor) not in MAGIC_NUMBERS:
        return False
    try:
        syncfs(descriptor)
        os.fdatasync(descriptor)
    except OSError as error:
        _log.warning("the file system: %s; each file is synced, to see whose that is", error)
        return False
    return True


def syncfs(descriptor: int) -> None:
    """Sync the file system of an open file.

    Raises:
        OSError: something on the file system could not be written.
    """
    if _libc().syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _has_good_syncfs() -> bool:
    if not sys.platform.startswith("linux") or not hasattr(_libc(), "syncfs"):
        return False
    return _kernel_version(os.uname().release) >= _FIRST_KERNEL


def _kernel_version(release: str) -> tuple[int, ...]:
    """Return the first two numbers of a release such as `6.1.0-13-amd64`; none where there are not.

    A release is what a distribution says it is.
    """
    numbers = release.partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers) if all(map(str.isdecimal, numbers)) else ()


def _kind_of(descriptor: int) -> int:
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc().fstatfs(descriptor, status):
        return 0
    return int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
