from itertools import pairwise

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from node.errors import RequestError
from node.tables.journal.group_journal import SAVE_SECONDS
from node.tables.journal.journal_applier import BYTES_PER_PIECE
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import SnapshotPart, encode_journal_record
from node.tables.replicated_deliveries import DelayProgress
from node.tables.replicated_topics import TopicsChanged
from store import StoreError
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.tables.journal.journal_world import (
    FOREVER,
    Node,
    delay_of,
    offsets_of,
    snapshot_part,
    topic,
    topics_of,
)
from tests.support.reasons import words


async def test_an_offset_is_answered_and_shown_when_it_is_confirmed() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == []
    assert offsets_of(node.journal.applier.tables) == {}
    node.confirm()
    assert node.answers == [None]
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7}}
    assert ("offsets", {"T@g": {0: 7}}) in node.shown


async def test_an_offset_is_not_shown_before_it_is_confirmed_by_a_master_that_just_opened() -> None:
    node = Node()
    node.store.become_master()
    node.open_journal()
    node.commit("T@g", 0, 7)
    assert offsets_of(node.journal.applier.tables) == {}


async def test_what_is_confirmed_already_is_answered_at_once() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    node.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == [None, None]


async def test_a_new_master_takes_over_where_the_old_one_was_confirmed() -> None:
    master, slave = Node(), Node()
    master.open_as_master(topic("T"))
    master.commit("T@g", 0, 7)
    master.journal.write(DelayProgress({1: 3}))
    master.ask()
    master.confirm()
    master.copy_to(slave)
    slave.open_as_master(topic("T"))
    assert offsets_of(slave.journal.applier.tables) == {"T@g": {0: 7}}
    assert delay_of(slave.journal.applier.tables) == {1: 3}
    last = slave.records()[-1]
    assert last == snapshot_part(0, 1, [topic("T")], {"T@g": {0: 7}}, {1: 3})


async def test_tables_and_position_survive_a_restart() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    node.journal.save()
    node.store.close()
    again = Node(node.disk)
    assert again.journal.applier.position == node.journal.applier.position
    assert offsets_of(again.journal.applier.tables) == {"T@g": {0: 7}}


async def test_what_is_saved_inside_a_snapshot_is_from_before_it() -> None:
    """A node that starts with half of a snapshot in its file would never have the other half."""
    master, slave = Node(), Node()
    master.open_as_master(*(topic(f"T{number}") for number in range(50)))
    master.writer.record_bytes_max = 1000
    master.writer.write_snapshot()
    master.store.announce()
    records = master.journal.applier.written
    first = next(at for at, each in records if isinstance(each, SnapshotPart) and each.part == 0)
    queue = master.store.queues.find(JOURNAL_TOPIC, 0)
    assert queue is not None
    master.store.confirm(queue.unit(first + 1)[0])
    master.copy_to(slave)
    assert slave.journal.applier.tables.is_inside_snapshot
    slave.journal.save()
    state = JournalFile(slave.disk, "s").load()
    assert state is not None
    assert state.position == first
    slave.store.close()
    again = Node(slave.disk)
    master.confirm()
    master.copy_to(again)
    assert topics_of(again.journal.applier.tables) == topics_of(master.journal.applier.tables)


