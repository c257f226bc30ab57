"""What a disk does to a log at rest: a bit flips, a page is zeros, a file is gone or short.

Only files that are full are hurt, all but the last ones: the end of a log is another matter, see
`Disks.damage_tail`. Damage is remembered, so that it can be asked whether another node's
disk and this one agree again.
"""

import os
from pathlib import Path
from random import Random
from typing import Final, Literal

import msgspec

from tandem.data_file import DataFile
from tandem.spark.audit.log_compare import open_extent
from tandem.wire.store_layout import PAGE_BYTES

RotKind = Literal["flip", "zero", "lose", "shorten"]

OF_RUNNING_NODES: Final[tuple[RotKind, ...]] = ("flip", "zero", "lose")
"""A file that gets short under a mapping ends the process that reads it, whatever wrote it."""

OF_STOPPED_NODES: Final[tuple[RotKind, ...]] = ("flip", "zero", "lose", "shorten")


class NothingToHurtError(Exception):
    """No file of the log is full yet; the text says whose."""


class Rot(msgspec.Struct, frozen=True):
    """One thing that was done to one file of a log. Positions in bytes, within the file."""

    kind: RotKind
    path: str
    start: int
    end: int

    def __str__(self) -> str:
        name = os.path.relpath(self.path, Path(self.path).parents[1])
        match self.kind:
            case "flip":
                return f"flip a bit of {name} at {self.start}"
            case "zero":
                return f"zero the page of {name} at {self.start}"
            case "lose":
                return f"lose {name}"
            case "shorten":
                return f"cut {name} off at {self.start}"


def rot_log(store: Path, kind: RotKind, chance: Random) -> Rot:
    """Hurt one of the closed files of the log of `store`; return what was done.

    Raises:
        NothingToHurtError: it has none yet.
    """
    file = chance.choice(closed_files(store))
    if kind == "lose":
        Path(file.path).unlink()
        return Rot(kind, file.path, 0, file.size)
    position = chance.randrange(file.size)
    if kind == "shorten":
        os.truncate(file.path, position)
        return Rot(kind, file.path, position, file.size)
    with Path(file.path).open("r+b", buffering=0) as damaged:
        if kind == "zero":
            position -= position % PAGE_BYTES
            damaged.seek(position)
            page = damaged.read(PAGE_BYTES)
            new = bytes(len(page))
        else:
            damaged.seek(position)
            new = bytes([damaged.read(1)[0] ^ 1 << chance.randrange(8)])
        damaged.seek(position)
        damaged.write(new)
    return Rot(kind, file.path, position, position + len(new))


def closed_files(store: Path) -> list[DataFile]:
    """Return the files of a log that are full, without the last that is.

    Raises:
        NothingToHurtError: there are none.
    """
    log = open_extent(str(store))
    files = [file for file in log.files if file.end_offset <= log.end][:-1]
    if not files:
        raise NothingToHurtError(
            f"no file of the log of {store.name} is full yet, but for the last"
        )
    return files


def is_as_elsewhere(rot: Rot, other_store: Path) -> bool:
    """Whether the hurt file is whole again: of the same size and bytes as in another store."""
    path = Path(rot.path)
    other = other_store / path.parent.name / path.name
    try:
        return path.read_bytes() == other.read_bytes()
    except FileNotFoundError:
        return False
