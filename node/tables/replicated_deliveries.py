"""How far a master's delayed deliveries have got, as two replicated tables of a fenced group.

A classic group has both in files of the store's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from node.tables.node_table import NodeTable, TableFiles
from node.tables.table_part import (
    BASE_FORMAT_VERSION,
    Content,
    Field,
    FieldKind,
    TablePart,
    Written,
)
from store.delayed.timer_place import TimerPlace
from tandem.wire.remoting_command import Int32, Int64

DelayOffsets: TypeAlias = dict[Int32, Int64]
"""Delay level to the next offset to deliver."""


class DelayProgress(msgspec.Struct, frozen=True, tag="delay"):
    """How far the delivery of delay levels had got when the log ended at `at`."""

    offsets: DelayOffsets
    at: Int64 = 0
    version: int = 1


class TimerProgress(msgspec.Struct, frozen=True, tag="timers"):
    """How far the messages with a time of their own had got when the log ended at `at`."""

    place: TimerPlace
    at: Int64 = 0
    version: int = BASE_FORMAT_VERSION


class DelayPart(TablePart):
    """The next offset to deliver by delay level."""

    record = DelayProgress
    fields: ClassVar = (
        Field("delay", DelayOffsets, FieldKind.WHOLE, msgspec.NODEFAULT, place=2),
        Field("delay_at", Int64, FieldKind.WHOLE, 0, place=6),
    )
    version = 1
    is_in_plain_files = False
    has_places_in_log = True

    def __init__(self, delay: DelayOffsets | None = None, delay_at: int = 0) -> None:
        self.delay = delay or {}
        self.delay_at = delay_at

    def apply(self, record: DelayProgress) -> None:
        """See `TablePart`."""
        self.delay.update(record.offsets)
        self.delay_at = record.at

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`. All but the first part of a snapshot say nothing."""
        self.delay.update(content["delay"])
        self.delay_at = max(self.delay_at, content["delay_at"])

    def content(self) -> Content:
        """See `TablePart`."""
        return {"delay": self.delay, "delay_at": self.delay_at}

    def copy(self) -> DelayPart:
        """See `TablePart`."""
        return DelayPart(dict(self.delay), self.delay_at)


class TimersPart(TablePart):
    """The place of the timers, None if nothing was ever said of them."""

    record = TimerProgress
    fields: ClassVar = (
        Field("timers", TimerPlace | None, FieldKind.WHOLE, None, place=5),
        Field("timers_at", Int64, FieldKind.WHOLE, 0, place=7),
    )
    version = BASE_FORMAT_VERSION
    is_in_plain_files = False
    has_places_in_log = True

    def __init__(self, timers: TimerPlace | None = None, timers_at: int = 0) -> None:
        self.timers = timers
        self.timers_at = timers_at

    def apply(self, record: TimerProgress) -> None:
        """See `TablePart`."""
        self.timers, self.timers_at = record.place, record.at

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`. All but the first part of a snapshot say nothing."""
        if content["timers"] is not None:
            self.timers = content["timers"]
        self.timers_at = max(self.timers_at, content["timers_at"])

    def content(self) -> Content:
        """See `TablePart`."""
        return {"timers": self.timers, "timers_at": self.timers_at}

    def copy(self) -> TimersPart:
        """See `TablePart`."""
        return TimersPart(self.timers, self.timers_at)


class DelayTable(NodeTable[DelayPart]):
    """How far this node's own delivery by delay level is; the store writes its file."""

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        self._progress = files.progress

    def as_part(self) -> DelayPart:
        """See `NodeTable`."""
        return DelayPart(self._progress.delay.progress())

    def show(self, confirmed: DelayPart, records: Sequence[DelayProgress] | None) -> None:
        """Nothing: the delivery of a master alone reads it, from `take_up` on."""

    def take(self, record: DelayProgress) -> None:
        """Nothing: it is this node that says it."""

    def take_up(self, confirmed: DelayPart) -> None:
        """Have the delivery of a new master go on where the journal says.

        All levels: what the file says beyond that was delivered by a master that was cut off.
        """
        delay = self._progress.delay
        for level in delay.progress().keys() | confirmed.delay.keys():
            delay.update(level, confirmed.delay.get(level, 0))
        self._progress.delay_at = confirmed.delay_at

    def progress(self, written: Written, log_end: int) -> DelayProgress | None:
        """See `NodeTable`."""
        known = written(DelayPart).delay
        progress = self._progress.delay.progress()
        changed = {level: at for level, at in progress.items() if known.get(level, 0) != at}
        return DelayProgress(changed, at=log_end) if changed else None


class TimersTable(NodeTable[TimersPart]):
    """How far this node's timers are; in no file of their own."""

    def __init__(self, files: TableFiles) -> None:
        self._progress = files.progress

    def as_part(self) -> TimersPart:
        """See `NodeTable`. The timers themselves find what a classic master left."""
        return TimersPart()

    def show(self, confirmed: TimersPart, records: Sequence[TimerProgress] | None) -> None:
        """Nothing: see `DelayTable`."""

    def take(self, record: TimerProgress) -> None:
        """Nothing: see `DelayTable`."""

    def take_up(self, confirmed: TimersPart) -> None:
        """See `DelayTable`."""
        self._progress.timers = confirmed.timers
        self._progress.timers_at = confirmed.timers_at

    def progress(self, written: Written, log_end: int) -> TimerProgress | None:
        """See `NodeTable`."""
        place = self._progress.timers
        if place is None or place == (written(TimersPart).timers or TimerPlace()):
            return None
        return TimerProgress(place, at=log_end)
