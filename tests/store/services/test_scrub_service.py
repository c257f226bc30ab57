from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.services.scrub_service import ScrubProgress
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tests.store.store_world import (
    DIRECTORY,
    Clock,
    a_message,
    check_store,
    log_messages,
    open_store,
    put,
)

T = TypeVar("T")

FILE_BYTES = 3 * BLOCK_BYTES


def _store(disk: SimulatedDisk, **settings: object) -> MessageStore:
    store = open_store(disk, commit_log_bytes=FILE_BYTES, **settings)  # type: ignore[arg-type]
    while len(store.commit_log.files.files) < 4:
        put(store, a_message(store.reads.max_offset_in_queue("TopicA", 0), body_bytes=5000))
    store.sync_log()
    return store


def _log(store: MessageStore) -> bytes:
    return b"".join(bytes(file.buffer) for file in store.commit_log.files.files)


def _flip(store: MessageStore, place: int, bits: int = 1) -> None:
    file = store.commit_log.files.find_by_offset(place)
    assert file is not None
    file.buffer[place - file.file_from_offset] ^= bits
    file.file.sync()


async def _take_fingerprints(store: MessageStore, era: int | None = None) -> None:
    for file in store.commit_log.files.files[:3]:
        crcs = crcs_of(bytes(file.buffer))
        start = file.file_from_offset
        own = store.fingerprints.era if era is None else era
        await store.fingerprints.save(Fingerprint(start, FILE_BYTES, crcs, 0, own))


async def _scrub(store: MessageStore) -> ScrubProgress:
    store.scrub_service.scrub_now()
    await store.scrub_service.scrub_pass()
    return store.scrub_service.progress


def _bad(store: MessageStore) -> list[tuple[int, int]]:
    return [(bad.start, bad.end) for bad in store.commit_log.damage.ranges]


def _run(function: Callable[..., Awaitable[T]], *args: object) -> T:
    return trio.run(function, *args, clock=MockClock(autojump_threshold=0))


@pytest.mark.slow
@given(st.integers(0, 3 * FILE_BYTES - 1), st.integers(1, 255))
def test_any_changed_byte_of_a_closed_file_is_found_in_its_block_and_healed(
    place: int, bits: int
) -> None:
    store = _store(SimulatedDisk())
    whole = _log(store)
    _run(_take_fingerprints, store)
    _flip(store, place, bits)
    begin = place - place % BLOCK_BYTES

    progress = _run(_scrub, store)

    assert _bad(store) == [(begin, begin + BLOCK_BYTES)]
    assert progress.found_ranges == 1
    _run(store.healing.heal, begin, whole[begin : begin + BLOCK_BYTES])
    assert _log(store) == whole
    assert not _run(_scrub, store).found_ranges
    assert not store.commit_log.damage
    check_store(store)


@pytest.mark.slow
@given(st.integers(0, 3 * FILE_BYTES - 1))
def test_without_fingerprints_what_a_record_shows_is_found_in_it(place: int) -> None:
    store = _store(SimulatedDisk())
    whole = _log(store)
    _flip(store, place)

    _run(_scrub, store)

    start = place // FILE_BYTES * FILE_BYTES
    assert len(_bad(store)) <= 1
    for bad_start, bad_end in _bad(store):
        assert bad_start <= place < bad_end
        assert bad_end - bad_start < 6000 or bad_end % FILE_BYTES == 0  # one record, or the blank
        assert store.fingerprints.of(start) is None
        _run(store.healing.heal, bad_start, whole[bad_start:bad_end])
        assert _log(store) == whole
    if not _bad(store):
        made = store.fingerprints.of(start)
        assert made is None or not made.is_written(start)


async def test_a_sound_log_gets_fingerprints_that_say_they_were_read(
    autojump_clock: MockClock,
) -> None:
    store = _store(SimulatedDisk())
    progress = await _scrub(store)

    assert store.fingerprints.starts == [0, FILE_BYTES, 2 * FILE_BYTES]
    for file in store.commit_log.files.files[:3]:
        made = store.fingerprints.of(file.file_from_offset)
        assert made is not None
        assert made.crcs == crcs_of(bytes(file.buffer))
        assert not made.is_written(made.end - 1)
    assert progress.offset == 3 * FILE_BYTES
    assert not progress.is_running


async def test_a_range_noted_by_mistake_is_whole_again(autojump_clock: MockClock) -> None:
    store = _store(SimulatedDisk())
    await _take_fingerprints(store)
    store.commit_log.damage.note(100, 200, "a reader thought so")

    await _scrub(store)

    assert not store.commit_log.damage


