"""The checkpoint of timers moves up to what is durable, and no further."""

import logging
import struct

import pytest

from node.simulated.disk import SimulatedDisk
from store.delayed.timer_checkpoint import TimerCheckpoint, TimerProgress, checkpoint_of
from store.delayed.timer_place import TimerPlace
from store.machine.errors import CorruptLogError, LogFault
from tandem.wire.store_layout import CHECKPOINT_BYTES
from tests.support.logged import logged

PATH = "/store/config/timercheck"
T0 = 1_700_000_000_000
FIRST = TimerProgress(put_end=1000, read_time_ms=T0, queue_offset=3, timer_log_end=104)
SECOND = TimerProgress(put_end=2000, read_time_ms=T0 + 1000, queue_offset=5, timer_log_end=208)


def fields(disk: SimulatedDisk) -> tuple[int, ...]:
    return struct.unpack(">7q", (disk.read(PATH) or b"")[:56])


def test_a_new_checkpoint_says_that_nothing_is_done() -> None:
    disk = SimulatedDisk()
    checkpoint = TimerCheckpoint(PATH, disk)
    assert (checkpoint.read_time_ms, checkpoint.timer_log_end, checkpoint.queue_offset) == (0, 0, 0)
    assert len(disk.read(PATH) or b"") == CHECKPOINT_BYTES


def test_progress_is_stored_as_rocketmq_stores_it() -> None:
    """TimerCheckpoint.flush; lastTimerQueueOffset twice, as of a master."""
    disk = SimulatedDisk()
    checkpoint = TimerCheckpoint(PATH, disk)
    assert checkpoint.note(FIRST, log_flushed=1000, now_ms=T0 + 7)
    assert fields(disk) == (T0, 104, 3, 3, 0, T0 + 7, 1)
    assert checkpoint.data == (disk.read(PATH) or b"")[:56]
    again = TimerCheckpoint(PATH, disk)
    assert (again.read_time_ms, again.timer_log_end, again.queue_offset) == (T0, 104, 3)


def test_timers_of_a_journal_are_told_of_in_the_same_form() -> None:
    place = TimerPlace(first_waiting=2, looked_at=5, slot_ms=T0, done_in_slot=1)
    assert struct.unpack(">7q", checkpoint_of(place)) == (T0, 0, 5, 5, 0, 0, 0)


def test_progress_waits_for_the_log_to_be_durable() -> None:
    disk = SimulatedDisk()
    checkpoint = TimerCheckpoint(PATH, disk)
    assert not checkpoint.note(FIRST, log_flushed=999, now_ms=T0)
    assert not checkpoint.note(SECOND, log_flushed=999, now_ms=T0)
    assert fields(disk) == (0,) * 7
    assert checkpoint.note(SECOND, log_flushed=1999, now_ms=T0)
    assert fields(disk)[:3] == (T0, 104, 3)
    assert checkpoint.note(SECOND, log_flushed=2000, now_ms=T0)
    assert fields(disk)[:3] == (T0 + 1000, 208, 5)


def test_what_is_there_already_is_not_written_again() -> None:
    disk = SimulatedDisk()
    checkpoint = TimerCheckpoint(PATH, disk)
    assert checkpoint.note(FIRST, log_flushed=1000, now_ms=T0)
    assert not checkpoint.note(FIRST, log_flushed=1000, now_ms=T0 + 1)
    assert fields(disk)[6] == 1


def test_another_length_is_an_error_with_a_remedy() -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, b"short")
    with pytest.raises(CorruptLogError) as caught:
        TimerCheckpoint(PATH, disk)
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == PATH


@pytest.mark.parametrize("position", [3, 20, 48, 2048, 2060])
def test_a_flipped_bit_is_said_and_mended(position: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    TimerCheckpoint(PATH, disk).note(FIRST, log_flushed=1000, now_ms=T0)
    whole = disk.read(PATH)
    disk.open(PATH).buffer[position] ^= 4
    again = TimerCheckpoint(PATH, disk)
    assert (again.read_time_ms, again.timer_log_end, again.queue_offset) == (T0, 104, 3)
    assert logged(caplog, "store.files.checkpoint_file", logging.ERROR)[0][0] == PATH
    assert disk.read(PATH) == whole
