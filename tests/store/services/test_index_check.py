import logging

import numpy as np
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.services.index_check import IndexCheck
from store.services.reput_message_service import HEALING_MS
from tandem.wire.store_layout import INDEX_HEADER_BYTES, INDEX_UNIT_BYTES
from tests.store.store_world import check_store, open_store, put_many, scrubbed
from tests.support.logged import logged

SLOTS, UNITS = 16, 60


def _store() -> MessageStore:
    store = open_store(SimulatedDisk(), max_hash_slot_num=SLOTS, max_index_num=UNITS)
    put_many(store, 100, body_bytes=20)
    store.reput_service.index_the_rest()
    index = store.index_service
    assert index is not None
    assert sum(file.is_full for file in index.files) >= 2
    index.sync_all()
    return store


def _found(store: MessageStore) -> list[int]:
    """Return how many messages each key finds."""
    topics = ("TopicA", "TopicA", "TopicB")
    return [
        len(store.reads.query_message(topics[n % 3], f"k{n}", 10, 0, 1 << 60).records)
        for n in range(100)
    ]


def test_a_sound_index_is_left_alone() -> None:
    store = _store()
    assert scrubbed(store) == 0
    assert _found(store) == [1] * 100


@pytest.mark.slow
@given(
    st.integers(0, 2),  # the last one is not full
    st.integers(INDEX_HEADER_BYTES, INDEX_HEADER_BYTES + 4 * SLOTS + INDEX_UNIT_BYTES * UNITS - 1),
    st.integers(0, 7),
)
def test_any_changed_bit_of_slots_and_units_is_found_and_the_index_built_anew(
    number: int, place: int, bit: int
) -> None:
    store = _store()
    index = store.index_service
    assert index is not None
    units_at = INDEX_HEADER_BYTES + 4 * SLOTS
    index.files[number].file.buffer[place] ^= 1 << bit
    file_count = len(index.files)
    unit, at = divmod(place - units_at, INDEX_UNIT_BYTES)
    # Unit 0 is none; the time of the first one counts from another beginning.
    is_unknown = place >= units_at and (unit == 0 or (unit == 1 and 12 <= at < 16))
    is_unknown |= place >= units_at and unit >= index.files[number].index_count

    rebuilt = scrubbed(store)

    assert rebuilt == (0 if is_unknown else file_count - number)
    store.reput_service.index_the_rest()
    assert _found(store) == [1] * 100
    index.sync_all()
    assert is_unknown or scrubbed(store) == 0
    check_store(store)


def test_a_record_that_is_damaged_says_nothing_about_the_index() -> None:
    store = _store()
    messages = check_store(store)
    # In the file that is being written, which the scrub does not read.
    begin = store.commit_log.files.files[1].file_from_offset
    assert store.index_service is not None
    assert store.index_service.files[1].end_physical_offset > begin
    store.commit_log.files.files[1].buffer[90] ^= 1
    store.commit_log.damage.note(messages[10].physical_offset + 100, 8192, "known")

    assert scrubbed(store) == 0


def test_a_unit_that_is_left_out_of_its_chain_is_missed() -> None:
    store = _store()
    index = store.index_service
    assert index is not None
    units = index.files[0].units()
    number = next(n for n in range(UNITS - 1, 0, -1) if units["before"][units["before"][n]])
    units["before"][number] = units["before"][units["before"][number]]

    assert index.files
    assert scrubbed(store)
    assert not index.files


@pytest.mark.parametrize("what", ["slot", "chain", "last of a chain", "count"])
def test_what_is_wrong_in_the_file_that_is_being_written_is_found(what: str) -> None:
    store = _store()
    index = store.index_service
    assert index is not None
    last = index.files[-1]
    assert 10 < last.index_count < UNITS
    units, slots = last.units(), last.slots()
    number = next(
        n for n in range(last.index_count - 1, 0, -1) if units["before"][units["before"][n]]
    )
    slot = int(units["key_hash"][number]) % SLOTS
    if what == "slot":
        slots[slot] = 0
    elif what == "chain":
        units["before"][number] = units["before"][units["before"][number]]
    elif what == "last of a chain":
        slots[slot] = units["before"][slots[slot]]
    else:
        last.hash_slot_count -= 1
    del units, slots

    assert scrubbed(store) == 1
    store.reput_service.index_the_rest()
    assert _found(store) == [1] * 100


