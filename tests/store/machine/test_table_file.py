import logging
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.machine.errors import TableFileError
from store.machine.real_disk import RealDisk
from store.machine.table_file import ENTRIES_PER_STEP, TableFile, encode_table, next_version
from tandem.wire.request_headers import (
    ConsumerOffsetTableBody,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.support.logged import logged
from tests.support.paths import GOLDEN

CONFIG = GOLDEN / "config-json/config"


def test_the_topics_of_rocketmq_are_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    golden = (CONFIG / "topics.json").read_bytes()
    path = tmp_path / "topics.json"
    path.write_bytes(golden)
    topics = TableFile(RealDisk(), str(path)).load(TopicConfigSerializeWrapper)
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
    with pytest.raises(TableFileError, match="restore one") as caught:  # what to do
        TableFile(RealDisk(), str(path)).load(ConsumerOffsetTableBody)
    assert caught.value.path == str(path)


def test_a_file_that_cannot_be_read_is_such_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()
    with pytest.raises(TableFileError) as caught:
        TableFile(RealDisk(), str(tmp_path / "t.json")).load(ConsumerOffsetTableBody)
    assert isinstance(caught.value.__cause__, OSError)


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


def many_topics(count: int, queues: int = 4) -> dict[str, object]:
    names = [f"T{number}" for number in range(count)]
    return {
        "dataVersion": DataVersion(0, 1, queues),
        "topicConfigTable": {
            name: TopicConfig(topic_name=name, read_queue_nums=queues) for name in names
        },
    }


def test_no_step_of_a_save_is_more_work_in_a_larger_table() -> None:
    """A table of all topics and groups there may be takes a second."""
    disk = SimulatedDisk()
    count = 10 * ENTRIES_PER_STEP
    steps = sum(1 for _ in TableFile(disk, TABLE).save_in_steps(many_topics(count)))
    assert steps > 10
    assert disk.read(TABLE) == encode_table(many_topics(count))
    read = TableFile(disk, TABLE).load(TopicConfigSerializeWrapper)
    assert read is not None
    assert read.topic_config_table == many_topics(count)["topicConfigTable"]


def test_no_step_of_a_save_reads_or_writes_more_than_one_file() -> None:
    disk = SimulatedDisk()
    events: list[str] = []
    disk.on_event = events.append
    file = TableFile(disk, TABLE)
    for version in (1, 2):
        for _ in file.save_in_steps(many_topics(10, version)):
            assert len(events) <= 1, events
            events.clear()
    assert disk.read(f"{TABLE}.bak") == encode_table(many_topics(10, 1))


def test_a_save_between_the_steps_of_another_one_is_the_one_that_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = sum(1 for _ in TableFile(SimulatedDisk(), TABLE).save_in_steps(many_topics(300)))
    for at in range(1, steps + 2):
        disk = SimulatedDisk()
        file = TableFile(disk, TABLE)
        file.save(many_topics(300, 2))
        older = file.save_in_steps(many_topics(300, 3))
        for _, _ in zip(range(at), older, strict=False):
            pass
        file.save(many_topics(300, 4))
        for _ in older:
            pass
        assert disk.read(TABLE) == encode_table(many_topics(300, 4)), at
        assert TableFile(disk, TABLE).load(TopicConfigSerializeWrapper) is not None
    assert caplog.messages == [], "the checksums are those of the files"


def test_an_entry_that_changed_is_written_anew_and_a_gone_one_is_forgotten() -> None:
    disk = SimulatedDisk()
    file = TableFile(disk, TABLE)
    same = TopicConfig(topic_name="same")
    for topics in (
        {"same": same, "other": TopicConfig(topic_name="other")},
        {"same": same, "other": TopicConfig(topic_name="other", perm=2)},
        {"same": same},
        {"same": same, "other": TopicConfig(topic_name="other")},
    ):
        table = {"topicConfigTable": topics}
        file.save(table)
        assert disk.read(TABLE) == encode_table(table)


def test_an_entry_that_got_another_name_is_written_anew() -> None:
    disk = SimulatedDisk()
    file = TableFile(disk, TABLE)
    same = TopicConfig(topic_name="same")
    for name in ("same", "other"):
        table = {"topicConfigTable": {name: same}}
        file.save(table)
        assert disk.read(TABLE) == encode_table(table)


@pytest.mark.parametrize("step", range(1, 13))
@pytest.mark.parametrize("ticks", [0, 1])
def test_a_crash_at_any_step_of_a_save_leaves_a_table(step: int, ticks: int) -> None:
    """Also where the clock of the file system is too coarse to tell two writes apart."""
    clock = count(1, ticks)
    disk = StepDisk(now_ms=lambda: next(clock))
    file = TableFile(disk, "/t.json")
    file.save(ConsumerOffsetTableBody({"T@g": {0: 1}}))
    disk.on_step = die_at(step)
    with suppress(Interrupted):
        for offset in (2, 3):
            file.save(ConsumerOffsetTableBody({"T@g": {0: offset}}))
    table = TableFile(disk.crashed(), "/t.json").load(ConsumerOffsetTableBody)
    assert table is not None
    offset = table.offset_table["T@g"][0]
    if ticks:
        assert offset == {1: 1, 2: 1, 3: 2, 4: 2, 5: 2}.get(step, 3)
    assert offset in {1: (1,), 2: (1,), 3: (1, 2), 4: (2,), 5: (2,), 6: (2, 3)}.get(step, (3,))


@pytest.mark.slow
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


# Checksums

TABLE = "/config/consumerOffset.json"
NAMES = ("consumerOffset.json", "consumerOffset.json.bak", "consumerOffset.json.crc")


def saved(*offsets: int) -> SimulatedDisk:
    clock = count()
    disk = SimulatedDisk(now_ms=lambda: next(clock))
    for offset in offsets:
        TableFile(disk, TABLE).load(ConsumerOffsetTableBody)
        TableFile(disk, TABLE).save(ConsumerOffsetTableBody({"T@g": {0: offset}}))
    return disk


def loaded(disk: SimulatedDisk) -> int | None:
    table = TableFile(disk, TABLE).load(ConsumerOffsetTableBody)
    return table.offset_table["T@g"][0] if table else None


def test_a_table_has_its_checksum_beside_it_and_stays_rocketmqs() -> None:
    disk = saved(5, 6)
    assert disk.list_files("/config") == [(n, len(disk.read(f"/config/{n}") or b"")) for n in NAMES]
    assert disk.read(TABLE) == encode_table(ConsumerOffsetTableBody({"T@g": {0: 6}}))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_flipped_bit_is_taken_for_what_was_saved(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = saved(5, 6)
    whole = disk.read(f"/config/{name}") or b""
    for bit in range(8 * len(whole)):
        twin = disk.crashed()
        twin.open(f"/config/{name}").buffer[bit // 8] ^= 1 << bit % 8
        caplog.clear()
        assert loaded(twin) == (5 if name == NAMES[0] else 6)
        if name == NAMES[0]:
            lines = logged(caplog, "store.machine.table_file", logging.ERROR)
            assert (TABLE, f"{TABLE}.bak") in [(line[0], line[-1]) for line in lines]
        assert loaded(twin.crashed()) == (5 if name == NAMES[0] else 6)


def test_a_table_without_a_sound_version_is_refused() -> None:
    disk = saved(5, 6)
    disk.open(TABLE).buffer[20] ^= 1
    disk.open(f"{TABLE}.bak").buffer[20] ^= 1
    with pytest.raises(TableFileError) as caught:
        loaded(disk)
    assert caught.value.path == TABLE


def test_what_somebody_has_written_is_taken_with_a_line_and_then_watched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = saved(5, 6)
    disk.replace(TABLE, b'{"offsetTable":{"T@g":{0:3}}}')
    assert loaded(disk) == 3
    assert logged(caplog, "store.machine.table_file") == [(TABLE,)]
    caplog.clear()
    assert loaded(disk) == 3
    assert not caplog.text
    disk.open(TABLE).buffer[25] ^= 1
    assert loaded(disk) == 5


def test_a_table_of_another_file_is_not_an_empty_one() -> None:
    disk = SimulatedDisk()
    disk.replace(TABLE, (CONFIG / "consumerOffset.json").read_bytes())
    with pytest.raises(TableFileError) as caught:
        TableFile(disk, TABLE).load(TopicConfigSerializeWrapper)
    assert caught.value.path == TABLE


def test_what_has_changed_on_the_disk_does_not_become_the_backup() -> None:
    disk = SimulatedDisk(now_ms=count().__next__)
    path = "/store/config/t.json"
    table = TableFile(disk, path)
    table.save({"offsetTable": {"T@g": {0: 5}}})
    whole = disk.read(path)
    disk.open(path).buffer[5] ^= 1
    table.save({"offsetTable": {"T@g": {0: 6}}})
    assert disk.read(f"{path}.bak") == whole
    # What somebody has written does.
    disk._files[path] = disk._file(path, b"{}")
    table.save({"offsetTable": {"T@g": {0: 7}}})
    assert disk.read(f"{path}.bak") == b"{}"


def test_a_table_that_is_only_a_copy_is_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    disk.replace(TABLE, b"{")
    file = TableFile(disk, TABLE, is_needed=False)
    assert file.load(ConsumerOffsetTableBody) is None
    assert logged(caplog, "store.machine.table_file", logging.ERROR)[0][0] == TABLE
    file.save(ConsumerOffsetTableBody({"T@g": {0: 4}}))
    assert loaded(disk) == 4
    assert not disk.exists(f"{TABLE}.bak")


def test_a_full_disk_does_not_keep_a_table_from_being_read() -> None:
    disk = SimulatedDisk()
    disk.replace(TABLE, b'{"offsetTable":{"T@g":{0:3}}}')
    disk.capacity_bytes = disk.used_bytes
    assert loaded(disk) == 3


def test_a_version_counts_its_changes() -> None:
    assert next_version(DataVersion(3, 10, 7), 11) == DataVersion(3, 11, 8)


@pytest.mark.parametrize("count", [1, 128, 129, 400])
def test_what_is_written_again_is_what_a_whole_table_would_be(count: int) -> None:
    disk = SimulatedDisk()
    file = TableFile(disk, TABLE)
    topics = dict(many_topics(count)["topicConfigTable"])  # type: ignore[call-overload]
    names = list(topics)

    def is_written() -> bool:
        table = {"topicConfigTable": dict(topics)}
        file.save(table)
        return disk.read(TABLE) == encode_table(table)

    for changed in ({}, {names[-1]: 9}, {names[0]: 7, names[-1]: 9}, {"new": 3}):
        for name, queues in changed.items():
            topics[name] = TopicConfig(topic_name=name, read_queue_nums=queues)
        assert is_written()
    for gone in (names[0], "new"):
        topics.pop(gone)
        assert is_written()


def test_an_entry_that_is_null_is_written_down() -> None:
    assert encode_table({"a": {"x": None}}) == b'{\n\t"a":{\n\t\t"x":null\n\t}\n}'


def test_only_texts_that_can_be_used_again_are_kept() -> None:
    disk = SimulatedDisk()
    file = TableFile(disk, "t.json")
    table = {"a": {"x": {"y": 1}}}
    file.save(table)
    assert not file._texts
    table["a"]["x"]["y"] = 2
    file.save(table)
    assert b'"y":2' in (disk.read("t.json") or b"")
