"""Queues and index follow the log, never past its end, and the index gives way to all others."""

import logging
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from node.simulated.disk import SimulatedDisk
from store import CorruptLogError, MessageStore
from store.machine.errors import LogFault, StoreFullError
from store.running_flags import RunningFlag
from store.services import reput_message_service
from store.services.dispatch import ConsumeQueueDispatcher
from store.services.reput_message_service import (
    GATHER_SECONDS,
    INDEX_GATHER_SECONDS,
    INDEX_LOOKS,
    INDEX_SLICE_BYTES,
    INDEXED_ONE_BY_ONE_MAX,
    NEW_QUEUES_MAX,
    SLICE_BYTES,
    USUAL_RECORDS_MAX,
    ReputMessageService,
)
from tandem.wire.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE
from tandem.wire.message_properties import tags_code
from tandem.wire.record_scan import Bools, Int64s, RecordColumns
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    DIRECTORY,
    a_message,
    check_store,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
)
from tests.support.listening import told_by
from tests.support.logged import logged
from tests.support.reasons import words


def a_log(count: int = 60) -> tuple[bytes, list[int]]:
    """Return the bytes of a log with several files, and where each record ends."""
    with open_store(SimulatedDisk()) as master:
        put_many(master, count)
        put(master, a_message(count, "TopicA", 0))
        end = master.max_physical_offset
        data = b"".join(bytes(master.read_log(at, 1 << 20)) for at in range(0, end, 8192))
        return data, [m.physical_offset + m.store_size for m in log_messages(master)]


def a_slave(disk: SimulatedDisk | None = None) -> MessageStore:
    return open_store(disk or SimulatedDisk(), is_slave=True)


def test_queues_follow_as_far_as_they_are_asked_to() -> None:
    """ReputMessageService.doReput."""
    data, ends = a_log()
    slave = a_slave()
    slave.append_data(0, data)
    service = slave.reput_service
    assert service.is_behind
    service.dispatch_some(5)
    assert slave.dispatched_offset == ends[4]
    assert slave.last_record_offset == ends[3]
    service.dispatch_some(1000)
    assert slave.dispatched_offset == slave.max_physical_offset == len(data)
    assert [number_of(m) for m in check_store(slave)] == list(range(61))


def test_every_arrival_is_told_once() -> None:
    data, ends = a_log(9)
    slave = a_slave()
    told = told_by(slave)
    slave.append_data(0, data[: ends[3]])
    slave.reput_service.dispatch_some(1000)
    assert told == [
        ("TopicA", 0, 1, 0),
        ("TopicA", 1, 1, tags_code("TagA")),
        ("TopicB", 0, 1, tags_code("TagB")),
        ("TopicA", 0, 2, 0),
    ]
    told.clear()
    slave.append_data(ends[3], data[ends[3] :])
    slave.reput_service.dispatch_some(1000)
    # Once for each queue that has grown.
    assert told == [
        ("TopicA", 1, 3, tags_code("TagA")),
        ("TopicB", 0, 3, tags_code("TagB")),
        ("TopicA", 0, 4, 0),
    ]


async def test_queues_follow_a_growing_log(autojump_clock: MockClock) -> None:
    data, ends = a_log(700)
    slave = a_slave()
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.run)
        start = 0
        for end in [*ends[::50], len(data)]:
            slave.append_data(start, data[start:end])
            slave.announce()
            await trio.sleep(0.1)
            assert slave.dispatched_offset == end
            start = end
        nursery.cancel_scope.cancel()
    assert [number_of(m) for m in check_store(slave)] == list(range(701))
    slave.close()


def a_log_of_new_topics(per_topic: int, topics: int = 40) -> bytes:
    with open_store(SimulatedDisk(), commit_log_bytes=1 << 20) as master:
        for number in range(topics * per_topic):
            put(master, a_message(number, f"New{number % topics}", 0))
        return bytes(master.read_log(0, master.max_physical_offset))


