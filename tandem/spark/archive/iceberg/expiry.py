"""Forgets old snapshots of a table, and removes files that no snapshot names any more.

Safe beside a reader: a snapshot is forgotten only when it has not been the current one for
`keep_ms`, so a query that began on the current snapshot may take that long. Files of the manifest
are never removed: only what is under `table/` is looked at, and only what is older than `keep_ms`,
for a writer of another engine may be about to commit it.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from pyiceberg.table import Table

from tandem.spark.archive.iceberg.catalogue import CATALOGUE_FILE
from tandem.spark.archive.iceberg.data_files import path_of
from tandem.spark.archive.iceberg.lineage import lineage
from tandem.spark.archive.iceberg.table import ArchiveTable
from tandem.spark.archive.table_note import TABLE_FOLDER

KEEP_MS: Final = 5 * 86_400_000


class Expired(msgspec.Struct, frozen=True):
    """Which snapshots were forgotten, and how many are left."""

    snapshot_ids: list[int]
    left: int


class Removed(msgspec.Struct, frozen=True):
    """Which files were removed, as paths from the archive."""

    files: list[str]
    size_bytes: int


def expire(table: ArchiveTable, now_ms: int, *, keep_ms: int = KEEP_MS, keep: int = 1) -> Expired:
    """Forget snapshots that have not been current for `keep_ms`, but for the last `keep` of them.

    Snapshots with a tag or a branch stay.
    """
    iceberg = table.iceberg
    known = lineage(iceberg)
    named = {ref.snapshot_id for ref in iceberg.metadata.refs.values()}
    old = [
        snapshot.snapshot_id
        for snapshot, after in list(pairwise(known))[: max(0, len(known) - keep)]
        if after.timestamp_ms < now_ms - keep_ms and snapshot.snapshot_id not in named
    ]
    if old:
        table.forget(old)
    return Expired(old, len(table.iceberg.metadata.snapshots))


def remove_orphans(
    archive: Path, table: ArchiveTable, now_ms: int, *, keep_ms: int = KEEP_MS
) -> Removed:
    """Remove files under `table/` that neither the metadata nor a snapshot names."""
    place = archive.resolve()
    needed = set(_needed(table.iceberg))
    removed = Removed([], 0)
    for file in sorted(_files(place / TABLE_FOLDER)):
        status = file.stat()
        is_old = status.st_mtime_ns < (now_ms - keep_ms) * 1_000_000
        if file in needed or not is_old:
            continue
        file.unlink()
        removed.files.append(file.relative_to(place).as_posix())
        removed = Removed(removed.files, removed.size_bytes + status.st_size)
    return removed


def _files(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder):
        for name in names:
            is_catalogue = name.startswith(CATALOGUE_FILE)
            if not is_catalogue and name != "version-hint.text":
                yield Path(base, name)


def _needed(table: Table) -> Iterator[Path]:
    metadata = table.metadata
    yield path_of(table.metadata_location)
    yield from (path_of(entry.metadata_file) for entry in metadata.metadata_log)
    yield from (path_of(each.statistics_path) for each in metadata.statistics)
    yield from (path_of(each.statistics_path) for each in metadata.partition_statistics)
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield path_of(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield path_of(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield path_of(entry.data_file.file_path)
