"""The checkpoint: what it holds, byte for byte, and that it is written only when it changed."""

import logging
import random
import struct

import pytest
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.files.store_checkpoint import StoreCheckpoint
from store.machine.errors import CorruptLogError, LogFault
from tandem.wire.checkpoint_copy import COPY_AT, OWN_AT, copy_of, settled
from tests.support.logged import logged
from tests.support.paths import GOLDEN

PATH = "/s/checkpoint"


def test_a_new_one_is_all_zeros() -> None:
    """StoreCheckpoint: 4,096 bytes; a missing file means that nothing is known."""
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(PATH, disk)
    assert disk.read(PATH) == bytes(4096)
    assert checkpoint.min_timestamp_ms == 0
    assert checkpoint.confirm_physical_offset == 0


def test_fields_lie_where_rocketmq_has_them() -> None:
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(PATH, disk)
    checkpoint.physic_msg_timestamp_ms = 1
    checkpoint.logics_msg_timestamp_ms = 2
    checkpoint.index_msg_timestamp_ms = 3
    checkpoint.master_flushed_offset = 4
    checkpoint.confirm_physical_offset = 5
    assert disk.read(PATH) == bytes(4096)
    checkpoint.flush_blocking()
    durable = disk.open(PATH).durable
    assert durable[:COPY_AT] == struct.pack(">5q", 1, 2, 3, 4, 5).ljust(COPY_AT, b"\0")
    assert settled(durable, 6) == ((1, 2, 3, 4, 5, 0), "", True)
    again = StoreCheckpoint(PATH, disk)
    assert (again.physic_msg_timestamp_ms, again.logics_msg_timestamp_ms) == (1, 2)
    assert (again.index_msg_timestamp_ms, again.master_flushed_offset) == (3, 4)
    assert again.confirm_physical_offset == 5


def test_one_of_rocketmq_is_read() -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, (GOLDEN / "crc" / "checkpoint").read_bytes())
    checkpoint = StoreCheckpoint(PATH, disk)
    assert checkpoint.physic_msg_timestamp_ms == 1_795_219_475_114
    assert checkpoint.confirm_physical_offset == 377


async def test_one_that_is_written_anew_is_the_one_that_is_flushed_from_then_on(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(PATH, disk)
    assert disk.kept.of(PATH) is None  # there is no copy to go by yet
    checkpoint.confirm_physical_offset = 5
    await checkpoint.flush()
    kept = disk.kept.of(PATH)
    assert kept is not None
    assert kept.content == disk.read(PATH)
    disk.remove(PATH)
    disk.kept.keep(PATH, lambda: kept)
    kept.write_anew()
    assert disk.read(PATH) == kept.content
    checkpoint.confirm_physical_offset = 6
    await checkpoint.flush()
    checkpoint.close()
    assert disk.kept.below("/s") == []
    left = StoreCheckpoint(PATH, disk.powered_off(random.Random(1)))
    assert left.confirm_physical_offset == 6


@pytest.mark.parametrize(
    ("physic", "logics", "expected"),
    [(0, 0, 0), (10_000, 8000, 5000), (8000, 10_000, 5000), (3000, 3000, 0), (2000, 9000, 0)],
)
def test_three_seconds_are_left_for_clocks_that_step(
    physic: int, logics: int, expected: int
) -> None:
    """StoreCheckpoint.getMinTimestamp."""
    checkpoint = StoreCheckpoint(PATH, SimulatedDisk())
    checkpoint.physic_msg_timestamp_ms = physic
    checkpoint.logics_msg_timestamp_ms = logics
    assert checkpoint.min_timestamp_ms == expected


async def test_it_is_synced_only_if_it_changed() -> None:
    events: list[str] = []
    disk = SimulatedDisk(on_event=events.append, sync_seconds=lambda: 0.0)
    checkpoint = StoreCheckpoint(PATH, disk)
    events.clear()
    await checkpoint.flush()
    assert events == []
    checkpoint.confirm_physical_offset = 9
    await checkpoint.flush()
    await checkpoint.flush()
    assert events == [f"sync {PATH}"]
    assert disk.open(PATH).durable[32:40] == (9).to_bytes(8, "big")
    checkpoint.close()


@pytest.mark.parametrize("size", [0, 24, 4095, 4097])
def test_another_length_is_refused_with_a_remedy(size: int) -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, bytes(size))
    with pytest.raises(CorruptLogError) as caught:
        StoreCheckpoint(PATH, disk)
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == PATH
    # The text has to say what to do.
    assert "delete it" in str(caught.value)


def test_a_clock_that_goes_back_is_on_disk_before_the_first_record_is() -> None:
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(PATH, disk)
    checkpoint.physic_msg_timestamp_ms = 9000
    checkpoint.logics_msg_timestamp_ms = 5000
    checkpoint.confirm_physical_offset = 77
    checkpoint.clock_went_back(7000)
    assert disk.open(PATH).durable[:16] == struct.pack(">2q", 6999, 5000)
    assert checkpoint.confirm_physical_offset == 77


