from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from node.errors import RequestError
from node.tables.journal.journal_records import (
    DelayProgress,
    OffsetsCommitted,
    SnapshotPart,
    TimerProgress,
    TopicsChanged,
    decode_journal_record,
)
from node.tables.journal.journal_writer import SNAPSHOT_SECONDS
from store import PutMessage
from store.delayed.timer_place import TimerPlace
from tandem.wire.message import decode_messages
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.doubles import BROKER, NOW_MS
from tests.node.tables.journal.journal_world import FOREVER, Node, topic

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_the_same_offset_again_waits_for_the_record_that_is_under_way() -> None:
    node = Node()
    node.open_as_master()
    node.writer.commit("T@g", 0, 7)
    node.ask()
    node.writer.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == []
    node.confirm()
    assert node.answers == ["", ""]


async def test_commits_of_one_round_are_one_record() -> None:
    node = Node()
    node.open_as_master()
    for queue_id in range(3):
        node.writer.commit("T@g", queue_id, queue_id + 1)
        node.journal.when_confirmed(FOREVER, node.answers.append)
    node.journal.end_round()
    node.confirm()
    assert node.answers == ["", "", ""]
    assert node.records()[-1] == OffsetsCommitted({"T@g": {0: 1, 1: 2, 2: 3}})


async def test_a_negative_offset_says_nothing() -> None:
    node = Node()
    node.open_as_master()
    node.writer.commit("T@g", 0, -1)
    node.ask()
    assert node.answers == [""]


async def test_commits_nobody_waits_for_are_written_soon(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.testing.wait_all_tasks_blocked()
        node.writer.commit("T@g", 0, 1)
        node.writer.commit("T@g", 0, 2)
        await trio.sleep(0.11)
        node.confirm()
        assert node.records()[-1] == OffsetsCommitted({"T@g": {0: 2}})
        nursery.cancel_scope.cancel()


async def test_a_topics_record_lies_before_its_first_message() -> None:
    node = Node()
    node.open_as_master()
    node.journal.write(TopicsChanged([topic("New")]))
    result = node.store.put_message(PutMessage("New", 0, b"x", b"", NOW_MS, BROKER.packed))
    node.confirm()
    start = node.store.min_offset_in_queue(JOURNAL_TOPIC, 0)
    body = b"".join(node.store.get_message(JOURNAL_TOPIC, 0, start, 100).body)
    record = decode_messages(body)[-1]
    assert decode_journal_record(record.body) == TopicsChanged([topic("New")])
    assert record.physical_offset < result.wrote_offset


async def test_only_the_master_writes() -> None:
    node = Node()
    with pytest.raises(RequestError, match="only the group's master"):
        node.journal.write(TopicsChanged([topic("New")]))


async def test_a_snapshot_knows_what_is_written_and_not_confirmed() -> None:
    node = Node()
    node.open_as_master()
    node.writer.commit("T@g", 0, 7)
    node.ask()
    node.writer.write_snapshot()
    node.confirm()
    assert node.journal.applier.tables.offsets == {"T@g": {0: 7}}


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
    told = [record for record in node.records() if isinstance(record, DelayProgress)]
    assert [record.offsets for record in told] == [{2: 5}, {2: 6}]
    assert 0 < told[0].at < told[1].at < node.store.max_physical_offset


async def test_the_place_of_the_timers_is_told_when_it_has_changed(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        for place in (TimerPlace(), TimerPlace(0, 1, 0, 0), TimerPlace(0, 1, 0, 0)):
            node.timers = place
            await trio.sleep(1)
            node.confirm()
        nursery.cancel_scope.cancel()
    told = [record for record in node.records() if isinstance(record, TimerProgress)]
    assert [record.place for record in told] == [TimerPlace(0, 1, 0, 0)]
    assert 0 < told[0].at < node.store.max_physical_offset


async def test_a_snapshot_says_of_deliveries_no_more_than_their_last_progress_does() -> None:
    """What was delivered after it, the one that writes the snapshot may not know yet."""
    node = Node()
    node.open_as_master()
    node.progress, node.timers = {1: 4}, TimerPlace(0, 1, 0, 0)
    node.writer.write_regularly(trio.current_time())
    for _ in range(2):
        node.confirm()
        tables = node.journal.applier.tables
        marks = tables.delay_at, tables.timers_at
        assert 0 < tables.delay_at < tables.timers_at < node.store.max_physical_offset
        node.store.put_message(PutMessage("T", 0, b"delivered", b"", NOW_MS, BROKER.packed))
        node.writer.write_snapshot()
        node.confirm()
        tables = node.journal.applier.tables
        assert (tables.delay_at, tables.timers_at) == marks
        node.journal.close("another is master")
        node.open_as_master()


async def test_a_commit_the_store_refuses_is_refused_and_forgotten() -> None:
    node = Node()
    node.open_as_master()
    node.store.fence("the lease is over")
    node.writer.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == ["the change was not stored: the lease is over"]
    node.store.unfence()
    node.writer.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    assert node.journal.applier.tables.offsets == {"T@g": {0: 7}}


async def test_a_master_leaves_its_own_topics_as_an_operator_made_them() -> None:
    node = Node()
    node.open_as_master(topic("TBW102", 8))
    node.journal.write(TopicsChanged([topic("TBW102", 2)]))
    node.writer.write_snapshot()
    node.confirm()
    assert node.journal.applier.tables.topics["TBW102"] == topic("TBW102", 2)


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
        node.writer.commit(f"Topic{number}@g", 0, number)
    node.ask()
    node.confirm()
    assert node.answers == [""]
    assert len(node.journal.applier.tables.offsets) == 1000
    assert sum(isinstance(record, OffsetsCommitted) for record in node.records()) > 3
