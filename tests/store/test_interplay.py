"""Parts of a store that could get in each other's way: pool, index, cleaning, full disk, slave."""

import logging

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import DiskFailedError, FlushDiskType, MessageStore, StoreClosedError, StoreFullError
from store.running_flags import RunningFlag
from store.services.reput_message_service import GATHER_SECONDS
from tests.store.store_world import (
    DIRECTORY,
    Clock,
    a_batch,
    a_message,
    check_store,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
    queue_messages,
)
from tests.support.logged import logged

HOUR_MS = 3_600_000


def copy_to(slave: MessageStore, master: MessageStore) -> None:
    """Append to the slave what the master lets others read, as replication does."""
    while view := master.read_log(slave.max_physical_offset, 3000):
        with view:
            slave.append_data(slave.max_physical_offset, bytes(view))
    slave.announce()


# -- pool ----------------------------------------------------------------------------------------


def test_a_slave_and_a_reader_get_only_what_the_pool_has_given_to_the_files() -> None:
    store = open_store(SimulatedDisk(), transient_store_pool_enable=True)
    slave = open_store(SimulatedDisk(), is_slave=True)
    put_many(store, 30)
    assert store.commit_log.append_offset > 8192
    assert store.max_physical_offset == store.dispatched_offset == 0
    copy_to(slave, store)
    assert slave.max_physical_offset == 0
    assert store.reads.look_message_by_offset(0) is None
    store.commit_log.files.commit(0)
    while store.reput_service.is_behind:
        store.reput_service.dispatch_some()
    copy_to(slave, store)
    while slave.reput_service.is_behind:
        slave.reput_service.dispatch_some()
    assert check_store(slave) == check_store(store)
    store.close()
    slave.close()


async def test_a_commit_wakes_whoever_follows_the_log(autojump_clock: MockClock) -> None:
    store = open_store(SimulatedDisk(), transient_store_pool_enable=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        put(store, a_message(0))
        assert store.max_physical_offset == 0
        with trio.fail_after(1):
            while not store.max_physical_offset:
                await store.grown.wait()
            await trio.sleep(GATHER_SECONDS)
            await trio.lowlevel.checkpoint()
            assert store.dispatched_offset == store.max_physical_offset
        assert queue_messages(store, "TopicA", 0)
        nursery.cancel_scope.cancel()
    store.close()


def test_what_a_pool_loses_with_the_process_gives_its_queue_offsets_back() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, transient_store_pool_enable=True)
    put_many(store, 10)
    store.commit_log.files.commit(0)
    put_many(store, 10, start=10)
    again = open_store(disk.crashed())
    assert [number_of(m) for m in check_store(again)] == list(range(10))
    put(again, a_message(99))
    check_store(again)


@pytest.mark.parametrize("pool", [False, True])
async def test_the_checkpoint_never_speaks_for_what_is_in_no_queue(
    pool: bool,  # noqa: FBT001
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.05)
    clock = Clock()
    store = open_store(disk, clock=clock, transient_store_pool_enable=pool)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(60):
            put(store, a_message(number, body_bytes=300))
            await trio.sleep(0.7)
            checkpoint = store.checkpoint
            queued = queue_messages(store, "TopicA", 0)
            last_ms = queued[-1].store_timestamp_ms if queued else 0
            assert checkpoint.logics_msg_timestamp_ms <= last_ms
            assert checkpoint.confirm_physical_offset <= store.max_physical_offset
        assert store.checkpoint.logics_msg_timestamp_ms > 0
        nursery.cancel_scope.cancel()
    store.close()


# -- cleaning ------------------------------------------------------------------------------------


class Aged:
    """A store of several files, all of them old enough to go."""

    def __init__(self, *, is_slave: bool = False) -> None:
        self.clock = Clock(step_ms=0)
        self.disk = SimulatedDisk(now_ms=self.clock)
        self.store = open_store(self.disk, clock=self.clock, is_slave=is_slave)

    def let_age(self) -> None:
        # As a thorough flush of the queues leaves it.
        self.store.queues.sync_all()
        self.store.flush_service.queues_flushed_where = self.store.dispatched_offset
        self.clock.now_ms += 100 * HOUR_MS
        self.store.clean_service.commit_log.delete_manually()

    async def clean(self) -> None:
        await self.store.clean_service.commit_log.clean()
        await self.store.clean_service.consume_queue.clean()


