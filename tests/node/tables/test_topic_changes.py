"""What a new topic writes in a large table, and what a start makes of it."""

from __future__ import annotations

import logging

import msgspec
import pytest

from node.errors import RequestError
from node.simulated.disk import SimulatedDisk
from node.tables import topic_changes
from node.tables.topic_config_table import WRITTEN_WHOLE_MAX, TopicConfigTable
from store.machine.errors import StoreFullError
from store.machine.table_file import TableFile
from tandem.wire.request_headers import TopicConfig
from tests.support.logged import logged

TABLE = "s/config/topics.json"
NEW = f"{TABLE}.new"


class CountingDisk(SimulatedDisk):
    """How many bytes were written, by file."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, int] = {}
        self.is_full = False

    def replace(self, path: str, data: bytes) -> None:
        if self.is_full:
            raise StoreFullError("no room", path=path)
        self.written[path] = self.written.get(path, 0) + len(data)
        super().replace(path, data)


def opened(disk: SimulatedDisk) -> TopicConfigTable:
    return TopicConfigTable(TableFile(disk, TABLE), lambda: 1000)


def topic(number: int, queues: int = 8) -> TopicConfig:
    return TopicConfig(topic_name=f"T{number:05}", read_queue_nums=queues)


def filled(disk: SimulatedDisk, count: int) -> TopicConfigTable:
    table = opened(disk)
    table.update(*map(topic, range(count)))
    return table


def bytes_of_new_topics(topics: int, new: int) -> int:
    disk = CountingDisk()
    table = filled(disk, topics)
    disk.written.clear()
    for number in range(topics, topics + new):
        table.update(topic(number))
    assert opened(disk).configs == table.configs
    return sum(disk.written.values())


def test_a_new_topic_writes_as_much_with_many_topics_as_with_few() -> None:
    few, many = (bytes_of_new_topics(topics, 20) for topics in (200, 6_400))
    assert many < 1.1 * few


def test_new_topics_write_the_whole_table_once_in_many() -> None:
    disk = CountingDisk()
    table = filled(disk, 1_000)
    disk.written.clear()
    for number in range(1_000, 1_000 + 2 * topic_changes.CHANGES_MAX):
        table.update(topic(number))
    assert disk.written[TABLE] < 3 * len(disk.read(TABLE) or b"")
    assert opened(disk).configs == table.configs


def test_a_small_table_is_in_its_file_at_once() -> None:
    disk = CountingDisk()
    table = filled(disk, WRITTEN_WHOLE_MAX - 1)
    table.update(topic(1_000))
    assert NEW not in disk.written
    assert b"T01000" in (disk.read(TABLE) or b"")


def test_what_a_kill_leaves_is_the_table_with_its_version_and_its_order() -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    for number in range(500, 510):
        table.update(topic(number))
    table.update(topic(3, 16), topic(505, 4))
    assert b"T00509" not in (disk.read(TABLE) or b"")
    again = opened(disk.crashed())
    assert again.configs == table.configs
    assert list(again.configs.topic_config_table) == list(table.configs.topic_config_table)


def test_the_next_save_after_a_kill_brings_all_into_the_table() -> None:
    disk = SimulatedDisk()
    filled(disk, 500).update(topic(500))
    disk = disk.crashed()
    again = opened(disk)
    again.save()
    disk.remove(NEW)
    assert opened(disk).configs == again.configs


def test_a_fenced_node_begins_with_what_a_kill_of_a_classic_one_has_left() -> None:
    """To it a topic that is not in the table was deleted, and its messages are hidden."""
    disk = SimulatedDisk()
    table = filled(disk, 500)
    table.update(topic(500))
    disk = disk.crashed()
    copy = TopicConfigTable(TableFile(disk, TABLE), lambda: 1000, is_copy=True)
    assert copy.configs == table.configs
    copy.save()
    disk.remove(NEW)
    again = TopicConfigTable(TableFile(disk, TABLE), lambda: 1000, is_copy=True)
    assert again.configs == table.configs


def test_changes_that_a_save_met_on_its_way_are_not_lost() -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    table.update(topic(500))
    steps = table.save_in_steps()
    next(steps)
    table.update_soon(topic(501))
    table.update(topic(502))
    for _ in steps:
        assert opened(disk.crashed()).configs == table.configs
    assert opened(disk.crashed()).configs == table.configs
    table.update(topic(503))
    assert opened(disk.crashed()).configs == table.configs


def test_what_was_put_off_is_there_with_the_next_change() -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    table.update_soon(topic(500))
    assert opened(disk.crashed()).get("T00500") is None
    table.update(topic(501))
    assert opened(disk.crashed()).configs == table.configs


def test_a_topic_that_was_deleted_does_not_come_back() -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    table.update(topic(500))
    table.delete("T00500")
    assert opened(disk.crashed()).get("T00500") is None


@pytest.mark.parametrize("counter", [3, 300])
def test_a_table_that_another_program_has_written_is_taken_as_it_is(
    caplog: pytest.LogCaptureFixture, counter: int
) -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    for number in range(500, 510):
        table.update(topic(number))
    theirs = msgspec.json.decode(disk.read(TABLE) or b"")
    theirs["dataVersion"] |= {"counter": counter, "timestamp": 7}
    disk.replace(TABLE, msgspec.json.encode(theirs))
    disk.remove(f"{TABLE}.crc")
    with caplog.at_level(logging.WARNING):
        again = opened(disk)
    assert again.get("T00509") is None
    assert again.configs.data_version.counter == counter
    lines = logged(caplog, "node.tables.topic_changes")
    assert lines == ([(NEW,)] if counter == 3 else [])


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"since":1}\n', b"\xff"])
def test_a_damaged_file_costs_its_changes_and_no_start(
    caplog: pytest.LogCaptureFixture, damaged: bytes
) -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    whole = table.configs
    table.update(topic(500))
    disk.replace(NEW, damaged)
    again = opened(disk)
    assert again.configs == whole
    assert logged(caplog, "node.tables.topic_changes", logging.ERROR)
    again.update(topic(501))
    assert opened(disk).configs == again.configs


def test_a_full_disk_refuses_a_topic_and_changes_nothing() -> None:
    disk = CountingDisk()
    table = filled(disk, 500)
    before = table.configs
    disk.is_full = True
    with pytest.raises(RequestError):
        table.update(topic(500))
    assert table.configs == before
    disk.is_full = False
    table.update(topic(501))
    assert opened(disk).configs == table.configs
    assert table.get("T00500") is None


def test_topics_that_a_table_of_another_node_has_not_do_not_come_back() -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    before = table.configs
    table.update(topic(500))
    table.update(topic(501))
    table = opened(disk)  # it was killed, and its slave is master now
    table.replace_all(before)
    assert opened(disk).configs == before
    table.update(topic(900))
    assert opened(disk).configs == table.configs
    assert table.get("T00501") is None


def test_a_table_in_the_version_of_a_change_takes_the_later_ones_back() -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    table.update(topic(500))
    before = table.configs
    table.update(topic(501))
    table.replace_all(before)
    table.update(topic(900))
    assert opened(disk).configs == table.configs
    assert table.get("T00501") is None


@pytest.mark.parametrize("saves", [1, 2])
def test_what_a_rotten_table_had_is_in_the_file_beside_it(saves: int) -> None:
    disk = SimulatedDisk()
    table = filled(disk, 500)
    for number in range(500, 500 + saves):
        table.update(topic(number))
        table.save()
    table.update(topic(600))
    disk.replace(TABLE, b"rotten{")
    assert opened(disk).configs == table.configs


def test_many_topics_of_one_change_are_in_the_table_soon() -> None:
    disk = CountingDisk()
    table = filled(disk, 500)
    table.update(*map(topic, range(1_000, 9_000)))
    disk.written.clear()
    for number in range(20):
        table.update(topic(20_000 + number))
    assert disk.written.get(NEW, 0) < 100_000


def test_a_start_without_a_change_writes_nothing() -> None:
    disk = CountingDisk()
    table = filled(disk, 500)
    table.update(topic(500))
    table.save()
    disk.written.clear()
    opened(disk).save()
    assert not disk.written


def test_a_full_disk_that_keeps_a_table_from_another_nodes_takes_no_topic_away() -> None:
    disk = CountingDisk()
    table = filled(disk, 500)
    before = table.configs
    table.update(topic(500))
    disk.is_full = True
    with pytest.raises(RequestError):
        table.replace_all(before)
    disk.is_full = False
    table.update(topic(501))
    assert opened(disk.crashed()).configs == table.configs
    assert table.get("T00500") is not None


def test_changes_to_an_earlier_table_are_not_made_to_one_of_another_node() -> None:
    """It has the version that they begin with, and they were passed over before."""
    disk = SimulatedDisk()
    table = filled(disk, 500)
    before = table.configs
    table.update(topic(500))
    changes = disk.read(NEW) or b""
    table.delete("T00500")
    disk.replace(NEW, changes)
    table = opened(disk)
    table.replace_all(before)
    assert opened(disk).configs == before
