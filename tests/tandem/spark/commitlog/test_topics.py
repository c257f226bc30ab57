import json
from pathlib import Path

import pytest

from tandem.spark.commitlog.places import place_of
from tandem.spark.commitlog.topics import check_topics, known_topics
from tandem.spark.errors import UnknownTopicError
from tests.support.log_builder import LogBuilder


def a_store(root: Path, *topics: str, queues: bool = True) -> Path:
    log = LogBuilder()
    for topic in topics:
        log.put(topic=topic)
    return log.write(root, consume_queues=queues)


def test_topics_are_those_of_queues_and_of_the_table(tmp_path: Path) -> None:
    root = a_store(tmp_path, "A", "B")
    (root / "batchconsumequeue" / "C").mkdir(parents=True)
    (root / "config").mkdir()
    table = {"topicConfigTable": {"D": {"topicName": "D"}}}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    assert known_topics(place_of(str(root))) == frozenset("ABCD")
    (root / "config" / "topics.json").write_text("{nonsense")
    assert known_topics(place_of(str(root))) == frozenset("ABC")


def test_a_log_alone_knows_nothing_and_refuses_nothing(tmp_path: Path) -> None:
    root = a_store(tmp_path / "alone", "A", queues=False)
    with_queues = a_store(tmp_path / "with", "A")
    assert known_topics(place_of(str(root))) is None
    (tmp_path / "alone" / "commitlog").rename(tmp_path / "log")
    log = place_of(str(tmp_path / "log"))
    assert known_topics(log) is None
    check_topics(frozenset({"B"}), [log, place_of(str(with_queues))])


def test_a_topic_that_no_store_knows_is_refused_with_those_there_are(tmp_path: Path) -> None:
    places = [place_of(str(a_store(tmp_path / name, name))) for name in "AB"]
    check_topics(frozenset({"A", "B"}), places)
    check_topics(None, places)
    with pytest.raises(UnknownTopicError, match=r"C, D in .* which has A, B; give ignoreM"):
        check_topics(frozenset({"A", "C", "D"}), places)
