import logging
from typing import cast

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from node.tables.journal.journal_file import JournalFile
from node.tables.replicated_topics import TopicsChanged
from store import PutMessage
from store.machine.errors import RecordDamagedError
from tandem.wire.request_headers import TopicConfig
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.doubles import BROKER, NOW_MS
from tests.node.tables.journal.journal_world import (
    Node,
    offsets_of,
    snapshot_part,
    topic,
    topics_of,
)
from tests.support.logged import logged


async def test_another_node_applies_what_is_confirmed_and_nothing_else() -> None:
    master, slave = Node(), Node()
    master.open_as_master(topic("T"))
    master.commit("T@g", 0, 7)
    master.ask()
    master.confirm()
    master.commit("T@g", 0, 8)
    master.ask()
    master.store.announce()
    master.copy_to(slave)
    assert offsets_of(slave.journal.applier.tables) == {"T@g": {0: 7}}
    assert topics_of(slave.journal.applier.tables) == {"T": topic("T")}
    master.confirm()
    master.copy_to(slave)
    assert offsets_of(slave.journal.applier.tables) == {"T@g": {0: 8}}


async def test_the_master_does_not_show_its_own_topics_a_second_time() -> None:
    node = Node()
    node.open_as_master()
    node.shown.clear()
    node.journal.write(TopicsChanged([topic("New")]))
    node.confirm()
    assert node.shown == []
    assert "New" in topics_of(node.journal.applier.tables)


async def test_the_first_record_of_a_master_is_its_own_already() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    assert [shown for kind, shown in node.shown if kind == "topics"] == [[topic("T")]]


async def test_many_records_are_shown_once_and_the_last_of_a_topic_counts() -> None:
    """Each showing copies the table of topics and registers it."""
    master, slave = Node(), Node()
    master.open_as_master()
    master.confirm()
    master.copy_to(slave)
    slave.shown.clear()
    changed = msgspec.structs.replace(topic("T"), perm=2)
    for each in (topic("T"), *(topic(f"T{number}") for number in range(100)), changed):
        master.journal.write(TopicsChanged([each]))
    master.commit("T@g", 0, 7)
    master.ask()
    master.confirm()
    master.copy_to(slave)
    topics = [
        each
        for kind, shown in slave.shown
        if kind == "topics"
        for each in cast("list[TopicConfig]", shown)
    ]
    assert len(topics) == 101
    assert changed in topics
    assert [kind for kind, _ in slave.shown] == ["topics", "offsets"]
    assert dict(slave.shown)["offsets"] == {"T@g": {0: 7}}


async def test_a_log_that_lost_its_beginning_still_tells_everything() -> None:
    master = Node(log_file_bytes=16_384)
    master.open_as_master(topic("T"))
    master.commit("T@g", 0, 7)
    master.ask()
    while master.store.max_physical_offset < 3 * 16_384:
        master.store.puts.put_message(PutMessage("T", 0, b"x" * 3_000, b"", NOW_MS, BROKER.packed))
    master.confirm()
    master.writer.write_snapshot()
    master.confirm()
    slave = Node(log_file_bytes=16_384)
    at = 2 * 16_384
    while data := bytes(master.store.read_log(at, 1 << 20)):
        slave.store.append_data(at, data)
        at += len(data)
    while slave.store.reput_service.is_behind:
        slave.store.reput_service.dispatch_some()
    slave.store.confirm(at)
    slave.journal.catch_up()
    assert offsets_of(slave.journal.applier.tables) == {"T@g": {0: 7}}
    assert topics_of(slave.journal.applier.tables) == {"T": topic("T")}


async def test_what_was_not_saved_is_read_from_the_log_again() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.journal.save()
    node.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    node.store.close()
    again = Node(node.disk)
    again.journal.catch_up()
    assert offsets_of(again.journal.applier.tables) == {"T@g": {0: 7}}


async def test_a_node_that_was_away_for_a_whole_log_saves_where_it_goes_on() -> None:
    master = Node(log_file_bytes=16_384)
    master.open_as_master(topic("T"))
    while master.store.max_physical_offset < 3 * 16_384:
        master.store.puts.put_message(PutMessage("T", 0, b"x" * 3_000, b"", NOW_MS, BROKER.packed))
    master.writer.write_snapshot()
    master.confirm()
    slave = Node(log_file_bytes=16_384)
    at = 2 * 16_384
    while data := bytes(master.store.read_log(at, 1 << 20)):
        slave.store.append_data(at, data)
        at += len(data)
    while slave.store.reput_service.is_behind:
        slave.store.reput_service.dispatch_some()
    first = slave.store.reads.min_offset_in_queue(JOURNAL_TOPIC, 0)
    assert first > 0
    slave.confirm_before(first)
    slave.journal.save()
    state = JournalFile(slave.disk, "s").load()
    assert state is not None
    assert state.position == first