def test_a_checkpoint_that_is_cut_vouches_for_nothing_behind_that() -> None:
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(PATH, disk)
    checkpoint.physic_msg_timestamp_ms = 9000
    checkpoint.logics_msg_timestamp_ms = 5000
    checkpoint.index_msg_timestamp_ms = 4000
    checkpoint.confirm_physical_offset = 700
    checkpoint.replicated_offset = 600
    checkpoint.cut_at(650, 7000)
    assert disk.open(PATH).durable[:48] == struct.pack(">6q", 7000, 5000, 4000, 0, 650, 0)
    assert own_number(disk) == 600
    checkpoint.cut_at(100, 7000)
    assert disk.open(PATH).durable[32:48] == struct.pack(">2q", 100, 0)
    assert own_number(disk) == 100
    checkpoint.close()


def own_number(disk: SimulatedDisk) -> int:
    return int.from_bytes(disk.open(PATH).durable[OWN_AT : OWN_AT + 8], "big")


def test_what_rocketmq_5_5_has_written_of_its_queues_says_nothing_of_replicas() -> None:
    """StoreCheckpoint of 5.5.0: logicsPhysicalOffset is at 40, where 5.3.3 has nothing."""
    disk = SimulatedDisk()
    disk.replace(PATH, struct.pack(">6q", 9000, 8000, 0, 0, 600, 700).ljust(4096, b"\0"))
    checkpoint = StoreCheckpoint(PATH, disk)
    assert checkpoint.replicated_offset == 0
    # Its number is of queues that we now write to: zero is "not known" to it.
    checkpoint.flush_blocking()
    assert disk.open(PATH).durable[40:48] == bytes(8)
    checkpoint.replicated_offset = 650
    checkpoint.flush_blocking()
    checkpoint.close()
    disk.open(PATH).buffer[40:48] = struct.pack(">q", 900)
    checkpoint = StoreCheckpoint(PATH, disk)
    assert checkpoint.replicated_offset == 650
    checkpoint.flush_blocking()
    assert disk.open(PATH).durable[40:48] == bytes(8)


def test_the_number_of_an_earlier_version_of_ours_is_taken_and_moved() -> None:
    numbers = (9000, 8000, 0, 0, 700, 600)
    data = bytearray(4096)
    struct.pack_into(">6q", data, 0, *numbers)
    copy = copy_of(numbers)
    data[COPY_AT : COPY_AT + len(copy)] = copy
    disk = SimulatedDisk()
    disk.replace(PATH, bytes(data))
    checkpoint = StoreCheckpoint(PATH, disk)
    assert checkpoint.replicated_offset == 600
    checkpoint.flush_blocking()
    assert disk.open(PATH).durable[40:48] == bytes(8)
    assert own_number(disk) == 600
    checkpoint.close()
    assert StoreCheckpoint(PATH, disk).replicated_offset == 600


def test_what_is_replicated_is_read_back() -> None:
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(PATH, disk)
    checkpoint.replicated_offset = 1 << 40
    checkpoint.flush_blocking()
    checkpoint.close()
    assert StoreCheckpoint(PATH, disk).replicated_offset == 1 << 40


def flushed(confirm: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(PATH, disk)
    checkpoint.physic_msg_timestamp_ms = 9000
    checkpoint.logics_msg_timestamp_ms = 8000
    checkpoint.confirm_physical_offset = confirm
    checkpoint.flush_blocking()
    return disk


@pytest.mark.parametrize("position", [0, 39, OWN_AT + 5, COPY_AT, COPY_AT + 6, COPY_AT + 20])
def test_a_flipped_bit_is_said_and_mended_by_the_next_flush(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = flushed(700)
    disk.open(PATH).buffer[position] ^= 4
    again = StoreCheckpoint(PATH, disk)
    assert (again.physic_msg_timestamp_ms, again.confirm_physical_offset) == (9000, 700)
    assert again.replicated_offset == 0
    assert logged(caplog, "store.files.checkpoint_file", logging.ERROR)[0][0] == PATH
    again.flush_blocking()
    assert disk.read(PATH) == flushed(700).read(PATH)


def test_one_of_an_earlier_version_gets_its_copy_with_the_next_flush() -> None:
    disk = flushed(700)
    disk.open(PATH).buffer[COPY_AT:] = bytes(4096 - COPY_AT)
    StoreCheckpoint(PATH, disk).flush_blocking()
    assert disk.read(PATH) == flushed(700).read(PATH)


def test_what_rocketmq_has_lowered_is_not_raised_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = flushed(700)
    disk.open(PATH).buffer[:40] = struct.pack(">5q", 8500, 8600, 0, 0, 600)
    again = StoreCheckpoint(PATH, disk)
    assert (again.physic_msg_timestamp_ms, again.confirm_physical_offset) == (8500, 600)
    assert again.logics_msg_timestamp_ms == 8000
    assert logged(caplog, "store.files.checkpoint_file", logging.ERROR)[0][0] == PATH
