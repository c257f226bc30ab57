from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from node.errors import RequestError
from node.tables.journal.group_journal import (
    SAVE_SECONDS,
    SNAPSHOT_SECONDS,
    GroupJournal,
    JournalFile,
)
from node.tables.journal.journal_records import (
    ConsumerOffsets,
    DelayProgress,
    GroupTables,
    JournalFormatError,
    OffsetsCommitted,
    SnapshotPart,
    TopicsChanged,
    decode_journal_record,
)
from store import MessageStore, PutMessage, StoreConfig
from tandem.wire.message import decode_messages
from tandem.wire.request_headers import TopicConfig
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.doubles import BROKER, NOW_MS
from tests.support.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from trio.testing import MockClock

FOREVER = float("inf")


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


class Node:
    """One node's store and journal; `confirm` is what its replication would say."""

    def __init__(self, disk: SimulatedDisk | None = None, *, log_file_bytes: int = 1 << 20) -> None:
        self.disk = disk or SimulatedDisk()
        config = StoreConfig(
            "s",
            mapped_file_size_commit_log_bytes=log_file_bytes,
            mapped_file_size_consume_queue_bytes=6000,
            max_message_size_bytes=10_000,
            max_hash_slot_num=100,
            max_index_num=1000,
        )
        self.store = MessageStore.open(
            config,
            disk=self.disk,
            wall_clock_ms=lambda: NOW_MS,
            store_host=BROKER,
            is_slave=True,
            confirm_bounds_reads=True,
        )
        file = JournalFile(self.disk, "s")
        state = file.load()
        tables, position = GroupTables(), 0
        if state is not None:
            topics = {each.topic_name: each for each in state.topics}
            tables, position = GroupTables(topics, state.offsets, state.delay), state.position
        self.journal = GroupJournal(
            self.store,
            file,
            tables,
            position,
            listener=self,
            born_host=BROKER.packed,
            wall_clock_ms=lambda: NOW_MS,
        )
        self.store.on_arrival = self._arrived
        self.shown: list[tuple[str, object]] = []
        self.answers: list[str] = []
        self.progress: dict[int, int] = {}

    def show_topics(self, topics: list[TopicConfig] | None) -> None:
        self.shown.append(("topics", topics))

    def show_offsets(self, offsets: ConsumerOffsets | None) -> None:
        self.shown.append(("offsets", offsets))

    def take_up_delay(self) -> None:
        self.progress.update(self.journal.tables.delay)

    def delay_progress(self) -> dict[int, int]:
        return self.progress

    def _arrived(self, topic: str, _queue_id: int, _max_offset: int, _code: int | None) -> None:
        if topic == JOURNAL_TOPIC:
            self.journal.arrived()

    def open_as_master(self, *topics: TopicConfig) -> None:
        self.store.become_master()
        self.store.confirm(self.store.max_physical_offset)
        self.journal.open(list(topics))
        self.confirm()

    def confirm(self) -> None:
        """Everything in the log is on all replicas."""
        self.store.announce()
        self.store.confirm(self.store.max_physical_offset)
        self.journal.catch_up()

    def ask(self) -> None:
        self.journal.when_confirmed(FOREVER, self.answers.append)
        self.journal.end_round()

    def records(self) -> list[object]:
        """Every record that is confirmed and in the log."""
        start = self.store.min_offset_in_queue(JOURNAL_TOPIC, 0)
        result = self.store.get_message(JOURNAL_TOPIC, 0, start, 100)
        messages = decode_messages(b"".join(result.body))
        return [decode_journal_record(message.body) for message in messages]

    def copy_to(self, other: Node) -> None:
        """Replicate the log and what is confirmed of it."""
        at = other.store.max_physical_offset
        while data := bytes(self.store.read_log(at, 1 << 20)):
            other.store.append_data(at, data)
            at += len(data)
        while other.store.reput_service.is_behind:
            other.store.reput_service.dispatch_some()
        other.store.confirm(self.store.confirm_offset)
        other.journal.catch_up()


async def test_an_offset_is_answered_and_shown_when_it_is_confirmed() -> None:
    node = Node()
    node.open_as_master()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == []
    assert node.journal.tables.offsets == {}
    node.confirm()
    assert node.answers == [""]
    assert node.journal.tables.offsets == {"T@g": {0: 7}}
    assert ("offsets", {"T@g": {0: 7}}) in node.shown


async def test_what_is_confirmed_already_is_answered_at_once() -> None:
    node = Node()
    node.open_as_master()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == ["", ""]


async def test_the_same_offset_again_waits_for_the_record_that_is_under_way() -> None:
    node = Node()
    node.open_as_master()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == []
    node.confirm()
    assert node.answers == ["", ""]


