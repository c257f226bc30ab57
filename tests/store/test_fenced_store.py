"""A store in a fenced group: a slave that becomes a master, and what is confirmed."""

import random

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import MessageStore, PutMessageStatus
from store.machine.errors import SettingError, StoreClosedError, StoreFullError
from store.running_flags import RunningFlag, StoreRefusal
from tandem.wire.message import decode_messages
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    Clock,
    a_batch,
    a_message,
    check_store,
    copy_log,
    number_of,
    open_store,
    put,
    put_many,
)
from tests.support.listening import listen
from tests.support.reasons import words


def a_slave(disk: SimulatedDisk | None = None, **settings: int) -> MessageStore:
    return open_store(
        disk or SimulatedDisk(),
        is_slave=True,
        confirm_bounds_reads=True,
        clock=Clock(1_800_000_000_000),
        **settings,  # type: ignore[arg-type] # sizes only
    )


def a_slave_behind(count: int, disk: SimulatedDisk | None = None) -> MessageStore:
    """A slave that has received `count` messages and not dispatched them."""
    slave = a_slave(disk)
    with open_store(SimulatedDisk()) as master:
        put_many(master, count)
        copy_log(master, slave)
    return slave


def test_a_slave_that_becomes_a_master_goes_on_where_its_log_ends() -> None:
    with a_slave_behind(7) as store:
        store.become_master()
        assert not store.is_slave
        put(store, a_message(7))
        put(store, a_batch(range(8, 11)))
        store.confirm(store.max_physical_offset)
        assert [number_of(m) for m in check_store(store)] == list(range(11))


def test_becoming_a_master_twice_is_becoming_one() -> None:
    with a_slave_behind(3) as store:
        store.become_master()
        put(store, a_message(3))
        store.become_master()
        store.confirm(store.max_physical_offset)
        assert len(check_store(store)) == 4


def test_an_unconfirmed_tail_keeps_its_numbers_and_shows_when_it_is_confirmed() -> None:
    with a_slave_behind(6) as store:
        store.become_master()
        result = store.puts.put_message(a_message(6))
        assert result.queue_offset == 2
        assert store.reads.max_offset_in_queue("TopicA", 0) == 0
        store.confirm(result.wrote_offset)
        assert store.reads.max_offset_in_queue("TopicA", 0) == 2
        store.confirm(result.end_offset)
        assert store.reads.max_offset_in_queue("TopicA", 0) == 3


def test_a_slave_without_anything_becomes_a_master() -> None:
    with a_slave() as store:
        store.become_master()
        put(store, a_message(0))
        store.confirm(store.max_physical_offset)
        assert len(check_store(store)) == 1


async def test_services_run_on_while_a_slave_becomes_a_master(autojump_clock: MockClock) -> None:
    told: list[int] = []
    async with trio.open_nursery() as nursery:
        with a_slave_behind(5) as store:
            listener = listen(store, lambda arrivals: told.extend(each[3] for each in arrivals))
            await nursery.start(store.run, listener)
            store.become_master()
            await trio.sleep(1)
            for number in range(5, 300):
                store.confirm(put(store, a_message(number)))
                if number % 10 == 0:
                    await trio.sleep(0.01)
            await trio.sleep(30)
            assert store.flushed_where == store.max_physical_offset
            assert len(check_store(store)) == len(told) == 300
            assert not store.reput_service.is_index_behind
            records = store.reads.query_message("TopicA", "k7", 5).records
            assert [m.keys for r in records for m in decode_messages(r)] == ["k7"]
            nursery.cancel_scope.cancel()


def test_dispatch_that_finds_no_room_leaves_a_slave() -> None:
    disk = SimulatedDisk()
    store = a_slave_behind(5, disk)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StoreFullError):
        store.become_master()
    assert store.is_slave
    disk.capacity_bytes = 1 << 40
    store.become_master()
    put(store, a_message(5))
    store.confirm(store.max_physical_offset)
    assert len(check_store(store)) == 6


