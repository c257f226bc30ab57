"""Every unit of the manifest is in the table exactly once, whenever a job ends."""

import shutil
from pathlib import Path

import pytest

from tandem.spark.archive.errors import ArchiveTableError, TableFault
from tandem.spark.archive.iceberg.table import PUBLISH
from tandem.spark.archive.iceberg.upkeep import merge_files, rebuild, table_state
from tandem.spark.archive.manifest import unit_file
from tandem.spark.jobs.archive_job import run_archive
from tandem.spark.jobs.runner import HereRunner
from tests.support.archive_tables import (
    TABLE,
    DyingCatalogue,
    DyingIO,
    dying_catalogue,
    our_table,
    plain_table,
    rows_of_duckdb,
    rows_of_manifest,
    rows_of_pyarrow,
    rows_of_pyiceberg,
)
from tests.support.small_archive import CrashError, CrashingDisk, SmallArchive

STEPS_MAX = 200


def tabled(root: Path, messages: int = 360, file_bytes: int = 16_384) -> SmallArchive:
    return SmallArchive(root, messages, file_bytes=file_bytes)


def assert_is_whole(small: SmallArchive) -> None:
    wanted = rows_of_manifest(small.manifest)
    assert wanted
    assert rows_of_pyiceberg(small.archive_path) == wanted


@pytest.mark.slow
def test_every_reader_counts_what_the_manifest_counts(tmp_path: Path) -> None:
    small = tabled(tmp_path).archive(table=TABLE)
    wanted = rows_of_manifest(small.manifest)
    assert len(wanted) == small.report.table_rows == small.report.rows
    assert rows_of_pyiceberg(small.archive_path) == wanted
    assert rows_of_duckdb(small.archive_path) == wanted
    assert rows_of_pyarrow(small.archive_path) == wanted


@pytest.mark.slow
def test_a_filter_by_a_column_that_is_not_read(tmp_path: Path) -> None:
    small = tabled(tmp_path).archive(table=TABLE)
    with plain_table(small.archive_path) as table:
        found = table.scan("topic == 'orders'", selected_fields=("queueOffset",)).to_arrow()
    wanted = [row for row in rows_of_manifest(small.manifest) if row[0] == "orders"]
    assert len(found) == len(wanted) > 0


@pytest.mark.slow
def test_a_publish_is_a_snapshot_with_its_name(tmp_path: Path) -> None:
    small = tabled(tmp_path).archive(table=TABLE)
    with plain_table(small.archive_path) as table:
        published = [each.summary[PUBLISH] for each in table.metadata.snapshots if each.summary]
        assert published == [unit.name for unit in small.manifest.units]
        day = small.unit().files[0].date
        plan = table.scan(f"topic == 'orders' and storeTimestamp < '{day}T00:00:00+00:00'")
        assert list(plan.plan_files()) == []
        assert {
            (task.file.partition[0], task.file.file_path.rpartition("/data/")[2].split("/")[0])
            for task in table.scan("topic == 'orders'").plan_files()
        } == {("orders", "topic=orders")}
    # Nothing is new, so there is no other snapshot.
    small.archive()
    assert small.report.table_rows == len(rows_of_manifest(small.manifest))
    assert table_state(small.archive_path).snapshots == len(published)


@pytest.mark.slow
def test_a_job_that_ends_at_any_write_of_the_table(tmp_path: Path) -> None:
    for steps in range(STEPS_MAX):
        small = tabled(tmp_path / str(steps), messages=60, file_bytes=4_096)
        catalogue = dying_catalogue(small.archive_path)
        DyingIO.left = steps
        try:
            run_archive(small.settings(table=TABLE, catalogue=catalogue), HereRunner())
            break
        except CrashError:
            pass
        finally:
            DyingIO.left = 1 << 30
        small.archive(table=TABLE, catalogue=catalogue)
        assert_is_whole(small)
        shutil.rmtree(tmp_path / str(steps))
    else:
        pytest.fail("it never got through")
    assert steps > 5


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_that_ends_around_any_commit(tmp_path: Path, moment: str) -> None:
    for commits in range(STEPS_MAX):
        small = tabled(tmp_path / str(commits), messages=60, file_bytes=4_096)
        catalogue = dying_catalogue(small.archive_path)
        setattr(DyingCatalogue, moment, commits)
        try:
            run_archive(small.settings(table=TABLE, catalogue=catalogue), HereRunner())
            break
        except CrashError:
            pass
        finally:
            DyingCatalogue.before = DyingCatalogue.after = 1 << 30
        small.archive(table=TABLE, catalogue=catalogue)
        assert_is_whole(small)
        names = published_names(small)
        assert len(names) == len(set(names))
    else:
        pytest.fail("it never got through")
    assert commits > 2


def published_names(small: SmallArchive) -> list[str]:
    with plain_table(small.archive_path) as table:
        return [
            name
            for each in table.metadata.snapshots
            if each.summary is not None and (name := each.summary.get(PUBLISH)) is not None
        ]


@pytest.mark.slow
def test_a_job_that_ends_between_any_two_steps_of_a_publish(tmp_path: Path) -> None:
    for steps in range(STEPS_MAX):
        small = tabled(tmp_path / str(steps), messages=60, file_bytes=4_096)
        disk = CrashingDisk(steps, after=steps % 2 == 0)
        try:
            run_archive(small.settings(table=TABLE), HereRunner(), disk=disk)
            break
        except CrashError:
            pass
        small.archive(table=TABLE)
        assert_is_whole(small)
        assert small.manifest.faults() == []
    else:
        pytest.fail("it never got through")
    assert steps > 15


