from typing import cast

import pytest
import trio

from node.errors import RequestError
from node.simulated.disk import SimulatedDisk
from node.tables import topic_config_table
from node.tables.plain_tables import FLUSH_CONSUMER_OFFSET_SECONDS, PlainFiles, PlainTables
from node.tables.slave_synchronize import SlaveSynchronize
from store.machine.errors import TableFileError
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import NOW_MS
from tests.support.logged import logged


class FakeSynchronize:
    def __init__(self) -> None:
        self.hurries = 0

    def hurry(self) -> None:
        self.hurries += 1

    async def run(self) -> None:
        await trio.sleep_forever()


def open_tables(disk: SimulatedDisk | None = None) -> PlainTables:
    files = PlainFiles(disk or SimulatedDisk(), "s", lambda: NOW_MS)
    return PlainTables(files, hide=lambda _: 700)


def slave() -> tuple[PlainTables, FakeSynchronize]:
    synchronize = FakeSynchronize()
    files = PlainFiles(SimulatedDisk(), "s", lambda: NOW_MS)
    return PlainTables(files, synchronize=cast("SlaveSynchronize", synchronize)), synchronize


def test_a_change_of_topics_is_on_disk_before_it_shows() -> None:
    disk = SimulatedDisk()
    open_tables(disk).change_topics(TopicConfig(topic_name="T"))
    assert open_tables(disk).topics.get("T") is not None


def test_a_master_takes_and_tells_everything() -> None:
    tables = open_tables()
    tables.check_change()
    tables.check_commit()
    tables.check_query()
    tables.commit("g", "T", 0, 5)
    assert tables.offsets.query("g", "T", 0) == 5


def test_a_change_is_settled_at_once() -> None:
    settled: list[str | None] = []
    open_tables().when_settled(0.0, settled.append)
    assert settled == [None]


def test_a_slave_takes_offsets_and_no_topics() -> None:
    tables, _ = slave()
    tables.check_commit()
    with pytest.raises(RequestError, match="from master broker"):
        tables.check_change()


def test_a_message_of_an_unknown_topic_makes_a_slave_copy_the_tables() -> None:
    tables, synchronize = slave()
    tables.topics.update(TopicConfig(topic_name="T"))
    tables.arrived([(0, "T", 0, 1, None)])
    assert synchronize.hurries == 0
    tables.arrived([(0, "T", 0, 2, None), (0, "Fresh", 0, 1, None)])
    assert synchronize.hurries == 1


def test_a_master_that_cannot_write_its_topics_does_not_begin() -> None:
    disk = SimulatedDisk()
    tables = open_tables(disk)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(TableFileError):
        tables.open([TopicConfig(topic_name="T")])


async def test_offsets_are_saved_every_few_seconds(autojump_clock: trio.testing.MockClock) -> None:
    disk = SimulatedDisk()
    tables = open_tables(disk)
    tables.commit("g", "T", 0, 5)
    with trio.move_on_after(FLUSH_CONSUMER_OFFSET_SECONDS + 0.1):
        await tables.run(lambda: None)
    assert open_tables(disk).offsets.query("g", "T", 0) == 5


def test_a_full_disk_costs_repeated_messages_and_not_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    tables = open_tables(disk)
    tables.commit("g", "T", 0, 5)
    disk.capacity_bytes = disk.used_bytes
    tables.save()
    assert len(logged(caplog, "node.tables.saving")) == 1


def hidden(tables: PlainTables) -> str:
    """What is hidden of `T` when a heartbeat sets it up, while its queues have messages."""
    tables.change_topics_soon(TopicConfig(topic_name="T"))
    config = tables.topics.get("T")
    assert config is not None
    return config.attributes.get("hidden.before", "")


def test_what_a_crash_took_of_the_table_hides_no_messages() -> None:
    disk = SimulatedDisk()
    open_tables(disk).change_topics_soon(TopicConfig(topic_name="T"))
    again = open_tables(disk.crashed())
    assert again.topics.get("T") is None, "it was not saved yet"
    assert hidden(again) == ""


def test_what_was_deleted_is_hidden_when_a_heartbeat_sets_it_up_again() -> None:
    tables = open_tables()
    tables.change_topics(TopicConfig(topic_name="T"))
    tables.delete_topic("T")
    assert hidden(tables) == "700"
    tables.change_topics_soon(TopicConfig(topic_name="T", perm=4))
    config = tables.topics.get("T")
    assert config is not None
    assert config.attributes["hidden.before"] == "700", "as long as it is there"


def test_what_a_lost_file_took_hides_no_messages_from_whoever_creates_it() -> None:
    tables = open_tables()
    tables.change_topics(TopicConfig(topic_name="T"))
    config = tables.topics.get("T")
    assert config is not None
    assert config.attributes == {}
    tables.delete_topic("T")
    tables.delete_topic("never there")
    tables.change_topics(TopicConfig(topic_name="T"), TopicConfig(topic_name="never there"))
    found = tables.topics.configs.topic_config_table
    assert [found[name].attributes for name in ("T", "never there")] == [
        {"hidden.before": "700"},
        {},
    ]


def test_a_topic_that_is_deleted_takes_its_offsets_along() -> None:
    tables = open_tables()
    tables.change_topics(TopicConfig(topic_name="T"))
    tables.commit("g", "T", 0, 7)
    tables.commit("g", "U", 0, 7)
    tables.delete_topic("T")
    assert tables.offsets.offsets() == {"U@g": {0: 7}}


def test_there_is_a_bound_to_topics_and_groups_however_soon_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_config_table, "TOPICS_MAX", 1)
    tables = open_tables()
    tables.change_topics(TopicConfig(topic_name="T"))
    for change in (tables.change_topics, tables.change_topics_soon):
        with pytest.raises(RequestError) as caught:
            change(TopicConfig(topic_name="U"))
        assert caught.value.code == ResponseCode.SYSTEM_ERROR
    for change_group in (tables.change_groups, tables.change_groups_soon):
        with pytest.raises(RequestError) as caught:
            change_group(SubscriptionGroupConfig("a b"))
        assert caught.value.code == ResponseCode.INVALID_PARAMETER
