"""The file alone. Files of RocketMQ's are in test_index_service.py."""

import random
import struct
import time
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.simulated.file import SimulatedFile
from store.index import index_file
from store.index.index_file import IndexFile
from tandem.wire.store_layout import INDEX_HEADER, INDEX_UNIT, index_file_bytes

pytestmark = pytest.mark.usefixtures("_in_c_and_python")

Key: TypeAlias = tuple[int, int, int]
"""Hash, physical offset, store time."""

INT64 = st.integers(-(2**63), 2**63 - 1)
EARLY, LATE = -(2**63), 2**63 - 1


def an_index(slots: int = 7, units: int = 20, content: bytes | None = None) -> IndexFile:
    size = index_file_bytes(slots, units)
    return IndexFile(SimulatedFile("/index", content or bytes(size)), slots, units)


def content(index: IndexFile) -> bytes:
    return bytes(index.file.buffer[:])


def put_many(index: IndexFile, keys: Sequence[Key]) -> int:
    columns = np.array(keys, np.int64).reshape(-1, 3)
    return index.put_many(columns[:, 0], columns[:, 1], columns[:, 2])


def put_each(index: IndexFile, keys: Sequence[Key]) -> int:
    return sum(index.put(*key) for key in keys)


def unit(index: IndexFile, number: int) -> tuple[int, ...]:
    return INDEX_UNIT.unpack_from(index.file.buffer, 40 + index.hash_slot_num * 4 + number * 20)


def header(index: IndexFile) -> tuple[int, ...]:
    return INDEX_HEADER.unpack_from(index.file.buffer, 0)


def everything(index: IndexFile, key_hash: int) -> list[int]:
    return list(index.offsets(key_hash, EARLY, LATE))


def test_a_new_file_has_no_keys_and_room_for_one_less_than_its_units() -> None:
    index = an_index(units=5)
    assert (index.index_count, index.has_keys, index.is_full, index.fault) == (
        1,
        False,
        False,
        None,
    )
    assert [index.put(n, n, 1000) for n in range(5)] == [True] * 4 + [False]
    assert index.is_full
    assert put_many(index, [(1, 1, 1)]) == 0


def test_the_header_is_written_with_every_key() -> None:
    """IndexFile.putKey: the first key sets the beginning, every key the end."""
    index = an_index()
    index.put(3, 100, 5000)
    assert header(index) == (5000, 5000, 100, 100, 1, 2)
    index.put(10, 200, 7999)
    assert header(index) == (5000, 7999, 100, 200, 1, 3)
    assert (unit(index, 1), unit(index, 2)) == ((3, 100, 0, 0), (10, 200, 2, 1))
    again = an_index(content=content(index))
    assert again.wrote_position == index.wrote_position == 40 + 28 + 60
    assert everything(again, 10) == [200]


def test_the_first_key_of_a_later_file_counts_from_the_end_of_the_file_before() -> None:
    """IndexFile's constructor; the difference is taken before the beginning moves. A query knows
    better: the first key was stored at the beginning.
    """
    first, second = an_index(), an_index()
    first.put(3, 100, 5000)
    second.continue_from(first)
    assert header(second) == (5000, 5000, 100, 100, 0, 0)
    assert not second.has_keys
    second.put(4, 200, 9500)
    assert header(second) == (9500, 9500, 200, 200, 1, 2)
    assert unit(second, 1) == (4, 200, 4, 0)
    assert list(second.offsets(4, 9500, 9500)) == [200]


@pytest.mark.parametrize(
    ("begin_ms", "stored_ms", "seconds"),
    [
        (5000, 5999, 0),
        (5000, 6000, 1),
        (5000, 1, 0),
        (1, 2**62, 2**31 - 1),
        (0, 10**12, 0),
        (-5, 10**12, 0),
    ],
)
def test_seconds_are_bounded_as_in_rocketmq(begin_ms: int, stored_ms: int, seconds: int) -> None:
    for put in (put_each, put_many):
        index = an_index()
        put(index, [(1, 0, begin_ms)])
        put(index, [(2, 9, stored_ms)])
        assert unit(index, 2) == (2, 9, seconds, 0)


keys = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 9), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**62),
        st.one_of(st.integers(0, 10**5), INT64),
    ),
    max_size=40,
)


