import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.spark.archive.disk import locked
from tandem.spark.archive.errors import (
    ArchiveBusyError,
    ArchiveTableError,
    NotAnArchiveError,
    TableFault,
)
from tandem.spark.archive.iceberg import upkeep
from tests.support.archive_tables import TABLE, our_table, rows_of_manifest, rows_of_pyiceberg
from tests.support.small_archive import SmallArchive

COMMANDS: list[Callable[[Path], object]] = [
    upkeep.merge_files,
    lambda archive: upkeep.expire(archive, 1),
    lambda archive: upkeep.remove_orphans(archive, 1),
    upkeep.rebuild,
]


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS, upkeep.table_state])
def test_an_archive_without_a_table_is_an_error(
    tmp_path: Path, command: Callable[[Path], object]
) -> None:
    with pytest.raises(NotAnArchiveError):
        command(tmp_path / "none")
    small = SmallArchive(tmp_path, 60).archive()
    with pytest.raises(ArchiveTableError) as caught:
        command(small.archive_path)
    assert caught.value.fault is TableFault.NONE


@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_and_upkeep_do_not_meet(tmp_path: Path, command: Callable[[Path], object]) -> None:
    small = SmallArchive(tmp_path, 60).archive(table=TABLE)
    with locked(small.archive_path / "_tandem"), pytest.raises(ArchiveBusyError):
        command(small.archive_path)


@pytest.mark.slow
def test_a_rebuild_that_ended_halfway_is_run_again(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, 120).archive(table=TABLE)
    with our_table(small.archive_path) as table:
        table.drop()
    for command in (*COMMANDS[:3], upkeep.table_state):
        with pytest.raises(ArchiveTableError, match="tandem archive rebuild") as caught:
            command(small.archive_path)
        assert caught.value.fault is TableFault.NONE
    assert upkeep.rebuild(small.archive_path).rows == len(rows_of_manifest(small.manifest)) > 0


@pytest.mark.slow
def test_a_table_is_made_anew_from_the_manifest(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    upkeep.merge_files(small.archive_path)
    state = upkeep.rebuild(small.archive_path)
    wanted = rows_of_manifest(small.manifest)
    assert (state.rows, state.snapshots) == (len(wanted), 1)
    assert rows_of_pyiceberg(small.archive_path) == wanted
    # Also when nothing of it is left.
    shutil.rmtree(small.archive_path / "table")
    assert upkeep.rebuild(small.archive_path).rows == len(wanted)
    assert rows_of_pyiceberg(small.archive_path) == wanted
    upkeep.remove_orphans(small.archive_path, 1 << 45)
    assert rows_of_pyiceberg(small.archive_path) == wanted
