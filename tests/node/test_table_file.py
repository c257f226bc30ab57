from __future__ import annotations

from pathlib import Path

import pytest

from node.errors import TableFileError
from node.table_file import TableFile, encode_table, next_version
from store.disk import RealDisk
from tandem.wire.request_headers import (
    ConsumerOffsetTableBody,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

GOLDEN = Path(__file__).parents[1] / "data/rocketmq-5.3.3/config-json/config"


def test_the_topics_of_rocketmq_are_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    golden = (GOLDEN / "topics.json").read_bytes()
    topics = TableFile(RealDisk(), str(GOLDEN / "topics.json")).load(TopicConfigSerializeWrapper)
    assert topics is not None
    assert topics.topic_config_table["TopicA"] == TopicConfig(
        topic_name="TopicA",
        read_queue_nums=4,
        write_queue_nums=4,
        attributes={"queue.type": "BatchCQ"},
    )
    table = {"dataVersion": topics.data_version, "topicConfigTable": topics.topic_config_table}
    assert encode_table(table) == golden


def test_integer_keys_are_written_as_fastjson_does() -> None:
    golden = (GOLDEN / "consumerOffset.json").read_bytes()
    version = DataVersion(0, 1795218931208, 0)
    table = {
        "dataVersion": version,
        "groupTopicMap": {"g": ["T"]},
        "offsetTable": {"T@g": {0: 5, 1: 6}},
    }
    assert encode_table(table) == golden


def test_a_missing_file_is_a_new_table(tmp_path: Path) -> None:
    file = TableFile(RealDisk(), str(tmp_path / "config/topics.json"))
    assert file.load(TopicConfigSerializeWrapper) is None


def test_what_was_saved_before_becomes_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "config/t.json"
    file = TableFile(RealDisk(), str(path))
    file.save({"a": 1})
    file.save({"a": 2})
    assert path.read_text() == '{\n\t"a":2\n}'
    assert Path(f"{path}.bak").read_text() == '{\n\t"a":1\n}'


@pytest.mark.parametrize("damaged", [b"", b'{"offsetTable":{"T@g":{0:', b"\xff\xfe"])
def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(damaged)
    Path(f"{path}.bak").write_bytes(b'{"offsetTable":{"T@g":{0:5}}}')
    table = TableFile(RealDisk(), str(path)).load(ConsumerOffsetTableBody)
    assert table == ConsumerOffsetTableBody({"T@g": {0: 5}})


def test_damage_without_a_backup_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"{")
    with pytest.raises(TableFileError, match=r"t\.json: neither it nor its \.bak .* restore one"):
        TableFile(RealDisk(), str(path)).load(ConsumerOffsetTableBody)


def test_a_version_counts_its_changes() -> None:
    assert next_version(DataVersion(3, 10, 7), 11) == DataVersion(3, 11, 8)
