"""A disk as it was before it rotted: for those who read logs and judge.

What a node has to have is what it had, until it was healed; then it is what is there.
"""

from typing import Final

import msgspec
import numpy as np

from tests.support.simulated_disk import SimulatedDisk, SimulatedFile

WINDOW_BYTES: Final = 32
"""So many bytes on both sides of an edge tell what is bad from all that was ever written."""


class Rot(msgspec.Struct, frozen=True):
    """One file of a log that was hurt; `before` is what has to be in it."""

    node: str
    kind: str
    path: str
    before: bytes
    where: str
    """In words."""
    at: int = 0
    """The first byte that was hurt, in the file."""
    last: int = 0
    """The last one."""
    windows: tuple[bytes, ...] = ()
    """What is found in bytes that were read there, and nowhere else."""
    at_seconds: float = 0.0

    @property
    def start(self) -> int:
        """Where the file begins in the log."""
        return int(self.path.rpartition("/")[2])


def windows_of(before: bytes, after: bytes) -> tuple[int, int, tuple[bytes, ...]]:
    """Return the first and the last byte in which two contents differ, and windows around both."""
    differing = _differing(before, after)
    edges = (int(differing[0]), int(differing[-1]))
    found = [after[max(0, edge - WINDOW_BYTES) : edge + WINDOW_BYTES] for edge in edges]
    return *edges, tuple(w for w in found if w not in before and _says_much(w))


def _says_much(window: bytes) -> bool:
    """Whether it is no row of zeros, of which there are many."""
    return len(window) - window.count(0) >= WINDOW_BYTES // 2


def bad_offsets(rot: Rot, disk: SimulatedDisk) -> list[int]:
    """Return the bytes of a hurt file that are bad now, by physical offset, as memory shows them.

    None if the file is not there: then there is nothing to be read.
    """
    now = disk.read(rot.path) or b""
    if now == rot.before:
        return []
    size = min(len(now), len(rot.before))
    return [rot.start + int(at) for at in _differing(rot.before[:size], now[:size])]


def _differing(one: bytes, other: bytes) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    left, right = (np.frombuffer(each, dtype=np.uint8) for each in (one, other))
    return np.flatnonzero(left != right)


def is_healed(rot: Rot, disk: SimulatedDisk) -> bool:
    """Whether the file is whole again, in the page cache and on the disk."""
    if not disk.exists(rot.path) or len(disk.read(rot.path) or b"") != len(rot.before):
        return False
    file = disk.open(rot.path)
    return file.content == rot.before and file.durable == rot.before


class WholeFile(msgspec.Struct, frozen=True):
    """A file as it was before it was hurt."""

    buffer: bytes
    durable: bytes


class WholeDisk:
    """A disk whose hurt files are as they were; for those who read logs and judge."""

    def __init__(self, disk: SimulatedDisk, rots: list[Rot]) -> None:
        self.disk = disk
        self._rots = rots

    def _before(self, path: str) -> bytes | None:
        return next((rot.before for rot in self._rots if rot.path == path), None)

    def list_files(self, directory: str) -> list[tuple[str, int]]:
        """See `Disk.list_files`."""
        files = dict(self.disk.list_files(directory))
        prefix = f"{directory}/"
        files |= {
            rot.path.removeprefix(prefix): len(rot.before)
            for rot in self._rots
            if rot.path.startswith(prefix)
        }
        return sorted(files.items())

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return self._before(path) is not None or self.disk.exists(path)

    def open(self, path: str) -> "SimulatedFile | WholeFile":
        """See `Disk.open`."""
        before = self._before(path)
        return self.disk.open(path) if before is None else WholeFile(before, before)
