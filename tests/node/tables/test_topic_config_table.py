import shutil
from pathlib import Path

import msgspec
import pytest

import node.tables.topic_config_table
from node.errors import RequestError
from node.tables.topic_config_table import (
    TopicConfigTable,
    system_topics,
    topic_complaint,
)
from store.machine.errors import StoreFullError, TableFileError
from store.machine.real_disk import RealDisk
from store.machine.table_file import TableFile
from tandem.wire.request_headers import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from tandem.wire.response_code import ResponseCode
from tests.support.listening import hear
from tests.support.paths import GOLDEN

TABLE = GOLDEN / "config-json/config/topics.json"


class FullDisk(RealDisk):
    def replace(self, path: str, data: bytes) -> None:
        raise StoreFullError(f"{path}: no room for {len(data)} bytes", path=path)


class Changes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def table(
    directory: Path, disk: RealDisk | None = None, changes: Changes | None = None
) -> TopicConfigTable:
    file = TableFile(disk or RealDisk(), str(directory / "topics.json"))
    topics = TopicConfigTable(file, lambda: 1000)
    if changes is not None:
        hear(topics.changes, changes)
    return topics


def master(directory: Path, changes: Changes | None = None) -> TopicConfigTable:
    topics = table(directory, changes=changes)
    topics.update(*system_topics("C", "broker-a", auto_create_queue_nums=8))
    return topics


def test_a_new_topic_survives_a_restart_and_is_announced(tmp_path: Path) -> None:
    changes = Changes()
    topics = table(tmp_path, changes=changes)
    config = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    topics.update(config)
    topics.update(config)
    assert changes.count == 1
    assert table(tmp_path).get("T") == config
    assert topics.configs.data_version == DataVersion(0, 1000, 1)


def test_a_send_creates_a_topic_from_the_default_one(tmp_path: Path) -> None:
    """TopicConfigManager.createTopicInSendMessageMethod."""
    config = master(tmp_path).config_for_send("T", "TBW102", 4)
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 6)


def test_a_send_gets_no_more_queues_than_the_default_topic_has(tmp_path: Path) -> None:
    assert master(tmp_path).config_for_send("T", "TBW102", 100).write_queue_nums == 8


def test_the_cluster_topic_inherits_too(tmp_path: Path) -> None:
    assert master(tmp_path).config_for_send("T", "C", 100).write_queue_nums == 16


@pytest.mark.parametrize("default", ["NOSUCH", "SELF_TEST_TOPIC"])
def test_without_an_inheritable_default_topic_there_is_none(tmp_path: Path, default: str) -> None:
    with pytest.raises(RequestError) as caught:
        master(tmp_path).config_for_send("T", default, 4)
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_retry_topic_has_one_queue(tmp_path: Path) -> None:
    config = table(tmp_path).config_for_send("%RETRY%g", "TBW102", 4)
    assert (config.read_queue_nums, config.write_queue_nums) == (1, 1)


def test_auto_creation_can_be_left_out() -> None:
    names = [config.topic_name for config in system_topics("C", "b", auto_create_queue_nums=None)]
    assert "TBW102" not in names


def test_a_full_disk_refuses_the_topic_and_changes_nothing(tmp_path: Path) -> None:
    topics = table(tmp_path, FullDisk())
    with pytest.raises(RequestError) as caught:
        topics.update(TopicConfig(topic_name="T"))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert topics.get("T") is None


def test_a_slave_copies_the_table_with_its_version(tmp_path: Path) -> None:
    changes = Changes()
    topics = table(tmp_path, changes=changes)
    theirs = TopicConfigSerializeWrapper({"T": TopicConfig(topic_name="T")}, DataVersion(0, 5, 6))
    topics.update(TopicConfig(topic_name="Old"))
    topics.replace_all(theirs)
    topics.replace_all(theirs)
    assert changes.count == 2
    assert table(tmp_path).configs == theirs


def test_the_topics_of_rocketmq_say_which_of_them_have_batch_queues(tmp_path: Path) -> None:
    shutil.copy(TABLE, tmp_path)
    topics = table(tmp_path)
    assert topics.is_batch("TopicA")
    assert not topics.is_batch("SCHEDULE_TOPIC_XXXX")
    assert not topics.is_batch("NOSUCH")


