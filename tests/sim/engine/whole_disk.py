"""A disk as it was before it rotted: for those who read logs and judge.

What a node has to have is what it had, until it was healed; then it is what is there.
"""

from typing import Final

import msgspec
import numpy as np

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile

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
    cut_at: int = 1 << 62
    """From this byte of the file on the log was cut, and others may have come since."""

    @property
    def start(self) -> int:
        """Where the file begins in the log."""
        return int(self.path.rpartition("/")[2])

    def whole(self, now: bytes) -> bytes:
        """Return what has to be in the file, if this is in it."""
        return self.before[: self.cut_at] + now[self.cut_at :]


def after_cut(rots: list[Rot], cut: int) -> list[Rot]:
    """Return what is yet hurt in a log that is cut at this offset."""
    return [
        msgspec.structs.replace(rot, cut_at=min(rot.cut_at, cut - rot.start))
        for rot in rots
        if rot.start + rot.at < cut
    ]


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
    whole = rot.whole(now)
    if now == whole:
        return []
    size = min(len(now), len(whole))
    return [rot.start + int(at) for at in _differing(whole[:size], now[:size])]


def _differing(one: bytes, other: bytes) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    left, right = (np.frombuffer(each, dtype=np.uint8) for each in (one, other))
    return np.flatnonzero(left != right)


def is_healed(rot: Rot, disk: SimulatedDisk) -> bool:
    """Whether the file is whole again, in the page cache and on the disk."""
    if not disk.exists(rot.path) or len(disk.read(rot.path) or b"") != len(rot.before):
        return False
    file = disk.open(rot.path)
    return all(each == rot.whole(each) for each in (file.content, file.durable))


class WholeFile(msgspec.Struct, frozen=True):
    """A file as it was before it was hurt."""

    buffer: bytes
    durable: bytes


class WholeDisk:
    """A disk whose hurt files are as they were; for those who read logs and judge."""

    def __init__(self, disk: SimulatedDisk, rots: list[Rot]) -> None:
        self.disk = disk
        self._rots = rots

    def _rot_of(self, path: str) -> Rot | None:
        return next((rot for rot in self._rots if rot.path == path), None)

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
        return self._rot_of(path) is not None or self.disk.exists(path)

    def open(self, path: str) -> "SimulatedFile | WholeFile":
        """See `Disk.open`."""
        rot = self._rot_of(path)
        if rot is None:
            return self.disk.open(path)
        whole = rot.whole(self.disk.read(path) or b"")
        return WholeFile(whole, whole)
