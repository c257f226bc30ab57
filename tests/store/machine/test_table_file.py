from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.machine.errors import TableFileError
from store.machine.real_disk import RealDisk
from store.machine.table_file import TableFile, encode_table, next_version
from tandem.wire.request_headers import (
    ConsumerOffsetTableBody,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.support.paths import GOLDEN
from tests.support.simulated_disk import SimulatedDisk

CONFIG = GOLDEN / "config-json/config"


def test_the_topics_of_rocketmq_are_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    golden = (CONFIG / "topics.json").read_bytes()
    topics = TableFile(RealDisk(), str(CONFIG / "topics.json")).load(TopicConfigSerializeWrapper)
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
    golden = (CONFIG / "consumerOffset.json").read_bytes()
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


def test_a_file_that_cannot_be_read_is_such_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()
    with pytest.raises(TableFileError, match="Is a directory"):
        TableFile(RealDisk(), str(tmp_path / "t.json")).load(ConsumerOffsetTableBody)


def test_the_backup_of_a_damaged_file_is_kept_until_a_good_one_is_there(tmp_path: Path) -> None:
    path, backup = tmp_path / "t.json", tmp_path / "t.json.bak"
    path.write_bytes(b"{")
    backup.write_bytes(b'{"offsetTable":{"T@g":{0:5}}}')
    file = TableFile(RealDisk(), str(path))
    file.load(ConsumerOffsetTableBody)
    file.save({"a": 1})
    assert backup.read_bytes() == b'{"offsetTable":{"T@g":{0:5}}}'
    file.save({"a": 2})
    assert backup.read_text() == '{\n\t"a":1\n}'


@pytest.mark.parametrize("step", range(1, 9))
def test_a_crash_at_any_step_of_a_save_leaves_a_table(step: int) -> None:
    disk = StepDisk()
    file = TableFile(disk, "/t.json")
    file.save(ConsumerOffsetTableBody({"T@g": {0: 1}}))
    disk.on_step = die_at(step)
    with suppress(Interrupted):
        for offset in (2, 3):
            file.save(ConsumerOffsetTableBody({"T@g": {0: offset}}))
    table = TableFile(disk.crashed(), "/t.json").load(ConsumerOffsetTableBody)
    assert table is not None
    assert table.offset_table["T@g"][0] == {1: 1, 2: 1, 3: 2, 4: 2}.get(step, 3)


@pytest.mark.parametrize(
    "damage",
    [
        b'"\\"' * 500_000,
        b'{"' + b'\\"' * 1_000_000,
        b"{" + b" " * 2_000_000,
        b"{" + b"1" * 2_000_000,
        b"[" * 1_000_000,
        b"{1:" * 500_000,
    ],
    ids=["quotes", "an open string", "blanks", "digits", "lists", "maps"],
)
def test_a_big_hostile_file_is_refused_at_once(damage: bytes) -> None:
    disk = SimulatedDisk()
    disk.replace("/t.json", damage)
    with pytest.raises(TableFileError):
        TableFile(disk, "/t.json").load(ConsumerOffsetTableBody)


@given(st.binary() | st.text(alphabet='{}[]":,\\ \n0123456789-offsetTable').map(str.encode))
def test_any_file_is_a_table_or_an_error(text: bytes) -> None:
    disk = SimulatedDisk()
    disk.replace("/t.json", text)
    with suppress(TableFileError):
        TableFile(disk, "/t.json").load(ConsumerOffsetTableBody)


def test_a_version_counts_its_changes() -> None:
    assert next_version(DataVersion(3, 10, 7), 11) == DataVersion(3, 11, 8)
