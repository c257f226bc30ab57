"""DelayOffsetTable: how far the delivery of each delay level has got; `config/delayOffset.json`.

    "offsetTable":{1:0,3:12,18:1
    }

Key: delay level, from 1. Value: the next offset of queue level - 1 of SCHEDULE_TOPIC_XXXX. A table
that is lost or behind means delayed messages delivered twice, never messages lost.

Source: org.apache.rocketmq.broker.schedule.ScheduleMessageService (offsetTable),
DelayOffsetSerializeWrapper of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from store.machine.table_file import TableFile, next_version
from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import DataVersion

UPDATES_PER_VERSION: Final = 200
"""Updates that share one data version. Source: BrokerConfig.delayOffsetUpdateVersionStep."""


class DelayOffsetSerializeWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """The file's content. Source: the class of that name."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[Int32, Int64] = {}


class DelayOffsetTable:
    """The offsets of one broker, and the file they are kept in.

    Every change is in memory until `save`, which the owner calls every few seconds and at the stop.

    Raises:
        TableFileError: neither the file nor its backup can be read.
    """

    def __init__(self, file: TableFile, wall_clock_ms: Callable[[], int]) -> None:
        self._file = file
        self._wall_clock_ms = wall_clock_ms
        saved = file.load(DelayOffsetSerializeWrapper) or DelayOffsetSerializeWrapper()
        self._version = saved.data_version
        self._offsets = saved.offset_table
        self._updates = 0
        self._changed = False

    def correct(self, bounds_of: Callable[[int], tuple[int, int] | None]) -> dict[int, int]:
        """Move every offset into its queue; return the ones that were moved, as they are now.

        `bounds_of(level)` is the (min, max) offset of the level's queue, None if it has none: its
        offset stays, for there is nothing to compare with. Call it once the queues are recovered.

        Source: ScheduleMessageService.correctDelayOffset.
        """
        moved: dict[int, int] = {}
        for level, offset in self._offsets.items():
            bounds = bounds_of(level)
            if bounds is not None and not bounds[0] <= offset <= bounds[1]:
                moved[level] = min(max(offset, bounds[0]), bounds[1])
        if moved:
            self._offsets.update(moved)
            self._changed = True
        return moved

    def query(self, level: int) -> int:
        """The next offset of the level's queue; 0 if nothing was ever delivered from it."""
        return self._offsets.get(level, 0)

    def progress(self) -> dict[int, int]:
        """How far each level has got that has got anywhere, also one that no setting has now."""
        return {level: at for level, at in sorted(self._offsets.items()) if at}

    def update(self, level: int, offset: int) -> None:
        """Remember how far a level has got.

        Source: ScheduleMessageService.updateOffset.
        """
        if self._offsets.get(level) != offset:
            self._offsets[level] = offset
            self._changed = True
        self._updates += 1
        if self._updates % UPDATES_PER_VERSION == 0:
            self._version = next_version(self._version, self._wall_clock_ms())
            self._changed = True

    def save(self) -> None:
        """Write the file if anything changed since the last time. Blocks for two small writes.

        Raises:
            StoreFullError: no room. The next call tries again.
            DiskFailedError: the disk refuses otherwise.
        """
        if self._changed:
            table = dict(sorted(self._offsets.items()))
            self._file.save(DelayOffsetSerializeWrapper(self._version, table))
            self._changed = False
