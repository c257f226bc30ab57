from contextlib import suppress

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store import StoreConfig
from store.log.fingerprints import Fingerprints
from store.machine.errors import CorruptLogError, StoreLockedError, UnfitBytesError
from store.recovery.closed_log import blocks_around, heal_closed_log
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tests.store.store_world import Clock, check_store, open_store, put_many
from tests.support.reasons import words


def _closed(*, clean: bool) -> tuple[SimulatedDisk, bytes, int]:
    """Return the disk of a store that was closed or killed, its log, and how many messages."""
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 60)
    count, end = len(check_store(store)), store.max_physical_offset
    if clean:
        store.close()
    else:
        store.sync_log()
        store.checkpoint.confirm_physical_offset = store.max_physical_offset
        store.checkpoint.flush_blocking()
    return disk.crashed(), _log(disk)[:end], count


def _log(disk: SimulatedDisk) -> bytes:
    files = disk.list_files("/store/commitlog")
    return b"".join(disk.read(f"/store/commitlog/{name}") or b"" for name, _ in files)


def _flip(disk: SimulatedDisk, place: int) -> None:
    file_bytes = 8192
    file = disk.open(f"/store/commitlog/{place - place % file_bytes:020d}")
    file.buffer[place % file_bytes] ^= 1
    file.sync()


@pytest.mark.slow
@given(st.data(), st.booleans())
def test_damage_that_stops_a_start_is_healed_by_the_bytes_that_the_error_names(
    data: st.DataObject,
    clean: bool,  # noqa: FBT001
) -> None:
    disk, log, count = _closed(clean=clean)
    place = data.draw(st.integers(0, len(log) - 1))
    _flip(disk, place)
    error = _error_of_opening(disk)
    if error is None:  # a byte that no CRC of RocketMQ's covers, or that the walk does not reach
        return

    assert 0 <= error.offset <= place < error.damaged_end <= error.synced_end == len(log)
    part = log[error.offset : error.damaged_end]
    heal_closed_log(_config(), error.offset, part, disk=disk, wall_clock_ms=Clock())

    assert _log(disk)[: len(log)] == log
    store = open_store(disk)
    assert len(check_store(store)) == count
    assert not store.commit_log.damage


def _error_of_opening(disk: SimulatedDisk, *, fenced: bool = False) -> CorruptLogError | None:
    with suppress(CorruptLogError), open_store(disk, confirm_bounds_reads=fenced):
        return None
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk, confirm_bounds_reads=fenced)
    return caught.value


def _config() -> StoreConfig:
    return open_store(SimulatedDisk()).config


def test_bytes_that_do_not_fit_change_nothing() -> None:
    disk, log, _ = _closed(clean=True)
    _flip(disk, log.rindex(b"...."))
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    start, end = caught.value.offset, caught.value.damaged_end
    before = _log(disk)

    with pytest.raises(UnfitBytesError):
        heal_closed_log(_config(), start, b"?" * (end - start), disk=disk, wall_clock_ms=Clock())

    assert _log(disk) == before


@pytest.mark.parametrize("gone", [(-1,), (-2, -1), (-3, -2, -1)])
@pytest.mark.parametrize("piece_bytes", [8192, 1000])
@pytest.mark.parametrize("clean", [True, False])
def test_files_that_are_gone_at_the_end_are_made_and_healed(
    gone: tuple[int, ...],
    piece_bytes: int,
    clean: bool,  # noqa: FBT001
) -> None:
    disk, log, count = _closed(clean=clean)
    names = [name for name, _ in disk.list_files("/store/commitlog")]
    for number in gone:
        disk.remove(f"/store/commitlog/{names[number]}")
    reached = -1
    while (error := _error_of_opening(disk, fenced=True)) is not None:
        assert reached < error.offset < error.damaged_end
        reached = at = error.offset
        while at < error.damaged_end:
            end = min(at + piece_bytes, at - at % 8192 + 8192, error.damaged_end)
            heal_closed_log(_config(), at, log[at:end], disk=disk, wall_clock_ms=Clock())
            at = end
    store = open_store(disk, confirm_bounds_reads=True)

    assert reached >= 0
    assert _log(disk)[: len(log)] == log
    store.confirm(store.max_physical_offset)
    assert len(check_store(store)) == count
    assert not store.commit_log.damage


