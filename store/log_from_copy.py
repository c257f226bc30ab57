"""Heals files of a log from another directory that holds the same log. Nobody has the store open.

    lock the store                                      1
    for each file, in order:
        its new content is made beside it, and synced   2   what is copied is checked again
        the bytes that go are kept                      3   <side directory>/replaced/<offset>
        the new file takes the name of the old one      4   all or nothing
    a fingerprint that fitted what was bad goes         5   it was taken too late
    what was noted as bad and is whole now is forgotten 6

What is to be copied was found by `tandem.log.healing`. The other log may be that of a running node
and may have been deleted meanwhile: only bytes with the CRC that they had then are taken.
Interrupted at any step, it can be done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from store.log.damage import LogDamage
from store.log.fingerprints import Fingerprints
from store.log.log_start import locked
from store.machine.disk import TEMPORARY_SUFFIX, Disk, DiskFile
from store.machine.errors import CorruptLogError, LogFault
from tandem.wire.crc import raw_crc32
from tandem.wire.fingerprint import Fingerprint

_log = logging.getLogger(__name__)

_PIECE_BYTES: Final = 4 << 20


class HealRange(msgspec.Struct, frozen=True):
    """Bytes by physical offset, and the CRC-32 that they have where they are copied from."""

    start: int
    end: int
    crc32: int
    reason: str = ""


class HealFile(msgspec.Struct, frozen=True):
    """One file of the log; see `tandem.log.healing.HealedFile`."""

    offset: int
    path: str
    source: str
    is_missing: bool
    size_before: int
    ranges: tuple[HealRange, ...]


class HealRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do, in the store of `directory`, whose log files have `file_bytes` bytes."""

    directory: str
    side_directory: str
    file_bytes: int
    files: tuple[HealFile, ...]


class HealResult(msgspec.Struct, frozen=True):
    """What was done. `kept` are paths of the bytes that were replaced."""

    healed_bytes: int
    healed: tuple[str, ...]
    kept: tuple[str, ...]


def heal_log(request: HealRequest, disk: Disk, replace: Callable[[str, str], None]) -> HealResult:
    """Carry out a healing; `replace` renames a file over another one, durably.

    Raises:
        StoreLockedError: a node has the store open; nothing was changed.
        CorruptLogError: what is to be copied is not what it was; files before it are healed.
        StoreFullError, DiskFailedError, OSError: the disk; files before it are healed.
    """
    # So that the node does not take this for a stranger's visit, see `LogStart`.
    release, log_start = locked(disk, request.directory)
    try:
        fingerprints = Fingerprints(disk, request.directory, era=log_start.era)
        kept: list[str] = []
        for file in request.files:
            kept += _heal(request, file, disk, replace, fingerprints)
        damage = LogDamage(disk, request.directory)
        ranges = [found for file in request.files for found in file.ranges]
        for found in ranges:
            damage.healed(found.start, found.end)
    finally:
        release()
    return HealResult(
        healed_bytes=sum(found.end - found.start for found in ranges),
        healed=tuple(file.path for file in request.files),
        kept=tuple(kept),
    )


def _heal(
    request: HealRequest,
    file: HealFile,
    disk: Disk,
    replace: Callable[[str, str], None],
    fingerprints: Fingerprints,
) -> list[str]:
    draft = f"{file.path}{TEMPORARY_SUFFIX}"
    disk.remove(draft)
    kept: list[str] = []
    known = fingerprints.of(file.offset)
    was_taken_too_late = False
    new = disk.create(draft, request.file_bytes)
    try:
        old = (
            None
            if file.is_missing or not file.size_before
            else disk.open(file.path, read_only=True)
        )
        source = disk.open(file.source, read_only=True)
        try:
            if old is not None:
                _copy(old, new, 0, min(old.size, new.size))
            for found in file.ranges:
                start, end = found.start - file.offset, found.end - file.offset
                if old is not None and start < old.size:
                    path = f"{request.side_directory}/replaced/{found.start:020d}"
                    disk.replace(path, bytes(old.buffer[start : min(end, old.size)]))
                    kept.append(path)
                _copy(source, new, start, end)
                _expect_same(new, start, end, found, file.source)
            if old is not None and old.size > new.size:
                path = f"{request.side_directory}/replaced/{file.offset + new.size:020d}"
                disk.replace(path, bytes(old.buffer[new.size :]))
                kept.append(path)
            was_taken_too_late = known is not None and _fitted_only_before(known, file, old, new)
        finally:
            source.close()
            if old is not None:
                old.close()
        new.sync()
    except BaseException:
        new.close()
        disk.remove(draft)
        raise
    new.close()
    if was_taken_too_late:
        fingerprints.drop(file.offset)
    replace(draft, file.path)
    _log.info("%s is healed from %s", file.path, file.source)
    return kept


def _fitted_only_before(
    known: Fingerprint, file: HealFile, old: DiskFile | None, new: DiskFile
) -> bool:
    """Say whether a block is what its fingerprint says as long as it is bad, and not any more."""
    if old is None or known.size != new.size or old.size < known.size:
        return False
    return any(
        known.differing(start, bytes(new.buffer[start - known.start : end - known.start]))
        and not known.differing(start, bytes(old.buffer[start - known.start : end - known.start]))
        for found in file.ranges
        for _, start, end in known.blocks(found.start, found.end)
    )


def _copy(source: DiskFile, target: DiskFile, start: int, end: int) -> None:
    for at in range(start, end, _PIECE_BYTES):
        piece = bytes(source.buffer[at : min(at + _PIECE_BYTES, end)])
        target.buffer[at : at + len(piece)] = piece


def _expect_same(file: DiskFile, start: int, end: int, found: HealRange, source: str) -> None:
    crc = 0
    for at in range(start, end, _PIECE_BYTES):
        crc = raw_crc32(file.buffer[at : min(at + _PIECE_BYTES, end)], crc)
    if crc != found.crc32:
        raise CorruptLogError(
            f"{source}: offsets {found.start} to {found.end} are not what they were a moment ago;"
            " nothing of this file was changed. Run the command again, or take another copy",
            path=source,
            fault=LogFault.CHANGED,
            offset=found.start,
        )
