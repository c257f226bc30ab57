"""What no reader can need any more goes, and nothing else."""

import os
import time
from pathlib import Path

import pytest

from tandem.spark.archive.iceberg.upkeep import (
    expire,
    merge_files,
    remove_orphans,
    table_state,
)
from tests.support.archive_tables import (
    TABLE,
    files_of_table,
    plain_table,
    rows_of_manifest,
    rows_of_pyiceberg,
)
from tests.support.small_archive import SmallArchive

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_snapshot_stays_until_it_was_not_current_for_long_enough(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    snapshots = table_state(small.archive_path).snapshots
    assert snapshots > 2
    assert expire(small.archive_path, now_ms(), keep_ms=DAY_MS).snapshot_ids == []
    later = now_ms() + 2 * DAY_MS
    assert expire(small.archive_path, later, keep_ms=DAY_MS, keep=2).left == 2
    done = expire(small.archive_path, later, keep_ms=DAY_MS)
    assert (len(done.snapshot_ids), done.left) == (1, 1)
    assert expire(small.archive_path, later, keep_ms=DAY_MS).snapshot_ids == []
    assert rows_of_pyiceberg(small.archive_path) == rows_of_manifest(small.manifest)


def test_what_was_published_is_known_after_its_snapshot_is_forgotten(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    expire(small.archive_path, now_ms() + 9 * DAY_MS)
    small.put(300)
    small.archive()
    assert rows_of_pyiceberg(small.archive_path) == rows_of_manifest(small.manifest)


def test_a_snapshot_with_a_tag_stays(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    with plain_table(small.archive_path) as table:
        first = table.metadata.snapshots[0].snapshot_id
        table.manage_snapshots().create_tag(first, "audit").commit()
    done = expire(small.archive_path, now_ms() + 9 * DAY_MS)
    assert first not in done.snapshot_ids
    assert done.left == 2
    remove_orphans(small.archive_path, now_ms() + 9 * DAY_MS)
    assert len(rows_of_pyiceberg(small.archive_path, first)) == small.unit().rows


def test_orphans_go_and_a_second_run_finds_none(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    merge_files(small.archive_path)
    merged = files_of_table(small.archive_path)
    small.put(300)
    small.archive()
    merge_files(small.archive_path)
    later = now_ms() + 9 * DAY_MS
    # A snapshot needs them still.
    assert remove_orphans(small.archive_path, later).files == []
    expire(small.archive_path, later)
    assert remove_orphans(small.archive_path, now_ms()).files == []
    done = remove_orphans(small.archive_path, later)
    assert {str(small.archive_path / path) for path in done.files} >= set(merged)
    assert done.size_bytes > 0
    assert remove_orphans(small.archive_path, later).files == []
    assert rows_of_pyiceberg(small.archive_path) == rows_of_manifest(small.manifest)
    assert small.verify().faults == []


def test_what_a_dead_writer_left_goes_when_it_is_old(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    left = small.archive_path / "table" / "data" / "topic=orders" / "part-x.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    assert remove_orphans(small.archive_path, now_ms()).files == []
    os.utime(left, (1, 1))
    done = remove_orphans(small.archive_path, now_ms())
    assert done.files == ["table/data/topic=orders/part-x.parquet"]
    assert not left.exists()
