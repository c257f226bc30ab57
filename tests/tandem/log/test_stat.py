from pathlib import Path

import pytest

from tandem.log.record_filter import RecordFilter
from tandem.log.stat import store_stat
from tandem.log.store_directory import open_store_directory
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, overwrite


@pytest.mark.parametrize("name", NAMES)
def test_every_record_of_rocketmq_is_counted(name: str) -> None:
    counts = {"basic": 3, "batch": 2, "crc": 4, "ext": 6, "idx": 7, "sch": 5, "tran": 6, "v6": 3}
    found = store_stat(open_store_directory(GOLDEN / name))
    assert found.total.message_count == counts[name]
    assert found.total.share == 1
    assert sum(queue.message_count for queue in found.queues) == counts[name]
    assert sum(topic.total_bytes for topic in found.topics) == found.total.total_bytes
    assert found.damages == ()


def test_counts_rates_and_sizes_are_those_of_the_records(tmp_path: Path) -> None:
    log = LogBuilder()
    for number in range(101):
        log.put("a", b"x" * 10, queue_id=number % 2)
    log.put("b", b"x" * 5000)
    found = store_stat(open_store_directory(log.write(tmp_path)))
    first, second, other = found.queues
    assert (first.topic, first.queue_id, first.message_count) == ("a", 0, 51)
    assert (second.message_count, other.message_count) == (50, 1)
    size = 91 + 1 + 10
    assert (first.total_bytes, first.body_bytes) == (51 * size, 510)
    assert first.messages_per_second == pytest.approx(51 / 0.1)
    assert first.bytes_per_second == pytest.approx(51 * size / 0.1)
    assert size <= first.size_p50_bytes <= size * 1.02
    assert first.size_max_bytes == size
    assert other.messages_per_second == 0
    assert found.total.size_max_bytes == 5092
    assert found.total.size_p50_bytes < size * 1.02
    assert [topic.message_count for topic in found.topics] == [101, 1]


def test_only_the_wanted_records_count(tmp_path: Path) -> None:
    log = LogBuilder()
    log.put("a")
    log.put("b")
    store = open_store_directory(log.write(tmp_path))
    found = store_stat(store, RecordFilter(topics=frozenset({"b"})))
    assert [queue.topic for queue in found.queues] == ["b"]
    nothing = store_stat(store, RecordFilter(topics=frozenset({"c"})))
    assert nothing.total.message_count == 0


def test_damage_is_told(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(3):
        log.put()
    root = log.write(tmp_path)
    overwrite(root / "commitlog" / f"{0:020d}", log.messages[1].physical_offset + 4, b"xxxx")
    found = store_stat(open_store_directory(root))
    assert found.total.message_count == 2
    assert [damage.kind for damage in found.damages] == ["corrupt"]
