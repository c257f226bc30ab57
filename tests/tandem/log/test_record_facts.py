from pathlib import Path

import numpy as np

from tandem.log.log_scan import LogWindow, scan_log
from tandem.log.record_facts import NO_QUEUE, QueueNumbers, RecordFacts, facts_of, join_facts
from tandem.log.store_directory import open_store_directory
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message_properties import tags_code
from tandem.wire.record_keys import key_hash
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import copy_of, log_file, overwrite


def facts_of_store(root: Path, *queues: tuple[bytes, int]) -> RecordFacts:
    (window,) = scan_log(open_store_directory(root).commit_log)
    assert isinstance(window, LogWindow)
    return facts_of(window, QueueNumbers(queues), DelayLevels())


def test_records_belong_to_queues_by_topic_and_id(tmp_path: Path) -> None:
    log = LogBuilder()
    for topic, queue_id in (("a", 0), ("b", 0), ("a", 1), ("a", -1), ("a", 0)):
        log.put(topic, queue_id=queue_id)
    facts = facts_of_store(log.write(tmp_path, consume_queues=False), (b"a", 0), (b"a", 1))
    assert facts.owner.tolist() == [0, NO_QUEUE, 1, NO_QUEUE, 0]
    assert facts.queue_names == {1: "b/0", 3: "a/-1"}


def test_what_a_unit_carries_is_the_tags_code_or_the_deliver_time() -> None:
    facts = facts_of_store(GOLDEN / "tran", (b"T", 0), (b"SCHEDULE_TOPIC_XXXX", 2))
    stored = facts.store_timestamp_ms.tolist()
    assert facts.tags_code.tolist() == [0, 0, 0, 0, stored[4] + 10_000, stored[5] + 7_200_000]
    assert facts.is_queued.tolist() == [True, False, False, True, True, True]
    assert facts.is_indexed.tolist() == [True, True, False, True, True, True]
    assert facts_of_store(GOLDEN / "basic").tags_code.tolist() == [tags_code("TagA")] * 3


def test_keys_are_hashed_with_their_topic() -> None:
    facts = facts_of_store(GOLDEN / "basic")
    assert facts.key_row.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert facts.key_hash.tolist()[:3] == [key_hash("TopicA", k) for k in (b"U0", b"k1", b"k2")]


def test_an_inner_batch_counts_its_messages(tmp_path: Path) -> None:
    log = LogBuilder()
    log.put(sys_flag=0xC0, properties={"INNER_NUM": "3"})
    log.put(sys_flag=0xC0, properties={"INNER_NUM": "x"})
    log.put(properties={"INNER_NUM": "7"})
    assert facts_of_store(log.write(tmp_path)).message_count.tolist() == [3, 1, 1]


def test_both_checksums_are_checked(tmp_path: Path) -> None:
    root = copy_of("crc", tmp_path)
    overwrite(log_file(root), 88, b"X")  # the first body
    second = int(facts_of_store(GOLDEN / "crc").offset[1])
    overwrite(log_file(root), second + 45, b"X")  # the born time, which only the property covers
    facts = facts_of_store(root)
    assert facts.is_sound.tolist() == [False, False, True, True]
    assert facts.body_agrees.tolist() == [False, True, True, True]
    assert "body CRC is" in facts.crc_faults[0]
    assert "its CRC is" in facts.crc_faults[1]


def test_windows_are_joined_in_order(tmp_path: Path) -> None:
    one = facts_of_store(GOLDEN / "basic")
    root = copy_of("crc", tmp_path)
    overwrite(log_file(root), 88, b"X")
    other = facts_of_store(root)
    joined = join_facts([one, other])
    assert len(joined) == 7
    assert joined.key_row.tolist() == [*one.key_row.tolist(), *(other.key_row + 3).tolist()]
    assert list(joined.crc_faults) == [3]
    assert sorted(joined.queue_names) == list(range(7))
    nothing = join_facts([])
    assert len(nothing) == 0
    assert nothing.is_sound.dtype == np.bool_