@given(keys, st.lists(st.integers(0, 12), max_size=6), st.integers(1, 9))
@example([(1, 1, 1), (1, 2, 1), (8, 3, 1), (2, 4, 1), (1, 5, 1)], [], 7)
def test_many_at_once_make_the_same_bytes_as_one_by_one(
    given_keys: list[Key], cuts: list[int], slots: int
) -> None:
    one, many = an_index(slots, 30), an_index(slots, 30)
    expected = put_each(one, given_keys)
    done = 0
    for size in [*cuts, 40]:
        done += put_many(many, given_keys[done : done + size])
    assert done == expected
    assert content(many) == content(one)
    assert many.index_count == one.index_count
    assert (many.end_physical_offset, many.hash_slot_count) == (
        one.end_physical_offset,
        one.hash_slot_count,
    )


@given(st.binary(min_size=368, max_size=368), st.integers(0, 16), keys)
def test_both_ways_do_the_same_to_damaged_files(
    damaged: bytes, count: int, given_keys: list[Key]
) -> None:
    """A slot that points nowhere counts as empty; what is behind the last unit is overwritten."""
    damaged = damaged[:32] + struct.pack(">ii", min(3, count), count) + damaged[40:]
    one, many = an_index(7, 15, damaged), an_index(7, 15, damaged)
    assert put_many(many, given_keys) == put_each(one, given_keys)
    assert content(many) == content(one)


def test_more_keys_than_a_round_takes_are_entered_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_file, "_ROUND_BITS", 3)
    given_keys = [(n % 5, n, n) for n in range(19)]
    one, many = an_index(), an_index()
    put_each(one, given_keys)
    taken: list[int] = []
    while rest := given_keys[sum(taken) :]:
        taken.append(put_many(many, rest))
    assert taken == [8, 8, 3]
    assert content(many) == content(one)


@given(keys, st.integers(0, 10**5), st.integers(0, 10**5))
def test_a_query_finds_every_key_newest_first(given_keys: list[Key], begin: int, end: int) -> None:
    times = sorted(1 + min(max(0, stored_ms), 10**5) for _, _, stored_ms in given_keys[:19])
    given_keys = [(given_keys[n][0], n, stored_ms) for n, stored_ms in enumerate(times)]
    index = an_index(3)
    put_many(index, given_keys)
    for wanted in {key[0] for key in given_keys}:
        newest_first = [key for key in reversed(given_keys) if key[0] == wanted]
        assert everything(index, wanted) == [offset for _, offset, _ in newest_first]
        found = list(index.offsets(wanted, begin - 999, end))
        surely = [offset for _, offset, stored_ms in newest_first if begin <= stored_ms <= end]
        perhaps = [
            offset for _, offset, stored_ms in newest_first if begin - 999 <= stored_ms < end + 1000
        ]
        assert [offset for offset in found if offset in surely] == surely
        assert set(found) <= set(perhaps)


def test_a_key_that_is_not_there_is_not_found() -> None:
    index = an_index()
    assert everything(index, 3) == []
    index.put(3, 100, 5000)
    assert everything(index, 4) == []
    assert everything(index, 10) == []


def test_the_walk_ends_at_the_first_unit_older_than_asked_for() -> None:
    """IndexFile.selectPhyOffset; the clock had been set back before the second key."""
    index = an_index()
    put_each(index, [(1, 10, 10_000), (1, 20, 90_000), (1, 30, 11_000), (1, 40, 95_000)])
    assert list(index.offsets(1, 90_000, 99_000)) == [40]
    assert list(index.offsets(1, 11_000, 99_000)) == [40, 30, 20]


def test_only_files_whose_time_meets_the_question_are_looked_at() -> None:
    """IndexFile.isTimeMatched."""
    index = an_index()
    put_each(index, [(1, 10, 10_000), (1, 20, 20_000)])
    times = [(1, 9_999), (1, 10_000), (12_000, 13_000), (1, 99_999), (20_000, 99_999)]
    assert [index.overlaps(*pair) for pair in times] == [False, True, True, True, True]
    assert not index.overlaps(20_001, 99_999)