async def test_a_snapshot_that_the_log_has_lost_the_rest_of_is_not_ended_by_another_ones() -> None:
    master = Node(log_file_bytes=16_384)
    master.open_as_master(topic("T"))
    while master.store.max_physical_offset < 3 * 16_384:
        master.store.puts.put_message(PutMessage("T", 0, b"x" * 3_000, b"", NOW_MS, BROKER.packed))
    master.journal.write(snapshot_part(1, 2, [topic("B")]))
    master.confirm()
    slave = Node(log_file_bytes=16_384)
    slave.journal.applier._apply(0, snapshot_part(0, 2, [topic("A")]))
    at = 2 * 16_384
    while data := bytes(master.store.read_log(at, 1 << 20)):
        slave.store.append_data(at, data)
        at += len(data)
    while slave.store.reput_service.is_behind:
        slave.store.reput_service.dispatch_some()
    assert slave.store.reads.min_offset_in_queue(JOURNAL_TOPIC, 0) > 1
    slave.store.confirm(at)
    slave.journal.catch_up()
    assert topics_of(slave.journal.applier.tables) == {}


async def test_a_position_behind_the_logs_end_goes_back_to_it() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.journal.save()
    node.store.close()
    disk = SimulatedDisk()
    saved = node.disk.read("s/config/groupJournal.json")
    assert saved is not None
    disk.replace("s/config/groupJournal.json", saved)
    assert Node(disk).journal.applier.position == 0


def is_waiting(node: Node) -> bool:
    return node.journal.applier.damaged is not None


def rotted_record(node: Node) -> tuple[int, int]:
    """Change a byte of the last record, as in files that the last recovery passed by."""
    queue = node.store.queues.find(JOURNAL_TOPIC, 0)
    assert queue is not None
    last = node.store.commit_log.last_record_offset
    file = node.store.commit_log.files.find_by_offset(last)
    assert file is not None
    file.buffer[last + 100] ^= 1
    queue.confirmed_from = queue.next_offset
    return last, queue.next_offset


async def test_a_record_that_has_rotted_does_not_hold_up_the_node_that_wrote_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.commit("T@g", 0, 7)
    node.ask()
    _, end = rotted_record(node)
    node.confirm()
    assert node.journal.applier.position == end
    assert not is_waiting(node)
    assert not logged(caplog, "node.tables.journal.journal_applier", logging.ERROR)
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7}}
    assert node.answers == [None]


@pytest.mark.parametrize("was_written_by_this_process", [False, True])
async def test_a_record_of_another_that_has_rotted_is_waited_for(
    was_written_by_this_process: bool,  # noqa: FBT001
) -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.commit("T@g", 0, 7)
    node.ask()
    at, end = rotted_record(node)
    if was_written_by_this_process:
        queue = node.store.queues.find(JOURNAL_TOPIC, 0)
        assert queue is not None
        queue.confirmed_from = 0
    node.journal.applier.written.clear()
    node.confirm()
    assert node.journal.applier.position == end - 1
    assert is_waiting(node)
    assert node.answers == []
    with pytest.raises(RecordDamagedError):
        node.open_journal()
    file = node.store.commit_log.files.find_by_offset(at)
    assert file is not None
    file.buffer[at + 100] ^= 1
    node.store.commit_log.damage.healed(at, at + 1000)
    node.journal.catch_up()
    assert not is_waiting(node)
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7}}
    assert node.answers == [None]


async def test_what_is_no_record_any_more_in_memory_is_damage_and_ends_no_node() -> None:
    """Nobody has noted it yet, and what this process has written is not looked at by reads."""
    node = Node()
    node.open_as_master(topic("T"))
    node.commit("T@g", 0, 7)
    node.ask()
    queue = node.store.queues.find(JOURNAL_TOPIC, 0)
    assert queue is not None
    at, size, _ = queue.unit(queue.next_offset - 1)
    file = node.store.commit_log.files.find_by_offset(at)
    assert file is not None
    before = bytes(file.buffer[at : at + size])
    file.buffer[at : at + size] = bytes(size)
    queue.confirmed_from = 0
    node.journal.applier.written.clear()
    node.confirm()
    assert is_waiting(node)
    assert node.store.commit_log.damage.within(at, at + size) is not None
    file.buffer[at : at + size] = before
    node.store.commit_log.damage.healed(at, at + size)
    node.journal.catch_up()
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7}}


