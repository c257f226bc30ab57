"""What can be done to the commit log of a store that is not open, if there are other replicas.

A start that meets damage in the part of the log that it walks raises `CorruptLogError`, and changes
nothing. The error says from where to where. A node of a fenced group gets these bytes from another
replica, puts them there, and opens the store again.

The file where they belong may be gone, with all that follow. An opening has put stand-ins where
files are missing in the row, but nothing in the row itself says that it went on. So stand-ins are
made here, and what is not healed of them stays noted: then the store knows that its log was longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from store.config import StoreConfig
from store.log.commit_log import CommitLog
from store.log.damage import LogDamage
from store.log.fingerprints import Fingerprints
from store.log.healing import LogHealing
from store.log.log_start import locked
from store.machine.disk import Disk
from store.recovery.missing_files import make_stand_ins, missing_files
from store.recovery.opening import disk_failed, load_log

_log = logging.getLogger(__name__)


def heal_closed_log(
    config: StoreConfig,
    start: int,
    data: bytes | memoryview,
    *,
    disk: Disk,
    wall_clock_ms: Callable[[], int],
) -> None:
    """Put `data` in the place of what is at `start` of the log; see `LogHealing.heal`.

    No sound records are there now: a fingerprint that fits them was taken when they had changed
    already, and is dropped.

    Raises:
        StoreLockedError: another process has the store open.
        UnfitBytesError: they do not fit there; nothing was changed.
        CorruptLogError: the row of files is not whole.
        StoreFullError: no room to keep what was there; nothing was changed.
        DiskFailedError: the disk does not do what it is asked.
    """
    try:
        with ExitStack() as opened:
            release, log_start = locked(disk, config.directory)
            opened.callback(release)
            file_size = config.mapped_file_size_commit_log_bytes
            damage = LogDamage(disk, config.directory, wall_clock_ms)
            end = start + len(data)
            missing = missing_files(config, disk, log_start.start, end=end, begun=True)
            make_stand_ins(missing, file_size, disk, damage)
            log = load_log(config, disk, wall_clock_ms)
            opened.callback(log.files.close)
            fingerprints = Fingerprints(disk, config.directory)
            _drop_what_was_taken_too_late(log, fingerprints, start, memoryview(data))
            healing = LogHealing(log, fingerprints, disk, config.directory)
            healing.heal_blocking(start, data)
    except OSError as error:
        raise disk_failed(config.directory, error) from error


def blocks_around(config: StoreConfig, start: int, end: int, *, disk: Disk) -> tuple[int, int]:
    """Return from where to where the blocks go that a part of one file touches.

    More than one record may be damaged, and one may be in bytes that no record's checksum covers.
    Of a file without fingerprint it is the part itself.
    """
    size = config.mapped_file_size_commit_log_bytes
    known = Fingerprints(disk, config.directory).of(start - start % size)
    if known is None:
        return start, end
    blocks = list(known.blocks(start, end))
    return blocks[0][1], blocks[-1][2]


def _drop_what_was_taken_too_late(
    log: CommitLog, fingerprints: Fingerprints, start: int, data: memoryview
) -> None:
    size, end = log.files.mapped_file_size, start + len(data)
    for first in range(start - start % size, end, size):
        file, known = log.files.find_by_offset(first), fingerprints.of(first)
        if file is None or known is None:
            continue
        blocks = list(known.blocks(max(start, first), min(end, first + size)))
        begin, stop = blocks[0][1], blocks[-1][2]
        there = bytes(file.buffer[begin - first : stop - first])
        low, high = max(start, first), min(end, first + size)
        is_new = there[low - begin : high - begin] != data[low - start : high - start]
        if is_new and not known.differing(begin, there):
            fingerprints.drop(first)
            _log.warning(
                "the fingerprint of file %d is dropped: the file was damaged when it was taken",
                first,
            )
