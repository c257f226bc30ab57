"""A look at our own log."""

from collections.abc import Iterator
from contextlib import contextmanager

from ha.fenced.log_check import bad_until, begins_record, look_at
from store import MessageStore
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.ha.world import BODIES, FILE_SIZE_BYTES, World, put


@contextmanager
def open_log() -> Iterator[MessageStore]:
    """A log of several files."""
    with World().open_store("a") as store:
        store.become_master()
        put(store, *BODIES)
        yield store


async def test_what_does_not_fit_its_fingerprint_is_noted_and_nothing_else() -> None:
    with open_log() as store:
        await take_fingerprints(store)
        end = store.max_physical_offset
        assert look_at(store, 0, end)
        flip(store, FILE_SIZE_BYTES + 5)
        flip(store, end - 5)
        assert look_at(store, 0, FILE_SIZE_BYTES)
        assert not look_at(store, 0, end)
        (bad,) = store.commit_log.damage.ranges
        assert (bad.start, bad.end) == (FILE_SIZE_BYTES, 2 * FILE_SIZE_BYTES)
        assert look_at(store, 2 * FILE_SIZE_BYTES, end)


async def test_a_record_and_the_end_of_a_file_are_where_records_begin() -> None:
    with open_log() as store:
        at = 0
        while (record := store.commit_log.record_at(at)) is not None:
            at += len(record)
        assert 0 < at < FILE_SIZE_BYTES
        assert begins_record(store, at)
        assert begins_record(store, 0)
        assert not begins_record(store, at + 1)
        assert not begins_record(store, store.max_physical_offset)


async def test_where_the_last_bad_part_ends() -> None:
    with open_log() as store:
        assert bad_until(store, 1000) == 0
        store.commit_log.damage.note(10, 20, "a")
        store.commit_log.damage.note(500, 600, "b")
        assert bad_until(store, 1000) == 600
        assert bad_until(store, 550) == 550
        assert bad_until(store, 500) == 20
        assert bad_until(store, 10) == 0