@pytest.mark.parametrize("per_topic", [1, 4])
async def test_the_queues_of_many_new_topics_are_not_made_in_one_step(
    autojump_clock: MockClock, per_topic: int
) -> None:
    """Each takes the disk tens of milliseconds: those of 700 topics held up all for a second."""
    data = a_log_of_new_topics(per_topic)
    slave = open_store(SimulatedDisk(), is_slave=True, commit_log_bytes=1 << 20)
    counts = [0]

    async def look() -> None:
        while True:
            counts.append(slave.queues.count)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        await nursery.start(slave.reput_service.run)
        slave.append_data(0, data)
        slave.announce()
        await trio.sleep(GATHER_SECONDS)
        nursery.start_soon(look)
        for _ in range(4 * 40):  # no time passes as long as somebody runs: it gathers once
            await trio.lowlevel.checkpoint()
        assert not slave.reput_service.is_behind
        nursery.cancel_scope.cancel()
    assert slave.queues.count == 40
    # trio runs ready tasks in any order: ours once between two of its steps, on average.
    assert max(after - before for before, after in pairwise(counts)) <= 2 * NEW_QUEUES_MAX
    assert len(check_store(slave)) == 40 * per_topic
    slave.close()


async def test_records_of_new_queues_are_not_looked_at_once_for_each_of_them(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that comes up from nothing has a queue of its own for each record, for long."""
    topics = 1_200
    data = a_log_of_new_topics(1, topics)
    slave = open_store(SimulatedDisk(), is_slave=True, commit_log_bytes=1 << 20)
    looked_at = 0
    places = ConsumeQueueDispatcher.places

    def counted(
        self: ConsumeQueueDispatcher, buffer: bytes | memoryview, columns: RecordColumns
    ) -> tuple[list[str], Int64s, Int64s, Bools]:
        nonlocal looked_at
        looked_at += len(columns)
        return places(self, buffer, columns)

    monkeypatch.setattr(ConsumeQueueDispatcher, "places", counted)
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.reput_service.run)
        slave.append_data(0, data)
        slave.announce()
        await trio.sleep(1)
        assert not slave.reput_service.is_behind
        nursery.cancel_scope.cancel()
    assert slave.queues.count == topics
    assert looked_at < 16 * topics
    slave.close()


async def test_a_few_records_wait_for_more_but_not_for_long(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, ends = a_log(40)
    slave = a_slave()
    slices: list[int] = []
    dispatch_some = slave.reput_service.dispatch_some

    def counted(**bounds: int) -> bool:
        slices.append(slave.max_physical_offset)
        return dispatch_some(**bounds)

    monkeypatch.setattr(slave.reput_service, "dispatch_some", counted)
    slave.append_data(0, data[: ends[3]])
    dispatch_some()  # the queues are there: a slice that makes one is cut short
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.reput_service.run)
        for start, end in pairwise(ends[3:40]):
            slave.append_data(start, data[start:end])
            slave.announce()
            await wait_all_tasks_blocked()
            mock_clock.jump(GATHER_SECONDS / 10)
            await wait_all_tasks_blocked()
        mock_clock.jump(GATHER_SECONDS)
        await wait_all_tasks_blocked()
        assert slave.dispatched_offset == ends[39]
        assert 4 <= len(slices) <= 6
        nursery.cancel_scope.cancel()


async def test_a_whole_slice_waits_for_nothing(autojump_clock: MockClock) -> None:
    with open_store(SimulatedDisk(), commit_log_bytes=4 << 20) as master:
        put_many(master, 560, body_bytes=4000)
        data = bytes(master.read_log(0, 4 << 20))
    slave = open_store(SimulatedDisk(), is_slave=True, commit_log_bytes=4 << 20)
    slave.append_data(0, data)
    service = slave.reput_service
    service.dispatch_some(4)  # the queues are there: a slice that makes one is cut short
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        for _ in range(100):  # no time passes as long as somebody runs
            await trio.lowlevel.checkpoint()
        assert len(data) - SLICE_BYTES < service.reput_from_offset < len(data)
        assert len(data) - INDEX_SLICE_BYTES < service.index_from_offset < len(data)
        await trio.sleep(2 * INDEX_GATHER_SECONDS)
        assert not service.is_behind
        assert not service.is_index_behind
        nursery.cancel_scope.cancel()


async def test_a_full_disk_stops_the_queues_until_there_is_room(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    data, ends = a_log(50)
    disk = SimulatedDisk()
    slave = open_store(disk, is_slave=True, scrub_interval_hours=0)
    slave.append_data(0, data)
    capacity = disk.capacity_bytes
    disk.capacity_bytes = disk.used_bytes + 200
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.run)
        slave.announce()
        await trio.sleep(30)
        assert 0 < slave.dispatched_offset < ends[-1]
        lines = logged(caplog, "store.services.reput_message_service", logging.ERROR)
        assert len([line for line in lines if "/consumequeue/" in str(line[0])]) == 1
        disk.capacity_bytes = capacity
        await trio.sleep(1.1)
        assert slave.dispatched_offset == len(data)
        nursery.cancel_scope.cancel()
    assert len(check_store(slave)) == 51
    slave.close()


def test_a_slave_that_stops_with_a_full_disk_catches_up_at_the_next_start() -> None:
    data, _ = a_log(50)
    disk = SimulatedDisk()
    slave = a_slave(disk)
    slave.append_data(0, data)
    disk.capacity_bytes = disk.used_bytes + 200
    slave.close()
    assert disk.exists(f"{DIRECTORY}/abort")  # not a clean stop: queues are behind
    disk.capacity_bytes *= 10
    with a_slave(disk) as again:
        assert len(check_store(again)) == 51


def test_bytes_that_are_no_record_stop_the_service() -> None:
    """5.3.3 skips to the end of what is readable; the link has checked them here."""
    data, ends = a_log(5)
    slave = a_slave()
    slave.append_data(0, data[: ends[2]] + b"x" * 100)
    with pytest.raises(CorruptLogError) as caught:
        slave.reput_service.dispatch_some(1000)
    assert caught.value.fault is LogFault.NO_RECORD
    assert caught.value.offset == ends[2]
    assert caught.value.path.endswith(f"{0:020d}")
    assert slave.dispatched_offset == ends[2]


def test_a_gap_in_a_queue_stops_the_service_and_a_restart_builds_it_anew() -> None:
    data, ends = a_log(20)
    disk = SimulatedDisk()
    slave = a_slave(disk)
    slave.append_data(0, data[: ends[10]])
    slave.reput_service.dispatch_some(1000)
    queue = slave.queues.find("TopicA", 0)
    assert queue is not None
    queue.truncate_dirty_logic_files(ends[2])
    slave.append_data(ends[10], data[ends[10] :])
    with pytest.raises(CorruptLogError) as caught:
        slave.reput_service.dispatch_some(1000)
    assert caught.value.fault is LogFault.QUEUE_GAP
    assert caught.value.offset >= ends[10]
    assert len(check_store(a_slave(disk.crashed()))) == 21


@pytest.mark.parametrize("records", [1, 7, 100, USUAL_RECORDS_MAX + 1, 10_000])
@pytest.mark.parametrize("slice_bytes", [100, 3000, 1 << 20])
def test_slices_of_any_size_build_the_same_queues(records: int, slice_bytes: int) -> None:
    data, _ = a_log(400)
    slave = a_slave()
    slave.append_data(0, data)
    slices = 0
    while slave.reput_service.is_behind:
        before = slave.dispatched_offset
        slave.reput_service.dispatch_some(records, bytes_max=slice_bytes)
        slices += 1
        assert before < slave.dispatched_offset <= before + 2 * slice_bytes + 8192
    assert slices >= 401 / records
    assert [number_of(m) for m in check_store(slave)] == list(range(401))
    assert (
        slave.reput_service.dispatched_timestamp_ms() == log_messages(slave)[-1].store_timestamp_ms
    )


def test_a_record_larger_than_a_slice_is_dispatched() -> None:
    with open_store(SimulatedDisk(), commit_log_bytes=1 << 21) as master:
        for number in range(60):
            put(master, a_message(3 * number, body_bytes=1_000_000 if number == 30 else 10))
        with master.read_log(0, 1 << 22) as view:
            data = bytes(view)
    slave = open_store(SimulatedDisk(), is_slave=True, commit_log_bytes=1 << 21)
    slave.append_data(0, data)
    while slave.reput_service.is_behind:
        slave.reput_service.dispatch_some()
    assert len(check_store(slave)) == 60


def test_without_room_all_is_dispatched_that_comes_before() -> None:
    data, _ = a_log(400)
    disk = SimulatedDisk()
    slave = a_slave(disk)
    slave.append_data(0, data)
    capacity = disk.capacity_bytes
    disk.capacity_bytes = disk.used_bytes + 3 * 200
    for _ in range(2):
        with pytest.raises(StoreFullError):
            slave.reput_service.dispatch_some()
        # Three queues have a file of ten units each; the next record would need another one.
        assert slave.reads.max_offset_in_queue("TopicA", 0) == 10
        assert slave.last_record_offset < slave.dispatched_offset
    disk.capacity_bytes = capacity
    while slave.reput_service.is_behind:
        slave.reput_service.dispatch_some()
    assert len(check_store(slave)) == 401


async def test_dispatch_stops_while_the_running_flags_forbid_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    data, _ = a_log()
    slave = a_slave()
    slave.append_data(0, data)
    slave.flags.set(RunningFlag.LOGIC_DISK_FULL, "the disk of the queues is full")
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.run)
        slave.announce()
        await trio.sleep(5)
        assert slave.dispatched_offset == 0
        assert words(slave.reput_service.stands_still) == "the disk of the queues is full"
        lines = logged(caplog, "store.services.reput_message_service", logging.ERROR)
        # One of the queues, one of the index.
        assert lines == [("the disk of the queues is full",)] * 2
        slave.flags.clear(RunningFlag.LOGIC_DISK_FULL)
        await trio.sleep(1.1)
        assert slave.dispatched_offset == len(data)
        assert slave.reput_service.stands_still is None
        nursery.cancel_scope.cancel()


async def test_with_a_pool_the_queues_follow_what_was_committed(autojump_clock: MockClock) -> None:
    """Readers see nothing that lies in the pool only; nor do the queues point at it."""
    store = open_store(SimulatedDisk(), transient_store_pool_enable=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(60):
            put(store, a_message(3 * number, body_bytes=300))
        assert store.reads.max_offset_in_queue("TopicA", 0) == 0
        await trio.sleep(1)
        assert store.dispatched_offset == store.max_physical_offset
        assert store.reads.max_offset_in_queue("TopicA", 0) == 60
        nursery.cancel_scope.cancel()
    assert len(check_store(store)) == 60
    store.close()


# The index


class FakeIndex:
    """Takes records; `busy` stands for the time that takes."""

    def __init__(self, busy: Callable[[], None] = lambda: None) -> None:
        self.offsets: list[int] = []
        self.calls = 0
        self.singles = 0
        self.error: Exception | None = None
        self.busy = busy

    def dispatch(
        self, topic: str, properties: bytes, offset: int, store_timestamp_ms: int, sys_flag: int, /
    ) -> None:
        if self.error is not None:
            raise self.error
        self.offsets.append(offset)
        self.singles += 1
        self.busy()

    def dispatch_columns(self, buffer: bytes | memoryview, columns: RecordColumns) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        for start, offset in zip(
            columns.start.tolist(), columns.physical_offset.tolist(), strict=True
        ):
            assert int.from_bytes(buffer[start + 28 : start + 36], "big") == offset
            self.offsets.append(offset)
        self.busy()


def with_index(store: MessageStore, index: FakeIndex) -> ReputMessageService:
    service = ReputMessageService(
        store.commit_log, store.queues, store.grown, index_service=index, running_flags=store.flags
    )
    service.reput_from_offset = store.max_physical_offset
    return service


def test_the_index_gets_every_record_once_from_its_own_cursor_on() -> None:
    store = open_store(SimulatedDisk())
    put_many(store, 200)
    offsets = [m.physical_offset for m in log_messages(store)]
    for start in (0, offsets[1], offsets[25], offsets[-1], store.max_physical_offset):
        for slice_bytes in (1, 2000, 1 << 20):
            index = FakeIndex()
            service = with_index(store, index)
            service.index_from_offset = start
            while service.is_index_behind:
                service.index_some(slice_bytes)
            assert index.offsets == [offset for offset in offsets if offset >= start]
            service.index_some()  # nothing is left to do
            assert service.index_from_offset == store.max_physical_offset


def test_few_records_enter_the_index_one_by_one_and_those_that_are_not_usual_as_columns() -> None:
    store = open_store(SimulatedDisk(), commit_log_bytes=1 << 20)
    index = FakeIndex()
    service = with_index(store, index)
    put_many(store, 10)
    service.index_some()
    assert (index.singles, index.calls) == (10, 0)
    put_many(store, 2 * INDEXED_ONE_BY_ONE_MAX, start=10)
    service.index_some()
    assert (index.singles, index.calls) == (10, 1)
    for number, sys_flag in enumerate((TRANSACTION_PREPARED_TYPE, 0, 0, TRANSACTION_COMMIT_TYPE)):
        put(store, msgspec.structs.replace(a_message(100 + number), sys_flag=sys_flag))
    service.index_some()
    assert (index.singles, index.calls) == (10, 2)
    for number, sys_flag in enumerate((0, 0, TRANSACTION_COMMIT_TYPE, 0)):
        put(store, msgspec.structs.replace(a_message(200 + number), sys_flag=sys_flag))
    while service.is_index_behind:
        service.index_some()
    assert (index.singles, index.calls) == (12, 3)
    assert index.offsets == [m.physical_offset for m in log_messages(store)]


def test_where_the_index_had_no_room_it_goes_on_with_the_same_record() -> None:
    store = open_store(SimulatedDisk())
    put_many(store, 20)
    index = FakeIndex()

    def room_for_five() -> None:
        if len(index.offsets) == 5:
            index.error = StoreFullError("no room for an index file", path="index")

    index.busy = room_for_five
    service = with_index(store, index)
    with pytest.raises(StoreFullError):
        service.index_some()
    offsets = [m.physical_offset for m in log_messages(store)]
    assert service.index_from_offset == offsets[5]
    index.error, index.busy = None, lambda: None
    while service.is_index_behind:
        service.index_some()
    assert index.offsets == offsets


def test_the_last_records_enter_the_index_at_once_unless_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(SimulatedDisk())
    put_many(store, 200)
    index = FakeIndex()
    service = with_index(store, index)
    end = store.max_physical_offset
    monkeypatch.setattr(reput_message_service, "INDEXED_FOR_QUERY_BYTES_MAX", end - 1)
    service.index_the_last()
    assert service.index_from_offset == 0
    monkeypatch.setattr(reput_message_service, "INDEXED_FOR_QUERY_BYTES_MAX", end)
    store.flags.set(RunningFlag.NOT_WRITEABLE, "the disk has failed")
    service.index_the_last()
    assert service.index_from_offset == 0
    store.flags.clear(RunningFlag.NOT_WRITEABLE)
    service.index_the_last()
    assert service.index_from_offset == end
    assert len(index.offsets) == 200


def test_without_room_for_the_index_a_query_is_not_refused() -> None:
    store = open_store(SimulatedDisk())
    put_many(store, 20)

    def no_room() -> None:
        raise StoreFullError("no room for an index file", path="index")

    index = FakeIndex(busy=no_room)
    service = with_index(store, index)
    service.index_the_last()
    assert service.index_from_offset == 0
    assert service.is_index_behind


def test_without_an_index_nothing_is_behind() -> None:
    store = open_store(SimulatedDisk(), message_index_enable=False)
    put_many(store, 5)
    assert not store.reput_service.is_index_behind
    store.reput_service.index_some()
    assert store.reput_service.index_from_offset == 0


def test_an_index_that_begins_above_the_log_or_below_it_is_no_obstacle() -> None:
    store = open_store(SimulatedDisk())
    put_many(store, 60)
    disk = SimulatedDisk()
    slave = a_slave(disk)
    with store.read_log(8192, 8192) as view:
        slave.append_data(8192, view)
    index = FakeIndex()
    service = with_index(slave, index)
    while service.is_index_behind:
        service.index_some()
    assert index.offsets[0] == 8192
    service.index_from_offset = slave.max_physical_offset + 1000
    assert not service.is_index_behind


def test_bytes_that_are_no_record_stop_the_index_too() -> None:
    data, ends = a_log(5)
    slave = a_slave()
    slave.append_data(0, data[: ends[2]] + b"x" * 100)
    service = with_index(slave, FakeIndex())
    service.index_some()
    with pytest.raises(CorruptLogError) as caught:
        service.index_some()
    assert caught.value.fault is LogFault.NO_RECORD
    assert caught.value.offset == ends[2]


async def test_the_index_follows_puts_in_batches(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput_message_service, "INDEXED_ONE_BY_ONE_MAX", 0)
    store = open_store(SimulatedDisk(), message_index_enable=False)
    index = FakeIndex()
    service = with_index(store, index)
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        await trio.sleep(0.1)
        for round_ in range(4):
            for number in range(10):
                put_many(store, 1, start=10 * round_ + number, body_bytes=10)
                service.reput_from_offset = store.max_physical_offset
                await trio.sleep(INDEX_GATHER_SECONDS / 20)
            await trio.sleep(INDEX_GATHER_SECONDS)
            assert len(index.offsets) == 10 * (round_ + 1)
        assert index.calls == 4
        nursery.cancel_scope.cancel()


async def test_a_slice_of_small_records_does_not_wait_for_the_whole_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput_message_service, "INDEX_SLICE_RECORDS", 50)
    store = open_store(SimulatedDisk(), message_index_enable=False)
    index = FakeIndex()
    service = with_index(store, index)
    look_seconds = INDEX_GATHER_SECONDS / INDEX_LOOKS
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        put_many(store, 40, body_bytes=10)
        await trio.sleep(1.5 * look_seconds)
        assert not index.calls
        put_many(store, 40, start=40, body_bytes=10)
        await trio.sleep(look_seconds)
        assert 40 < len(index.offsets) < 80
        await trio.sleep(4 * INDEX_GATHER_SECONDS)
        assert len(index.offsets) == 80
        nursery.cancel_scope.cancel()


async def test_a_full_disk_stops_the_index_until_there_is_room(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(SimulatedDisk(), message_index_enable=False)
    index = FakeIndex()
    index.error = StoreFullError("index/1: no room", path="index/1")
    service = with_index(store, index)
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        await trio.sleep(0.1)
        put_many(store, 10)
        await trio.sleep(10)
        lines = logged(caplog, "store.services.reput_message_service", logging.ERROR)
        assert lines == [("index/1: no room",)]
        assert service.stands_still is None  # the queues go on
        index.error = None
        await trio.sleep(1.1)
        assert len(index.offsets) == 10
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("others_work", "share_max"), [(True, 0.3), (False, 1.0)])
async def test_the_index_takes_a_quarter_of_the_time_while_others_work(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, *, others_work: bool, share_max: float
) -> None:
    """Time passes only where somebody works: 1 ms a slice of the index, 0.5 ms a round of puts."""
    monkeypatch.setattr(reput_message_service, "INDEX_SLICE_RECORDS", 32)
    monkeypatch.setattr(reput_message_service, "INDEXED_ONE_BY_ONE_MAX", 0)
    clock = mock_clock
    store = open_store(SimulatedDisk(), message_index_enable=False, commit_log_bytes=4 << 20)
    put_many(store, 1000, body_bytes=3000)
    index = FakeIndex(lambda: clock.jump(0.001))
    service = with_index(store, index)
    slice_bytes = 32 * store.max_physical_offset // 1000
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        rounds = 0
        # The last ones, less than a slice, wait for more.
        while store.max_physical_offset - service.index_from_offset > slice_bytes:
            await trio.lowlevel.checkpoint()
            if others_work:
                clock.jump(0.0005)
            rounds += 1
            assert rounds < 100_000
        nursery.cancel_scope.cancel()
    assert index.calls > 20
    share = 0.001 * index.calls / (trio.current_time() - began)
    assert share <= share_max
    assert share > share_max / 2


def test_an_empty_log_that_begins_behind_0_is_behind_in_nothing() -> None:
    disk = SimulatedDisk()
    disk.create(f"{DIRECTORY}/commitlog/{COMMIT_LOG_BYTES:020d}", COMMIT_LOG_BYTES)
    with open_store(disk) as store:
        assert store.min_physical_offset == store.max_physical_offset == COMMIT_LOG_BYTES
        assert not store.reput_service.is_behind
        assert not store.reput_service.is_index_behind
        store.reput_service.dispatch_some()
        store.reput_service.index_some()
