"""A topic as it was at a place of the log, or at a time.

A log only grows, so what a group had at a physical offset is what is stored before it: the same
rows from any snapshot that has the log up to there. The oldest one that does is chosen, for what
came after it need not be looked at, unless it filled a gap before that offset. At a time means:
stored before it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    EqualTo,
    LessThan,
    Or,
)
from pyiceberg.table import DataScan
from pyiceberg.table.snapshots import Snapshot

from tandem.spark.archive.columns import BROKER
from tandem.spark.archive.errors import ArchiveTableError, TableFault
from tandem.spark.archive.iceberg.lineage import lineage
from tandem.spark.archive.iceberg.table import END, FILLED, ArchiveTable

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AsOf(msgspec.Struct, frozen=True):
    """Rows of a topic in a snapshot: before physical offsets by group, or before a store time."""

    snapshot_id: int
    topic: str
    offsets: dict[str, int] = {}
    time_ms: int | None = None

    @property
    def where(self) -> str:
        """The rows as a condition of SQL."""
        conditions = [f"topic = {_quoted(self.topic)}"]
        if self.time_ms is not None:
            when = _moment(self.time_ms).isoformat(timespec="milliseconds")
            conditions.append(f"storeTimestamp < TIMESTAMPTZ '{when}'")
        if self.offsets:
            groups = [
                f"({BROKER} = {_quoted(group)} AND physicalOffset < {offset})"
                for group, offset in sorted(self.offsets.items())
            ]
            conditions.append(f"({' OR '.join(groups)})")
        return " AND ".join(conditions)

    @property
    def row_filter(self) -> BooleanExpression:
        """The rows as a condition of PyIceberg."""
        found = _equal("topic", self.topic)
        if self.time_ms is not None:
            when = _moment(self.time_ms).isoformat(timespec="milliseconds")
            found = And(found, _less("storeTimestamp", when))
        if self.offsets:
            any_group: BooleanExpression = AlwaysFalse()
            for group, offset in sorted(self.offsets.items()):
                before = And(_equal(BROKER, group), _less("physicalOffset", offset))
                any_group = Or(any_group, before)
            found = And(found, any_group)
        return found

    def scan(self, table: ArchiveTable) -> DataScan:
        """Return the rows, to be read by PyIceberg."""
        return table.iceberg.scan(self.row_filter, snapshot_id=self.snapshot_id)


def as_of_offsets(table: ArchiveTable, topic: str, offsets: Mapping[str, int]) -> AsOf:
    """Return what each group in `offsets` had of a topic before its physical offset.

    Raises:
        ArchiveTableError: the table does not have the log up to there.
    """
    ends = table.ends()
    for group, offset in offsets.items():
        if ends.get(group, 0) < offset:
            raise ArchiveTableError(
                f"the table has the log of {group} up to {ends.get(group, 0)}, and not up to"
                f" {offset}; archive more of it first, or name a lower offset",
                TableFault.AHEAD,
            )
    known = lineage(table.iceberg)
    if not known:
        raise _empty()
    chosen: Snapshot | None = None
    for snapshot in known:
        if (chosen is None and _has(snapshot, offsets)) or _fills(snapshot, offsets):
            chosen = snapshot
    return AsOf((chosen or known[-1]).snapshot_id, topic, offsets=dict(offsets))


def _has(snapshot: Snapshot, offsets: Mapping[str, int]) -> bool:
    """Say whether a snapshot reaches as far as that in each group."""
    summary = snapshot.summary
    return summary is not None and all(
        int(summary.get(f"{END}{group}") or 0) >= offset for group, offset in offsets.items()
    )


def _fills(snapshot: Snapshot, offsets: Mapping[str, int]) -> bool:
    """Say whether a snapshot has rows before an offset that those before it lack."""
    summary = snapshot.summary
    return summary is not None and any(
        int(summary.get(f"{FILLED}{group}") or offset) < offset for group, offset in offsets.items()
    )


def as_of_time(table: ArchiveTable, topic: str, time_ms: int) -> AsOf:
    """Return what was stored of a topic before a time.

    Raises:
        ArchiveTableError: the table is empty.
    """
    snapshot = table.iceberg.current_snapshot()
    if snapshot is None:
        raise _empty()
    return AsOf(snapshot.snapshot_id, topic, time_ms=time_ms)


def _equal(name: str, value: str) -> BooleanExpression:
    return EqualTo(name, value)  # type: ignore[arg-type, call-arg] # as PyIceberg documents it


def _less(name: str, value: str | int) -> BooleanExpression:
    return LessThan(name, value)  # type: ignore[arg-type, call-arg] # as PyIceberg documents it


def _empty() -> ArchiveTableError:
    return ArchiveTableError("the table is empty; archive something first", TableFault.AHEAD)


def _moment(time_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=time_ms)


def _quoted(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
