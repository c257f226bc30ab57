"""The lists of epochs of a fenced store: which master wrote which part of its log.

`epochFileCheckpoint` is RocketMQ's, `epochIds` ours beside it; each has a count and a checksum of
its own, and a second copy in `.bak`. `ha.fenced.epoch_file` writes them.
"""

import enum
import re
from pathlib import Path
from typing import Final, NamedTuple

from tandem.wire.crc import crc32
from tandem.wire.store_layout import EPOCH_FILE, EPOCH_IDS_FILE

BACKUP_SUFFIX: Final = ".bak"

_ENTRY: Final = re.compile(r"(\d{1,10})-(\d{1,19})")
_ID: Final = re.compile(r"(\d{1,10})-(\d{1,19})-([0-9a-f]{1,32})")

Entries = dict[tuple[int, int], str]
"""Epoch and start, in order, and the id; empty if it is not known."""


def read_lines(data: bytes, name: str) -> Entries:
    """Read one of the two files.

    Raises:
        ValueError: it is damaged; says how.
    """
    if data.count(b"\n") < 2 or not data.endswith(b"\n"):
        raise ValueError("it is cut short")
    count, crc, *lines = data.decode("ascii", "replace").split("\n")[:-1]
    if not count.isdecimal() or not crc.isdecimal() or int(count) != len(lines):
        raise ValueError(f"{len(lines)} entries where the file says {count[:20]!r}")
    if int(crc) not in (0, crc32(data.split(b"\n", 2)[2])):
        raise ValueError(f"the entries do not fit their checksum {crc[:20]}")
    entries: Entries = {}
    for line in lines:
        match = (_ID if name == EPOCH_IDS_FILE else _ENTRY).fullmatch(line)
        if match is None:
            raise ValueError("a line is not of the form epoch-offset")
        entries[int(match[1]), int(match[2])] = match[3] if name == EPOCH_IDS_FILE else ""
    return entries


def epochs_of(directory: str) -> Entries | None:
    """Return the epochs of a store with their ids as far as they are known, None without a list."""
    entries = _first_whole(directory, EPOCH_FILE)
    if entries is None:
        return None
    ids = _first_whole(directory, EPOCH_IDS_FILE) or {}
    return {entry: ids.get(entry, "") for entry in entries}


def _first_whole(directory: str, name: str) -> Entries | None:
    for path in (Path(directory) / name, Path(directory) / f"{name}{BACKUP_SUFFIX}"):
        try:
            return read_lines(path.read_bytes(), name)
        except (OSError, ValueError):
            continue
    return None


class Contradicting(enum.Enum):
    """How epochs show that two logs differ."""

    NO_LIST = enum.auto()
    """Only one of the two has a list that can be read."""
    NO_EPOCH = enum.auto()
    """Only one of the two has an epoch."""
    OTHER_MASTER = enum.auto()
    """An epoch was written by two masters."""


class Contradiction(NamedTuple):
    """What shows that two logs differ.

    `epoch` is the first that is not in both, and `start` where it begins; -1 where only one of the
    two has a list.
    """

    cause: Contradicting
    epoch: int
    start: int
    text: str


def contradiction(directory: str, other: str, end: int) -> Contradiction | None:
    """Return what in the epochs of two stores shows that their logs differ before `end`.

    Two stores without lists have nothing to contradict each other with.
    """
    ours, theirs = epochs_of(directory), epochs_of(other)
    if ours is None and theirs is None:
        return None
    if ours is None or theirs is None:
        text = f"only one of them has a readable list of epochs ({EPOCH_FILE})"
        return Contradiction(Contradicting.NO_LIST, -1, -1, text)
    begins = max(_first_start(ours), _first_start(theirs))
    for place in sorted({*ours, *theirs}, key=lambda entry: entry[1]):
        epoch, start = place
        # The list of a log whose beginning was deleted begins later.
        if not begins <= start < end:
            continue
        if place not in ours or place not in theirs:
            text = f"only one of them has epoch {epoch}, from offset {start} on"
            return Contradiction(Contradicting.NO_EPOCH, epoch, start, text)
        if ours[place] and theirs[place] and ours[place] != theirs[place]:
            text = f"epoch {epoch}, from offset {start} on, was written by another master"
            return Contradiction(Contradicting.OTHER_MASTER, epoch, start, text)
    return None


def _first_start(entries: Entries) -> int:
    return min((start for _, start in entries), default=0)
