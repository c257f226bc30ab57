"""The state of POP as a table: what is written when, what a failed write leaves, what files say."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.errors import RequestError
from node.pop.changes import Acked, Moved, QueueKey, Revived
from node.simulated.disk import SimulatedDisk
from node.tables.deleted import Deleted
from node.tables.node_table import TableFiles
from node.tables.plain_tables import PlainFiles, PlainTables
from node.tables.replicated_pop import (
    ACK_DELAY_SECONDS,
    RETRY_SECONDS,
    DeliveriesChanged,
    DeliveriesPart,
    DeliveriesTable,
)
from node.tables.table_part import P
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS
from tests.node.pop.handed_out import KEY, acked, popped


class Writer:
    """Takes records, or refuses them."""

    record_bytes_max = 100_000

    def __init__(self) -> None:
        self.records: list[DeliveriesChanged] = []
        self.takes = True
        self.woken = 0

    def write(self, record: msgspec.Struct) -> None:
        if not self.takes:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no")
        assert isinstance(record, DeliveriesChanged)
        self.records.append(record)

    def written(self, kind: type[P]) -> P:
        part = kind()
        for record in self.records:
            part.apply(record)
        return part

    def wake(self) -> None:
        self.woken += 1


class Master:
    """The table of a master."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.table = DeliveriesTable(files(is_copy=True))
        self.gathered = self.table.gather(self.writer)


def files(disk: SimulatedDisk | None = None, *, is_copy: bool = False) -> TableFiles:
    return TableFiles(disk or SimulatedDisk(), "s", lambda: 0, is_copy=is_copy)


async def test_changes_show_at_once_and_are_written_together_in_their_order(
    autojump_clock: MockClock,
) -> None:
    master = Master()
    master.table.change(popped(range(4)))
    master.table.ack(KEY, 1000, 2)
    master.table.ack(KEY, 1000, 0)
    master.table.change(Moved(*KEY, 1, 1000, 1001, 5000))
    master.table.ack(KEY, 1001, 1)
    assert list(master.table.live.queues[KEY].invisible) == [3]
    assert master.gathered.deadline == trio.current_time() + ACK_DELAY_SECONDS
    assert master.writer.woken == 1
    master.gathered.write()
    (record,) = master.writer.records
    assert record.changes == [
        popped(range(4)),
        Acked(*KEY, [(1000, [0, 1, 1, 1])]),
        Moved(*KEY, 1, 1000, 1001, 5000),
        Acked(*KEY, [(1001, [1, 1])]),
    ]
    part = master.writer.written(DeliveriesPart)
    assert part.deliveries.rows() == master.table.live.rows()
    master.gathered.write()
    assert len(master.writer.records) == 1


async def test_a_failed_write_leaves_the_state_that_is_written(autojump_clock: MockClock) -> None:
    master = Master()
    master.table.change(popped(range(2)))
    master.gathered.write()
    called: list[str] = []
    master.table.ack(KEY, 1000, 0)
    master.table.change(popped([2], 2000))
    master.gathered.when_written(lambda trouble: called.append("then"))
    master.writer.takes = False
    with pytest.raises(RequestError):
        master.gathered.write()
    assert called == ["then"]
    assert list(master.table.live.queues[KEY].invisible) == [0, 1]
    assert master.table.live.queues[KEY].next_offset == 2
    over = master.table.due_times.take_over(trio.current_time() + 10, master.table.live, 10)
    assert [each.offsets for each in over] == [[0, 1]]


async def test_a_failed_write_keeps_what_was_put_again_for_the_next_one(
    autojump_clock: MockClock,
) -> None:
    """The messages are in the log: a state without it would put them once more."""
    master = Master()
    master.table.change(popped(range(3)))
    master.table.change(popped([3], 2000))
    master.gathered.write()
    put_again = Revived(*KEY, [(1000, [0, 2]), (2000, [3, 1])])
    master.table.change(put_again)
    master.table.ack(KEY, 1000, 2)
    master.writer.takes = False
    for _ in range(2):
        with pytest.raises(RequestError):
            master.gathered.write()
        assert list(master.table.live.queues[KEY].invisible) == [2]
        assert master.table.due_times.kept_count == 1
        assert master.gathered.deadline == trio.current_time() + RETRY_SECONDS
    master.table.ack(KEY, 1000, 2)
    assert master.gathered.deadline == trio.current_time() + ACK_DELAY_SECONDS
    master.writer.takes = True
    master.gathered.write()
    assert master.writer.records[1].changes == [put_again, Acked(*KEY, [(1000, [2, 1])])]
    master.gathered.write()
    assert len(master.writer.records) == 2


