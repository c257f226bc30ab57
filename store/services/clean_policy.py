"""When files of the commit log are deleted, and when a full disk refuses messages: no I/O in here.

Files are deleted when it is time (`delete_when`), when space is short, or when a person asked. How
short space is follows from three watermarks, all in percent of the disk in use, rounded up:

       0        max used (M)       forcibly (F)        warning (W)     100
       |  by the clock  |  expired files |  files of any age |  + refused |
                        |  at any hour   |                   |            |
                                         '<-- taken again below F, and refused above W --'

Each is looked at for the commit log and for the consume queues, which may be on disks of their
own. Of several commit log directories the emptiest counts: the next file goes there. A directory
whose use is unknown, because it does not exist yet, counts as above M.

Two things differ from RocketMQ. The consume queues' disk is also looked at while the commit log's
is above F, so that its flag does not outlive its reason. And F and W may be up to 100 ("never"):
RocketMQ caps them at 85 and 90, which on a large or shared disk throws away much that fits.

Source: DefaultMessageStore.CleanCommitLogService of 5.3.3, isTimeToDelete and isSpaceToDelete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from store.config import StoreConfig
from store.running_flags import RunningFlag
from tandem.cluster_file.store_settings import (
    DISK_MAX_USED_SPACE_RATIOS,
    DISK_SPACE_CLEAN_FORCIBLY_RATIOS,
    DISK_SPACE_WARNING_LEVEL_RATIOS,
)

MANUAL_DELETE_RUNS: Final = 20
"""Source: CleanCommitLogService.MAX_MANUAL_DELETE_FILE_TIMES."""

HOUR_MS: Final = 3_600_000

UNKNOWN_PERCENT: Final = -1


def utc_hour(now_ms: int) -> int:
    """The hour of the day, 0 to 23, where nobody says what time zone the node is in."""
    return now_ms // HOUR_MS % 24


def used_percent(used_bytes: int, usable_bytes: int) -> int:
    """How full a disk is, rounded up to whole percent; -1 if it has no size.

    `usable_bytes` is what may still be used: what is set aside for root is part of neither.

    Source: UtilAll.getDiskPartitionSpaceUsedPercent.
    """
    total = used_bytes + usable_bytes
    return -(-used_bytes * 100 // total) if total > 0 else UNKNOWN_PERCENT


class DirectoryUsage(msgspec.Struct, frozen=True):
    """How full the disk under a directory is, in whole percent; -1 if that is unknown."""

    directory: str
    percent: int


class Watermarks(msgspec.Struct, frozen=True):
    """The three levels, in percent."""

    max_used: int
    clean_forcibly: int
    warning: int

    @classmethod
    def of(cls, config: StoreConfig) -> Watermarks:
        """The levels of a store, each moved into its range."""
        return cls(
            _clamped(config.disk_max_used_space_ratio, DISK_MAX_USED_SPACE_RATIOS),
            _clamped(config.disk_space_clean_forcibly_ratio, DISK_SPACE_CLEAN_FORCIBLY_RATIOS),
            _clamped(config.disk_space_warning_level_ratio, DISK_SPACE_WARNING_LEVEL_RATIOS),
        )


def _clamped(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


class CleanDecision(msgspec.Struct, frozen=True):
    """What one look at clock and disks asks for.

    Attributes:
        reason: why files are to be deleted, for the log; empty if none are.
        immediately: whatever their age.
        space_is_short: if so and no file can be deleted, a person has to know.
        refusals: for each flag about the disk why it has to be set, None if it has to be cleared.
            A flag that is not in here stays as it is.
        full_directories: where no new file should be created if there is another place.
    """

    reason: str
    immediately: bool
    space_is_short: bool
    refusals: dict[RunningFlag, str | None]
    full_directories: frozenset[str]


class CleanPolicy:
    """Decides for one store, and remembers what a person asked for."""

    def __init__(
        self,
        *,
        delete_when: tuple[int, ...],
        watermarks: Watermarks,
        clean_file_forcibly_enable: bool,
        local_hour: Callable[[int], int],
    ) -> None:
        self._delete_when = delete_when
        self._watermarks = watermarks
        self._forcibly = clean_file_forcibly_enable
        self._local_hour = local_hour
        self._manual_runs = 0

    def delete_manually(self) -> None:
        """Delete expired files in each of the next 20 runs, whatever the hour.

        Source: CleanCommitLogService.executeDeleteFilesManually.
        """
        self._manual_runs = MANUAL_DELETE_RUNS

    def decide(
        self, now_ms: int, commit_log: Sequence[DirectoryUsage], consume_queue: DirectoryUsage
    ) -> CleanDecision:
        """Decide one run. `commit_log` has one entry for each of its directories."""
        emptiest = min(commit_log, key=lambda usage: usage.percent)
        short = [usage for usage in (emptiest, consume_queue) if self._is_short(usage)]
        return CleanDecision(
            reason=", ".join((*self._occasions(now_ms), *map(_in_use, short))),
            immediately=self._forcibly and any(map(self._is_very_short, short)),
            space_is_short=bool(short),
            refusals={
                **self._refusal(RunningFlag.DISK_FULL, emptiest),
                **self._refusal(RunningFlag.LOGIC_DISK_FULL, consume_queue),
            },
            full_directories=frozenset(
                usage.directory
                for usage in commit_log
                if usage.percent > self._watermarks.clean_forcibly
            ),
        )

    def _is_very_short(self, usage: DirectoryUsage) -> bool:
        levels = self._watermarks
        return usage.percent > min(levels.clean_forcibly, levels.warning)

    def _is_short(self, usage: DirectoryUsage) -> bool:
        above = usage.percent > self._watermarks.max_used
        return usage.percent == UNKNOWN_PERCENT or above or self._is_very_short(usage)

    def _refusal(self, flag: RunningFlag, usage: DirectoryUsage) -> dict[RunningFlag, str | None]:
        levels = self._watermarks
        if usage.percent > levels.warning:
            return {
                flag: f"the disk of {usage.directory} is {usage.percent} % full, more than"
                f" disk_space_warning_level_ratio ({levels.warning}) allows; messages are taken"
                f" again at {min(levels.clean_forcibly, levels.warning)} %: free space there"
            }
        return {} if usage.percent > levels.clean_forcibly else {flag: None}

    def _occasions(self, now_ms: int) -> list[str]:
        """Why to delete apart from the disks; counts down what was asked for by hand."""
        occasions = []
        hour = self._local_hour(now_ms)
        if hour in self._delete_when:
            occasions.append(f"it is the hour {hour} of delete_when")
        if self._manual_runs:
            self._manual_runs -= 1
            occasions.append("asked for by hand")
        return occasions


def _in_use(usage: DirectoryUsage) -> str:
    if usage.percent == UNKNOWN_PERCENT:
        return f"how full the disk of {usage.directory} is, is not known"
    return f"the disk of {usage.directory} is {usage.percent} % full"
