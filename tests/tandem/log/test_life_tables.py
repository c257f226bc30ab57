from pathlib import Path

import pytest

from tandem.life.evidence import Evidence
from tandem.log.life_tables import gather_delays, gather_tables
from tandem.wire.checksum_line import encode_checked_json
from tests.support.paths import GOLDEN


def gathered(root: Path, *topics: str) -> Evidence:
    evidence = Evidence(message="m", now_ms=1)
    gather_tables(evidence, "n", root, set(topics))
    return evidence


def offsets(evidence: Evidence) -> list[tuple[str, str, int, int]]:
    return [
        (each.group, queue.topic, queue.queue_id, queue.committed)
        for each in evidence.groups
        for queue in each.queues
    ]


def test_the_offsets_that_rocketmq_writes_are_read() -> None:
    evidence = gathered(GOLDEN / "config-json", "T")
    assert offsets(evidence) == [("g", "T", 0, 5), ("g", "T", 1, 6)]
    assert evidence.readers_known == {"T"}
    assert evidence.gaps == []


def test_the_journal_of_a_fenced_group_wins_over_the_copy_for_others(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1}}}')
    journal = {"position": 3, "offsets": {"T@g": {"0": 7}, "%RETRY%g@g": {"0": 2}}}
    name = "groupJournal.json"
    (config / name).write_bytes(encode_checked_json(name, journal))
    assert offsets(gathered(tmp_path, "T")) == [("g", "T", 0, 7), ("g", "%RETRY%g", 0, 2)]


def test_groups_of_other_topics_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"A@g":{0:1},"B@g":{0:2},"a@b@h":{0:3}}}'
    )
    assert offsets(gathered(tmp_path, "B")) == [("g", "B", 0, 2)]
    assert offsets(gathered(tmp_path, "a@b")) == [("h", "a@b", 0, 3)]


@pytest.mark.parametrize("content", [b"", b"{", b'{"offsetTable":7}', b"\xff\x00", b"[]"])
def test_a_table_that_cannot_be_read_is_a_gap(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_bytes(content)
    evidence = gathered(tmp_path, "T")
    assert evidence.gaps
    assert evidence.readers_known == set()


def test_the_copy_from_before_is_read_if_the_table_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_bytes(b"{")
    (tmp_path / "config" / "consumerOffset.json.bak").write_bytes(b'{"offsetTable":{"T@g":{0:4}}}')
    assert offsets(gathered(tmp_path, "T")) == [("g", "T", 0, 4)]


def test_how_far_delays_are_is_read(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{1:5,3:12}}')
    evidence = Evidence(message="m", now_ms=1)
    gather_delays(evidence, "n", tmp_path)
    assert evidence.delays[0].next_offsets == {1: 5, 3: 12}
