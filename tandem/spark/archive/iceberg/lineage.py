"""The snapshots of a table that lead to what it is now, oldest first."""

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot


def lineage(table: Table) -> list[Snapshot]:
    """Return the current snapshot and those before it that are still there, oldest first."""
    found: list[Snapshot] = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found.append(snapshot)
        before = snapshot.parent_snapshot_id
        snapshot = None if before is None else table.snapshot_by_id(before)
    return found[::-1]
