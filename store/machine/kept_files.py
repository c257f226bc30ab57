"""KeptFiles: what the small files of a process have to hold, so that a changed one is noticed.

    owner   --keep-->     path: the content that it has read and believes, or has written
    disk    --forget-->   path is made, replaced, removed or renamed: what is in it next, its owner
                          says
    scrub   --of-->       compares the disk with it, and has the owner write it again

The memory of a running process is the truth about its small files: it has read them when it began,
and nobody but it writes them. Only tables of RocketMQ's are also written by people: those are kept
with the time of their last write. A disk has one of these, and an owner keeps its files there.

It costs the memory of what is in them: for tables about as much as they have anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

ONLY_OURS: Final = -1


class KeptFile(NamedTuple):
    """One file as it has to be."""

    content: bytes
    """All of it."""
    modified_ms: int
    """When it was written last, where others may write it as well; else `ONLY_OURS`."""
    write_anew: Callable[[], None]
    """Puts the content there again, durably. Raises StoreError or OSError: the disk refuses."""


class KeptFiles:
    """The small files of one process, by path."""

    def __init__(self) -> None:
        self._files: dict[str, Callable[[], KeptFile | None]] = {}

    def keep(self, path: str, current: Callable[[], KeptFile | None]) -> None:
        """Say what is in a file from now on. `current` returns None while that is not known."""
        self._files[path] = current

    def forget(self, path: str) -> None:
        """Take note that a file, or all in a directory of that name, is another one from now on."""
        below = f"{path}/"
        for kept in [each for each in self._files if each == path or each.startswith(below)]:
            del self._files[kept]

    def of(self, path: str) -> KeptFile | None:
        """Return what has to be in a file, None if that is not known."""
        current = self._files.get(path)
        return None if current is None else current()

    def below(self, directory: str) -> list[str]:
        """Return the paths of all files in a directory and further down, sorted."""
        return sorted(path for path in self._files if path.startswith(f"{directory}/"))


class KeepingDisk(Protocol):
    """What is asked of a disk here."""

    @property
    def kept(self) -> KeptFiles:
        """See `Disk`."""

    def replace(self, path: str, data: bytes) -> None:
        """See `Disk`."""


def keep(disk: KeepingDisk, path: str, content: bytes) -> None:
    """Keep a file that is ours alone, and that is replaced as a whole."""
    file = KeptFile(content, ONLY_OURS, partial(_write_anew, disk, path, content))
    disk.kept.keep(path, lambda: file)


def _write_anew(disk: KeepingDisk, path: str, content: bytes) -> None:
    disk.replace(path, content)
    keep(disk, path, content)
