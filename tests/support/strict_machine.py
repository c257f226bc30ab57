"""What a power loss would leave of a directory on this machine, if the disk did nothing unasked.

Real file systems write much that nobody has synced, so a sync that is missing goes unnoticed until
the lights go out at the wrong moment. `StrictMachine` is under the code that runs: it sees every
`fsync`, `fdatasync` and `syncfs` of the process, and counts as durable what was there when one of
them began:

    a file        its bytes at the last sync of that file
    a directory   the names in it, and what they named, at the last sync of that directory

A file is left if every directory on the way to it was synced with its name in it. Writes through a
mapping count like any other: nothing but a sync makes them durable.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from store.machine import many_syncs


class StrictMachine:
    """Watches syncs while `watching`. `root` is there, and durable, from the start."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {root.stat().st_ino: {}}
        self._held: list[int] = []
        """Descriptors that keep the numbers of files that are deleted from being used again."""
        self.syncs_count = 0
        self._begun = count()
        self._seen: dict[int, int] = {}
        """By inode: which sync, in the order of their beginnings, said last what is there."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See every sync of this process, of whatever thread."""
        real = os.fsync, os.fdatasync
        for call in real:
            setattr(os, call.__name__, self._seeing(call))
        real_syncfs = many_syncs.syncfs
        setattr(many_syncs, "syncfs", self._seeing_all(real_syncfs))  # noqa: B010
        try:
            yield
        finally:
            setattr(many_syncs, "syncfs", real_syncfs)  # noqa: B010
            for call in real:
                setattr(os, call.__name__, call)
            for descriptor in self._held:
                os.close(descriptor)
            self._held.clear()

    def _seeing(self, real: Callable[[Any], None]) -> Callable[[Any], None]:
        def sync(descriptor: int) -> None:
            status = os.fstat(descriptor)
            # One of our own: that of a sync may be for writing only.
            held = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            self._held.append(held)
            begun = next(self._begun)
            if stat.S_ISDIR(status.st_mode):
                names = {entry.name: entry.inode() for entry in os.scandir(held)}
                real(descriptor)
                if self._is_news(status.st_ino, begun):
                    self._names[status.st_ino] = names
            else:
                content = os.pread(held, status.st_size, 0)
                real(descriptor)
                if self._is_news(status.st_ino, begun):
                    self._contents[status.st_ino] = content
            self.syncs_count += 1

        return sync

    def _seeing_all(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            begun = next(self._begun)
            names, contents = {}, {}
            for directory, _, files in os.walk(self._root):
                found = list(os.scandir(directory))
                names[Path(directory).stat().st_ino] = {each.name: each.inode() for each in found}
                for path in (Path(directory) / name for name in files):
                    contents[path.stat().st_ino] = path.read_bytes()
            real(descriptor)
            self._names.update((i, n) for i, n in names.items() if self._is_news(i, begun))
            self._contents.update((i, c) for i, c in contents.items() if self._is_news(i, begun))
            self.syncs_count += 1

        return sync

    def _is_news(self, inode: int, begun: int) -> bool:
        """Whether no sync that began later has ended before this one: it knows less."""
        is_news = begun > self._seen.get(inode, -1)
        if is_news:
            self._seen[inode] = begun
        return is_news

    def exists(self, path: Path | str) -> bool:
        """Whether a file or a directory of this name is left after a power loss."""
        return self._inode(path) is not None

    def read(self, path: Path | str) -> bytes | None:
        """Return what is left of a file after a power loss; None if it is gone.

        A file that has its name but was never synced is empty.
        """
        inode = self._inode(path)
        return None if inode is None else self._contents.get(inode, b"")

    def names(self, path: Path | str) -> set[str]:
        """Return which names are left in a directory after a power loss."""
        inode = self._inode(path)
        return set() if inode is None else set(self._names.get(inode, {}))

    def _inode(self, path: Path | str) -> int | None:
        inode: int | None = self._root.stat().st_ino
        for part in Path(path).relative_to(self._root).parts:
            inode = self._names.get(inode, {}).get(part) if inode is not None else None
        return inode
