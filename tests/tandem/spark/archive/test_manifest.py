from pathlib import Path
from typing import Any

import msgspec
import pytest

from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.errors import (
    ArchiveDamagedError,
    ArchiveFault,
    NotAnArchiveError,
    NotArchiveFault,
)
from tandem.spark.archive.manifest import (
    ArchiveFacts,
    Manifest,
    QueueRange,
    UnitState,
    create_archive,
    partition_folder,
    read_facts,
    read_manifest,
    unit_file,
    write_unit,
)
from tests.tandem.spark.archive.made_units import a_part, a_unit

DISK = LocalDisk()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    create_archive(tmp_path, DISK, ArchiveFacts(1))
    unit = a_unit(0, 100, a_part(), excluded_topics=("events",))
    write_unit(tmp_path, unit, DISK)
    write_unit(tmp_path, a_unit(100, 200), DISK)
    manifest = read_manifest(tmp_path)
    assert manifest.units == [unit, a_unit(100, 200)]
    assert manifest.of("broker-b") == []
    assert manifest.end_of("broker-a") == 200
    assert manifest.end_of("broker-b") is None


def test_an_archive_is_made_once_and_of_one_kind(tmp_path: Path) -> None:
    create_archive(tmp_path, DISK, ArchiveFacts(1))
    create_archive(tmp_path, DISK, ArchiveFacts(1))
    with pytest.raises(NotAnArchiveError) as caught:
        create_archive(tmp_path, DISK, ArchiveFacts(1, "scrubbed", "elsewhere"))
    assert caught.value.fault is NotArchiveFault.OTHER_KIND


def test_a_directory_with_something_else_becomes_no_archive(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(NotAnArchiveError) as caught:
        create_archive(tmp_path, DISK, ArchiveFacts(1))
    assert caught.value.fault is NotArchiveFault.NOT_EMPTY


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchiveError, match="tandem pipeline archive") as caught:
        read_manifest(tmp_path)
    assert caught.value.fault is NotArchiveFault.MISSING
    create_archive(tmp_path, DISK, ArchiveFacts(2))
    with pytest.raises(NotAnArchiveError) as caught:
        read_facts(tmp_path)
    assert caught.value.fault is NotArchiveFault.OTHER_VERSION


def test_a_damaged_unit_is_told_with_its_remedy(tmp_path: Path) -> None:
    create_archive(tmp_path, DISK, ArchiveFacts(1))
    write_unit(tmp_path, a_unit(0, 100), DISK)
    unit_file(tmp_path, "broker-a", 0).write_bytes(b"{")
    with pytest.raises(ArchiveDamagedError, match="restore it") as caught:
        read_manifest(tmp_path)
    assert caught.value.fault is ArchiveFault.UNREADABLE


def test_a_unit_that_was_moved_is_told(tmp_path: Path) -> None:
    create_archive(tmp_path, DISK, ArchiveFacts(1))
    write_unit(tmp_path, a_unit(0, 100), DISK)
    unit_file(tmp_path, "broker-a", 0).rename(unit_file(tmp_path, "broker-a", 7))
    with pytest.raises(ArchiveDamagedError) as caught:
        read_manifest(tmp_path)
    assert caught.value.fault is ArchiveFault.MOVED


def test_gaps_and_overlaps_are_seen() -> None:
    manifest = Manifest(Path(), [a_unit(0, 100), a_unit(150, 200), a_unit(190, 300)])
    assert [(gap.first, gap.end) for gap in manifest.gaps()] == [(100, 150)]
    assert manifest.faults() == [
        f"broker-a-{190:020d} begins before broker-a-{150:020d} ends, at 200"
    ]


def test_a_topic_that_was_made_anew_counts_from_0_again() -> None:
    anew = msgspec.structs.replace(
        a_part(), queues=(QueueRange(0, 20, 30, 10), QueueRange(0, 0, 4, 4)), rows=14
    )
    units = [a_unit(0, 100, a_part(0, 20)), a_unit(100, 200, anew)]
    manifest = Manifest(Path(), units)
    assert manifest.faults() == []
    assert manifest.boundaries() == {"orders": {"broker-a": {0: 4}}}
    units.append(a_unit(200, 300, a_part(4, 60)))
    manifest = Manifest(Path(), units)
    assert manifest.faults() == []
    assert manifest.spans() == {"orders": {"broker-a": {0: (0, 60)}}}


def test_files_of_a_unit_are_in_the_order_of_the_log() -> None:
    """Also the eleventh of a topic and a day."""
    parts = [
        msgspec.structs.replace(a_part(at, at + 1), path=f"data/broker-a-{0:020d}-{at}.parquet")
        for at in range(12)
    ]
    unit = a_unit(0, 100, *sorted(parts, key=lambda part: part.path))
    assert [file.queues[0].first for file in unit.in_log_order()] == list(range(12))
    assert Manifest(Path(), [unit]).spans() == {"orders": {"broker-a": {0: (0, 12)}}}


def test_rows_that_do_not_add_up_are_seen() -> None:
    (fault,) = Manifest(Path(), [a_unit(0, 100, a_part(), rows=11)]).faults()
    assert "has 11 rows, its files 10" in fault


def test_boundaries_are_where_reading_goes_on() -> None:
    units = [
        a_unit(0, 100, a_part(0, 10)),
        a_unit(100, 200, a_part(10, 12), a_part(3, 4, "events")),
    ]
    boundaries = Manifest(Path(), units).boundaries()
    assert boundaries == {"orders": {"broker-a": {0: 12}}, "events": {"broker-a": {0: 4}}}


@pytest.mark.parametrize(
    "change",
    [{"state": UnitState.ARCHIVED}, {"left_out": 1}, {"scrubbed": True}],
    ids=["not verified", "rows left out", "scrubbed"],
)
def test_a_log_may_lose_files_up_to_the_first_that_has_to_stay(change: dict[str, Any]) -> None:
    units = [a_unit(0, 100), a_unit(100, 200), a_unit(200, 300, **change), a_unit(300, 400)]
    assert [unit.first for unit in Manifest(Path(), units).deletable()] == [0, 100]


def test_a_file_whose_end_is_not_archived_stays() -> None:
    units = [a_unit(0, 100), a_unit(100, 150, closes_file=False)]
    assert [unit.first for unit in Manifest(Path(), units).deletable()] == [0]


@pytest.mark.parametrize("has_all", [True, False])
def test_a_file_whose_beginning_is_not_archived_stays(*, has_all: bool) -> None:
    """What a damaged manifest says of it was removed, as its error says."""
    parts = [
        a_unit(100, 140, closes_file=False),
        a_unit(140, 180, closes_file=False, log_file=f"{100:020d}"),
        a_unit(180, 200, log_file=f"{100:020d}"),
    ]
    units = [a_unit(0, 100), *(parts if has_all else parts[1:]), a_unit(200, 300)]
    expected = [0, 180, 200] if has_all else [0]
    assert [unit.first for unit in Manifest(Path(), units).deletable()] == expected


def test_folders_are_named_as_spark_names_partitions() -> None:
    assert partition_folder("orders", "2026-01-02") == "data/topic=orders/date=2026-01-02"
    assert partition_folder("%RETRY%g/a", "d") == "data/topic=%25RETRY%25g%2Fa/date=d"
    assert partition_folder("", "d") == "data/topic=__HIVE_DEFAULT_PARTITION__/date=d"
