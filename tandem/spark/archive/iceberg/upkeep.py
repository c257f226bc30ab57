"""What keeps the table of an archive in order; each holds the archive while it works.

    merge_files      few large data files of many small ones
    expire           old snapshots are forgotten
    remove_orphans   files that nothing names are removed
    rebuild          the table is made anew from the manifest

A second run right after has nothing to do. Whatever ends one of them in between, the table is the
one before or the one after, and what was left is removed by `remove_orphans`.
"""

from collections.abc import Mapping
from pathlib import Path

from tandem.spark.archive.disk import Disk, LocalDisk, locked
from tandem.spark.archive.iceberg import expiry, merge
from tandem.spark.archive.iceberg.as_of import AsOf, as_of_offsets, as_of_time
from tandem.spark.archive.iceberg.expiry import Expired, Removed
from tandem.spark.archive.iceberg.merge import Merged
from tandem.spark.archive.iceberg.table import TableState, archive_table
from tandem.spark.archive.manifest import META, read_facts, read_manifest


def table_state(archive: Path) -> TableState:
    """Return what the table of an archive says of itself."""
    read_facts(archive)
    with archive_table(archive, LocalDisk()) as table:
        return table.state()


def merge_files(
    archive: Path,
    *,
    small_bytes: int = merge.SMALL_BYTES,
    wanted_bytes: int = merge.WANTED_BYTES,
) -> list[Merged]:
    """Merge small files; return what was done, by topic and day."""
    read_facts(archive)
    with locked(archive / META), archive_table(archive, LocalDisk()) as table:
        return list(merge.merge(archive, table, small_bytes=small_bytes, wanted_bytes=wanted_bytes))


def expire(archive: Path, now_ms: int, *, keep_ms: int = expiry.KEEP_MS, keep: int = 1) -> Expired:
    """Forget snapshots that were not the current one for `keep_ms`."""
    read_facts(archive)
    with locked(archive / META), archive_table(archive, LocalDisk()) as table:
        return expiry.expire(table, now_ms, keep_ms=keep_ms, keep=keep)


def remove_orphans(archive: Path, now_ms: int, *, keep_ms: int = expiry.KEEP_MS) -> Removed:
    """Remove files of the table that nothing names, and that are older than `keep_ms`."""
    read_facts(archive)
    with locked(archive / META), archive_table(archive, LocalDisk()) as table:
        return expiry.remove_orphans(archive, table, now_ms, keep_ms=keep_ms)


def count_as_of(
    archive: Path, topic: str, *, offsets: Mapping[str, int], time_ms: int | None = None
) -> tuple[AsOf, int]:
    """Return where a topic is as it was, and how many messages it had; see `as_of`."""
    read_facts(archive)
    with archive_table(archive, LocalDisk()) as table:
        found = (
            as_of_offsets(table, topic, offsets)
            if time_ms is None
            else as_of_time(table, topic, time_ms)
        )
        return found, found.scan(table).count()


def rebuild(archive: Path, disk: Disk | None = None) -> TableState:
    """Make the table anew from the manifest: without the snapshots and merged files it had."""
    read_facts(archive)
    disk = disk or LocalDisk()
    with locked(archive / META), archive_table(archive, disk) as table:
        table.drop()
        table.prepare()
        table.catch_up(read_manifest(archive).units)
        return table.state()
