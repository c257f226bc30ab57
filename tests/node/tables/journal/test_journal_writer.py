import pytest
import trio
import trio.testing
from trio.testing import MockClock

from node.errors import RequestError
from node.simulated.disk import SimulatedDisk
from node.tables import offset_room
from node.tables.deleted import Deleted
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import JOURNAL_FORMAT, SnapshotPart
from node.tables.journal.journal_writer import SNAPSHOT_SECONDS
from node.tables.replicated_deliveries import DelayPart, DelayProgress, TimerProgress, TimersPart
from node.tables.replicated_offsets import OffsetsCommitted
from node.tables.replicated_topics import TopicsChanged, TopicsPart
from store import PutMessage
from store.delayed.timer_place import TimerPlace
from tandem.wire.message import decode_messages
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.doubles import BROKER, NOW_MS
from tests.node.tables.journal.journal_world import (
    FOREVER,
    Node,
    offsets_of,
    snapshot_part,
    tables_of,
    topic,
    topics_of,
)


async def test_the_same_offset_again_waits_for_the_record_that_is_under_way() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    node.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == []
    node.confirm()
    assert node.answers == [None, None]


async def test_commits_of_one_round_are_one_record() -> None:
    node = Node()
    node.open_as_master()
    for queue_id in range(3):
        node.commit("T@g", queue_id, queue_id + 1)
        node.journal.when_confirmed(FOREVER, node.answers.append)
    node.journal.end_round()
    node.confirm()
    assert node.answers == [None, None, None]
    assert node.records()[-1] == OffsetsCommitted({"T@g": {0: 1, 1: 2, 2: 3}})


async def test_a_negative_offset_says_nothing() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, -1)
    node.ask()
    assert node.answers == [None]


async def test_commits_nobody_waits_for_are_written_soon(autojump_clock: MockClock) -> None:
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.testing.wait_all_tasks_blocked()
        node.commit("T@g", 0, 1)
        node.commit("T@g", 0, 2)
        await trio.sleep(0.11)
        node.confirm()
        assert node.records()[-1] == OffsetsCommitted({"T@g": {0: 2}})
        nursery.cancel_scope.cancel()


async def test_commits_nobody_waits_for_are_gathered_for_a_moment_each_time(
    autojump_clock: MockClock,
) -> None:
    """However many rounds end meanwhile, for others write."""
    node = Node()
    node.open_as_master()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.testing.wait_all_tasks_blocked()
        for count in (1, 2):
            node.commit("T@g", 0, 2 * count)
            for _ in range(9):
                await trio.sleep(0.01)
                node.journal.end_round()
            node.commit("T@g", 0, 2 * count + 1)
            assert node.journal.applier.queue_end == count
            await trio.sleep(0.011)
            assert node.journal.applier.queue_end == count + 1
        node.confirm()
        nursery.cancel_scope.cancel()
    assert node.records()[1:] == [
        OffsetsCommitted({"T@g": {0: 3}}),
        OffsetsCommitted({"T@g": {0: 5}}),
    ]


async def test_a_topics_record_lies_before_its_first_message() -> None:
    node = Node()
    node.open_as_master()
    node.journal.write(TopicsChanged([topic("New")]))
    result = node.store.puts.put_message(PutMessage("New", 0, b"x", b"", NOW_MS, BROKER.packed))
    node.confirm()
    start = node.store.reads.min_offset_in_queue(JOURNAL_TOPIC, 0)
    body = b"".join(node.store.reads.get_message(JOURNAL_TOPIC, 0, start, 100).body)
    record = decode_messages(body)[-1]
    assert JOURNAL_FORMAT.decode_record(record.body) == TopicsChanged([topic("New")])
    assert record.physical_offset < result.wrote_offset


async def test_only_the_master_writes() -> None:
    node = Node()
    with pytest.raises(RequestError) as caught:
        node.journal.write(TopicsChanged([topic("New")]))
    assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_snapshot_knows_what_is_written_and_not_confirmed() -> None:
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    node.writer.write_snapshot()
    node.confirm()
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7}}


