"""What groups read is compared with the log: which message is at each place of their queues."""

from pathlib import Path

import pytest

from tandem.drill.consumers.log_places import places_in_log
from tandem.spark.errors import SparkSourceError
from tests.support.log_builder import LogBuilder


def a_store(root: Path) -> Path:
    log = LogBuilder()
    for topic, keys in (("A", "a-0"), ("B", "b-0"), ("A", "a-1"), ("C", "c-0"), ("A", "")):
        log.put(topic=topic, keys=keys)
    log.write(root)
    return root


def test_places_of_the_topics_that_were_asked_for(tmp_path: Path) -> None:
    found = places_in_log(a_store(tmp_path), "broker", ["A", "B", "none"])

    assert found == {
        ("A", "broker", 0, 0): "a-0",
        ("A", "broker", 0, 1): "a-1",
        ("A", "broker", 0, 2): "",
        ("B", "broker", 0, 0): "b-0",
    }


def test_no_topics_have_no_places(tmp_path: Path) -> None:
    assert places_in_log(a_store(tmp_path), "broker", []) == {}


def test_a_store_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises((SparkSourceError, OSError)):
        places_in_log(tmp_path / "none", "broker", ["A"])


def test_what_was_there_before_is_not_read(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=4_096)
    log.put(topic="A", keys="before")
    log.roll()
    log.put(topic="A", keys="since")
    log.write(tmp_path)

    assert places_in_log(tmp_path, "b", ["A"], since=4_096) == {("A", "b", 0, 1): "since"}
    assert len(places_in_log(tmp_path, "b", ["A"], since=4_095)) == 2
    assert places_in_log(tmp_path, "b", ["A"], since=1 << 40) == {}
