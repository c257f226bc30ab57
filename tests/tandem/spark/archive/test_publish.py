"""A job may end between any two steps: then a unit is there as a whole, or it is not there."""

from pathlib import Path

import pytest

from tandem.spark.archive.manifest import UnitState, read_manifest, staging_folder, unit_file
from tandem.spark.archive.publish import clear_staging, mark_verified
from tandem.spark.archive.read import plan_archive, read_piece
from tandem.spark.jobs.archive_job import run_archive
from tandem.spark.jobs.runner import HereRunner
from tests.support.small_archive import CrashError, CrashingDisk, SmallArchive, places

STEPS_MAX = 200


def rows_for_readers(small: SmallArchive) -> list[tuple[str, int, int]]:
    pieces = plan_archive(read_manifest(small.archive_path))
    return places(
        row for piece in pieces for batch in read_piece(piece) for row in batch.to_pylist()
    )


@pytest.mark.slow
def test_a_job_that_ends_between_any_two_steps(tmp_path: Path) -> None:
    whole = SmallArchive(tmp_path / "whole", messages=60, file_bytes=4_096).archive()
    wanted = rows_for_readers(whole)
    for steps in range(STEPS_MAX):
        small = SmallArchive(tmp_path / str(steps), messages=60, file_bytes=4_096)
        disk = CrashingDisk(steps, after=False)
        try:
            run_archive(small.settings(), HereRunner(), disk=disk)
        except CrashError:
            pass
        else:
            break
        if (small.archive_path / "_tandem" / "archive.json").exists():
            seen = rows_for_readers(small)
            assert len(set(seen)) == len(seen)
            assert set(seen) <= set(wanted)
            assert small.manifest.faults() == []
            assert all(
                small.archive_path.joinpath(file.path).exists()
                for unit in small.manifest.units
                for file in unit.files
            )
        small.archive()
        assert rows_for_readers(small) == wanted
        assert all(unit.state is UnitState.VERIFIED for unit in small.manifest.units)
        assert small.report.faults == []
        assert sorted(small.archive_path.glob("data/*/*/*")) == sorted(
            small.archive_path / path.relative_to(whole.archive_path)
            for path in whole.archive_path.glob("data/*/*/*")
        )
    else:
        pytest.fail("it never got through")
    assert steps > 15


@pytest.mark.slow
def test_a_job_that_ends_between_any_two_steps_of_filling_a_gap(tmp_path: Path) -> None:
    whole = SmallArchive(tmp_path / "whole", messages=120, file_bytes=4_096).archive()
    wanted = rows_for_readers(whole)
    for steps in range(STEPS_MAX):
        small = SmallArchive(tmp_path / str(steps), messages=120, file_bytes=4_096).archive()
        for gone in (small.unit(0), small.unit(2)):
            unit_file(small.archive_path, gone.group, gone.first).unlink()
        lacking = rows_for_readers(small)
        assert len(lacking) < len(wanted)
        disk = CrashingDisk(steps, after=steps % 2 == 0)
        try:
            run_archive(small.settings(), HereRunner(), disk=disk)
        except CrashError:
            pass
        else:
            break
        seen = rows_for_readers(small)
        assert len(set(seen)) == len(seen)
        assert set(lacking) <= set(seen) <= set(wanted)
        assert small.manifest.faults() == []
        small.archive()
        assert rows_for_readers(small) == wanted
        assert small.report.faults == small.report.gaps == []
        assert [unit.state for unit in small.manifest.units] == [UnitState.VERIFIED] * len(
            whole.manifest.units
        )
    else:
        pytest.fail("it never got through")
    assert steps > 10


def test_what_a_dead_job_staged_is_removed(small: SmallArchive) -> None:
    left = staging_folder(small.archive_path) / "broker-a" / "dead"
    left.mkdir(parents=True)
    clear_staging(small.archive_path, "broker-a", CrashingDisk(1, after=True))
    assert not left.exists()


def test_verified_is_written_down(small: SmallArchive) -> None:
    unit = mark_verified(small.archive_path, small.unit(), 77, CrashingDisk(9, after=True))
    assert small.unit() == unit
    assert unit.verified_at_ms == 77