@pytest.mark.parametrize("flag", [RunningFlag.NOT_WRITEABLE, RunningFlag.LOGIC_DISK_FULL])
def test_a_store_whose_disk_forbids_dispatch_becomes_no_master(flag: RunningFlag) -> None:
    with a_slave_behind(3) as store:
        store.flags.set(flag, "the disk is on fire")
        with pytest.raises(StoreClosedError) as caught:
            store.become_master()
        assert caught.value.flags == flag
        assert store.is_slave
        assert store.disk_trouble == StoreRefusal(flag, "the disk is on fire")


async def test_a_store_without_room_for_its_next_file_should_be_no_master(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    with a_slave(disk) as store:
        store.become_master()
        async with trio.open_nursery() as nursery:
            put(store, a_message(0))
            disk.capacity_bytes = disk.used_bytes
            await nursery.start(store.run)
            refused = PutMessageStatus.PUT_OK
            for number in range(1, 100):
                assert store.disk_trouble is None
                refused = store.puts.put_message(a_message(number, body_bytes=300)).status
                store.announce()
                await trio.sleep(0.01)
                if refused is not PutMessageStatus.PUT_OK:
                    break
            assert refused is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            trouble = store.disk_trouble
            assert trouble is not None
            assert not trouble.flags  # no flag: it takes messages that fit
            disk.capacity_bytes = 1 << 40
            await trio.sleep(10)
            assert store.disk_trouble is None
            nursery.cancel_scope.cancel()


def test_a_closed_store_becomes_no_master() -> None:
    store = a_slave()
    store.close()
    with pytest.raises(StoreClosedError) as caught:
        store.become_master()
    assert caught.value.flags == RunningFlag.CLOSED


def test_a_clock_behind_that_of_the_master_before_is_dealt_with() -> None:
    with a_slave_behind(0) as store, open_store(SimulatedDisk(), clock=Clock(1 << 42)) as master:
        put_many(master, 4)
        copy_log(master, store)
        store.become_master()
        put(store, a_message(4))
        assert store.checkpoint.logics_msg_timestamp_ms < 1_800_000_000_000 + 1000
        store.confirm(store.max_physical_offset)
        assert len(check_store(store)) == 5


def test_a_fenced_store_says_why_and_takes_what_a_master_sends() -> None:
    with a_slave() as store:
        store.become_master()
        store.fence("its lease is over")
        for refused in (
            store.puts.put_message(a_message(0)),
            store.puts.put_batch(a_batch(range(2))),
        ):
            assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert refused.reason == "its lease is over"
        store.fence("broker-b is master")
        assert words(store.refusal) == "broker-b is master"
        assert store.disk_trouble is None
        store.unfence()
        store.unfence()
        put(store, a_message(0))
    with a_slave_behind(0) as slave, open_store(SimulatedDisk()) as master:
        slave.fence("not yet")
        put_many(master, 2)
        copy_log(master, slave)
        assert slave.max_physical_offset == master.max_physical_offset


def a_master_whose_log_begins_at(file_number: int) -> MessageStore:
    """Its first files have been deleted, as old ones are."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        put_many(store, 100)
    for number in range(file_number):
        disk.remove(f"/store/commitlog/{number * COMMIT_LOG_BYTES:020d}")
    return open_store(disk)


@pytest.mark.parametrize("end", ["closed", "killed", "power lost"])
def test_an_empty_slave_begins_where_the_log_of_its_master_does(end: str) -> None:
    master = a_master_whose_log_begins_at(2)
    start = master.min_physical_offset
    assert start == 2 * COMMIT_LOG_BYTES
    expected = check_store(master)
    firsts = {key: master.reads.min_offset_in_queue(*key) for key in master.list_queues()}
    assert min(firsts.values()) > 0
    disk = SimulatedDisk()
    slave = a_slave(disk)
    copy_log(master, slave)
    slave.reput_service.dispatch_some()
    slave.confirm(slave.max_physical_offset)
    assert check_store(slave) == expected
    if end == "closed":
        slave.close()
    elif end == "killed":
        disk = disk.crashed()
    else:
        slave.sync_log()
        disk = disk.powered_off(random.Random(5))
    again = a_slave(disk)
    again.confirm(again.max_physical_offset)
    assert check_store(again) == expected
    assert (again.min_physical_offset, again.max_physical_offset) == (
        start,
        master.max_physical_offset,
    )
    assert {key: again.reads.min_offset_in_queue(*key) for key in again.list_queues()} == firsts
    again.become_master()
    put(again, a_message(777))
    again.confirm(again.max_physical_offset)
    assert len(check_store(again)) == len(expected) + 1


async def test_an_empty_slave_prepares_no_file_before_it_knows_where_its_log_begins(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    slave = a_slave(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.run)
        await trio.sleep(5)
        assert disk.list_files("/store/commitlog") == []
        master = a_master_whose_log_begins_at(3)
        copy_log(master, slave)
        await trio.sleep(15)
        slave.confirm(slave.max_physical_offset)
        assert check_store(slave) == check_store(master)
        assert slave.flushed_where == slave.max_physical_offset
        assert a_slave(disk.crashed()).max_physical_offset == master.max_physical_offset
        nursery.cancel_scope.cancel()


async def test_a_master_of_an_empty_group_prepares_its_first_file(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = a_slave(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.sleep(1)
        store.become_master()
        await trio.sleep(1)
        assert [name for name, _ in disk.list_files("/store/commitlog")] == [f"{0:020d}"]
        nursery.cancel_scope.cancel()


def test_confirm_never_falls_and_never_passes_the_log() -> None:
    with a_slave_behind(4) as store:
        end = store.max_physical_offset
        store.confirm(end - 10)
        store.confirm(5)
        assert store.confirm_offset == end - 10
        store.confirm(1 << 60)
        assert store.confirm_offset == end


def test_what_is_confirmed_survives_a_stop() -> None:
    disk = SimulatedDisk()
    with a_slave_behind(4, disk) as store:
        store.confirm(100)
    assert a_slave(disk).confirm_offset == 100


async def test_what_is_confirmed_is_written_now_and_then(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = a_slave_behind(4, disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        store.confirm(200)
        await trio.sleep(3)
        assert a_slave(disk.crashed()).confirm_offset == 200
        nursery.cancel_scope.cancel()


def test_a_log_that_lost_its_end_is_confirmed_no_further_ever_again() -> None:
    """Other bytes may come to lie there, which nobody has confirmed."""
    disk = SimulatedDisk()
    store = a_slave_behind(4, disk)
    end = store.max_physical_offset
    store.confirm(end)
    store.checkpoint.flush_blocking()
    dead = disk.crashed()
    dead.open(f"/store/commitlog/{0:020d}").buffer[end - 4 : end] = bytes(4)
    shorter = a_slave(dead)
    lost = shorter.max_physical_offset
    assert lost < end
    assert shorter.confirm_offset == lost
    shorter.become_master()
    put(shorter, a_message(9, body_bytes=2000))
    assert a_slave(dead.crashed()).confirm_offset == lost


def test_a_store_of_a_classic_group_has_no_bound() -> None:
    with open_store(SimulatedDisk()) as store:
        end = put(store, a_message(0))
        assert store.confirm_offset == end
        with pytest.raises(SettingError) as caught:
            store.confirm(end)
        assert caught.value.setting == "confirm_bounds_reads"


def test_a_transient_pool_has_no_place_in_a_fenced_group() -> None:
    with pytest.raises(SettingError) as caught:
        open_store(SimulatedDisk(), confirm_bounds_reads=True, transient_store_pool_enable=True)
    assert caught.value.setting == "transient_store_pool_enable"


def test_what_is_not_confirmed_is_not_deleted() -> None:
    disk = SimulatedDisk()
    with a_slave_behind(100, disk) as store:
        store.become_master()
        store.confirm(9000)
        assert store.clean_service.commit_log is not None
        store.flush_service.queues_flushed_where = store.max_physical_offset
        assert store._keep_from() == 9000
