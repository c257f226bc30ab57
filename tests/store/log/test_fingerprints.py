import logging
from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.log.fingerprints import Fingerprints
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tests.support.logged import logged

SIZE = 5 * BLOCK_BYTES // 2
DATA = Random(1).randbytes(SIZE)


def _of(data: bytes = DATA, start: int = SIZE, written_from: int = 0) -> Fingerprint:
    return Fingerprint(start, len(data), crcs_of(data), written_from, 3)


def _fingerprints(disk: SimulatedDisk) -> Fingerprints:
    return Fingerprints(disk, "/store", era=3)


async def test_what_is_saved_is_read_after_a_loss_of_power(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    assert await _fingerprints(disk).save(_of())

    read = _fingerprints(disk.powered_off(Random(1)))

    assert read.starts == [SIZE]
    assert SIZE in read
    assert read.of(SIZE) == _of()
    assert read.of(0) is None


@pytest.mark.slow
@given(st.data())
def test_a_fingerprint_with_a_changed_byte_is_deleted(data: st.DataObject) -> None:
    disk = SimulatedDisk()
    trio.run(_fingerprints(disk).save, _of(), clock=MockClock(autojump_threshold=0))
    path = f"/store/fingerprints/{SIZE:020d}"
    content = bytearray(disk.read(path) or b"")
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    disk.replace(path, bytes(content))
    read = _fingerprints(disk)

    assert read.of(SIZE) is None
    assert not disk.exists(path)
    assert read.starts == []


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("what", ["flipped", "gone", "longer"])
async def test_one_that_has_changed_on_the_disk_is_written_anew_or_dropped(
    what: str,
    is_kept: bool,  # noqa: FBT001
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    fingerprints, made = _fingerprints(disk), _of()
    await fingerprints.save(made)
    path = f"/store/fingerprints/{made.start:020d}"
    whole = disk.read(path) or b""
    await fingerprints.look_at(made.start)
    assert caplog.text == ""
    if not is_kept:
        fingerprints = _fingerprints(disk)
    if what == "flipped":
        disk.open(path).rot(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    elif what == "gone":
        disk.remove(path)
    else:
        disk.replace(path, whole + b"x")

    await fingerprints.look_at(made.start)

    assert logged(caplog, "store.log.fingerprints", logging.ERROR) == [(path,)]
    assert (made.start in fingerprints) is is_kept
    assert disk.read(path) == (whole if is_kept else None)
    await fingerprints.look_at(made.start)
    assert len(caplog.records) == 1


async def test_that_of_another_file_does_not_count(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    await _fingerprints(disk).save(_of())
    disk.rename(f"/store/fingerprints/{SIZE:020d}", f"/store/fingerprints/{0:020d}")

    assert _fingerprints(disk).of(0) is None


async def test_a_disk_without_room_leaves_none_and_stops_nobody(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    fingerprints = _fingerprints(disk)
    await fingerprints.save(_of())
    disk.capacity_bytes = disk.used_bytes

    assert not await fingerprints.save(_of(DATA, 9 * SIZE))

    assert fingerprints.starts == [SIZE]


async def test_two_may_be_saved_at_once_the_same_and_different_ones(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    fingerprints = _fingerprints(disk)
    async with trio.open_nursery() as nursery:
        for start in (SIZE, SIZE, 3 * SIZE):
            nursery.start_soon(fingerprints.save, _of(DATA, start))

    assert _fingerprints(disk).of(SIZE) == _of()
    assert _fingerprints(disk).starts == [SIZE, 3 * SIZE]


async def test_those_of_files_outside_of_the_log_go(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    fingerprints = _fingerprints(disk)
    for number in range(4):
        await fingerprints.save(_of(DATA, number * SIZE))

    fingerprints.keep_within(SIZE, 4 * SIZE - 1, SIZE)

    assert fingerprints.starts == [SIZE, 2 * SIZE]
    assert _fingerprints(disk).starts == [SIZE, 2 * SIZE]
    assert fingerprints.of(0) is None


async def test_only_a_few_are_kept_in_memory_and_all_are_found(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    fingerprints = _fingerprints(disk)
    for number in range(9):
        await fingerprints.save(_of(DATA, number * SIZE))

    assert [fingerprints.of(number * SIZE) for number in range(9)] == [
        _of(DATA, number * SIZE) for number in range(9)
    ]


async def test_another_one_of_the_same_file_takes_its_place(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    fingerprints = _fingerprints(disk)
    await fingerprints.save(_of())
    changed = _of(b"?" + DATA[1:])

    assert await fingerprints.save(changed)

    assert fingerprints.of(SIZE) == changed
    assert _fingerprints(disk).of(SIZE) == changed


async def test_those_at_the_edges_of_the_log_stay(autojump_clock: MockClock) -> None:
    fingerprints = _fingerprints(SimulatedDisk())
    for number in range(4):
        await fingerprints.save(_of(DATA, number * SIZE))

    fingerprints.keep_within(SIZE, 3 * SIZE, SIZE)
    assert fingerprints.starts == [SIZE, 2 * SIZE]
    fingerprints.drop_before(2 * SIZE)
    assert fingerprints.starts == [2 * SIZE]