async def put_and_damage(node: Node, *, damaged: int) -> int:
    """Put the offsets 7, 8 and 9 as a record each; return the first one's queue offset."""
    node.open_as_master()
    first = node.journal.applier.queue_end
    for queue_id in range(3):
        node.commit("T@g", queue_id, 7 + queue_id)
        node.ask()
    node.damage(first + damaged)
    return first


@pytest.mark.parametrize("damaged", [0, 1, 2])
async def test_a_record_of_its_own_that_is_passed_over_is_known_all_the_same(damaged: int) -> None:
    node = Node(skips_damaged=True)
    first = await put_and_damage(node, damaged=damaged)
    node.confirm()
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7, 1: 8, 2: 9}}
    assert node.answers == [None, None, None]
    assert node.journal.applier.position == first + 3


@pytest.mark.parametrize("damaged", [0, 1])
async def test_passing_over_a_record_of_its_own_confirms_none_after_it(damaged: int) -> None:
    node = Node(skips_damaged=True)
    first = await put_and_damage(node, damaged=damaged)
    node.confirm_before(first + damaged + 1)
    expected = {queue_id: 7 + queue_id for queue_id in range(damaged + 1)}
    assert offsets_of(node.journal.applier.tables) == {"T@g": expected}
    assert node.answers == [None] * (damaged + 1)


@pytest.mark.parametrize("damaged", [0, 1, 2])
async def test_a_start_goes_on_right_after_what_was_passed_over(damaged: int) -> None:
    node = Node(skips_damaged=True)
    first = await put_and_damage(node, damaged=damaged)
    node.journal.applier.written.clear()
    node.confirm_before(first + damaged)
    node.journal.save()
    node.confirm()
    node.journal.save()
    state = JournalFile(node.disk, "s").load()
    assert state is not None
    assert state.position == first + 3
    assert offsets_of(state.tables)["T@g"] == {
        each: 7 + each for each in range(3) if each != damaged
    }


async def test_a_snapshot_with_a_part_that_is_passed_over_means_nothing() -> None:
    """Nor are parts of two snapshots taken for one, though what is read of them fits."""
    node = Node(skips_damaged=True)
    node.open_as_master(topic("T"))
    applier = node.journal.applier
    first = applier.queue_end
    records = [
        snapshot_part(0, 2, [topic("A")]),
        snapshot_part(1, 2, [topic("A2")]),
        snapshot_part(0, 2, [topic("B")]),
        snapshot_part(1, 2, [topic("B2")]),
    ]
    for record in records:
        node.journal.write(record)
    applier.written.clear()
    node.damage(first + 1)
    node.damage(first + 2)
    node.confirm()
    assert set(topics_of(applier.tables)) == {"T"}
    assert applier.position == applier.safe_position == first + 4


async def test_what_is_saved_inside_a_snapshot_after_passing_over_is_from_before_it() -> None:
    node = Node(skips_damaged=True)
    node.open_as_master(topic("T"))
    first = node.journal.applier.queue_end
    node.journal.write(TopicsChanged([topic("U")]))
    for part in range(3):
        node.journal.write(snapshot_part(part, 3, [topic(f"A{part}")]))
    node.damage(first)
    node.confirm_before(first + 3)
    node.journal.save()
    state = JournalFile(node.disk, "s").load()
    assert state is not None
    assert state.position == first + 1
    node.store.close()
    again = Node(node.disk, skips_damaged=True)
    again.store.confirm(again.store.max_physical_offset)
    again.journal.catch_up()
    assert set(topics_of(again.journal.applier.tables)) == {"A0", "A1", "A2"}


async def test_what_is_saved_after_a_first_part_was_passed_over_is_from_before_it() -> None:
    node = Node(skips_damaged=True)
    node.open_as_master(topic("T"))
    first = node.journal.applier.queue_end
    for part in range(2):
        node.journal.write(snapshot_part(part, 2, [topic("A")]))
    node.damage(first)
    node.confirm_before(first + 1)
    node.journal.save()
    state = JournalFile(node.disk, "s").load()
    assert state is not None
    assert state.position == first


async def test_parts_of_two_snapshots_are_never_taken_for_one() -> None:
    node = Node()
    applier = node.journal.applier
    applier._apply(0, TopicsChanged([topic("T")]))
    applier._apply(1, snapshot_part(0, 2, [topic("A")]))
    applier._pass_over(4)  # the other part of this one, and the first of the next
    applier._apply(4, snapshot_part(1, 2, [topic("B")]))
    assert set(topics_of(applier.tables)) == {"T"}
    assert applier.safe_position == 5