def test_a_store_knows_that_its_lost_end_was_longer_than_what_was_healed() -> None:
    disk, log, _ = _closed(clean=True)
    names = [name for name, _ in disk.list_files("/store/commitlog")]
    disk.remove(f"/store/commitlog/{names[-1]}")
    error = _error_of_opening(disk, fenced=True)
    assert error is not None
    part = log[error.offset : error.damaged_end]
    heal_closed_log(_config(), error.offset, part, disk=disk, wall_clock_ms=Clock())

    store = open_store(disk, confirm_bounds_reads=True)
    assert "was longer" in words(store.damaged_end)
    store.close()
    assert not open_store(disk, confirm_bounds_reads=True).damaged_end


@pytest.mark.parametrize("is_rotten", [True, False])
def test_a_fingerprint_of_bytes_that_had_changed_already_speaks_for_nothing(
    is_rotten: bool,  # noqa: FBT001
) -> None:
    disk, log, _ = _closed(clean=False)
    _flip(disk, log.rindex(b"...."))
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    error = caught.value
    first = error.offset - error.offset % 8192
    fingerprints = Fingerprints(disk, _config().directory)
    taken_of = _log(disk) if is_rotten else log
    crcs = crcs_of(taken_of[first : first + 8192].ljust(8192, b"\0"))
    trio.run(fingerprints.save, Fingerprint(first, 8192, crcs, first, 0))

    data = log[error.offset : error.damaged_end]
    heal_closed_log(_config(), error.offset, data, disk=disk, wall_clock_ms=Clock())

    assert _log(disk)[: len(log)] == log
    assert (first in Fingerprints(disk, _config().directory)) is not is_rotten


def test_what_was_healed_is_on_the_disk_before_its_note_goes() -> None:
    disk, log, _ = _closed(clean=False)
    record = int.from_bytes(log[:4], "big")
    _flip(disk, 200)
    durable: list[bytes] = []

    def look(event: str) -> None:
        if event.startswith("remove /store/damage.json"):
            durable.append(disk.open(f"/store/commitlog/{0:020d}").durable[:record])

    disk.on_event = look
    heal_closed_log(_config(), 0, log[:record], disk=disk, wall_clock_ms=Clock())

    assert durable == [log[:record]]


def test_what_is_healed_once_more_keeps_its_fingerprint() -> None:
    """As after an interruption: what is there is what was put there."""
    disk, log, _ = _closed(clean=False)
    fingerprints = Fingerprints(disk, _config().directory)
    crcs = crcs_of(log[:8192])
    trio.run(fingerprints.save, Fingerprint(0, 8192, crcs, 0, 0))

    heal_closed_log(_config(), 0, log[:8192], disk=disk, wall_clock_ms=Clock())

    assert 0 in Fingerprints(disk, _config().directory)


@pytest.mark.parametrize(
    ("part", "around"),
    [
        ((300, 400), (0, BLOCK_BYTES)),
        ((BLOCK_BYTES - 1, BLOCK_BYTES + 1), (0, 2 * BLOCK_BYTES)),
        ((BLOCK_BYTES, BLOCK_BYTES + 1), (BLOCK_BYTES, 2 * BLOCK_BYTES)),
        ((2 * BLOCK_BYTES - 1, 2 * BLOCK_BYTES + 5), (BLOCK_BYTES, 2 * BLOCK_BYTES + 1000)),
    ],
)
def test_around_a_part_are_the_blocks_that_it_touches(
    part: tuple[int, int], around: tuple[int, int]
) -> None:
    disk = SimulatedDisk()
    size = 2 * BLOCK_BYTES + 1000
    config = msgspec.structs.replace(_config(), mapped_file_size_commit_log_bytes=size)
    assert blocks_around(config, size + part[0], size + part[1], disk=disk) == (
        size + part[0],
        size + part[1],
    )
    fingerprints = Fingerprints(disk, config.directory)
    trio.run(fingerprints.save, Fingerprint(size, size, crcs_of(bytes(size)), 0, 0))
    assert blocks_around(config, size + part[0], size + part[1], disk=disk) == (
        size + around[0],
        size + around[1],
    )


def test_a_store_that_is_open_is_left_alone() -> None:
    disk = SimulatedDisk()
    open_store(disk)

    with pytest.raises(StoreLockedError):
        heal_closed_log(_config(), 0, b"", disk=disk, wall_clock_ms=Clock())