async def test_commits_of_one_round_are_one_record() -> None:
    node = Node()
    node.open_as_master()
    for queue_id in range(3):
        node.journal.commit("T@g", queue_id, queue_id + 1)
        node.journal.when_confirmed(FOREVER, node.answers.append)
    node.journal.end_round()
    node.confirm()
    assert node.answers == ["", "", ""]
    assert node.records()[-1] == OffsetsCommitted({"T@g": {0: 1, 1: 2, 2: 3}})


async def test_a_negative_offset_says_nothing() -> None:
    node = Node()
    node.open_as_master()
    node.journal.commit("T@g", 0, -1)
    node.ask()
    assert node.answers == [""]


async def test_commits_nobody_waits_for_are_written_soon(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.testing.wait_all_tasks_blocked()
        node.journal.commit("T@g", 0, 1)
        node.journal.commit("T@g", 0, 2)
        await trio.sleep(0.11)
        node.confirm()
        assert node.records()[-1] == OffsetsCommitted({"T@g": {0: 2}})
        nursery.cancel_scope.cancel()


async def test_another_node_applies_what_is_confirmed_and_nothing_else() -> None:
    master, slave = Node(), Node()
    master.open_as_master(topic("T"))
    master.journal.commit("T@g", 0, 7)
    master.ask()
    master.confirm()
    master.journal.commit("T@g", 0, 8)
    master.ask()
    master.store.announce()
    master.copy_to(slave)
    assert slave.journal.tables.offsets == {"T@g": {0: 7}}
    assert slave.journal.tables.topics == {"T": topic("T")}
    master.confirm()
    master.copy_to(slave)
    assert slave.journal.tables.offsets == {"T@g": {0: 8}}


async def test_a_topics_record_lies_before_its_first_message() -> None:
    node = Node()
    node.open_as_master()
    node.journal.change_topics([topic("New")])
    result = node.store.put_message(PutMessage("New", 0, b"x", b"", NOW_MS, BROKER.packed))
    node.confirm()
    start = node.store.min_offset_in_queue(JOURNAL_TOPIC, 0)
    body = b"".join(node.store.get_message(JOURNAL_TOPIC, 0, start, 100).body)
    record = decode_messages(body)[-1]
    assert decode_journal_record(record.body) == TopicsChanged([topic("New")])
    assert record.physical_offset < result.wrote_offset


async def test_the_master_does_not_show_its_own_topics_a_second_time() -> None:
    node = Node()
    node.open_as_master()
    node.shown.clear()
    node.journal.change_topics([topic("New")])
    node.confirm()
    assert node.shown == []
    assert "New" in node.journal.tables.topics


async def test_only_the_master_writes() -> None:
    node = Node()
    with pytest.raises(RequestError, match="only the group's master"):
        node.journal.change_topics([topic("New")])


async def test_a_new_master_takes_over_where_the_old_one_was_confirmed() -> None:
    master, slave = Node(), Node()
    master.open_as_master(topic("T"))
    master.journal.commit("T@g", 0, 7)
    master.journal.write(DelayProgress({1: 3}))
    master.ask()
    master.confirm()
    master.copy_to(slave)
    slave.open_as_master(topic("T"))
    assert slave.journal.tables.offsets == {"T@g": {0: 7}}
    assert slave.journal.tables.delay == {1: 3}
    assert slave.records()[-1] == SnapshotPart(0, 1, [topic("T")], {"T@g": {0: 7}}, {1: 3})


async def test_a_snapshot_knows_what_is_written_and_not_confirmed() -> None:
    node = Node()
    node.open_as_master()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    node.journal.write_snapshot()
    node.confirm()
    assert node.journal.tables.offsets == {"T@g": {0: 7}}


async def test_a_log_that_lost_its_beginning_still_tells_everything() -> None:
    master = Node(log_file_bytes=16_384)
    master.open_as_master(topic("T"))
    master.journal.commit("T@g", 0, 7)
    master.ask()
    while master.store.max_physical_offset < 3 * 16_384:
        master.store.put_message(PutMessage("T", 0, b"x" * 3_000, b"", NOW_MS, BROKER.packed))
    master.confirm()
    master.journal.write_snapshot()
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
    assert slave.journal.tables.offsets == {"T@g": {0: 7}}
    assert slave.journal.tables.topics == {"T": topic("T")}


async def test_a_master_repeats_everything_now_and_then(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.sleep(SNAPSHOT_SECONDS + 1)
        node.confirm()
        nursery.cancel_scope.cancel()
    assert sum(isinstance(record, SnapshotPart) for record in node.records()) == 2


async def test_the_masters_delivery_is_told_within_a_second(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master()
    node.progress[2] = 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.sleep(1)
        node.confirm()
        node.progress[2] = 6
        await trio.sleep(3)
        node.confirm()
        nursery.cancel_scope.cancel()
    assert node.records()[-2:] == [DelayProgress({2: 5}), DelayProgress({2: 6})]


async def test_tables_and_position_survive_a_restart() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.journal.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    node.journal.save()
    node.store.close()
    again = Node(node.disk)
    assert again.journal.position == node.journal.position
    assert again.journal.tables.offsets == {"T@g": {0: 7}}


async def test_what_was_not_saved_is_read_from_the_log_again() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.journal.save()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    node.store.close()
    again = Node(node.disk)
    again.journal.catch_up()
    assert again.journal.tables.offsets == {"T@g": {0: 7}}


async def test_a_position_behind_the_logs_end_goes_back_to_it() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.journal.save()
    node.store.close()
    disk = SimulatedDisk()
    saved = node.disk.read("s/config/groupJournal.json")
    assert saved is not None
    disk.replace("s/config/groupJournal.json", saved)
    assert Node(disk).journal.position == 0


async def test_the_state_is_saved_every_few_seconds(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master(topic("T"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.sleep(SAVE_SECONDS + 1)
        nursery.cancel_scope.cancel()
    assert JournalFile(node.disk, "s").load() is not None


async def test_who_waits_too_long_is_told_that_nothing_is_known(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        node.journal.commit("T@g", 0, 7)
        node.journal.when_confirmed(trio.current_time() + 3, node.answers.append)
        node.journal.end_round()
        await trio.sleep(2.9)
        assert node.answers == []
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()
    assert len(node.answers) == 1
    assert "may or may not stand" in node.answers[0]


async def test_whoever_waits_is_answered_when_the_master_is_none_any_more() -> None:
    node = Node()
    node.open_as_master()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    node.journal.when_confirmed(FOREVER, node.answers.append)
    node.journal.close("a0 is no longer master")
    assert node.answers == ["a0 is no longer master; the change may or may not stand"] * 2


async def test_a_commit_the_store_refuses_is_refused_and_forgotten() -> None:
    node = Node()
    node.open_as_master()
    node.store.fence("the lease is over")
    node.journal.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == ["the change was not stored: the lease is over"]
    node.store.unfence()
    node.journal.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    assert node.journal.tables.offsets == {"T@g": {0: 7}}


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_record_that_has_rotted_holds_up_nobody(*, is_own: bool) -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.journal.commit("T@g", 0, 7)
    node.ask()
    queue = node.store.queues.find(JOURNAL_TOPIC, 0)
    assert queue is not None
    last = node.store.commit_log.last_record_offset
    file = node.store.commit_log.files.find_by_offset(last)
    assert file is not None
    file.buffer[last + 100] ^= 1
    queue.confirmed_from = queue.next_offset  # as in files that the last recovery passed by
    if not is_own:
        node.journal._pending.clear()
    node.confirm()
    assert node.journal.position == queue.next_offset
    assert node.journal.tables.offsets == ({"T@g": {0: 7}} if is_own else {})
    assert node.answers == [""]


async def test_a_damaged_state_file_is_told() -> None:
    disk = SimulatedDisk()
    disk.replace("s/config/groupJournal.json", b"{")
    with pytest.raises(JournalFormatError, match="remove it"):
        JournalFile(disk, "s").load()


async def test_a_master_leaves_its_own_topics_as_an_operator_made_them() -> None:
    node = Node()
    node.open_as_master(topic("TBW102", 8))
    node.journal.change_topics([topic("TBW102", 2)])
    node.journal.write_snapshot()
    node.confirm()
    assert node.journal.tables.topics["TBW102"] == topic("TBW102", 2)


async def test_a_master_that_cannot_write_at_first_tells_everything_later(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    node.store.become_master()
    node.store.fence("the disk is full")
    node.journal.open([topic("TBW102")])
    assert node.shown == [("topics", [topic("TBW102")])]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.sleep(2)
        node.store.unfence()
        await trio.sleep(2)
        node.confirm()
        nursery.cancel_scope.cancel()
    assert node.records() == [
        TopicsChanged([topic("TBW102")]),
        SnapshotPart(0, 1, [topic("TBW102")], {}, {}),
    ]


async def test_more_commits_than_a_message_holds_become_several() -> None:
    node = Node()
    node.open_as_master()
    for number in range(1000):
        node.journal.commit(f"Topic{number}@g", 0, number)
    node.ask()
    node.confirm()
    assert node.answers == [""]
    assert len(node.journal.tables.offsets) == 1000
    assert sum(isinstance(record, OffsetsCommitted) for record in node.records()) > 3
