from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tandem.cluster_file.errors import ClusterConfigError
from tandem.spark.archive.errors import ArchiveError, NotAnArchiveError, NotArchiveFault
from tandem.spark.archive.holes import holes_of
from tandem.spark.archive.manifest import UnitState, read_manifest, unit_file
from tandem.spark.archive.read import plan_archive, read_piece
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs.runner import HereRunner
from tandem.spark.jobs.scrub_job import ScrubReport, run_scrub
from tandem.spark.jobs.settings import ScrubSettings
from tests.support.small_archive import CrashError, CrashingDisk, SmallArchive


def scrubbing(small: SmallArchive, **changes: Any) -> ScrubSettings:  # noqa: ANN401
    salt = small.root / "salt"
    salt.write_text("0123456789abcdef0123")
    salt.chmod(0o600)
    plain = {
        "archive": str(small.archive_path),
        "output": str(small.root / "scrubbed"),
        "hash_properties": ["customer"],
        "drop_fields": ["n"],
        "salt_file": str(salt),
    }
    return msgspec.convert(plain | changes, ScrubSettings)


def scrub(small: SmallArchive, **changes: Any) -> ScrubReport:  # noqa: ANN401
    return run_scrub(scrubbing(small, **changes), HereRunner())


def rows(archive: Path) -> list[dict[str, Any]]:
    pieces = plan_archive(read_manifest(archive))
    return [row for piece in pieces for batch in read_piece(piece) for row in batch.to_pylist()]


def test_an_archive_without_what_is_not_to_be_kept(small: SmallArchive) -> None:
    report = scrub(small)
    assert report.faults == []
    before, after = rows(small.archive_path), rows(small.root / "scrubbed")
    assert report.rows == len(after) == len(before)
    for old, new in zip(before, after, strict=True):
        assert new["body"] == b"{}"
        assert len(dict(new["properties"])["customer"]) == 64
        changed = {name for name in old if old[name] != new[name]}
        assert changed == {"body", "bodyCrc", "properties"}
    units = read_manifest(small.root / "scrubbed").units
    assert all(unit.scrubbed and unit.state is UnitState.VERIFIED for unit in units)
    data = b"".join(path.read_bytes() for path in small.root.glob("scrubbed/data/*/*/*"))
    assert data
    assert all(
        "c-17" not in str(table)
        for table in map(pq.read_table, small.root.glob("scrubbed/data/*/*/*"))
    )
    assert scrub(small).units == 0
    # Nothing of it says that a log may be deleted.
    assert read_manifest(small.root / "scrubbed").deletable() == []


@pytest.mark.slow
def test_a_value_that_is_left_is_told_and_its_unit_is_not_trusted(small: SmallArchive) -> None:
    small.put(150)
    small.log.put("orders", b'{"mail": "anna@x.org"}', keys="anna@x.org")
    small.put(200)
    small.archive()
    report = scrub(small, drop_fields=["mail"])
    (fault,) = report.faults
    assert "a scrubbed value is still in property KEYS" in fault
    assert "anna" not in fault
    states = [unit.state for unit in read_manifest(small.root / "scrubbed").units]
    assert states.count(UnitState.ARCHIVED) == 1


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(small: SmallArchive) -> None:
    wanted = []
    for steps in range(100):
        output = small.root / f"scrubbed-{steps}"
        settings = scrubbing(small, output=str(output))
        try:
            run_scrub(settings, HereRunner(), disk=CrashingDisk(steps * 7, after=False))
        except CrashError:
            run_scrub(settings, HereRunner())
            wanted.append(rows(output))
        else:
            wanted.append(rows(output))
            break
    assert len(wanted) > 2
    assert all(each == wanted[0] for each in wanted)


def test_topics_can_be_chosen(small: SmallArchive) -> None:
    report = scrub(small, topics=["orders"])
    assert {row["topic"] for row in rows(small.root / "scrubbed")} == {"orders"}
    assert report.dropped + report.rows == len(rows(small.archive_path))


def test_other_rules_do_not_go_into_the_same_archive(small: SmallArchive) -> None:
    scrub(small)
    with pytest.raises(NotAnArchiveError) as caught:
        scrub(small, drop_fields=["m"])
    assert caught.value.fault is NotArchiveFault.OTHER_KIND


@pytest.mark.slow
def test_what_cannot_be_scrubbed_is_told_by_its_place(small: SmallArchive) -> None:
    small.log.put("orders", b"text")
    small.put(200)
    small.archive()
    with pytest.raises(
        SparkSourceError, match=r"message orders, queue 0, offset \d+: its body is no"
    ):
        scrub(small)
    assert scrub(small, not_json="drop", output=str(small.root / "o")).dropped == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hash_properties": [], "drop_fields": []}, "name what is to be scrubbed"),
        ({"salt_file": ""}, "is needed for hashing"),
        ({"output": "{archive}"}, "is the archive itself"),
    ],
)
def test_wrong_settings_are_told(small: SmallArchive, changes: dict[str, Any], words: str) -> None:
    if "output" in changes:
        changes = {"output": str(small.archive_path)}
    with pytest.raises(ClusterConfigError, match=words):
        scrub(small, **changes)


def test_a_unit_that_was_archived_again_with_more_is_scrubbed_again(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, 30).archive(open_file="take")
    scrub(small)
    gone = small.unit(0)
    unit_file(small.archive_path, gone.group, gone.first).unlink()
    small.put(20)
    small.archive(open_file="take")
    assert scrub(small).rows == small.unit(0).rows == 50
    assert len(rows(tmp_path / "scrubbed")) == 50
    # It has a second unit now, and then one for both.
    small.put(20)
    small.archive(open_file="take")
    scrub(small)
    for unit in small.manifest.units:
        unit_file(small.archive_path, unit.group, unit.first).unlink()
    small.archive(open_file="take")
    with pytest.raises(ArchiveError, match="name another output"):
        scrub(small)


def test_topics_of_the_settings_are_in_the_archive(small: SmallArchive) -> None:
    with pytest.raises(ArchiveError, match="no topic ordres"):
        scrub(small, topics=["orders", "ordres"])
    assert not (small.root / "scrubbed").exists()


def test_topics_that_come_and_go_are_holes(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, 130).archive()
    scrub(small)
    small.put(120)
    small.archive()
    scrub(small, topics=["orders"])
    small.put(120)
    small.archive()
    scrub(small)
    holes = holes_of(read_manifest(tmp_path / "scrubbed"))
    assert {hole.topic for hole in holes} == {"events"}
    assert all(hole.was_left_out for hole in holes)
