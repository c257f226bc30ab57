"""Merging changes how many files there are, and no row."""

from pathlib import Path

import pyarrow as pa
import pytest

from tandem.spark.archive.errors import ArchiveDamagedError
from tandem.spark.archive.iceberg import merge as merging
from tandem.spark.archive.iceberg.upkeep import merge_files, table_state
from tests.support.archive_tables import (
    TABLE,
    files_of_table,
    our_table,
    plain_table,
    rows_of_duckdb,
    rows_of_manifest,
    rows_of_pyarrow,
    rows_of_pyiceberg,
)
from tests.support.small_archive import SmallArchive

pytestmark = pytest.mark.slow


def test_small_files_become_one_and_no_row_changes(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    wanted = rows_of_manifest(small.manifest)
    before = files_of_table(small.archive_path)
    merged = merge_files(small.archive_path)
    assert sum(each.files_before for each in merged) == len(before)
    after = files_of_table(small.archive_path)
    assert len(after) == len(merged) == 2
    assert rows_of_pyiceberg(small.archive_path) == wanted
    assert rows_of_duckdb(small.archive_path) == wanted
    assert rows_of_pyarrow(small.archive_path) == wanted
    # The manifest has its files as before.
    assert small.verify().faults == []
    assert all(Path(path).exists() for path in before)


def test_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    assert merge_files(small.archive_path)
    snapshots = table_state(small.archive_path).snapshots
    assert merge_files(small.archive_path) == []
    assert table_state(small.archive_path).snapshots == snapshots


@pytest.mark.parametrize("wanted_bytes", [6_000, 12_000, 40_000])
def test_full_files_are_not_taken_again(tmp_path: Path, wanted_bytes: int) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    wanted = rows_of_manifest(small.manifest)
    assert merge_files(small.archive_path, small_bytes=1 << 20, wanted_bytes=wanted_bytes)
    assert merge_files(small.archive_path, small_bytes=1 << 20, wanted_bytes=wanted_bytes) == []
    assert rows_of_pyiceberg(small.archive_path) == wanted


def test_what_comes_later_is_merged_with_the_rest(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    merge_files(small.archive_path)
    small.put(300)
    small.archive()
    assert merge_files(small.archive_path)
    assert len(files_of_table(small.archive_path)) == 2
    assert rows_of_pyiceberg(small.archive_path) == rows_of_manifest(small.manifest)
    # And what is archived after that is there once.
    small.put(300)
    small.archive()
    assert rows_of_pyiceberg(small.archive_path) == rows_of_manifest(small.manifest)


def test_rows_are_in_the_order_of_the_log(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    merge_files(small.archive_path)
    with plain_table(small.archive_path) as table:
        for task in table.scan().plan_files():
            scan = table.scan(f"topic == '{task.file.partition[0]}'")
            offsets = scan.to_arrow()["physicalOffset"].to_pylist()
            assert offsets == sorted(offsets)


def test_a_reader_goes_on_with_what_it_began_with(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    wanted = rows_of_manifest(small.manifest)
    with plain_table(small.archive_path) as table:
        batches = table.scan().to_arrow_batch_reader()
        first = batches.read_next_batch()
        merge_files(small.archive_path)
        rest = batches.read_all()
    assert len(first) + len(rest) == len(wanted)


def test_a_file_with_other_rows_than_the_table_says_is_not_merged(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    snapshots = table_state(small.archive_path).snapshots
    small.change_rows(small.data_file(), lambda rows: rows.__delitem__(0))
    with pytest.raises(ArchiveDamagedError):
        merge_files(small.archive_path)
    assert table_state(small.archive_path).snapshots == snapshots


def test_files_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    monkeypatch.setattr(merging, "WRITTEN_SCHEMA", pa.schema([("body", pa.binary())]))
    assert merge_files(small.archive_path) == []
    with our_table(small.archive_path) as table:
        assert list(merging.merge(small.archive_path, table)) == []
