from pathlib import Path

import pytest

from tandem.log import listing
from tandem.log.listing import list_store
from tandem.log.store_directory import open_store_directory
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, our_store


@pytest.mark.parametrize("name", NAMES)
def test_the_stores_of_rocketmq_can_be_listed(name: str) -> None:
    found = list_store(open_store_directory(GOLDEN / name))
    (row,) = found.commit_log
    assert 0 < row.used_bytes < row.size == 8192
    assert 0 < row.first_store_timestamp_ms <= row.last_store_timestamp_ms
    assert sum(topic.unit_count for topic in found.topics) > 0
    assert found.checkpoint is not None
    assert found.checkpoint.physic_msg_timestamp_ms <= row.last_store_timestamp_ms


def test_queues_are_summed_up_by_topic(tmp_path: Path) -> None:
    found = list_store(open_store_directory(our_store(tmp_path)))
    by_topic = {row.topic: row for row in found.topics}
    assert by_topic["TopicA"].queue_count == 2
    assert by_topic["TopicA"].unit_count == 40
    assert (by_topic["TopicA"].min_offset, by_topic["TopicA"].max_offset) == (0, 20)


@pytest.mark.parametrize("tail_bytes", [100, 1 << 20])
def test_full_files_are_read_from_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail_bytes: int
) -> None:
    monkeypatch.setattr(listing, "_TAIL_BYTES", tail_bytes)
    monkeypatch.setattr(listing, "_TAIL_BYTES_MAX", tail_bytes * 8)
    log = LogBuilder(file_bytes=8192)
    for _ in range(60):
        log.put(body=b"x" * 300)
    rows = list_store(open_store_directory(log.write(tmp_path))).commit_log
    for row in rows:
        inside = [m for m in log.messages if 0 <= m.physical_offset - row.offset < 8192]
        assert row.first_store_timestamp_ms == inside[0].store_timestamp_ms
        assert row.last_store_timestamp_ms == inside[-1].store_timestamp_ms
    assert [row.is_closed for row in rows] == [True] * (len(rows) - 1) + [False]
    assert [row.used_bytes for row in rows[:-1]] == [8192] * (len(rows) - 1)


def test_an_empty_file_and_a_short_index_are_listed(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "commitlog" / f"{8192:020d}").touch()
    (root / "index" / "20270101000000000").write_bytes(b"short")
    found = list_store(open_store_directory(root))
    assert found.commit_log[-1].used_bytes == 0
    assert found.index_files[-1].key_count == 0
