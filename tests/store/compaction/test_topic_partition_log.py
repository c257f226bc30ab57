"""The files of one queue, byte by byte, and what a stop leaves of them."""

import struct

import pytest

from node.simulated.disk import SimulatedDisk
from store.compaction.topic_partition_log import TopicPartitionLog
from store.machine.errors import BrokenRowError, CorruptLogError, LogFault
from tandem.wire.message import BLANK_MAGIC_CODE
from tandem.wire.store_layout import BATCH_CQ_STORE_UNIT, CompactionFileSizes
from tests.store.compaction.compaction_world import CQ, CQ_BYTES, LOG, LOG_BYTES, TOPIC
from tests.store.compaction.compaction_world import keyed_message as _message
from tests.store.store_world import open_store, put

SIZES = CompactionFileSizes(LOG_BYTES, CQ_BYTES)
NAMES = [f"{number * LOG_BYTES:020d}" for number in range(3)]


def records(count: int) -> list[bytes]:
    """Return records of a queue as they are in a commit log."""
    with open_store(SimulatedDisk(), commit_log_bytes=1 << 16) as store:
        for number in range(count):
            put(store, _message("k", f"{number}"))
        found = store.whole_log.get_message(TOPIC, 0, 0, 1)
        start = int.from_bytes(found.body[0][28:36], "big")
        with store.read_log(start, 1 << 16) as view:
            data = bytes(view)
    size = int.from_bytes(data[:4], "big")
    return [data[at : at + size] for at in range(0, count * size, size)]


def filled(disk: SimulatedDisk, count: int) -> TopicPartitionLog:
    log = TopicPartitionLog(LOG, CQ, SIZES, disk)
    for number, record in enumerate(records(10)[:count]):
        log.append(memoryview(record), number, 5, 1_000 + number)
    return log


def loaded(disk: SimulatedDisk) -> TopicPartitionLog:
    log = TopicPartitionLog(LOG, CQ, SIZES, disk)
    log.load()
    return log


def test_a_record_gets_its_place_here_and_a_unit() -> None:
    disk = SimulatedDisk()
    log = filled(disk, 2)
    first, second = records(2)
    size = len(first)
    data = bytes(disk.open(f"{LOG}/{NAMES[0]}").buffer)
    assert len(data) == LOG_BYTES
    assert data[:size] == first[:28] + struct.pack(">q", 0) + first[36:]
    assert data[size : 2 * size] == second[:28] + struct.pack(">q", size) + second[36:]
    assert not any(data[2 * size :])
    units = bytes(disk.open(f"{CQ}/{NAMES[0]}").buffer)
    assert units[:92] == BATCH_CQ_STORE_UNIT.pack(
        0, size, 5, 1_000, 0, 1, -1, 0
    ) + BATCH_CQ_STORE_UNIT.pack(size, size, 5, 1_001, 1, 1, -1, 0)
    assert not any(units[92:])
    assert (log.first_queue_offset, log.next_queue_offset) == (0, 2)


def test_a_pair_with_room_for_one_more_unit_is_closed() -> None:
    disk = SimulatedDisk()
    log = filled(disk, 8)
    size = len(records(1)[0])
    data = bytes(disk.open(f"{LOG}/{NAMES[0]}").buffer)
    assert struct.unpack_from(">iI", data, 7 * size) == (LOG_BYTES - 7 * size, BLANK_MAGIC_CODE)
    units = bytes(disk.open(f"{CQ}/{NAMES[0]}").buffer)
    assert units[-46:] == BATCH_CQ_STORE_UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
    assert [pair.name for pair in log.pairs] == NAMES[:2]
    assert log.pairs[1].unit(0)[:2] == (LOG_BYTES, size)


def test_what_was_written_is_found_again_and_goes_on() -> None:
    disk = SimulatedDisk()
    filled(disk, 9).close()
    log = loaded(disk)
    assert (log.first_queue_offset, log.next_queue_offset) == (0, 9)
    log.append(memoryview(records(10)[9]), 9, 5, 1_009)
    log.close()
    whole = SimulatedDisk()
    filled(whole, 10)
    for name in NAMES[:2]:
        for directory in (LOG, CQ):
            path = f"{directory}/{name}"
            assert bytes(disk.open(path).buffer) == bytes(whole.open(path).buffer)


def test_a_record_that_no_file_has_room_for_is_refused() -> None:
    log = TopicPartitionLog(LOG, CQ, SIZES, SimulatedDisk())
    with pytest.raises(ValueError, match="larger than a file"):
        log.append(memoryview(bytes(LOG_BYTES - 7)), 0, 0, 0)
    assert log.pairs == []


@pytest.mark.parametrize("number", range(10))
def test_a_cut_takes_a_number_and_all_after_it(number: int) -> None:
    disk = SimulatedDisk()
    log = filled(disk, 9)
    assert log.cut(number) is (number < 9)
    assert log.next_queue_offset == min(number, 9)
    log.close()
    log = loaded(disk)
    assert log.next_queue_offset == min(number, 9)
    for later, record in enumerate(records(10)[log.next_queue_offset :], log.next_queue_offset):
        log.append(memoryview(record), later, 5, 1_000 + later)
    assert log.first_fault(-1) is None
    assert log.next_queue_offset == 10


def test_a_half_of_a_last_pair_is_deleted() -> None:
    for directory in (LOG, CQ):
        disk = SimulatedDisk()
        filled(disk, 5).close()
        size = LOG_BYTES if directory == LOG else CQ_BYTES
        disk.create(f"{directory}/{NAMES[1]}", size).close()
        assert [pair.name for pair in loaded(disk).pairs] == NAMES[:1]
        assert [name for name, _ in disk.list_files(directory)] == NAMES[:1]


def test_a_half_of_another_pair_stops_the_load() -> None:
    disk = SimulatedDisk()
    filled(disk, 8).close()
    disk.remove(f"{CQ}/{NAMES[0]}")
    with pytest.raises(CorruptLogError) as caught:
        loaded(disk)
    assert (caught.value.fault, caught.value.path) == (LogFault.MISSING_FILE, f"{CQ}/{NAMES[0]}")


def test_files_of_another_size_or_name_stop_the_load() -> None:
    disk = SimulatedDisk()
    filled(disk, 8).close()
    other = TopicPartitionLog(LOG, CQ, CompactionFileSizes(LOG_BYTES, 2 * CQ_BYTES), disk)
    with pytest.raises(BrokenRowError) as caught:
        other.load()
    assert caught.value.fault is LogFault.LENGTH
    disk.create(f"{LOG}/{NAMES[0]}.delete", LOG_BYTES).close()
    with pytest.raises(CorruptLogError) as named:
        loaded(disk)
    assert named.value.fault is LogFault.NAME


def test_a_damaged_record_is_found() -> None:
    disk = SimulatedDisk()
    log = filled(disk, 9)
    pair = log.pairs[0]
    for position, byte in ((88, 1), (20, 1), (4, 1), (28, 1), (0, 1)):
        at = pair.unit(3).offset + position
        pair.log.buffer[at] ^= byte
        found = log.first_fault(-1)
        assert found is not None
        assert found[0] == 3
        assert log.first_fault(6) is None, "that pair is not looked at"
        pair.log.buffer[at] ^= byte
    assert log.first_fault(-1) is None
