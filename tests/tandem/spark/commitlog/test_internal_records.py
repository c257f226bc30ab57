from pathlib import Path
from typing import Any

import pytest

from tandem.spark.commitlog.internal_records import consumable
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split
from tandem.spark.record_batches import RecordSlice
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tandem.wire.record_scan import scan_records
from tandem.wire.system_topics import JOURNAL_TOPIC, SYSTEM_TOPICS, TIMER_TOPIC
from tests.support.log_builder import LogBuilder

ORDINARY = ("T", "TB", "TBW1023", "RMQ_SYSTEM", "rmq", "rmq_sys", "Schedule", "%RETRY%g", "%DLQ%g")


def a_log() -> LogBuilder:
    log = LogBuilder()
    for topic in (*sorted(SYSTEM_TOPICS), JOURNAL_TOPIC, TIMER_TOPIC, *ORDINARY):
        log.put(topic=topic, body=b"")
    return log


def part_of(log: LogBuilder) -> RecordSlice:
    data = bytearray(log.log)
    return RecordSlice(data, scan_records(data, 0).columns, "s")


def test_topics_of_the_system_are_told_from_those_that_look_like_them() -> None:
    part = part_of(a_log())
    wanted = consumable(part, all_topics=True)
    assert part.take(wanted).topics.to_pylist() == list(ORDINARY)
    assert consumable(part, all_topics=False).all()


def test_a_topic_at_the_very_end_of_the_bytes_is_looked_at() -> None:
    log = LogBuilder()
    log.put(topic="T", body=b"")
    assert consumable(part_of(log), all_topics=True).tolist() == [True]
    empty = LogBuilder()
    empty.put(topic="", body=b"")
    assert consumable(part_of(empty), all_topics=True).tolist() == [True]


def test_half_and_rolled_back_records_are_no_messages() -> None:
    log = LogBuilder()
    for sys_flag in (
        0,
        TRANSACTION_PREPARED_TYPE,
        TRANSACTION_COMMIT_TYPE,
        TRANSACTION_ROLLBACK_TYPE | 1,
        TRANSACTION_COMMIT_TYPE | 1,
    ):
        log.put(sys_flag=sys_flag)
    for all_topics in (True, False):
        wanted = consumable(part_of(log), all_topics=all_topics)
        assert wanted.tolist() == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({}, {"TopicA"}),
        ({"with_system_topics": True}, {"TopicA", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"}),
        ({"topics": frozenset({"TBW102"})}, {"TBW102"}),
        ({"topic_pattern": ".*"}, {"TopicA"}),
    ],
)
def test_what_brokers_keep_for_themselves_is_read_where_it_is_asked_for(
    tmp_path: Path, options: dict[str, Any], topics: set[str]
) -> None:
    log = LogBuilder()
    for topic in ("TopicA", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"):
        log.put(topic=topic)
    chosen = ScanOptions(paths=(str(log.write(tmp_path)),), **options)
    seen = [
        row["topic"]
        for split in plan_splits(chosen)
        for batch in read_split(split, chosen, ("topic",))
        for row in batch.to_pylist()
    ]
    assert set(seen) == topics
    assert len(seen) == len(topics)
