"""What is in many directories, and in many files at first: some are read at the same time.

A directory that is not in memory is a read of the disk or two, in which its reader waits. One after
the other, a hundred thousand take minutes, and the disk has one read to do at any time.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeVar

from store.machine.disk import TEMPORARY_SUFFIX, all_of_them
from store.machine.many_syncs import at_once
from tandem.wire.store_layout import PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from store.machine.disk import FoundFile

T = TypeVar("T")
R = TypeVar("R")

LISTED_AT_ONCE: Final = 16
"""How many directories are read at the same time: see benchmarks/scale.py."""

PIECE: Final = 64
"""Directories that a thread reads before it hands over what it has found."""


def list_files(directory: str) -> list[FoundFile]:
    """Return the files in a directory; see `Disk.list_files_with_times`."""
    found: list[FoundFile] = []
    with _entries(directory) as entries:
        for entry in entries:
            if entry.is_file() and not entry.name.endswith(TEMPORARY_SUFFIX):
                status = entry.stat()
                found.append((entry.name, status.st_size, status.st_mtime_ns // 1_000_000))
    found.sort()
    return found


def list_directories(directory: str) -> list[str]:
    """Return the directories in a directory; see `Disk.list_directories`."""
    with _entries(directory) as entries:
        return sorted(e.name for e in entries if e.is_dir())


def list_trees(
    directory: str, is_wanted: Callable[[str, str], bool] = all_of_them
) -> Generator[tuple[str, str, list[FoundFile]], None, None]:
    """Yield what is two levels below a directory; see `Disk.list_trees`."""

    def below(name: str) -> list[str]:
        return list_directories(f"{directory}/{name}")

    def files(names: tuple[str, str]) -> list[FoundFile]:
        return list_files(f"{directory}/{names[0]}/{names[1]}")

    with ThreadPoolExecutor(LISTED_AT_ONCE, "list") as threads:
        found = _ahead(threads, below, list_directories(directory))
        pairs = (
            (outer, name) for outer, names in found for name in names if is_wanted(outer, name)
        )
        for (outer, name), listed in _ahead(threads, files, pairs):
            yield outer, name, listed


def read_first_pages(paths: Sequence[str]) -> None:
    """Have the first pages of many files on their way to memory; see `Disk.read_ahead`."""
    if hasattr(os, "posix_fadvise"):
        at_once(_read_first_page, paths)


def _read_first_page(path: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, PAGE_BYTES, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def _ahead(
    threads: ThreadPoolExecutor, look: Callable[[T], R], things: Iterable[T]
) -> Iterator[tuple[T, R]]:
    """Yield each thing with what a look at it finds, in order; threads are some looks ahead.

    Where there is no more than one piece, no thread is asked.
    """
    rest = iter(things)
    piece = list(islice(rest, PIECE))
    after = list(islice(rest, PIECE))
    if not after:
        for thing in piece:
            yield thing, look(thing)
        return

    def look_at(some: list[T]) -> list[tuple[T, R]]:
        return [(thing, look(thing)) for thing in some]

    under_way: deque[Future[list[tuple[T, R]]]] = deque()
    pieces = chain((piece, after), iter(lambda: list(islice(rest, PIECE)), []))
    try:
        for some in pieces:
            under_way.append(threads.submit(look_at, some))
            if len(under_way) > 2 * LISTED_AT_ONCE:
                yield from under_way.popleft().result()
        while under_way:
            yield from under_way.popleft().result()
    finally:
        for each in under_way:
            each.cancel()


def _entries(directory: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """Return what is in a directory, nothing if it is missing: without a call that only asks."""
    try:
        return os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return nullcontext(iter(()))