@pytest.mark.parametrize("links", [0, 1, 7])
@given(given_keys=keys, begin=st.integers(0, 10**5), end=st.integers(0, 10**5))
def test_long_chains_are_read_from_all_units_with_the_same_result(
    links: int, given_keys: list[Key], begin: int, end: int
) -> None:
    given_keys = [(k % 3, o, 1 + min(max(0, t), 10**5)) for k, o, t in given_keys[:19]]
    given_keys.sort(key=lambda key: key[2])
    index = an_index(2)
    put_many(index, given_keys)
    expected = [list(index.offsets(wanted, begin, end)) for wanted in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "LINKS_FOLLOWED_MAX", links)
        patch.setattr(index_file, "_UNITS_SCANNED", 4)
        found = [list(index.offsets(wanted, begin, end)) for wanted in range(3)]
    assert found == expected


@pytest.mark.slow
def test_a_chain_of_a_million_keys_holds_nobody_up() -> None:
    index = an_index(100, 1_000_001)
    count = 250_000
    for _ in range(4):
        times = np.full(count, 5000)
        index.put_many(np.full(count, 42), np.arange(count), times)
    assert len(everything(index, 42)) == 1_000_000
    scanned_seconds = _nothing_found_seconds(index, 142)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "LINKS_FOLLOWED_MAX", 1_000_001)
        followed_seconds = _nothing_found_seconds(index, 142)
    assert scanned_seconds < followed_seconds / 10


def _nothing_found_seconds(index: IndexFile, key_hash: int) -> float:
    """The CPU time that it takes to find that a key of a long chain is not in it."""
    begun = time.process_time()
    assert everything(index, key_hash) == []
    return time.process_time() - begun


@given(st.binary(min_size=368, max_size=368), st.integers(-(2**31), 2**31 - 1), INT64, INT64)
def test_hostile_bytes_neither_hang_nor_crash(
    hostile: bytes, count: int, begin_ms: int, end_ms: int
) -> None:
    index = an_index(7, 15, hostile[:36] + struct.pack(">i", count) + hostile[40:])
    if index.fault:
        return
    for key_hash in range(8):
        assert len(list(index.offsets(key_hash, begin_ms, end_ms))) <= 15
    put_each(index, [(3, 1, 1)])
    assert index.index_count <= 15


def test_a_chain_that_goes_round_in_circles_ends() -> None:
    """5.3.3 notices only a unit that points at itself."""
    index = an_index()
    put_each(index, [(1, 10, 1), (1, 20, 1), (1, 30, 1)])
    at = 40 + 28 + 20
    for before in (1, 2, 3, 4, -1):
        struct.pack_into(">i", index.file.buffer, at + 16, before)
        assert everything(index, 1) == [30, 20, 10]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ((1, 1, 0, 0, 0, 0), None),
        ((1, 1, 5, 5, 0, 1), None),
        ((9, 1, 0, 5, 3, 4), None),
        ((1, 1, 0, 0, 0, 21), "unit 21 is said to be next, there are 20"),
        ((1, 1, 0, 0, 8, 20), "8 slots are said to hold 19 keys"),
        ((1, 1, 0, 0, 2, 2), "2 slots are said to hold 1 keys"),
        ((1, 1, 0, 0, -1, 2), "-1 slots are said to hold 1 keys"),
        ((1, 1, 6, 5, 1, 2), "offsets 6 to 5"),
        ((1, 1, -6, -5, 1, 2), "offsets -6 to -5"),
    ],
)
def test_a_header_that_cannot_be_true_is_told(fields: tuple[int, ...], fault: str | None) -> None:
    damaged = INDEX_HEADER.pack(*fields).ljust(index_file_bytes(7, 20), b"\0")
    assert an_index(content=damaged).fault == fault


def test_a_file_is_on_disk_only_when_synced_after_its_last_key() -> None:
    index = an_index()
    seen = []
    for _ in range(2):
        index.put(1, 1, 1)
        seen.append(index.is_flushed)
        index.flushed_position = index.wrote_position
        seen.append(index.is_flushed)
    assert seen == [False, True] * 2


def test_random_keys_of_a_large_batch_are_all_found() -> None:
    chance = random.Random(5)
    given_keys = [(chance.randrange(2**31), n * 100, 1000 + n) for n in range(5000)]
    index = an_index(1000, 5001)
    put_many(index, given_keys)
    assert index.is_full
    assert index.fault is None
    for key_hash, offset, _ in chance.sample(given_keys, 200):
        assert everything(index, key_hash) == [offset]