async def test_cleaning_takes_nothing_that_no_queue_knows(autojump_clock: MockClock) -> None:
    """RocketMQ's dispatch jumps over what is gone; here the queue would have a gap."""
    master = open_store(SimulatedDisk())
    put_many(master, 90)
    aged = Aged(is_slave=True)
    slave = aged.store
    copy_to(slave, master)
    slave.reput_service.dispatch_some(records_max=30)
    dispatched = slave.dispatched_offset
    assert 8192 < dispatched < slave.max_physical_offset - 8192
    aged.let_age()
    await aged.clean()
    assert slave.min_physical_offset == dispatched - dispatched % 8192 > 0
    while slave.reput_service.is_behind:
        slave.reput_service.dispatch_some()
    await aged.clean()
    check_store(slave)
    slave.close()


async def test_after_cleaning_every_look_begins_at_what_is_left(autojump_clock: MockClock) -> None:
    aged = Aged()
    store = aged.store
    put_many(store, 90)
    with store.read_log(0, 200) as reading:
        head = bytes(reading)
        aged.let_age()
        await store.clean_service.commit_log.clean()
        # The log is shorter, and the queues do not know yet.
        low = store.min_physical_offset
        assert low > 8192
        result = store.reads.get_message("TopicA", 0, 0, 32)
        assert result.status.name == "MESSAGE_WAS_REMOVING"
        assert result.next_begin_offset > 0
        assert store.reads.look_message_by_offset(0) is None
        assert not store.read_log(0, 100)
        await store.clean_service.consume_queue.clean()
        assert bytes(reading) == head
    check_store(store)
    first = store.reads.min_offset_in_queue("TopicA", 0)
    assert first > 0
    assert store.reads.get_message("TopicA", 0, 0, 1).status.name == "OFFSET_TOO_SMALL"
    for upper in (False, True):
        assert store.reads.offset_in_queue_by_time("TopicA", 0, 0, upper=upper) == first
    while store.reput_service.is_index_behind:
        store.reput_service.index_some()
    assert not store.reads.query_message("TopicA", "k0", 32).records
    assert store.reads.query_message("TopicB", "k89", 32).records
    store.close()


# -- index ---------------------------------------------------------------------------------------


def test_an_index_that_was_off_during_a_hard_stop_is_not_believed_when_it_is_on_again() -> None:
    """What was being written when the power went may lack anything, and nothing in it tells."""
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 30)
    store.close()
    store = open_store(disk)
    put_many(store, 30, start=30)
    while store.reput_service.is_index_behind:
        store.reput_service.index_some()
    disk = disk.crashed()
    (name, _), *others = disk.list_files(f"{DIRECTORY}/index")
    assert not others
    index = disk.open(f"{DIRECTORY}/index/{name}").buffer
    index[40:440] = bytes(400)  # its slots never reached the disk
    open_store(disk, message_index_enable=False).close()
    with open_store(disk) as store:
        while store.reput_service.is_index_behind:
            store.reput_service.index_some()
        for number in range(60):
            topic = ("TopicA", "TopicA", "TopicB")[number % 3]
            assert len(store.reads.query_message(topic, f"k{number}", 32).records) == 1, number


def test_an_index_that_was_off_knows_everything_when_it_is_on_again() -> None:
    disk = SimulatedDisk()
    for start, is_on in ((0, True), (30, False), (60, True)):
        with open_store(disk, message_index_enable=is_on) as store:
            put_many(store, 30, start=start)
            assert (store.index_service is not None) == is_on
            if not is_on:
                assert not store.reads.query_message("TopicA", "k0", 32).records
    with open_store(disk) as store:
        for number in range(90):
            topic = ("TopicA", "TopicA", "TopicB")[number % 3]
            assert len(store.reads.query_message(topic, f"k{number}", 32).records) == 1, number