async def test_what_was_moved_and_put_again_stays_done_though_neither_could_be_written(
    autojump_clock: MockClock,
) -> None:
    """A consumer has given it back: the log knows it by the handle that it had before."""
    master = Master()
    master.table.change(popped(range(3)))
    master.gathered.write()
    master.table.change(Moved(*KEY, 1, 1000, 1001, 0))
    master.table.change(Revived(*KEY, [(1001, [1, 1])]))
    master.writer.takes = False
    for _ in range(2):
        with pytest.raises(RequestError):
            master.gathered.write()
        assert list(master.table.live.queues[KEY].invisible) == [0, 2]
    master.writer.takes = True
    master.gathered.write()
    assert master.writer.records[1].changes == [Revived(*KEY, [(1000, [1, 1])])]
    part = master.writer.written(DeliveriesPart)
    assert part.deliveries.rows() == master.table.live.rows()


async def test_many_changes_are_several_records(autojump_clock: MockClock) -> None:
    master = Master()
    for number in range(1000):
        master.table.change(popped([number], 1000 + number))
    master.gathered.write()
    assert len(master.writer.records) > 3
    for record in master.writer.records:
        assert len(msgspec.json.encode(record)) < master.writer.record_bytes_max
    part = master.writer.written(DeliveriesPart)
    assert part.deliveries.rows() == master.table.live.rows()


async def test_what_was_gathered_does_not_bring_back_what_is_deleted(
    autojump_clock: MockClock,
) -> None:
    master = Master()
    other = QueueKey("h", "T", 0)
    master.table.change(popped(range(2)))
    master.table.change(popped(range(2), key=other))
    master.table.ack(other, 1000, 0)
    deleted = Deleted(groups=["h"])
    master.gathered.wrote(deleted)
    master.table.take(deleted)
    master.gathered.write()
    assert master.writer.records[0].changes == [popped(range(2))]
    assert list(master.table.live.queues) == [KEY]


async def test_a_follower_counts_from_when_it_knows(autojump_clock: MockClock) -> None:
    table = DeliveriesTable(files(is_copy=True))
    part = DeliveriesPart()
    await trio.sleep(5)
    record = DeliveriesChanged([popped(range(2))])
    part.apply(record)
    table.show(part, [record])
    assert table.due_times.next_due == 15
    await trio.sleep(5)
    table.show(part, None)
    assert table.due_times.next_due == 15
    assert next(table.live.handouts())[1].offsets == (0, 1)


async def test_a_snapshot_and_a_state_file_hold_all_of_it(autojump_clock: MockClock) -> None:
    part = DeliveriesPart()
    part.apply(DeliveriesChanged([popped(range(5)), acked(1)]))
    content = part.content()
    other = DeliveriesPart()
    other.add(content)
    assert other.content() == content
    copy = part.copy()
    copy.apply(Deleted(topics=["T"]))
    assert (copy.content(), part.content()) == ({"deliveries": []}, content)


async def test_what_was_with_consumers_comes_again_after_a_restart_of_a_classic_master(
    autojump_clock: MockClock,
) -> None:
    """Also if nobody is handed out anything more."""
    disk = SimulatedDisk()
    tables = PlainTables(PlainFiles(disk, "s", lambda: NOW_MS))
    tables.shown.of(DeliveriesTable).change(popped(range(3)))
    tables.save()
    again = PlainTables(PlainFiles(disk, "s", lambda: NOW_MS))
    await trio.sleep(7)
    again.open([])
    assert again.shown.of(DeliveriesTable).due_times.next_due == 17


async def test_a_classic_group_has_it_in_a_file(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    table = DeliveriesTable(files(disk))
    table.change(popped(range(3), is_orderly=True, attempt_id="a"))
    table.ack(KEY, 1000, 1)
    table.may_save = False
    for _ in table.save_in_steps():
        pass
    assert DeliveriesTable(files(disk)).live.rows() == []
    table.may_save = True
    for _ in table.save_in_steps():
        pass
    again = DeliveriesTable(files(disk))
    assert again.live.rows() == table.live.rows()
    again.note_times()
    assert again.due_times.next_due == 10
