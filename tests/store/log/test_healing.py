import errno

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.machine.errors import StoreFullError, Unfit, UnfitBytesError
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tests.store.store_world import DIRECTORY, a_message, check_store, open_store, put

FILE_BYTES = 3 * BLOCK_BYTES


def _store(disk: SimulatedDisk, body_bytes: int = 5000, **settings: object) -> MessageStore:
    store = open_store(disk, commit_log_bytes=FILE_BYTES, **settings)  # type: ignore[arg-type]
    while len(store.commit_log.files.files) < 3:
        put(store, a_message(body_bytes=body_bytes))
    store.sync_log()
    return store


def _log(store: MessageStore) -> bytes:
    return b"".join(bytes(file.buffer) for file in store.commit_log.files.files)


def _flip(store: MessageStore, place: int, size: int = 1) -> None:
    file = store.commit_log.files.find_by_offset(place)
    assert file is not None
    at = place - file.file_from_offset
    file.buffer[at : at + size] = bytes(255 - byte for byte in file.buffer[at : at + size])


async def _fingerprint(store: MessageStore, start: int = 0) -> None:
    file = store.commit_log.files.find_by_offset(start)
    assert file is not None
    crcs = crcs_of(bytes(file.buffer))
    assert await store.fingerprints.save(Fingerprint(start, FILE_BYTES, crcs, 0, 0))


def _heal(store: MessageStore, start: int, data: bytes) -> None:
    async def run() -> None:
        await store.healing.heal(start, data)

    trio.run(run, clock=MockClock(autojump_threshold=0))


