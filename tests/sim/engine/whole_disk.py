"""A disk as it was before it rotted: for those who read logs and judge.

What a node has to have is what it had, until it was healed; then it is what is there.
"""

import msgspec

from tests.support.simulated_disk import SimulatedDisk, SimulatedFile


class Rot(msgspec.Struct, frozen=True):
    """One file that was hurt; `before` is what has to be in it."""

    node: str
    kind: str
    path: str
    before: bytes
    where: str
    """In words."""


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