def test_a_file_that_grows_while_it_is_looked_at_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.services.index_check.SLICE_UNITS", 7)
    monkeypatch.setattr("store.services.index_check.SLICE_SLOTS", 3)
    store = open_store(SimulatedDisk(), max_hash_slot_num=SLOTS, max_index_num=2000)
    put_many(store, 60, body_bytes=20)
    store.reput_service.index_the_rest()
    index = store.index_service
    assert index is not None
    (file,) = index.files
    rounds = 0

    async def grow(_: float) -> bool:
        nonlocal rounds
        put_many(store, 3, start=60 + 3 * rounds, body_bytes=20)
        store.reput_service.index_the_rest()
        rounds += 1
        return True

    check = IndexCheck(store.commit_log, index, lambda: None)
    assert trio.run(check.run, grow) == 0
    assert rounds > 10
    assert not file.is_full
    file.slots()[int(np.flatnonzero(file.slots())[0])] = 0
    assert trio.run(check.run, grow) == 1


def test_a_header_that_has_changed_is_written_anew_from_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = _store()
    index = store.index_service
    assert index is not None
    before = [bytes(file.file.buffer) for file in index.files]
    for file in index.files:
        file.file.buffer[3] ^= 1

    assert scrubbed(store) == 0

    assert [bytes(file.file.buffer) for file in index.files] == before
    assert logged(caplog, "store.services.index_check", logging.ERROR) == [
        (file.file.path,) for file in index.files
    ]
    full = [file for file in index.files if file.is_full]
    assert index.files_to_sync() == full


def test_what_may_be_on_its_way_to_the_disk_is_not_dropped() -> None:
    store = _store()
    index = store.index_service
    assert index is not None
    index.files[0].file.buffer[INDEX_HEADER_BYTES] ^= 1
    index.files[1].flushed_position = 0

    assert scrubbed(store) == 0
    index.sync_all()
    before_ms, count = store.checkpoint.index_msg_timestamp_ms, len(index.files)
    assert scrubbed(store) == count
    assert store.checkpoint.index_msg_timestamp_ms < before_ms


async def test_the_index_task_builds_anew_what_was_dropped(autojump_clock: MockClock) -> None:
    store = _store()
    index = store.index_service
    assert index is not None
    index.files[0].file.buffer[INDEX_HEADER_BYTES] ^= 1
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        store.scrub_service.scrub_now()
        while not store.scrub_service.progress.rebuilt_index_files:
            await trio.sleep(0.1)
        while store.reput_service.is_index_behind:
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert len(index.files) >= 2
    assert _found(store) == [1] * 100


def _indexed_over_damage(*, heals: bool) -> tuple[MessageStore, bytes, int]:
    """A store whose index was built while a record of its first file was zeros; what was there."""
    store = open_store(
        SimulatedDisk(), confirm_bounds_reads=heals, max_hash_slot_num=SLOTS, max_index_num=UNITS
    )
    put_many(store, 100, body_bytes=20)
    file = store.commit_log.files.files[0]
    at, size, _ = _unit(store, 4)
    before = bytes(file.buffer[at : at + size])
    file.buffer[at : at + size] = bytes(size)
    store.reput_service.index_the_rest()
    return store, before, at


def _unit(store: MessageStore, number: int) -> tuple[int, int, int]:
    queue = store.queues.find("TopicA", 0)
    assert queue is not None
    return queue.unit(number)


def test_keys_that_were_left_out_of_a_bad_log_are_entered_once_it_is_healed() -> None:
    store, before, at = _indexed_over_damage(heals=False)
    damage = store.commit_log.damage
    assert damage.within(at, at + 1) is not None
    assert 0 in _found_where_sound(store)
    assert scrubbed(store) == 0, "what is bad cannot be entered"

    assert store.index_service is not None
    store.index_service.sync_all()
    store.commit_log.files.files[0].buffer[at : at + len(before)] = before
    damage.healed(0, store.max_physical_offset)
    assert scrubbed(store) >= 1
    store.reput_service.index_the_rest()
    assert _found(store) == [1] * 100
    rebuilt = store.scrub_service.progress.rebuilt_index_files
    assert scrubbed(store) == 0, f"{rebuilt} were enough"


def _found_where_sound(store: MessageStore) -> list[int]:
    index = store.index_service
    assert index is not None
    topics = ("TopicA", "TopicA", "TopicB")
    return [len(index.query_offset(topics[n % 3], f"k{n}", 10, 0, 1 << 60)) for n in range(100)]


async def test_the_index_waits_a_while_for_a_log_that_others_can_heal(
    autojump_clock: MockClock,
) -> None:
    store, before, at = _indexed_over_damage(heals=True)
    del before
    service = store.reput_service
    service.index_from_offset = at
    assert store.commit_log.damage.is_young(at, HEALING_MS)
    assert not service.index_some(waits=True)
    assert service.index_from_offset == at
    assert service.index_some(), "whoever does not wait goes on"
    assert service.index_from_offset > at
