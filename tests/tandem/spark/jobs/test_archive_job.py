import logging
from pathlib import Path

import msgspec
import pytest

from tandem.spark.archive.disk import LocalDisk, locked
from tandem.spark.archive.errors import ArchiveBusyError, ArchiveError
from tandem.spark.archive.log_piece import log_files
from tandem.spark.archive.manifest import UnitState, joined, write_unit
from tandem.spark.errors import NotAStoreError
from tandem.spark.jobs.archive_job import run_archive
from tandem.spark.jobs.runner import HereRunner
from tests.support.small_archive import SmallArchive


def test_it_archives_verifies_and_says_what_may_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = SmallArchive(tmp_path)
    told: list[str] = []
    with caplog.at_level(logging.INFO, "tandem.spark.jobs"):
        report = run_archive(small.settings(), HereRunner(), on_progress=told.append)
    closed = [file.path for file in log_files(str(small.store))[:-1]]
    assert report.log_files == report.verified == len(closed)
    assert report.deletable == {"broker-a": closed}
    assert (report.faults, report.gaps) == ([], [])
    assert told[-1].startswith(f"{len(closed)} of {len(closed)} log files")
    assert f"rows={small.unit().rows}" in caplog.text


def test_a_second_run_does_what_is_new(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive()
    units = small.manifest.units
    small.archive()
    assert small.report.log_files == 0
    small.put(200)
    small.archive()
    assert small.report.log_files > 0
    assert small.manifest.units[: len(units)] == units
    assert small.manifest.gaps() == []


def test_a_topic_that_is_deleted_and_made_anew_is_archived_on(tmp_path: Path) -> None:
    """Within a log file, and between two."""
    small = SmallArchive(tmp_path, 150)
    small.log.make_anew("orders")
    small.put(150)
    small.log.roll()
    small.log.make_anew("events")
    small.put(200)
    small.archive().archive()
    assert small.report.faults == small.report.gaps == []
    assert small.report.verified == 0
    end = small.manifest.end_of("broker-a") or 0
    archived = [message for message in small.log.messages if message.physical_offset < end]
    assert sum(unit.rows for unit in small.manifest.units) == len(archived)
    ends = {(each.topic, each.queue_id): each.queue_offset + 1 for each in archived}
    assert ends == {
        (topic, queue_id): boundary
        for topic, brokers in small.manifest.boundaries().items()
        for queue_id, boundary in brokers["broker-a"].items()
    }
    assert small.verify().faults == []
    # A version that knew one range a queue has written this.
    joins = 0
    for unit in small.manifest.units:
        files = tuple(
            msgspec.structs.replace(file, queues=joined(file.queues)) for file in unit.files
        )
        joins += files != unit.files
        write_unit(small.archive_path, msgspec.structs.replace(unit, files=files), LocalDisk())
    assert joins > 0
    assert small.verify().faults == []
    assert small.archive().report.faults == []


def test_any_node_of_the_group_will_do(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive()
    small.put(200)
    small.log.write(tmp_path / "broker-a-1")
    small.archive(stores={"broker-a": str(tmp_path / "broker-a-1")})
    assert small.report.log_files > 0
    assert small.manifest.faults() == []


def test_damage_is_not_archived_and_what_came_before_is(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    path = Path(log_files(str(small.store))[2].path)
    data = bytearray(path.read_bytes())
    data[88] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="corrupt record"):
        small.archive()
    assert [unit.state for unit in small.manifest.units] == [UnitState.VERIFIED] * 2


def test_what_one_group_has_does_not_hold_up_the_others(tmp_path: Path) -> None:
    small, other = SmallArchive(tmp_path / "a"), SmallArchive(tmp_path / "b")
    stores = {"broker-a": str(small.store), "broker-b": str(other.store)}
    path = Path(log_files(stores["broker-a"])[1].path)
    data = bytearray(path.read_bytes())
    data[88] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="corrupt record"):
        small.archive(stores=stores)
    closed = len(log_files(stores["broker-b"])) - 1
    assert len(small.manifest.of("broker-a")) == 1
    assert len(small.manifest.of("broker-b")) == closed
    assert all(unit.state is UnitState.VERIFIED for unit in small.manifest.units)
    # Nor does one that has no store any more; two that fail are both in the text.
    other.put(200)
    with pytest.raises(NotAStoreError):
        small.archive(stores=stores | {"broker-a": str(tmp_path / "nowhere")})
    assert len(small.manifest.of("broker-b")) > closed
    with pytest.raises(ArchiveError, match=r"nowhere.*; .*elsewhere"):
        small.archive(
            stores={
                "broker-a": str(tmp_path / "nowhere"),
                "broker-b": str(tmp_path / "elsewhere"),
            }
        )


def test_two_jobs_do_not_write_one_archive(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive()
    with locked(small.archive_path / "_tandem"), pytest.raises(ArchiveBusyError):
        small.archive()


def test_files_with_topics_that_were_left_out_have_to_stay(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(exclude_topics=["events"])
    assert small.report.verified == len(small.manifest.units)
    assert small.report.deletable == {}
    # Another choice later changes nothing about what is there.
    assert small.verify().faults == []


def test_what_was_lost_is_in_the_report(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive()
    end = small.manifest.end_of("broker-a")
    assert end is not None
    small.put(300)
    for file in log_files(str(small.store)):
        if file.offset <= end:
            Path(file.path).unlink()
    small.archive(on_data_loss="continue")
    assert small.report.gaps == [f"broker-a: [{end}, {end + small.log.file_bytes})"]
    assert small.report.faults == []