async def test_a_snapshot_knows_what_was_written_after_what_is_confirmed_by_now() -> None:
    node = Node()
    node.open_as_master()
    first = node.journal.applier.queue_end
    for queue_id in range(3):
        node.commit("T@g", queue_id, 7)
        node.ask()
    node.confirm_before(first + 1)
    node.writer.write_snapshot()
    node.confirm()
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7, 1: 7, 2: 7}}


async def test_a_new_master_knows_what_was_committed_before() -> None:
    """The same again is no record, and takes no room."""
    master, node = Node(), Node()
    master.open_as_master()
    master.commit("T@g", 0, 7)
    master.ask()
    master.confirm()
    master.copy_to(node)
    node.open_as_master()
    end = node.store.max_physical_offset
    node.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == [None]
    assert node.store.max_physical_offset == end


async def test_an_offset_goes_back_also_while_the_last_one_is_under_way() -> None:
    """And something else was refused meanwhile: what is known is what will be confirmed."""
    node = Node()
    node.open_as_master()
    node.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    node.commit("T@g", 0, 8)
    node.ask()
    node.store.fence("the disk is full")
    node.commit("T@g", 1, 1)
    node.ask()
    node.store.unfence()
    node.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7}}


@pytest.mark.parametrize("gone", ["deleted", "refused"])
async def test_offsets_that_are_gone_take_no_room(
    gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node()
    node.open_as_master()
    monkeypatch.setattr(offset_room, "OFFSET_BYTES_MAX", 60)
    if gone == "refused":
        node.store.fence("the disk is full")
    node.commit("T@g", 0, 7)
    with pytest.raises(RequestError) as caught:
        node.commit("U@g", 0, 7)
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    node.ask()
    if gone == "refused":
        node.store.unfence()
    else:
        node.journal.change(Deleted(topics=["T"]))
    node.commit("U@g", 0, 7)
    node.ask()
    node.confirm()
    assert offsets_of(node.journal.applier.tables) == {"U@g": {0: 7}}


SMALL_FILE_BYTES = 16_384


def fill(node: Node, file_count: int) -> None:
    """Put messages until the log has grown by this many files."""
    end = node.store.max_physical_offset + file_count * SMALL_FILE_BYTES
    while node.store.max_physical_offset < end:
        node.store.puts.put_message(PutMessage("T", 0, b"x" * 3_000, b"", NOW_MS, BROKER.packed))


def snapshots_of(node: Node) -> int:
    node.writer.write_regularly(trio.current_time())
    node.confirm()
    return sum(isinstance(each, SnapshotPart) and each.part == 0 for each in node.records())


async def test_a_snapshot_is_repeated_when_it_is_in_the_older_half_of_the_log() -> None:
    """Files of the log are deleted by age and by room; the last snapshot must not go with them."""
    node = Node(log_file_bytes=SMALL_FILE_BYTES)
    node.open_as_master(topic("T"))
    fill(node, 2)
    assert snapshots_of(node) == 2, "the first is at the log's beginning"
    fill(node, 1)
    assert snapshots_of(node) == 2, "two thirds of the log are before the second"
    fill(node, 2)
    assert snapshots_of(node) == 3
    assert snapshots_of(node) == 3


async def test_a_log_of_one_file_needs_no_second_snapshot() -> None:
    node = Node(log_file_bytes=1 << 20)
    node.open_as_master(topic("T"))
    fill(node, 2)
    assert snapshots_of(node) == 1


async def test_a_snapshot_of_many_parts_is_as_old_as_its_first_part() -> None:
    disk = SimulatedDisk()
    tables = tables_of(TopicsPart({f"T{number}": topic(f"T{number}") for number in range(400)}))
    JournalFile(disk, "s").save(0, tables)
    node = Node(disk, log_file_bytes=SMALL_FILE_BYTES)
    node.open_as_master()
    assert node.store.max_physical_offset > 2 * SMALL_FILE_BYTES
    assert snapshots_of(node) == 2, "the log has nothing else, and the first part is its beginning"


@pytest.mark.slow
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
    node.deliveries.delay.update(2, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run, node.journal.end_round)
        await trio.sleep(1)
        node.confirm()
        node.deliveries.delay.update(2, 6)
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
            node.deliveries.timers = place
            await trio.sleep(1)
            node.confirm()
        nursery.cancel_scope.cancel()
    told = [record for record in node.records() if isinstance(record, TimerProgress)]
    assert [record.place for record in told] == [TimerPlace(0, 1, 0, 0)]
    assert 0 < told[0].at < node.store.max_physical_offset


async def test_a_place_of_the_timers_that_is_under_way_is_not_told_again() -> None:
    node = Node()
    node.open_as_master()
    for place in (TimerPlace(0, 1, 0, 0), TimerPlace(0, 2, 0, 0), TimerPlace(0, 2, 0, 0)):
        node.deliveries.timers = place
        node.writer.write_regularly(trio.current_time())
    node.confirm()
    told = [record for record in node.records() if isinstance(record, TimerProgress)]
    assert [record.place.looked_at for record in told] == [1, 2]


def marks_of(node: Node) -> tuple[int, int]:
    tables = node.journal.applier.tables
    return tables.of(DelayPart).delay_at, tables.of(TimersPart).timers_at


async def test_a_snapshot_says_of_deliveries_no_more_than_their_last_progress_does() -> None:
    """What was delivered after it, the one that writes the snapshot may not know yet."""
    node = Node()
    node.open_as_master()
    node.deliveries.delay.update(1, 4)
    node.deliveries.timers = TimerPlace(0, 1, 0, 0)
    node.writer.write_regularly(trio.current_time())
    for _ in range(2):
        node.confirm()
        marks = marks_of(node)
        assert 0 < marks[0] < marks[1] < node.store.max_physical_offset
        node.store.puts.put_message(PutMessage("T", 0, b"delivered", b"", NOW_MS, BROKER.packed))
        node.writer.write_snapshot()
        node.confirm()
        assert marks_of(node) == marks
        node.journal.close("another is master")
        node.open_as_master()


async def test_a_commit_the_store_refuses_is_refused_and_forgotten() -> None:
    node = Node()
    node.open_as_master()
    node.store.fence("the lease is over")
    node.commit("T@g", 0, 7)
    node.ask()
    assert node.answers == ["the change was not stored: the lease is over"]
    node.store.unfence()
    node.commit("T@g", 0, 7)
    node.ask()
    node.confirm()
    assert offsets_of(node.journal.applier.tables) == {"T@g": {0: 7}}


async def test_a_master_leaves_its_own_topics_as_an_operator_made_them() -> None:
    node = Node()
    node.open_as_master(topic("TBW102", 8))
    node.journal.write(TopicsChanged([topic("TBW102", 2)]))
    node.writer.write_snapshot()
    node.confirm()
    assert topics_of(node.journal.applier.tables)["TBW102"] == topic("TBW102", 2)


async def test_a_master_that_cannot_write_at_first_tells_everything_later(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    node.store.become_master()
    node.store.fence("the disk is full")
    node.open_journal(topic("TBW102"))
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
        snapshot_part(0, 1, [topic("TBW102")]),
    ]


async def test_more_commits_than_a_message_holds_become_several() -> None:
    node = Node()
    node.open_as_master()
    for number in range(1000):
        node.commit(f"Topic{number}@g", 0, number)
    node.ask()
    node.confirm()
    assert node.answers == [None]
    assert len(offsets_of(node.journal.applier.tables)) == 1000
    assert sum(isinstance(record, OffsetsCommitted) for record in node.records()) > 3
