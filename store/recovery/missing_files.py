"""Files of the log that are missing or too short, when a store is opened.

    there is a hole in the row, or the row begins after where retention has left it     missing
    a file has fewer bytes than all of them have                                        short

A replica of a fenced group gets them back from the others. Until then a *stand-in* takes the place
of each, all zeros where bytes are missing, so that the row is whole and a bad range is all there
is to heal. The range is noted first, durably. The store of a classic group does not open with a
hole or a short file. Of a first file that is missing it only speaks: there nobody could fetch it,
and operators delete old files by hand.

    noted         1   all of the file, as bad
    short: moved  2   to <name>.short.tmp, which nobody takes for a file of the log
    created       3   in full length
    short: copied 4   synced; then only the rest is noted, and the other one goes

Interrupted after 3, the next start goes on there: a file beside which there is such another one,
and all of which is noted, is made once more. If not all of it is, only the other one has to go.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from store.config import StoreConfig
from store.log.damage import LogDamage
from store.machine.disk import Disk
from tandem.wire.store_layout import offset_named

_log = logging.getLogger(__name__)

SHORT_SUFFIX: Final = ".short.tmp"
_COPIED_BYTES: Final = 1 << 20


class MissingFile(NamedTuple):
    """One that is not there, or not all of it."""

    path: str
    start: int
    there_bytes: int
    """How many bytes of it are there; 0: none, or no file."""


def missing_files(
    config: StoreConfig, disk: Disk, log_start: int, *, end: int = 0, begun: bool = False
) -> list[MissingFile]:
    """Return what the log of a closed store lacks, in order.

    `log_start` is where it has to begin, -1 if that is unknown; `end` is up to where it has to
    reach at least. Other faults of the files, such as their names, are not looked at here. A
    last file of no length is none. If stand-ins that were `begun` count, one that lacks what is set
    aside for it does.
    """
    size = config.mapped_file_size_commit_log_bytes
    read_only = {path.rstrip("/") for path in config.read_only_commit_log_store_paths}
    writable = sorted({path.rstrip("/") for path in config.commit_log_directories} - read_only)
    found = sorted(
        (offset, found_bytes, directory)
        for directory in {*writable, *read_only}
        for name, found_bytes in disk.list_files(directory)
        if (offset := offset_named(name)) is not None
    )
    while found and not found[-1][1]:
        found.pop()
    if not found or not writable or any(start % size for start, *_ in found):
        return []
    missing: list[MissingFile] = []

    def lacks(first: int, stop: int) -> None:
        for absent in range(first, stop, size):
            path = f"{writable[absent // size % len(writable)]}/{absent:020d}"
            missing.append(MissingFile(path, absent, 0))

    expected = log_start if 0 <= log_start < found[0][0] and not log_start % size else found[0][0]
    may_be_left_out = False
    for start, there_bytes, directory in found:
        if not may_be_left_out:
            lacks(expected, start)
        if there_bytes < size and directory not in read_only:
            missing.append(MissingFile(f"{directory}/{start:020d}", start, there_bytes))
        elif begun and disk.exists(f"{directory}/{start:020d}{SHORT_SUFFIX}"):
            missing.append(MissingFile(f"{directory}/{start:020d}", start, 0))
        expected = start + size
        # Those before a gap of which all are read-only have left the row: see `MappedFileQueue`.
        may_be_left_out = directory in read_only
    lacks(expected, end)
    return missing


def tell_missing(missing: list[MissingFile], config: StoreConfig) -> None:
    """Log that first files are missing, of a store that opens without them, as RocketMQ's does.

    Of other holes and lengths `MappedFileQueue` speaks itself.
    """
    holes = [file for file in missing if not file.there_bytes]
    if holes:
        _log.error(
            "%s: the file is missing, and was not deleted as too old: consumers get no error for"
            " what was in it, they go on after it. Restore it from another node (tandem log repair"
            " %s --from)",
            holes[0].path,
            config.directory,
        )


def make_stand_ins(
    missing: list[MissingFile], file_size: int, disk: Disk, damage: LogDamage
) -> None:
    """Put a file in the place of each that is missing or short. Interrupted, call it again.

    Raises:
        StoreFullError: no room.
        DiskFailedError, OSError: the disk refuses.
    """
    for file in missing:
        end = file.start + file_size
        aside = f"{file.path}{SHORT_SUFFIX}"
        is_begun = not file.there_bytes and disk.exists(aside) and disk.exists(file.path)
        if is_begun and not damage.covers(file.start, end):
            disk.remove(aside)  # all was done but this
            continue
        reason = (
            f"the file has {file.there_bytes} of {file_size} bytes"
            if file.there_bytes
            else "the file is missing"
        )
        damage.note(file.start, end, reason)
        if file.there_bytes:
            disk.remove(aside)
            disk.rename(file.path, aside)
        whole = disk.create(file.path, file_size)
        try:
            copied_bytes = 0
            if disk.exists(aside):
                short = disk.open(aside, read_only=True)
                copied_bytes = min(short.size, file_size)
                for at in range(0, copied_bytes, _COPIED_BYTES):
                    piece = bytes(short.buffer[at : min(at + _COPIED_BYTES, copied_bytes)])
                    whole.buffer[at : at + len(piece)] = piece
                short.close()
            whole.sync()
        finally:
            whole.close()
        damage.healed(file.start, file.start + copied_bytes)
        disk.remove(aside)
        _log.error("%s: %s; zeros take their place until they are healed", file.path, reason)
