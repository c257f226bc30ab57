"""Syncs of many files at once, which take a fraction of the time of one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from store.files.mapped_file import MappedFile
from store.machine.disk import Disk

FILES_AT_ONCE: Final = 256
"""That are held open for their syncs."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how much of some work is done, and how much there is."""


def no_progress(_done: int, _all: int) -> None:
    """Take no notice."""


def sync_at_once(disk: Disk, files: Sequence[MappedFile]) -> None:
    """Block until all that was written to these files is durable; none has a buffer of a pool.

    Those that are closed are opened for it, and those that are about to be deleted left alone.

    Raises:
        OSError: the disk failed; what is durable is unknown.
    """
    held = [file for file in files if file.hold()]
    try:
        disk.sync_now([file.file for file in held])
    finally:
        for file in held:
            file.release()
    for file in held:
        file.flushed_position = file.wrote_position


def sync_tree_or_each(
    disk: Disk, directory: str, files: Sequence[MappedFile], names: Sequence[str]
) -> None:
    """Block until all of these files below a directory are durable, and the names in `names`.

    All that they have was written since the directory was locked.

    Raises:
        OSError: the disk failed; what is durable is unknown.
    """
    if len(files) >= disk.many_files and disk.sync_tree_now(directory):
        for file in files:
            file.flushed_position = file.wrote_position
        return
    disk.sync_names(names)
    _sync_some_at_once(disk, files)


def sync_each(
    disk: Disk, directory: str, files: Sequence[MappedFile], names: Sequence[str]
) -> None:
    """Do the same for what an earlier process may have written, and may know an error of.

    Each file is synced, for that is where such an error comes up again. Names have none: if the
    file system cannot write one down, it goes no further. So where they are many, one sync of it
    does. Files that are closed stay closed.

    Raises:
        OSError: the disk failed; what is durable is unknown.
    """
    if len(names) < disk.many_files or not disk.sync_tree_now(directory):
        disk.sync_names(names)
    closed = [file for file in files if file.is_available and not file.is_open]
    disk.sync_closed_now([file.path for file in closed])
    for file in closed:
        file.flushed_position = file.wrote_position
    _sync_some_at_once(disk, [file for file in files if file.is_open])


def _sync_some_at_once(disk: Disk, files: Sequence[MappedFile]) -> None:
    for start in range(0, len(files), FILES_AT_ONCE):
        sync_at_once(disk, files[start : start + FILES_AT_ONCE])
