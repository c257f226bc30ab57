import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.delayed.timer_log import UNIT_BYTES, TimerLog, TimerUnit
from store.machine.errors import StoreFullError
from tests.store.step_disk import Interrupted, StepDisk, die_at

DIRECTORY = "/store/timerlog"
FILE_BYTES = 52 * 4 + 30
"""Four units, and 30 bytes that are left."""

T0 = 1_700_000_000_000
LOG_END = 1 << 40


def a_unit(number: int, previous: int = -1, magic: int = 1) -> TimerUnit:
    return TimerUnit(previous, magic, T0, 1000 * number, 200 * number, 150, 7)


def a_log(disk: SimulatedDisk | None = None, log_end: int = LOG_END) -> TimerLog:
    log = TimerLog(DIRECTORY, FILE_BYTES, disk or SimulatedDisk())
    log.recover(log_end)
    return log


def test_a_unit_is_stored_as_rocketmq_stores_it() -> None:
    """TimerMessageStore.doEnqueue."""
    disk = SimulatedDisk()
    assert a_log(disk).append(TimerUnit(-1, 5, T0, 1234, 4096, 150, -2)) == 0
    data = disk.read(f"{DIRECTORY}/{0:020d}") or b""
    expected = "00000034ffffffffffffffff000000050000018bcfe56800000004d2"
    expected += "000000000000100000000096fffffffe0000000000000000"
    assert data[:UNIT_BYTES].hex() == expected


def test_a_full_file_is_closed_as_rocketmq_closes_it() -> None:
    """TimerLog.append: the bytes left, 0, and the blank magic."""
    disk = SimulatedDisk()
    log = a_log(disk)
    positions = [log.append(a_unit(number)) for number in range(6)]
    assert positions == [0, 52, 104, 156, FILE_BYTES, FILE_BYTES + 52]
    data = disk.read(f"{DIRECTORY}/{0:020d}") or b""
    assert data[208:224].hex() == "0000001e0000000000000000cbd43194"


def test_units_are_read_by_position() -> None:
    log = a_log()
    positions = [log.append(a_unit(number)) for number in range(6)]
    assert [log.unit(position) for position in positions] == [a_unit(n) for n in range(6)]
    for nowhere in (-1, 1, 208, FILE_BYTES + 104, 1 << 40):
        assert log.unit(nowhere) is None


def test_a_unit_says_what_is_to_be_done() -> None:
    assert (a_unit(1).is_roll, a_unit(1).is_delete, a_unit(3).due_ms) == (False, False, T0 + 3000)
    assert a_unit(1, magic=3).is_roll
    assert a_unit(1, magic=5).is_delete


def test_all_units_are_found_again_as_columns() -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    for number in range(10):
        log.append(a_unit(number, magic=5 if number % 3 == 0 else 1))
    again = TimerLog(DIRECTORY, FILE_BYTES, disk)
    units = again.recover(LOG_END)
    step = FILE_BYTES
    assert units.positions.tolist() == [
        *(0, 52, 104, 156),
        *(step, step + 52, step + 104, step + 156),
        *(2 * step, 2 * step + 52),
    ]
    assert units.due_ms.tolist() == [T0 + 1000 * number for number in range(10)]
    assert units.offsets.tolist() == [200 * number for number in range(10)]
    assert units.is_delete.tolist() == [number % 3 == 0 for number in range(10)]
    assert again.append(a_unit(10)) == 2 * step + 104


@pytest.mark.parametrize("count", range(1, 10))
def test_a_log_goes_on_where_it_ended(count: int) -> None:
    disk = SimulatedDisk()
    log, again = a_log(disk), None
    expected = [log.append(a_unit(number)) for number in range(12)]
    disk = SimulatedDisk()
    log = a_log(disk)
    for number in range(count):
        log.append(a_unit(number))
    again = a_log(disk)
    assert [again.append(a_unit(n)) for n in range(count, 12)] == expected[count:]


def test_an_empty_log_is_fine() -> None:
    log = a_log()
    assert log.recover(LOG_END).positions.tolist() == []
    assert log.max_offset == 0


def test_units_of_records_that_the_commit_log_has_lost_are_cut_off() -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    for number in range(10):
        log.append(a_unit(number))
    again = TimerLog(DIRECTORY, FILE_BYTES, disk)
    assert again.recover(200 * 5 + 150).offsets.tolist() == [0, 200, 400, 600, 800, 1000]
    assert again.max_offset == FILE_BYTES + 104
    assert len(again.files.files) == 2


@pytest.mark.parametrize(
    ("at", "byte"),
    [(0, 0x70), (4, 0x70), (4, 0xF0), (12, 0x70), (28, 0x70), (28, 0xF0), (36, 0xF0)],
)
def test_what_is_no_unit_ends_the_log(at: int, byte: int) -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    for number in range(7):
        log.append(a_unit(number))
    disk.open(f"{DIRECTORY}/{0:020d}").buffer[104 + at] = byte
    again = TimerLog(DIRECTORY, FILE_BYTES, disk)
    assert again.recover(LOG_END).positions.tolist() == [0, 52]
    assert again.append(a_unit(2)) == 104


def test_a_unit_is_there_as_a_whole_or_not_at_all() -> None:
    step = 0
    while True:
        step += 1
        disk = StepDisk()
        log = TimerLog(DIRECTORY, FILE_BYTES, disk)
        log.recover(LOG_END)
        disk.on_step = die_at(step)
        done = 0
        try:
            for number in range(9):
                log.append(a_unit(number))
                done += 1
        except Interrupted:
            again = TimerLog(DIRECTORY, FILE_BYTES, disk.crashed())
            assert len(again.recover(LOG_END).positions) == done
            again.append(a_unit(done))
            continue
        break
    assert step > 20


def test_a_full_disk_refuses_the_unit_and_nothing_is_written() -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    for number in range(4):
        log.append(a_unit(number))
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StoreFullError):
        log.append(a_unit(4))
    disk.capacity_bytes = 1 << 30
    assert log.append(a_unit(4)) == FILE_BYTES


def test_files_go_when_the_commit_log_has_lost_their_messages() -> None:
    """MappedFileQueue.deleteExpiredFileByOffsetForTimerLog."""
    log = a_log()
    for number in range(10):
        log.append(a_unit(number))
    log.delete_expired_files(600, 0)
    assert len(log.files.files) == 3
    log.delete_expired_files(601, 0)
    assert [file.file_from_offset for file in log.files.files] == [FILE_BYTES, 2 * FILE_BYTES]
    assert log.unit(0) is None
    log.delete_expired_files(1 << 30, 0)
    assert len(log.files.files) == 1


@given(st.binary(max_size=FILE_BYTES), st.integers(0, 300))
def test_any_file_is_a_log(data: bytes, log_end: int) -> None:
    disk = SimulatedDisk()
    disk.create(f"{DIRECTORY}/{0:020d}", FILE_BYTES).buffer[: len(data)] = data
    log = TimerLog(DIRECTORY, FILE_BYTES, disk)
    units = log.recover(log_end)
    assert all(offset + 1 <= log_end for offset in units.offsets.tolist())
    position = log.append(a_unit(1))
    assert log.unit(position) == a_unit(1)