def test_a_file_in_the_place_of_the_index_costs_nothing_but_the_index(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoIndex(SimulatedDisk):
        def create(self, path: str, size: int, *, grows: bool = False):  # type: ignore[no-untyped-def] # noqa: ANN202
            if "/index/" in path:
                raise DiskFailedError(f"{path}: Not a directory; check the disk")
            return super().create(path, size, grows=grows)

    disk = NoIndex()
    store = open_store(disk)
    put_many(store, 5)
    store.close()
    assert len(logged(caplog, "store.recovery.closing", logging.ERROR)) == 1
    assert not disk.exists(f"{DIRECTORY}/abort")
    with open_store(disk) as store:
        assert len(check_store(store)) == 5


async def test_a_disk_that_refuses_files_holds_dispatch_up_until_it_takes_them(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Grudging(SimulatedDisk):
        refuses = False

        def create(self, path: str, size: int, *, grows: bool = False):  # type: ignore[no-untyped-def] # noqa: ANN202
            if self.refuses:
                raise DiskFailedError(f"{path}: Permission denied; check who may write there")
            return super().create(path, size)

    master = open_store(SimulatedDisk())
    put_many(master, 10)
    disk = Grudging()
    slave = open_store(disk, is_slave=True)
    copy_to(slave, master)
    disk.refuses = True
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.run)
        slave.grown.notify()
        await trio.sleep(20)
        assert slave.dispatched_offset == 0
        disk.refuses = False
        await trio.sleep(20)
        assert check_store(slave) == log_messages(master)
        nursery.cancel_scope.cancel()
    assert logged(caplog, "store.services.reput_message_service", logging.ERROR)
    slave.close()


# -- full disks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [RunningFlag.DISK_FULL, RunningFlag.LOGIC_DISK_FULL])
def test_a_slave_with_a_full_disk_takes_bytes_as_long_as_there_is_room(flag: RunningFlag) -> None:
    """They are its master's, who waits for them. Its queues may have to wait."""
    master = open_store(SimulatedDisk())
    put_many(master, 20)
    slave = open_store(SimulatedDisk(), is_slave=True)
    slave.flags.set(flag, "no room")
    copy_to(slave, master)
    assert slave.max_physical_offset == master.max_physical_offset
    slave.flags.set(RunningFlag.NOT_WRITEABLE, "a sync failed")
    with pytest.raises(StoreClosedError) as caught:
        slave.append_data(slave.max_physical_offset, b"x")
    assert caught.value.flags & RunningFlag.NOT_WRITEABLE


@pytest.mark.parametrize("is_slave", [False, True])
def test_a_store_closes_on_a_full_disk_and_goes_on_when_there_is_room(
    is_slave: bool,  # noqa: FBT001
) -> None:
    source = open_store(SimulatedDisk())
    put_many(source, 12)
    disk = SimulatedDisk()
    store = open_store(disk, is_slave=is_slave)
    if is_slave:
        copy_to(store, source)
    else:
        put_many(store, 12)
    disk.capacity_bytes = disk.used_bytes
    store.close()
    assert disk.exists(f"{DIRECTORY}/abort") == is_slave
    if is_slave:
        with pytest.raises(StoreFullError):
            open_store(disk, is_slave=True)
    disk.capacity_bytes = 1 << 40
    with open_store(disk, is_slave=is_slave) as store:
        assert check_store(store) == (log_messages(source) if is_slave else check_store(store))
        assert len(check_store(store)) == 12


# -- announce and cancellation -------------------------------------------------------------------


async def test_nobody_is_woken_where_nothing_was_put(autojump_clock: MockClock) -> None:
    store = open_store(SimulatedDisk())
    woken = 0

    async def follow() -> None:
        nonlocal woken
        while True:
            await store.grown.wait()
            woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        store.announce()
        await trio.testing.wait_all_tasks_blocked()
        assert woken == 0
        store.puts.put_batch(a_batch(range(3)))
        store.puts.put_message(a_message(9))
        store.announce()
        store.announce()
        await trio.testing.wait_all_tasks_blocked()
        assert woken == 1
        nursery.cancel_scope.cancel()
    store.close()


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("ticks", range(0, 60, 4))
async def test_tasks_cancelled_at_any_wait_leave_a_whole_store(
    ticks: int,
    pool: bool,  # noqa: FBT001
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.01)
    store = open_store(
        disk,
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        transient_store_pool_enable=pool,
        flush_interval_commit_log_ms=20,
        flush_interval_consume_queue_ms=30,
        commit_interval_commit_log_ms=10,
        max_index_num=8,
    )
    count = 0
    with trio.move_on_after(0.005 * ticks):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            while True:
                put(store, a_message(count, body_bytes=700))
                count += 1
                await trio.sleep(0.003)
    store.close()
    with open_store(disk, max_index_num=8) as again:
        assert [number_of(m) for m in check_store(again)] == list(range(count))