def test_topics_of_rocketmq_4_are_read(tmp_path: Path) -> None:
    text = '{ "topicConfigTable" : {"T":{"topicName":"T","perm":6,"someday":{1:2}} } , "x":null }'
    (tmp_path / "topics.json").write_text(text)
    assert table(tmp_path).get("T") == TopicConfig(topic_name="T")
    assert not table(tmp_path).is_batch("T")


@pytest.mark.parametrize("text", ["[]", '{"topicConfigTable":{"T":{"perm":6}}}', '{"a":'])
def test_a_file_that_is_no_table_is_an_error_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "topics.json").write_text(text)
    with pytest.raises(TableFileError) as caught:
        table(tmp_path)
    assert caught.value.path == str(tmp_path / "topics.json")


def test_attributes_survive_a_change_of_another_topic(tmp_path: Path) -> None:
    shutil.copy(TABLE, tmp_path)
    table(tmp_path).update(TopicConfig(topic_name="Other"))
    saved = msgspec.json.decode((tmp_path / "topics.json").read_bytes())
    golden = msgspec.json.decode(TABLE.read_bytes())["topicConfigTable"]
    assert {name: saved["topicConfigTable"][name] for name in golden} == golden
    assert table(tmp_path).is_batch("TopicA")


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b_c-9", "x" * 127])
def test_a_good_name_has_no_complaint(topic: str) -> None:
    assert topic_complaint(topic) is None


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        ("", "is blank"),
        ("x" * 128, "longer than topic max length 127"),
        ("a b", "illegal characters"),
        ("a/b", "illegal characters"),
        ("T\n", "illegal characters"),
        ("Tag\u4e2d", "illegal characters"),
    ],
)
def test_a_bad_name_is_complained_about(topic: str, complaint: str) -> None:
    """TopicValidator.validateTopic."""
    assert complaint in str(topic_complaint(topic))


def test_only_what_is_not_there_yet_is_a_change(tmp_path: Path) -> None:
    topics, changes = master(tmp_path), Changes()
    hear(topics.changes, changes)
    known, new = topics.get("SELF_TEST_TOPIC"), TopicConfig(topic_name="New")
    assert known is not None
    assert topics.changed(known, new) == [new]
    topics.update(known)
    assert changes.count == 0


def test_all_topics_can_be_replaced(tmp_path: Path) -> None:
    topics, changes = table(tmp_path), Changes()
    hear(topics.changes, changes)
    topics.update(TopicConfig(topic_name="T"))
    topics.replace_topics({"U": TopicConfig(topic_name="U")})
    topics.replace_topics({"U": TopicConfig(topic_name="U")})
    assert changes.count == 2
    assert list(table(tmp_path).configs.topic_config_table) == ["U"]


def test_a_copy_for_other_programs_shows_what_cannot_be_saved(tmp_path: Path) -> None:
    file = TableFile(FullDisk(), str(tmp_path / "topics.json"))
    topics = TopicConfigTable(file, lambda: 1000, is_copy=True)
    topics.update(TopicConfig(topic_name="T"))
    assert topics.get("T") is not None
    with pytest.raises(StoreFullError):
        topics.save()


class CountingDisk(RealDisk):
    def __init__(self) -> None:
        super().__init__()
        self.replaced = 0

    def replace(self, path: str, data: bytes) -> None:
        self.replaced += not path.endswith(".crc")
        super().replace(path, data)


def test_a_copy_for_other_programs_is_written_once_for_many_changes(tmp_path: Path) -> None:
    disk = CountingDisk()
    topics = TopicConfigTable(
        TableFile(disk, str(tmp_path / "topics.json")), lambda: 1000, is_copy=True
    )
    for number in range(100):
        topics.update(TopicConfig(topic_name=f"T{number}"))
    assert disk.replaced == 0
    topics.save()
    topics.save()
    assert disk.replaced == 1
    assert table(tmp_path).get("T99") is not None


