"""A topic as of an offset or a time: the rows before it, whatever came later or was merged."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tandem.spark.archive.errors import ArchiveTableError, TableFault
from tandem.spark.archive.iceberg.as_of import as_of_offsets, as_of_time
from tandem.spark.archive.iceberg.upkeep import count_as_of, expire, merge_files
from tandem.spark.archive.manifest import unit_file
from tests.support.archive_tables import TABLE, files_of_table, our_table, rows_of_manifest
from tests.support.small_archive import SmallArchive

pytestmark = pytest.mark.slow

GROUP = "broker-a"


def before(small: SmallArchive, offset: int, topic: str = "orders") -> int:
    return sum(row[0] == topic and row[4] < offset for row in rows_of_manifest(small.manifest))


def test_an_offset_gives_what_was_before_it(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    units = small.manifest.units
    rows = 0
    for offset in (0, units[0].first + 1, units[1].first, units[1].end - 1, units[-1].end):
        found, rows = count_as_of(small.archive_path, "orders", offsets={GROUP: offset})
        assert rows == before(small, offset)
        with duckdb.connect() as connection:
            query = f"SELECT count(*) FROM read_parquet($files) WHERE {found.where}"
            counted = connection.execute(query, {"files": files_of_table(small.archive_path)})
            assert counted.fetchall() == [(rows,)]
    assert rows > 0


def test_the_oldest_snapshot_that_has_it_is_read(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    unit = small.manifest.units[1]
    with our_table(small.archive_path) as table:
        snapshots = table.iceberg.metadata.snapshots
        found = as_of_offsets(table, "orders", {GROUP: unit.end})
        assert found.snapshot_id == snapshots[1].snapshot_id


def test_what_filled_a_gap_later_is_there(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive()
    whole = small.manifest.units
    unit_file(small.archive_path, GROUP, whole[1].first).unlink()
    small.archive(table=TABLE, stores={}).archive(table=TABLE)
    for unit in whole:
        for offset in (unit.first + 300, unit.end):
            _, rows = count_as_of(small.archive_path, "orders", offsets={GROUP: offset})
            assert rows == before(small, offset) > 0


def test_it_is_the_same_after_merging_and_expiry(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    offset = small.manifest.units[1].first + 100
    merge_files(small.archive_path)
    expire(small.archive_path, 1 << 45)
    _, rows = count_as_of(small.archive_path, "orders", offsets={GROUP: offset})
    assert rows == before(small, offset) > 0


def test_a_time_gives_what_was_stored_before_it(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    messages = [message for message in small.log.messages if message.topic == "events"]
    moment = messages[20].store_timestamp_ms
    found, rows = count_as_of(small.archive_path, "events", offsets={}, time_ms=moment)
    assert rows == sum(message.store_timestamp_ms < moment for message in messages)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"SELECT count(*) FROM read_parquet($files) WHERE {found.where}"
        counted = connection.execute(query, {"files": files_of_table(small.archive_path)})
        assert counted.fetchall() == [(rows,)]


def test_what_is_not_there_yet_is_an_error(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    for offsets in ({GROUP: 1 << 40}, {"broker-z": 1}):
        with pytest.raises(ArchiveTableError) as caught:
            count_as_of(small.archive_path, "orders", offsets=offsets)
        assert caught.value.fault is TableFault.AHEAD


def test_an_empty_table_has_no_past(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, 1).archive(table=TABLE)
    with our_table(small.archive_path) as table:
        asked: list[Callable[[], object]] = [
            lambda: as_of_offsets(table, "orders", {}),
            lambda: as_of_time(table, "orders", 1),
        ]
        for ask in asked:
            with pytest.raises(ArchiveTableError) as caught:
                ask()
            assert caught.value.fault is TableFault.AHEAD


def test_names_are_quoted(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    with our_table(small.archive_path) as table:
        found = as_of_time(table, "o'brien", 1)
        assert "'o''brien'" in found.where
        assert found.scan(table).count() == 0