async def test_the_state_is_saved_every_few_seconds(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master(topic("T"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.sleep(SAVE_SECONDS + 1)
        nursery.cancel_scope.cancel()
    assert JournalFile(node.disk, "s").load() is not None


async def test_the_state_is_not_saved_again_while_it_is_the_same() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.journal.save()
    events: list[str] = []
    node.disk.on_event = events.append
    node.journal.save()
    assert events == []


async def test_a_state_that_could_not_be_saved_is_saved_the_next_time() -> None:
    node = Node()
    node.open_as_master(topic("T"))
    node.disk.writes_fail = True
    with pytest.raises(StoreError):
        node.journal.save()
    node.disk.writes_fail = False
    node.journal.save()
    assert JournalFile(node.disk, "s").load() is not None


async def test_who_waits_behind_a_commit_that_was_refused_is_told_so_and_no_earlier_one() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    node.store.fence("the lease is over")
    node.commit("T@g", 0, 8)
    node.ask()
    assert node.answers == ["the change was not stored: the lease is over"]
    node.store.unfence()
    node.confirm()
    assert node.answers == ["the change was not stored: the lease is over", None]


async def test_a_node_that_was_closed_writes_no_more_and_answers_nobody_twice() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    node.journal.when_confirmed(FOREVER, node.answers.append)
    node.journal.close("another is master")
    node.journal.end_round()
    node.confirm()
    assert len(node.answers) == 2
    with pytest.raises(RequestError) as caught:
        node.journal.write(TopicsChanged([topic("T")]))
    assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_who_waits_too_long_is_told_that_nothing_is_known(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        node.commit("T@g", 0, 7)
        node.journal.when_confirmed(trio.current_time() + 3, node.answers.append)
        node.journal.end_round()
        await trio.sleep(2.9)
        assert node.answers == []
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()
    assert len(node.answers) == 1
    assert "may or may not stand" in words(node.answers[0])


async def test_who_asks_while_all_is_quiet_is_answered_in_time(autojump_clock: MockClock) -> None:
    """The next look is when the first of those who wait has to be answered."""
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        node.commit("T@g", 0, 7)
        await trio.sleep(0.11)
        assert node.journal.applier.queue_end == 2
        node.journal.when_confirmed(trio.current_time() + 0.1, node.answers.append)
        node.journal.end_round()
        await trio.sleep(0.12)
        assert len(node.answers) == 1
        nursery.cancel_scope.cancel()


async def test_whoever_waits_is_answered_when_the_master_is_none_any_more() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    node.journal.when_confirmed(FOREVER, node.answers.append)
    node.journal.close("a0 is no longer master")
    assert node.answers == ["a0 is no longer master; the change may or may not stand"] * 2


async def test_a_node_that_has_much_to_take_in_lets_others_have_their_turn(
    autojump_clock: MockClock,
) -> None:
    """1,000 new topics and their settings, or a snapshot, took 75 ms in one go."""
    master, slave = Node(), Node()
    master.open_as_master()
    for number in range(200):
        master.journal.write(TopicsChanged([topic(f"{'T' * 100}{number}-{n}") for n in range(10)]))
    master.confirm()
    master.copy_to(slave, catches_up=False)
    applied = [0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slave.journal.run, lambda: None)
        for _ in range(200):
            await trio.lowlevel.checkpoint()
            applied.append(len(topics_of(slave.journal.applier.tables)))
        nursery.cancel_scope.cancel()
    assert applied[-1] == 2000
    bytes_of_one = len(encode_journal_record(TopicsChanged([topic("T" * 103)] * 10))) / 10
    at_once = max(after - before for before, after in pairwise(applied))
    # trio runs ready tasks in any order: ours once between two of its pieces, on average.
    assert at_once <= 2 * (BYTES_PER_PIECE / bytes_of_one + 10)
    assert len([kind for kind, _ in slave.shown if kind == "topics"]) >= 3


async def test_a_state_that_changes_while_it_is_saved_is_saved_as_it_was(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Position and tables belong together: offsets from after it may be past the end of the log."""
    monkeypatch.setattr("node.tables.journal.journal_file.ENTRIES_PER_STEP", 1)
    node = Node()
    node.open_as_master(*(topic(f"T{number}") for number in range(20)))
    node.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    position = node.journal.applier.position
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, lambda: None)
        await trio.sleep(SAVE_SECONDS)
        for _ in range(10):
            if node.journal._saving is None:
                await trio.lowlevel.checkpoint()
        node.commit("T@g", 0, 8)
        node.journal.write(TopicsChanged([topic("Late")]))
        node.ask()
        node.confirm()
        assert node.journal._saving is not None, "it is not through yet"
        await trio.sleep(0.1)
        state = JournalFile(node.disk, "s").load()
        assert state is not None
        assert (state.position, offsets_of(state.tables)) == (position, {"T@g": {0: 7}})
        assert "Late" not in topics_of(state.tables)
        await trio.sleep(SAVE_SECONDS)
        state = JournalFile(node.disk, "s").load()
        assert state is not None
        assert offsets_of(state.tables) == {"T@g": {0: 8}}
        nursery.cancel_scope.cancel()


async def test_a_node_that_ends_in_the_middle_of_a_save_saves_what_is_newer(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    node.open_as_master(topic("T"))
    saving = node.journal._save_in_steps()
    next(saving)
    node.journal._saving = saving
    node.commit("T@g", 0, 8)
    node.ask()
    node.confirm()
    node.journal.save()
    assert node.journal._go_on_saving() is False
    state = JournalFile(node.disk, "s").load()
    assert state is not None
    assert (state.position, offsets_of(state.tables)) == (
        node.journal.applier.position,
        {"T@g": {0: 8}},
    )