def test_what_may_be_written_late_shows_at_once_and_is_there_after_the_next_save(
    tmp_path: Path,
) -> None:
    disk = CountingDisk()
    topics = table(tmp_path, disk)
    for number in range(100):
        topics.update_soon(TopicConfig(topic_name=f"%RETRY%{number}"))
    assert topics.get("%RETRY%99") is not None
    assert disk.replaced == 0
    topics.save()
    assert disk.replaced == 1
    assert table(tmp_path).get("%RETRY%99") is not None


def test_a_full_table_takes_changes_and_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig(topic_name="A"), TopicConfig(topic_name="B"))
    monkeypatch.setattr(node.tables.topic_config_table, "TOPICS_MAX", 3)
    topics.check_room(TopicConfig(topic_name="A", perm=4), TopicConfig(topic_name="C"))
    with pytest.raises(RequestError) as caught:
        topics.check_room(TopicConfig(topic_name="C"), TopicConfig(topic_name="D"))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_what_changes_while_the_table_is_saved_is_in_the_next_file(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update_soon(TopicConfig(topic_name="T"))
    for step, _ in enumerate(topics.save_in_steps()):
        topics.update_soon(TopicConfig(topic_name=f"U{step}"))
    topics.save()
    assert table(tmp_path).configs == topics.configs
    assert topics.get("U0") is not None


def test_a_topic_that_was_changed_at_once_is_not_written_again_by_a_save(tmp_path: Path) -> None:
    disk = CountingDisk()
    topics = table(tmp_path, disk)
    topics.update_soon(TopicConfig(topic_name="T"))
    topics.update(TopicConfig(topic_name="U"))
    before = disk.replaced
    topics.save()
    assert disk.replaced == before
    assert table(tmp_path).get("T") is not None


@pytest.mark.parametrize("other", ["version", "topics"])
def test_a_slave_copies_a_table_of_which_either_differs(tmp_path: Path, other: str) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig(topic_name="T"))
    ours = topics.configs
    theirs = TopicConfigSerializeWrapper(
        ours.topic_config_table if other == "version" else {},
        DataVersion(0, 5, 6) if other == "version" else ours.data_version,
    )
    topics.replace_all(theirs)
    assert topics.configs == theirs == table(tmp_path).configs


def test_more_topics_than_there_is_room_for_can_still_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a master that had more room."""
    topics = table(tmp_path)
    topics.update(TopicConfig(topic_name="A"), TopicConfig(topic_name="B"))
    monkeypatch.setattr(node.tables.topic_config_table, "TOPICS_MAX", 1)
    topics.check_room(TopicConfig(topic_name="A", perm=4))


def test_what_is_left_of_a_topic_is_hidden_once_it_was_deleted_and_until_it_is_there_again(
    tmp_path: Path,
) -> None:
    topics = table(tmp_path)
    config = TopicConfig(topic_name="T")
    assert topics.as_created(config, hide=lambda _: 700) == [config], "it is owed to consumers"
    topics.update(config)
    topics.delete("T")
    (created,) = topics.as_created(config, hide=lambda _: 700)
    topics.update(created)
    assert topics.hidden_before("T") == 700
    (changed,) = topics.as_created(TopicConfig(topic_name="T", perm=4), hide=lambda _: 900)
    topics.update(changed)
    assert topics.hidden_before("T") == 700, "what came since is its own"
    topics.replace_topics({})
    again = topics.as_created(config, hide=lambda _: 700)
    assert again == [config], "it was not deleted since it was there again"


def test_which_topics_have_changed_is_known_without_a_look_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.tables.topic_config_table, "REMEMBERED_MAX", 3)
    topics = table(tmp_path)
    versions = []
    for name in "TUVW":
        versions.append(topics.configs.data_version)
        topics.update(TopicConfig(topic_name=name))
    topics.update_soon(TopicConfig(topic_name="V", perm=4))
    assert topics.changed_since(topics.configs.data_version) == set()
    assert topics.changed_since(versions[2]) == {"V", "W"}
    assert topics.changed_since(versions[1]) is None
    assert topics.changed_since(DataVersion(0, 5, 6)) is None
    topics.delete("T")
    assert topics.changed_since(versions[3]) is None