async def test_a_bad_record_stays_noted_though_a_fingerprint_was_taken_of_it(
    autojump_clock: MockClock,
) -> None:
    store = _store(SimulatedDisk())
    record, after = (message.physical_offset for message in log_messages(store)[1:3])
    _flip(store, after - 100)
    await _take_fingerprints(store)
    store.commit_log.damage.note(record, after, "a reader has found it")

    await _scrub(store)

    assert _bad(store) == [(record, after)]
    _flip(store, after - 100)
    await _take_fingerprints(store)
    await _scrub(store)
    assert not store.commit_log.damage


async def test_doubt_in_the_whole_log_is_taken_away_piece_by_piece(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    _store(disk).close()
    disk.replace(f"{DIRECTORY}/damage.json", b"rubbish")
    store = open_store(disk, commit_log_bytes=FILE_BYTES)
    assert _bad(store)[0][0] == 0

    await _scrub(store)

    assert all(start >= 3 * FILE_BYTES for start, _ in _bad(store))


async def test_what_memory_still_has_is_written_again(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _take_fingerprints(store)
    file = store.commit_log.files.files[1].file
    rotten = bytearray(file.buffer[:])
    rotten[7] ^= 1
    real_read = disk.read_from_disk

    async def read(path: str, start: int, size: int) -> bytes:
        data = await real_read(path, start, size)
        return bytes(rotten[start : start + size]) if path == file.path else data

    disk.read_from_disk = read  # type: ignore[method-assign]
    writes: list[tuple[int, int]] = []
    file.write = lambda position, data: writes.append((position, len(data)))  # type: ignore[method-assign]

    progress = await _scrub(store)

    assert progress.mended_blocks == 1
    assert writes == [(0, BLOCK_BYTES)]
    assert not store.commit_log.damage


async def test_what_memory_still_has_is_written_again_without_a_fingerprint_too(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    file = disk.open(store.commit_log.files.files[1].file.path)
    whole = file.content
    file.rot(bytes([whole[0] ^ 1]) + whole[1:])

    progress = await _scrub(store)

    assert file.content == file.durable == whole
    assert progress.mended_blocks == FILE_BYTES // BLOCK_BYTES
    assert not store.commit_log.damage
    made = store.fingerprints.of(FILE_BYTES)
    assert made is not None
    assert made.crcs == crcs_of(whole)


async def test_one_file_is_looked_at_wherever_the_pass_is(autojump_clock: MockClock) -> None:
    store = _store(SimulatedDisk())
    _flip(store, FILE_BYTES + 3000)
    before = store.scrub_service.progress

    await store.scrub_service.look_at_file(0)
    await store.scrub_service.look_at_file(FILE_BYTES)
    await store.scrub_service.look_at_file(3 * FILE_BYTES)  # it is not closed

    assert store.fingerprints.starts == [0]
    assert [start // FILE_BYTES for start, _ in _bad(store)] == [1]
    assert store.scrub_service.progress.offset == before.offset


async def test_whoever_has_one_file_looked_at_does_not_wait_for_a_rest_after_it(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 5.0)
    store = _store(disk)
    began = trio.current_time()
    await store.scrub_service.look_at_file(0)
    # It is read at once, and its fingerprint is written.
    assert trio.current_time() - began < 5.0 + 3 * 5.0 + 1


@pytest.mark.parametrize("is_other_era", [True, False])
async def test_a_file_that_others_cut_and_filled_again_is_not_damaged(
    autojump_clock: MockClock,
    is_other_era: bool,  # noqa: FBT001
) -> None:
    store = _store(SimulatedDisk())
    other = open_store(SimulatedDisk(), commit_log_bytes=FILE_BYTES)
    while len(other.commit_log.files.files) < 4:  # from the second block on
        number = other.reads.max_offset_in_queue("TopicA", 0)
        put(other, a_message(number, body_bytes=5000 if number < 13 else 4000))
    await _take_fingerprints(store, era=store.fingerprints.era - is_other_era)
    for file, new in zip(store.commit_log.files.files, other.commit_log.files.files, strict=True):
        file.buffer[:] = new.buffer[:]

    await _scrub(store)

    assert bool(store.commit_log.damage) is not is_other_era
    if is_other_era:
        await _scrub(store)
        assert store.fingerprints.starts == [0, FILE_BYTES, 2 * FILE_BYTES]
        assert not store.commit_log.damage


async def test_a_flip_in_a_store_that_others_had_is_damage_all_the_same(
    autojump_clock: MockClock,
) -> None:
    store = _store(SimulatedDisk())
    await _take_fingerprints(store, era=store.fingerprints.era - 1)
    _flip(store, _log(store).index(b"UNIQ_KEY", BLOCK_BYTES))  # no CRC of RocketMQ's covers it

    await _scrub(store)

    assert _bad(store) == [(BLOCK_BYTES, 2 * BLOCK_BYTES)]


async def test_what_the_disk_does_not_give_is_damaged(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    bad_path = store.commit_log.files.files[1].file.path
    real_read = disk.read_from_disk

    async def read(path: str, start: int, size: int) -> bytes:
        if path == bad_path:
            raise OSError(5, "EIO")
        return await real_read(path, start, size)

    disk.read_from_disk = read  # type: ignore[method-assign]

    await _scrub(store)

    assert _bad(store) == [(FILE_BYTES, 2 * FILE_BYTES)]


async def test_units_that_name_other_bytes_are_written_anew(autojump_clock: MockClock) -> None:
    store = _store(SimulatedDisk())
    await _take_fingerprints(store)
    queue = store.queues.find("TopicA", 0)
    assert queue is not None
    file = queue.file_queues[0].files[0]
    before = bytes(file.buffer)
    file.buffer[20:140] = bytes(120)
    file.buffer[180:200] = before[200:220] if len(before) > 219 else before[160:180]

    progress = await _scrub(store)

    assert bytes(file.buffer) == before
    assert progress.rewritten_units == 7
    check_store(store)


@pytest.mark.slow
async def test_a_pass_goes_on_after_a_restart_and_begins_again_when_ordered(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _take_fingerprints(store)
    reads: list[tuple[str, int]] = []
    real_read = disk.read_from_disk

    async def read(path: str, start: int, size: int) -> bytes:
        if "/commitlog/" in path:
            reads.append((path[-8:], start))
        return await real_read(path, start, size)

    disk.read_from_disk = read  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.scrub_service.run)
        while len(reads) < 2:
            await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    store.close()
    reads.clear()
    store = open_store(disk, commit_log_bytes=FILE_BYTES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.scrub_service.run)
        await trio.sleep(500 * 3600)
        nursery.cancel_scope.cancel()

    assert [name for name, _ in reads] == [f"{2 * FILE_BYTES:08d}"] or [n for n, _ in reads] == [
        f"{FILE_BYTES:08d}",
        f"{2 * FILE_BYTES:08d}",
    ]
    reads.clear()
    assert (await _scrub(store)).offset == 3 * FILE_BYTES
    assert len(reads) == 3


async def test_it_rests_so_that_a_pass_takes_half_of_its_time(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = _store(disk, scrub_interval_hours=24)
    began = trio.current_time()
    store.scrub_service._began()
    await store.scrub_service.scrub_pass()
    paced = trio.current_time() - began

    assert 6 * 3600 <= paced <= 9 * 3600, "of half a day, the last file of four is not read"
    began = trio.current_time()
    await _scrub(store)
    assert trio.current_time() - began < 1
    began = trio.current_time()
    store.scrub_service._began()
    await store.scrub_service.scrub_pass()
    assert trio.current_time() - began == pytest.approx(paced), "one that is not ordered again"


async def test_it_gives_way_to_others_at_most_a_quarter_of_the_time(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.01)
    store = _store(disk)
    await _take_fingerprints(store)
    began = trio.current_time()

    await _scrub(store)

    assert trio.current_time() - began >= 3 * 0.01 + 2 * 0.03 - 1e-9


def test_a_progress_file_with_a_changed_byte_begins_anew() -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    _run(_scrub, store)
    store.close()
    data = bytearray(disk.read(f"{DIRECTORY}/scrub.json") or b"")
    data[Random(1).randrange(len(data))] ^= 1
    disk.replace(f"{DIRECTORY}/scrub.json", bytes(data))

    store = open_store(disk, commit_log_bytes=FILE_BYTES, clock=Clock())

    assert store.scrub_service.progress == ScrubProgress()


async def test_a_file_that_was_deleted_under_the_process_is_written_anew(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _take_fingerprints(store)
    whole = _log(store)
    second = store.commit_log.files.files[1]
    disk.remove(second.file.path)
    reader = store.read_log(second.file_from_offset, 100)

    progress = await _scrub(store)

    assert not store.commit_log.damage
    assert progress.mended_blocks == 3
    assert bytes(reader) == whole[FILE_BYTES : FILE_BYTES + 100]
    assert disk.open(second.file.path).durable == whole[FILE_BYTES : 2 * FILE_BYTES]
    assert disk.open(second.file.path) is second.file
    # What is healed later reaches the new file, and a power loss leaves all of it.
    _flip(store, FILE_BYTES + 7)
    await _scrub(store)
    await store.healing.heal(FILE_BYTES, whole[FILE_BYTES : FILE_BYTES + BLOCK_BYTES])
    left = disk.powered_off(Random(1))
    assert left.read(second.file.path) == whole[FILE_BYTES : 2 * FILE_BYTES]
    assert _log(store) == whole


async def test_a_deleted_file_that_is_damaged_in_memory_too_is_written_anew_and_damaged(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _take_fingerprints(store)
    _flip(store, FILE_BYTES + 7)
    disk.remove(store.commit_log.files.files[1].file.path)

    await _scrub(store)

    assert _bad(store) == [(FILE_BYTES, FILE_BYTES + BLOCK_BYTES)]
    assert disk.exists(store.commit_log.files.files[1].file.path)


async def test_one_that_is_ordered_is_another_pass_whatever_the_clock_says(
    autojump_clock: MockClock,
) -> None:
    """Also twice in a millisecond, and after the clock was put back."""
    clock = Clock(step_ms=0)
    store = _store(SimulatedDisk(), clock=clock)
    service = store.scrub_service
    began: list[int] = []

    def order() -> bool:
        service.scrub_now()
        began.append(service.progress.started_ms)
        return service.progress.is_running

    assert [order() for _ in range(3)] == [True] * 3
    await service.scrub_pass()
    assert service.progress.ended_ms >= began[-1]
    clock.now_ms -= 1_000_000
    assert order()
    assert began == sorted(set(began))


@pytest.mark.slow
async def test_without_an_interval_no_pass_begins_by_itself(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = _store(SimulatedDisk(), scrub_interval_hours=0)
    nursery.start_soon(store.scrub_service.run)
    await trio.sleep(1000 * 3600)
    assert store.scrub_service.progress == ScrubProgress()
    store.scrub_service.scrub_now()
    await trio.sleep(10)
    assert store.scrub_service.progress.ended_ms
    nursery.cancel_scope.cancel()


async def test_the_end_of_a_pass_is_known_after_a_restart(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    progress = await _scrub(store)
    store.close()
    store = open_store(disk, commit_log_bytes=FILE_BYTES)
    assert store.scrub_service.progress == progress


async def test_one_that_is_ordered_in_the_middle_of_a_pass_reads_all_from_the_beginning(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _take_fingerprints(store)
    reads: list[int] = []
    real_read = disk.read_from_disk

    async def read(path: str, start: int, size: int) -> bytes:
        if "/commitlog/" in path:
            reads.append(int(path[-8:]) // FILE_BYTES)
            if len(reads) == 2:
                store.scrub_service.scrub_now()
        return await real_read(path, start, size)

    disk.read_from_disk = read  # type: ignore[method-assign]
    await _scrub(store)
    assert reads == [0, 1, 0, 1, 2]
    assert not store.scrub_service.progress.is_running


async def test_of_a_file_that_became_short_only_what_is_missing_is_damaged(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _take_fingerprints(store)
    short_path = store.commit_log.files.files[1].file.path
    real_read = disk.read_from_disk

    async def read(path: str, start: int, size: int) -> bytes:
        data = await real_read(path, start, size)
        return data[: BLOCK_BYTES + 100] if path == short_path else data

    disk.read_from_disk = read  # type: ignore[method-assign]
    await _scrub(store)
    assert _bad(store) == [(FILE_BYTES + BLOCK_BYTES + 100, 2 * FILE_BYTES)]


async def test_a_range_stays_bad_while_memory_has_other_bytes_than_the_disk(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _take_fingerprints(store)
    file = store.commit_log.files.files[0].file
    whole = bytes(file.buffer)
    file.buffer[7] ^= 1
    store.commit_log.damage.note(0, 100, "a reader thought so")
    real_read = disk.read_from_disk

    async def read(path: str, start: int, size: int) -> bytes:
        data = await real_read(path, start, size)
        return whole[start : start + size] if path == file.path else data

    disk.read_from_disk = read  # type: ignore[method-assign]
    await _scrub(store)
    assert _bad(store) == [(0, 100)]
