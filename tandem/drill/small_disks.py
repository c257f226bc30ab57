"""The file systems of the stores, and how to hurt them: full disks, damaged ends of logs.

A disk is filled for real: each node's store is then on a small file system of its own in memory
(tmpfs), which only root may mount. Where that cannot be done, scenarios that need it are reported
as not possible here; they are not counted as passed.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.data_file import opened, read_into
from tandem.drill.rot import NothingToHurtError, Rot, RotKind, is_as_elsewhere, rot_log
from tandem.drill.scenario import NodeFailedError, NotPossibleError, OutOfPlaceError
from tandem.spark.audit.log_compare import open_extent

DISK_MIB: Final = 96
"""Room for a minute of load; it takes memory only as it fills."""

_BALLAST: Final = "ballast"
_CHUNK_BYTES: Final = 65_536
_GARBLE: Final = 0xA5


class Disks:
    """The stores of a drill by node. `mounted` says whether they are on small file systems."""

    def __init__(
        self,
        stores: Mapping[str, Path],
        why_not: str = "not asked for",
        chance: Random | None = None,
    ) -> None:
        """Take where each store is; `why_not`: why they are on no small file systems, or "".

        `chance` decides which bytes rot.
        """
        self._chance = Random(1) if chance is None else chance
        self._stores = dict(stores)
        self._directories = dict(stores)
        self._why_not = why_not

    def add_coordinator(self, directory: Path) -> None:
        """Say where the embedded coordinator keeps its journal, so that it can be copied, too."""
        self._directories[COORDINATOR] = directory

    def fill(self, node: str) -> None:
        """Write until there is no room left.

        Raises:
            NotPossibleError: the store is not on a small file system.
        """
        if self._why_not:
            raise NotPossibleError(f"no small file system for {node}'s store: {self._why_not}")
        with (self._directories[node] / _BALLAST).open("ab", buffering=0) as ballast:
            for size in (_CHUNK_BYTES, 1):
                try:
                    while ballast.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free(self, node: str) -> None:
        """Make room again."""
        (self._directories[node] / _BALLAST).unlink(missing_ok=True)

    def keep_copy(self, who: str) -> None:
        """Copy a directory as it is, of a node that may run. Blocks for as long as that takes."""
        copy = self._copy_of(who)
        shutil.rmtree(copy, ignore_errors=True)
        _copy(self._directories[who], copy)

    def put_back(self, who: str) -> None:
        """Let the copy take the place of the directory of a node that is down.

        Raises:
            OutOfPlaceError: nobody has made a copy.
        """
        copy, directory = self._copy_of(who), self._directories[who]
        if not copy.exists():
            raise OutOfPlaceError(f"there is no copy of the directory of {who}")
        _empty(directory)
        _copy(copy, directory)

    def lose(self, node: str) -> None:
        """Leave an empty disk to a node that is down."""
        _empty(self._stores[node])

    def count_files(self, node: str) -> int:
        """Return how many files are in the store of a node."""
        return sum(len(names) for _, _, names in os.walk(self._stores[node]))

    def room_bytes(self, who: str) -> int:
        """Return how much can be written to the disk of a node, or of the coordinator."""
        disk = os.statvfs(self._directories[who])
        return disk.f_bavail * disk.f_frsize

    def rot(self, node: str, kind: RotKind) -> Rot:
        """Hurt a full file of the log of a node; see `rot_log`.

        Raises:
            NodeFailedError: it has none yet.
        """
        try:
            return rot_log(self._stores[node], kind, self._chance)
        except NothingToHurtError as error:
            raise NodeFailedError(str(error)) from error

    def is_healed(self, node: str, rot: Rot) -> bool:
        """Whether what was hurt on the disk of `node` is as on the disks of all others."""
        others = [store for name, store in self._stores.items() if name != node]
        return all(is_as_elsewhere(rot, store) for store in others)

    def _copy_of(self, who: str) -> Path:
        return self._directories[who].with_name(f"{self._directories[who].name}.copy")

    def damage_tail(self, node: str, size_bytes: int, *, cut: bool) -> None:
        """Zero or garble the last bytes of the log of a node that is down.

        Raises:
            NodeFailedError: the log is shorter than that.
        """
        log = open_extent(str(self._stores[node]))
        start = log.end - size_bytes
        if not log.files or start < log.files[-1].offset:
            raise NodeFailedError(
                f"the last file of {node}'s log has fewer than {size_bytes} bytes"
            )
        file = log.files[-1]
        data = bytearray(size_bytes)
        with opened(file.path) as descriptor:
            read_into(descriptor, memoryview(data), start - file.offset)
        damaged = bytes(size_bytes) if cut else bytes(byte ^ _GARBLE for byte in data)
        with Path(file.path).open("r+b") as log_file:
            log_file.seek(start - file.offset)
            log_file.write(damaged)


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _copy(source: Path, target: Path) -> None:
    """Copy files with their holes; what goes away meanwhile is left out, as in a backup."""
    target.mkdir(parents=True, exist_ok=True)
    command = ["cp", "-a", "--sparse=always", f"{source}/.", str(target)]
    subprocess.run(command, check=False, capture_output=True)


@contextmanager
def small_disks(
    stores: Mapping[str, Path],
    chance: Random | None = None,
    *,
    coordinator: Path | None = None,
) -> Iterator[Disks]:
    """Put each store on a small file system while the block runs, if that can be done here.

    So is the directory of an embedded coordinator.

    What is on them when the block ends stays in their place as plain files.
    """
    mounted: list[Path] = []
    why_not = ""
    try:
        for place in (*stores.values(), *([coordinator] if coordinator is not None else [])):
            place.mkdir(parents=True, exist_ok=True)
            why_not = _mount(place)
            if why_not:
                break
            mounted.append(place)
        yield Disks(stores, why_not, chance)
    finally:
        for place in mounted:
            _unmount(place)


def _mount(place: Path) -> str:
    """Mount; return why it cannot be done, or ""."""
    if os.geteuid() != 0:
        return "only root can mount one"
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(place)]
    try:
        done = subprocess.run(command, check=False, capture_output=True)
    except FileNotFoundError:
        return "there is no `mount` here"
    return done.stderr.decode(errors="replace").strip() if done.returncode else ""


def _unmount(place: Path) -> None:
    kept = place.with_name(place.name + ".kept")
    (place / _BALLAST).unlink(missing_ok=True)
    shutil.copytree(place, kept, dirs_exist_ok=True)
    # Lazily: a process that still has a file open there keeps it until it lets go.
    subprocess.run(["umount", "-l", str(place)], check=True)
    place.rmdir()
    kept.rename(place)
