"""On a slave the queues follow the log: record by record, never past its end."""

import pytest
import trio
from trio.testing import MockClock

from store import CorruptLogError, MessageStore
from tandem.wire.message_properties import tags_code
from tests.store.store_world import (
    DIRECTORY,
    a_message,
    check_store,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
)
from tests.support.simulated_disk import SimulatedDisk


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
    told: list[tuple[str, int, int, int | None]] = []
    slave.on_arrival = lambda *facts: told.append(facts)
    slave.append_data(0, data[: ends[3]])
    slave.reput_service.dispatch_some(1000)
    assert told == [
        ("TopicA", 0, 1, 0),
        ("TopicA", 1, 1, tags_code("TagA")),
        ("TopicB", 0, 1, tags_code("TagB")),
        ("TopicA", 0, 2, 0),
    ]
    slave.append_data(ends[3], data[ends[3] :])
    slave.reput_service.dispatch_some(1000)
    assert len(told) == 10


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


async def test_a_full_disk_stops_the_queues_until_there_is_room(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    data, ends = a_log(50)
    disk = SimulatedDisk()
    slave = a_slave(disk)
    slave.append_data(0, data)
    capacity = disk.capacity_bytes
    disk.capacity_bytes = disk.used_bytes + 200
    async with trio.open_nursery() as nursery:
        await nursery.start(slave.run)
        slave.announce()
        await trio.sleep(30)
        assert 0 < slave.dispatched_offset < ends[-1]
        assert caplog.text.count("consume queues stand still") == 1
        assert "no room" in caplog.text
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
    with pytest.raises(CorruptLogError, match=f"no record at {ends[2]}") as caught:
        slave.reput_service.dispatch_some(1000)
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
    with pytest.raises(CorruptLogError, match="restart the node"):
        slave.reput_service.dispatch_some(1000)
    assert len(check_store(a_slave(disk.crashed()))) == 21
