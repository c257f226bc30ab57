"""What an archive went past and has not: found between units, and not inside of them."""

import logging
from pathlib import Path

import msgspec
import pytest

from tandem.spark.archive.holes import Hole, holes_of, warn_of_holes
from tandem.spark.archive.manifest import Manifest, Unit
from tests.support.small_archive import SmallArchive
from tests.tandem.spark.archive.made_units import a_part, a_unit


def manifest(*units: Unit) -> Manifest:
    return Manifest(Path("archive"), units)


def test_a_whole_archive_has_no_holes(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive()
    assert len(small.manifest.units) > 2
    assert holes_of(small.manifest) == []


def test_the_unit_that_is_missing_is_a_hole_of_each_queue_that_it_had(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive()
    gone = small.unit(1)
    holes = holes_of(manifest(*(unit for unit in small.manifest.units if unit != gone)))
    found = {(each.topic, each.queue_id): (each.first, each.end) for each in holes}
    assert found == {
        (file.topic, queue.queue_id): (queue.first, queue.end)
        for file in gone.files
        for queue in file.queues
    }
    assert len(found) == 4
    assert not any(each.was_left_out for each in holes)
    assert {
        each.topic for each in holes_of(manifest(small.unit(0), small.unit(2)), {"events"})
    } == {"events"}


@pytest.mark.parametrize("which", [0, -1])
def test_what_is_before_or_after_everything_is_no_hole(tmp_path: Path, which: int) -> None:
    units = SmallArchive(tmp_path).archive().manifest.units
    units.pop(which)
    assert holes_of(manifest(*units)) == []


def test_offsets_that_no_record_has_are_no_hole() -> None:
    """A batch counts for one row and takes several offsets."""
    assert holes_of(manifest(a_unit(0, 100, a_part(0, 10)), a_unit(100, 200, a_part(12, 20)))) == []
    inside = [a_part(0, 10), msgspec.structs.replace(a_part(12, 20), first_store_ms=1)]
    assert holes_of(manifest(a_unit(0, 100, *inside))) == []


def test_a_hole_of_a_queue_that_was_made_anew() -> None:
    units = [
        a_unit(0, 100, a_part(0, 90)),
        a_unit(100, 200, a_part(0, 10)),
        a_unit(250, 300, a_part(15, 20)),
    ]
    assert [(each.first, each.end) for each in holes_of(manifest(*units))] == [(10, 15)]


def test_a_topic_that_was_left_out_for_a_while_is_a_hole() -> None:
    without = a_unit(100, 200, a_part(0, 5, "events"), excluded_topics=("orders",))
    units = [a_unit(0, 100, a_part(0, 10)), without, a_unit(200, 300, a_part(15, 20))]
    (hole,) = holes_of(manifest(*units))
    assert hole == Hole("orders", "broker-a", 0, 10, 15, 9, 0, was_left_out=True)
    assert "exclude_topics" in hole.reason


def test_one_line_says_what_jobs_do_not_see(caplog: pytest.LogCaptureFixture) -> None:
    whole = manifest(a_unit(0, 100, a_part(0, 10)), a_unit(100, 200, a_part(10, 20)))
    with caplog.at_level(logging.WARNING):
        warn_of_holes(whole)
    assert caplog.records == []
    parts = [
        [a_part(first, end, f"t{number}") for number in range(7)] for first, end in ((0, 1), (4, 5))
    ]
    warn_of_holes(manifest(a_unit(0, 100, *parts[0]), a_unit(150, 200, *parts[1])))
    (line,) = caplog.messages
    assert "t0 broker-a 0 [1, 4)" in line
    assert "and 2 more" in line