@pytest.mark.slow
@given(st.integers(0, FILE_BYTES - 1), st.booleans())
def test_after_healing_all_is_as_before_whichever_byte_had_changed(
    place: int,
    has_fingerprint: bool,  # noqa: FBT001
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    whole = _log(store)
    if has_fingerprint:
        trio.run(_fingerprint, store, clock=MockClock(autojump_threshold=0))
    begin = place // BLOCK_BYTES * BLOCK_BYTES
    _flip(store, place)
    store.commit_log.damage.note(begin, begin + BLOCK_BYTES, "flipped")

    _heal(store, begin, whole[begin : begin + BLOCK_BYTES])

    assert _log(store) == whole
    assert not store.commit_log.damage
    file = store.commit_log.files.files[0].file
    assert disk.open(file.path).durable == whole[:FILE_BYTES]
    check_store(store)


async def test_bytes_with_another_fingerprint_are_refused(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    await _fingerprint(store)
    whole = _log(store)
    _flip(store, 100, 50)
    before = _log(store)
    store.commit_log.damage.note(0, BLOCK_BYTES, "flipped")
    wrong = b"?" + whole[1:BLOCK_BYTES]

    with pytest.raises(UnfitBytesError) as caught:
        await store.healing.heal(0, wrong)
    assert caught.value.cause is Unfit.OTHER_BLOCK
    with pytest.raises(UnfitBytesError):
        await store.healing.heal(100, whole[100:149])  # one byte of the block stays bad

    assert (caught.value.start, caught.value.end) == (0, BLOCK_BYTES)
    assert _log(store) == before
    assert [(bad.start, bad.end) for bad in store.commit_log.damage.ranges] == [(0, BLOCK_BYTES)]
    await store.healing.heal(100, whole[100:150])
    assert _log(store) == whole


@pytest.mark.parametrize("place", [0, 4, 8, 5020, 5095])
async def test_without_a_fingerprint_records_have_to_be_sound(
    autojump_clock: MockClock, place: int
) -> None:
    store = _store(SimulatedDisk())
    whole = _log(store)
    record = int.from_bytes(whole[:4], "big")
    _flip(store, 0, 2 * record)
    wrong = bytearray(whole[: 2 * record])
    wrong[place] ^= 1

    with pytest.raises(UnfitBytesError) as caught:
        await store.healing.heal(0, bytes(wrong))
    assert caught.value.cause is Unfit.OTHER_RECORD
    with pytest.raises(UnfitBytesError):
        await store.healing.heal(0, whole[: record + 90])  # what follows is not sound
    await store.healing.heal(0, whole[: 2 * record])

    assert _log(store) == whole


async def test_two_bad_ranges_of_a_file_are_healed_one_by_one_in_any_order(
    autojump_clock: MockClock,
) -> None:
    store = _store(SimulatedDisk())
    whole = _log(store)
    record = int.from_bytes(whole[:4], "big")
    _flip(store, 2 * record, 200)
    _flip(store, 9 * record, 200)

    await store.healing.heal(9 * record, whole[9 * record : 10 * record])
    await store.healing.heal(2 * record, whole[2 * record : 3 * record])

    assert _log(store) == whole


async def test_a_range_over_two_files_and_up_to_the_end_of_the_log_is_healed(
    autojump_clock: MockClock,
) -> None:
    store = _store(SimulatedDisk())
    whole, end = _log(store), store.max_physical_offset
    _flip(store, FILE_BYTES - 9, end - FILE_BYTES + 9)

    with pytest.raises(UnfitBytesError):
        await store.healing.heal(FILE_BYTES - 9, whole[FILE_BYTES - 9 : end + 1])
    await store.healing.heal(FILE_BYTES - 9, whole[FILE_BYTES - 9 : end])

    assert _log(store) == whole


async def test_what_was_there_is_kept_but_for_zeros(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    whole = _log(store)
    record = int.from_bytes(whole[:4], "big")
    _flip(store, 0, 200)
    bad = _log(store)[:record]

    await store.healing.heal(0, whole[:record])
    _flip(store, 7, 1)
    await store.healing.heal(0, whole[:record])
    store.commit_log.files.files[0].buffer[:record] = bytes(record)
    await store.healing.heal(0, whole[:record])

    assert disk.read(f"{DIRECTORY}/damaged/{0:020d}-{record}") == bad
    assert [name for name, _ in disk.list_files(f"{DIRECTORY}/damaged")] == [
        f"{0:020d}-{record}",
        f"{0:020d}-{record}.2",
    ]


async def test_without_room_for_what_was_there_nothing_is_changed(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    whole = _log(store)
    record = int.from_bytes(whole[:4], "big")
    _flip(store, 0, 200)
    bad = _log(store)
    store.commit_log.damage.note(0, record, "flipped")
    disk.capacity_bytes = disk.used_bytes

    with pytest.raises(StoreFullError):
        await store.healing.heal(0, whole[:record])

    assert _log(store) == bad
    assert store.commit_log.damage


async def test_a_failed_sync_leaves_the_note_and_half_a_healing_is_known_to_be_bad(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    whole = _log(store)
    record = int.from_bytes(whole[:4], "big")
    store.commit_log.files.files[0].buffer[:record] = bytes(record)
    # Nobody has noted it before: healing does, before it writes.
    writes: list[str] = []
    disk.on_event = writes.append
    original = disk.sync

    async def failing(file: object) -> None:
        raise OSError(5, "EIO")

    disk.sync = failing  # type: ignore[method-assign]
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        await store.healing.heal(0, whole[:record])

    assert writes[0].startswith(f"replace {DIRECTORY}/damage.json")
    assert [(bad.start, bad.end) for bad in store.commit_log.damage.ranges] == [(0, record)]
    disk.sync = original  # type: ignore[method-assign]
    await store.healing.heal(0, whole[:record])
    assert not store.commit_log.damage


async def test_where_one_of_two_files_would_not_be_whole_nothing_is_changed_in_either(
    autojump_clock: MockClock,
) -> None:
    store = _store(SimulatedDisk())
    whole = _log(store)
    record = int.from_bytes(whole[FILE_BYTES : FILE_BYTES + 4], "big")
    _flip(store, FILE_BYTES - 9, record + 9)
    before = _log(store)
    wrong = bytearray(whole[FILE_BYTES - 9 : FILE_BYTES + record])
    wrong[9 + 100] ^= 1

    with pytest.raises(UnfitBytesError):
        await store.healing.heal(FILE_BYTES - 9, bytes(wrong))

    assert _log(store) == before


async def test_what_was_there_at_two_healings_is_kept_twice_and_the_same_once(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    whole = _log(store)
    record = int.from_bytes(whole[:4], "big")
    for place in (100, 200, 100, 300):
        _flip(store, place)
        await store.healing.heal(0, whole[:record])

    names = [name for name, _ in disk.list_files(f"{DIRECTORY}/damaged")]
    kept = {disk.read(f"{DIRECTORY}/damaged/{name}") for name in names}
    assert len(names) == 3
    assert kept == {
        whole[:place] + bytes([255 - whole[place]]) + whole[place + 1 : record]
        for place in (100, 200, 300)
    }


async def test_nothing_is_healed_past_the_end_of_the_log(autojump_clock: MockClock) -> None:
    store = _store(SimulatedDisk())
    whole, end = _log(store), store.max_physical_offset
    before = _log(store)
    with pytest.raises(UnfitBytesError) as caught:
        await store.healing.heal(end, b"?")
    assert caught.value.cause is Unfit.OUTSIDE
    last = store.last_record_offset
    with pytest.raises(UnfitBytesError) as caught:
        await store.healing.heal(last, whole[last:end] + b"?")
    assert (caught.value.cause, caught.value.end) == (Unfit.OUTSIDE, end + 1)
    assert _log(store) == before


async def test_a_range_is_known_to_be_bad_and_kept_before_the_first_byte_is_written(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    whole = _log(store)
    record = int.from_bytes(whole[:4], "big")
    _flip(store, 100)
    file = store.commit_log.files.files[0].file
    real_write = file.write
    found: list[tuple[bool, int]] = []

    def write(position: int, data: memoryview) -> None:
        kept = len(disk.list_files(f"{DIRECTORY}/damaged"))
        found.append((store.commit_log.damage.covers(0, record), kept))
        real_write(position, data)

    monkeypatch.setattr(file, "write", write)
    await store.healing.heal(0, whole[:record])

    assert found == [(True, 1)]
    assert not store.commit_log.damage


async def test_a_file_whose_healing_failed_is_not_held_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes no file that somebody holds."""
    disk = SimulatedDisk()
    store = _store(disk)
    record = int.from_bytes(_log(store)[:4], "big")
    file = store.commit_log.files.files[0]

    async def failing(_: object) -> None:
        raise OSError(5, "EIO")

    monkeypatch.setattr(disk, "sync", failing)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        await store.healing.heal(0, _log(store)[:record])

    assert file.destroy(disk, 0, interval_forcibly_ms=1 << 40)