@pytest.mark.slow
@pytest.mark.parametrize("was_in_the_table", [True, False])
def test_a_job_that_ends_between_any_two_steps_while_it_fills_a_gap(
    tmp_path: Path, *, was_in_the_table: bool
) -> None:
    for steps in range(STEPS_MAX):
        small = tabled(tmp_path / str(steps), messages=120, file_bytes=4_096)
        if was_in_the_table:
            small.archive(table=TABLE)
        else:
            small.archive()
        for gone in (small.unit(0), small.unit(2)):
            unit_file(small.archive_path, gone.group, gone.first).unlink()
        if not was_in_the_table:
            rest = small.manifest.units
            small.archive(table=TABLE, stores={})
            assert rows_of_pyiceberg(small.archive_path) == rows_of_manifest(small.manifest)
            assert small.manifest.units == rest
        disk = CrashingDisk(steps, after=steps % 2 == 0)
        try:
            run_archive(small.settings(table=TABLE), HereRunner(), disk=disk)
            break
        except CrashError:
            pass
        small.archive(table=TABLE)
        assert_is_whole(small)
        assert small.report.faults == small.report.gaps == []
    else:
        pytest.fail("it never got through")
    assert_is_whole(small)
    assert steps > 10


@pytest.mark.slow
def test_a_last_unit_that_grew_while_it_was_away_is_there_once(tmp_path: Path) -> None:
    """Its file has the same name, and more rows."""
    small = tabled(tmp_path, 60).archive(table=TABLE, open_file="take")
    gone = small.unit(-1)
    unit_file(small.archive_path, gone.group, gone.first).unlink()
    small.put(20)
    small.archive(table=TABLE, open_file="take")
    again = small.unit(-1)
    assert (again.first, again.end > gone.end) == (gone.first, True)
    assert_is_whole(small)
    assert rows_of_duckdb(small.archive_path) == rows_of_manifest(small.manifest)


@pytest.mark.slow
def test_files_that_were_merged_with_others_are_made_anew_from_the_manifest(tmp_path: Path) -> None:
    small = tabled(tmp_path).archive(table=TABLE)
    merge_files(small.archive_path)
    gone = small.unit(1)
    unit_file(small.archive_path, gone.group, gone.first).unlink()
    small.archive(table=TABLE)
    assert_is_whole(small)
    unit_file(small.archive_path, gone.group, gone.first).unlink()
    with pytest.raises(ArchiveTableError, match="tandem archive rebuild") as caught:
        small.archive(table=TABLE, exclude_topics=["events"])
    assert caught.value.fault is TableFault.OTHER_ROWS
    rebuild(small.archive_path)
    small.archive(table=TABLE)
    assert_is_whole(small)


@pytest.mark.slow
def test_an_archive_becomes_a_table_later_and_stays_one(tmp_path: Path) -> None:
    small = tabled(tmp_path).archive()
    assert small.report.table == ""
    small.archive(table=TABLE)
    assert_is_whole(small)
    assert table_state(small.archive_path).snapshots == 1
    small.put(300)
    # The archive itself says that it is a table.
    small.archive()
    assert small.report.table == TABLE
    assert_is_whole(small)


def test_another_name_is_refused(tmp_path: Path) -> None:
    small = tabled(tmp_path, 60).archive(table=TABLE)
    with pytest.raises(ArchiveTableError) as caught:
        small.archive(table="logs.others")
    assert caught.value.fault is TableFault.OTHER_TABLE


@pytest.mark.slow
def test_an_archive_that_was_moved_is_rebuilt(tmp_path: Path) -> None:
    small = tabled(tmp_path).archive(table=TABLE)
    small.archive_path.rename(tmp_path / "elsewhere")
    small.archive_path = tmp_path / "elsewhere"
    with pytest.raises(ArchiveTableError) as caught:
        small.archive()
    assert caught.value.fault is TableFault.MOVED
    rebuild(small.archive_path)
    small.archive()
    assert_is_whole(small)
    assert rows_of_duckdb(small.archive_path) == rows_of_manifest(small.manifest)


def test_a_table_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    small = tabled(tmp_path, 60).archive(table=TABLE)
    with our_table(small.archive_path) as table:
        with table.iceberg.transaction() as change:
            change.remove_properties("tandem-archive")
        with pytest.raises(ArchiveTableError) as caught:
            table.drop()
    assert caught.value.fault is TableFault.FOREIGN
    with pytest.raises(ArchiveTableError) as caught:
        small.archive()
    assert caught.value.fault is TableFault.FOREIGN


@pytest.mark.slow
def test_columns_of_others_stay_and_are_null(tmp_path: Path) -> None:
    small = tabled(tmp_path).archive(table=TABLE)
    with plain_table(small.archive_path) as table, table.update_schema() as change:
        from pyiceberg.types import StringType  # noqa: PLC0415

        change.add_column("remark", StringType())
    small.put(300)
    small.archive()
    assert_is_whole(small)
    with plain_table(small.archive_path) as table:
        assert table.scan(selected_fields=("remark",)).to_arrow()["remark"].null_count > 0


def test_the_version_hint_names_the_metadata(tmp_path: Path) -> None:
    small = tabled(tmp_path, 60).archive(table=TABLE)
    folder = small.archive_path / "table" / "metadata"
    name = (folder / "version-hint.text").read_text()
    assert str(folder / f"{name}.metadata.json") == table_state(small.archive_path).metadata
