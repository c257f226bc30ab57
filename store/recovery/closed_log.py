"""What can be done to the commit log of a store that is not open, by whoever has other replicas.

A start that meets damage in the part of the log that it walks raises `CorruptLogError`, and changes
nothing. The error says from where to where. A node of a fenced group gets these bytes from another
replica, puts them there, and opens the store again.

The file where they belong may be gone, with all that follow: what is missing in the row an opening
has put a stand-in for, but nothing in the row itself says that it went on. So stand-ins are made
here, and what is not healed of them stays noted: the store knows then that its log was longer.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from store.log.damage import LogDamage
from store.log.fingerprints import Fingerprints
from store.log.healing import LogHealing
from store.log.log_start import locked
from store.recovery.missing_files import make_stand_ins, missing_files
from store.recovery.opening import disk_failed, load_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.config import StoreConfig
    from store.machine.disk import Disk


def heal_closed_log(
    config: StoreConfig,
    start: int,
    data: bytes | memoryview,
    *,
    disk: Disk,
    wall_clock_ms: Callable[[], int],
) -> None:
    """Put `data` in the place of what is at `start` of the log; see `LogHealing.heal`.

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
            missing = missing_files(config, disk, log_start.start, end=end)
            make_stand_ins(missing, file_size, disk, damage)
            log = load_log(config, disk, wall_clock_ms)
            opened.callback(log.files.close)
            fingerprints = Fingerprints(disk, config.directory, era=log_start.era)
            healing = LogHealing(log, fingerprints, disk, config.directory)
            healing.heal_blocking(start, data)
    except OSError as error:
        raise disk_failed(config.directory, error) from error
