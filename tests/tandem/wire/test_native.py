"""C and Python do the same, whatever the bytes are. What they do is tested where each is used."""

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.simulated.file import SimulatedFile
from store.index.index_file import IndexFile
from store.log.message_encoder import IllegalBatchError, MessageEncoder
from store.results import PutBatch
from tandem.wire import native, record_check
from tandem.wire.batch_body import encode_batch_entry
from tandem.wire.column_values import distinct_values, tags_codes
from tandem.wire.message import Host
from tandem.wire.message_properties import java_string_hash
from tandem.wire.record_check import check_records
from tandem.wire.record_keys import hash_keys
from tandem.wire.record_rule import ScanStop
from tandem.wire.record_scan import RecordColumns, scan_records
from tandem.wire.store_layout import index_file_bytes
from tests.support.log_builder import LogBuilder, mixed_log

Answer = TypeVar("Answer")

in_c = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")


def test_the_loops_are_there_where_there_is_a_compiler() -> None:
    """Otherwise half of the tests here would be skipped, and nobody would notice."""
    if shutil.which("cc") and os.environ.get("TANDEM_NATIVE") != "off":
        assert native.loops is not None, "remove .venv/setup-done and run scripts/setup"


KEEPS_THE_LOCK = 4
"""FUNCFLAG_PYTHONAPI of ctypes: Python's lock is not given up for the call."""

BRIEF = ("find_sends", "find_sends_of", "share_sends", "write_sends", "good_seals")
LONG = ("_scan", "_hash_keys", "crc32", "receive_each", "send_each")


@in_c
def test_no_thread_comes_between_the_steps_of_a_put() -> None:
    """One that does may lose the processor with Python's lock in its hands."""
    kept = {name: getattr(native.loops, name)._flags_ & KEEPS_THE_LOCK for name in BRIEF + LONG}
    assert kept == dict.fromkeys(BRIEF, KEEPS_THE_LOCK) | dict.fromkeys(LONG, 0)


def both_ways(ask: Callable[[], Answer]) -> tuple[Answer, Answer]:
    """Return the answer of C and that of Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_check, "FEW_RECORDS_MAX", 0)
        ours = ask()
        patch.setattr(native, "loops", None)
        return ours, ask()


def rows_of(columns: RecordColumns) -> list[list[int]]:
    return [getattr(columns, name).tolist() for name in RecordColumns.__struct_fields__]


damages = st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 255)), max_size=4)


@pytest.mark.slow
@in_c
@settings(max_examples=4 * settings().max_examples)
@given(
    damage=damages,
    cut=st.integers(0, 600),
    check_crc=st.booleans(),
    size_max=st.sampled_from([100, 900, 2**31 - 1]),
)
def test_records_are_found_alike(
    damage: list[tuple[int, int]], cut: int, *, check_crc: bool, size_max: int
) -> None:
    data = bytearray(mixed_log().log + bytes(64))
    for at, value in damage:
        data[at % len(data)] = value
    del data[len(data) - cut :]

    def found() -> tuple[object, ...]:
        scan = scan_records(data, 0, check_crc=check_crc, record_bytes_max=size_max)
        check = check_records(data, 0, check_crc=check_crc, record_bytes_max=size_max)
        hashes = hash_keys(data, scan.columns)
        return (
            rows_of(scan.columns),
            scan.check,
            check,
            tags_codes(data, scan.columns).tolist(),
            (hashes.row.tolist(), hashes.key_hash.tolist()),
        )

    ours, theirs = both_ways(found)
    assert ours == theirs


@in_c
def test_a_length_of_a_topic_below_zero_is_none_even_if_all_adds_up() -> None:
    """-2 leads back into the body, whose last bytes may say any length of the properties."""
    body = b"x" * 20 + b"\0"
    tail = bytes([256 - 2]) + bytes(0xFE)
    head = struct.pack(">IIIiiqqI", 88 + len(body) + len(tail), 0xDAA320A7, 0, 0, 0, 0, 0, 0)
    data = head + bytes(44) + struct.pack(">I", len(body)) + body + tail
    ours, theirs = both_ways(lambda: check_records(data, 0, check_crc=False))
    assert ours == theirs
    assert ours.stop is ScanStop.CORRUPT


@in_c
def test_a_hash_without_a_positive_twin_is_0() -> None:
    """Math.abs(Integer.MIN_VALUE) is negative; RocketMQ takes 0. Digits of base 31 make the key."""
    wanted = (2**31 - java_string_hash("T#") * 31**7 - sum(33 * 31**n for n in range(7))) % 2**32
    key = "".join(chr(33 + wanted // 31**n % 31) for n in reversed(range(7)))
    assert java_string_hash(f"T#{key}") == -(2**31)
    log = LogBuilder()
    log.put(topic="T", keys=key)
    data = bytes(log.log)
    columns = scan_records(data, 0).columns
    for hashes in both_ways(lambda: hash_keys(data, columns)):
        assert hashes.key_hash.tolist() == [0]


@in_c
def test_records_that_are_smaller_than_the_first_are_all_found() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    log.put(body=bytes(50_000))
    for _ in range(200):
        log.put(body=b"")
    ours, theirs = both_ways(lambda: scan_records(bytes(log.log), 0))
    assert ours.check == theirs.check
    assert ours.check.count == 201
    assert rows_of(ours.columns) == rows_of(theirs.columns)


PIECES = st.sampled_from(
    [
        *(b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"XTAGS\x01", b"TAGS"),
        *(b"\x01", b"\x02", b" ", b"\0", b"a", b"k1 k2", b"\xc3\xa4", b"\xff"),
    ]
)


@pytest.mark.slow
@in_c
@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.lists(PIECES, max_size=14), min_size=1, max_size=6))
def test_properties_of_any_bytes_are_read_alike(strings: list[list[bytes]]) -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for number, pieces in enumerate(strings):
        message = log.put(topic="Orte" if number % 3 else "Städte", tags="x" * 60)
        # In place, so that any bytes can be a property string.
        size = 5 + 60 + 1
        end = message.physical_offset + message.store_size
        string = b"".join(pieces)[:size].ljust(size, b"z")
        log.log[end - size : end] = string
    data = bytes(log.log)
    columns = scan_records(data, 0).columns

    def found() -> tuple[object, ...]:
        hashes = hash_keys(data, columns)
        return tags_codes(data, columns).tolist(), hashes.row.tolist(), hashes.key_hash.tolist()

    ours, theirs = both_ways(found)
    assert ours == theirs


@in_c
def test_no_more_values_are_told_apart_than_there_is_room_for() -> None:
    assert native.loops is not None
    starts, sizes = np.arange(20), np.ones(20, np.int64)
    found = native.loops.distinct_values(bytes(range(20)), starts[:16], sizes[:16], 16)
    assert found is not None
    assert found[0] == list(range(16))
    assert native.loops.distinct_values(bytes(range(20)), starts, sizes, 16) is None


VALUES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=40)


@in_c
@settings(max_examples=4 * settings().max_examples)
@given(VALUES, st.binary(min_size=40, max_size=40) | st.just(bytes(40)))
def test_equal_values_are_numbered_alike(places: list[tuple[int, int]], data: bytes) -> None:
    starts, sizes = np.array(places, np.int64).reshape(-1, 2).T
    ours, theirs = both_ways(lambda: distinct_values(data, starts, sizes))
    assert ours[0] == theirs[0]
    assert ours[1].tolist() == theirs[1].tolist()


@in_c
def test_a_record_with_thousands_of_keys_has_them_all() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for keys in ("a b", " ".join(map(str, range(3000))), "c"):
        log.put(keys=keys)
    data = bytes(log.log)
    columns = scan_records(data, 0).columns
    ours, theirs = both_ways(lambda: hash_keys(data, columns))
    assert len(ours) == 3003
    assert ours.row.tolist() == theirs.row.tolist()
    assert ours.key_hash.tolist() == theirs.key_hash.tolist()


@in_c
def test_places_outside_of_the_bytes_are_left_to_python() -> None:
    data = b"TAGS\x01a\x02"
    numbers = [0, 0, -1, 3, 2**62, 5]
    sizes = [7, 8, 3, -1, 2**62, 3]
    for start, size in zip(numbers[1:], sizes[1:], strict=True):
        starts, lengths = np.array([0, start]), np.array([7, size])
        assert native.loops is not None
        codes, done = native.loops.tags_codes(data, starts, lengths)
        assert (codes[0], done) == (97, 1)
        assert native.loops.distinct_values(data, starts, lengths, 16) is None
        none = np.zeros(2, np.int64)
        assert native.loops.hash_keys(data, (none, none, starts, lengths))[2] == 1
        assert native.loops.hash_keys(data, (starts, lengths, none, none))[2] == 1


INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.one_of(INT64, st.integers(0, 10**13))


@pytest.mark.slow
@in_c
@settings(max_examples=4 * settings().max_examples)
@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), INT64, TIMES), min_size=1, max_size=30),
    st.binary(min_size=28, max_size=28),
    TIMES,
    st.integers(1, 10),
)
def test_an_index_gets_the_same_bytes(
    keys: list[tuple[int, int, int]], slots: bytes, begin_ms: int, index_count: int
) -> None:
    columns = np.array(keys, np.int64).T

    def filled() -> tuple[bytes, int]:
        content = struct.pack(">qqqqii", begin_ms, begin_ms, 0, 0, 0, index_count) + slots
        whole = content + bytes(index_file_bytes(7, 25) - len(content))
        index = IndexFile(SimulatedFile("/index", whole), 7, 25)
        count = index.put_many(columns[0], columns[1], columns[2])
        return bytes(index.file.buffer[:]), count

    ours, theirs = both_ways(filled)
    assert ours == theirs


ENTRIES = st.lists(
    st.tuples(
        st.binary(max_size=300),
        st.lists(PIECES, max_size=8).map(b"".join)
        | st.sampled_from([b"", b"A\x01b\x02", bytes(600), b"K\x01" + b"v" * 505 + b"\x02"]),
    ),
    max_size=6,
)


@pytest.mark.slow
@in_c
@settings(max_examples=4 * settings().max_examples)
@given(ENTRIES, st.sampled_from([b"", b"WAIT\x01true\x02", b"x", b"TAGS\x01t\x02", b"\0"]), damages)
def test_a_batch_is_split_alike(
    entries: list[tuple[bytes, bytes]], shared: bytes, damage: list[tuple[int, int]]
) -> None:
    body = bytearray(b"".join(encode_batch_entry(7, *entry) for entry in entries))
    for at, value in damage[: len(body)]:
        body[at % len(body)] = value
    encoder = MessageEncoder(
        Host("127.0.0.1", 10911),
        record_bytes_max=1 << 20,
        max_message_size_bytes=1 << 20,
        append_prop_crc=False,
    )
    batch = PutBatch(
        topic="Orte",
        queue_id=3,
        body=bytes(body),
        properties=shared,
        born_timestamp_ms=5,
        born_host=bytes(8),
    )

    def split() -> object:
        try:
            records, units = encoder.encode_batch(batch, b"Orte", 11, 4096, 99)
        except (IllegalBatchError, struct.error) as error:
            return str(error)
        return bytes(records), units

    ours, theirs = both_ways(split)
    assert ours == theirs


@in_c
@pytest.mark.parametrize("size", [-1, -2, -300, -(2**15)])
def test_properties_of_a_length_below_zero_are_left_to_python(size: int) -> None:
    assert native.loops is not None
    whole = encode_batch_entry(0, b"x" * 500, b"K\x01v\x02")
    cut = whole[: 20 + 500] + struct.pack(">h", size) + b"K\x01v\x02"
    parts = native.BatchParts(b"", bytes(48), b"\x01T", 0xDAA320A7, 0, 0, 0)
    assert native.loops.split_batch(whole + cut, parts) is None
    # It would lead back to where another message seems to begin: its own size is not looked at.
    back = whole[:520] + struct.pack(">h", size) + whole[2:]
    assert native.loops.split_batch(back, parts) is None
    assert native.loops.split_batch(whole + whole, parts) is not None


@in_c
def test_the_crc_is_that_of_zip_for_every_length() -> None:
    assert native.loops is not None
    data = random.Random(5).randbytes(5000)
    for size in [*range(200), 1023, 1024, 1025, 5000]:
        assert native.loops.crc32(data[:size], size) == crc32(data[:size])


def test_loops_are_left_out_where_they_are_not_wanted_or_of_another_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = native.LIBRARY.is_file()
    monkeypatch.delenv("TANDEM_NATIVE", raising=False)
    assert isinstance(native.load(), native.Loops) is there
    other = tmp_path / "native.c"
    other.write_text("another one")
    for sources in (native.SOURCES[1:], (*native.SOURCES, "native.py")):
        with monkeypatch.context() as patch:
            patch.setattr(native, "SOURCES", sources)
            assert (
                native.load()
                == f"{native.LIBRARY.name} is of other sources: install TandemMQ again"
            )
    for library, why in ((tmp_path / "none.so", "nothing was compiled"), (other, "cannot be used")):
        with monkeypatch.context() as patch:
            patch.setattr(native, "LIBRARY", library)
            assert why in str(native.load())
    monkeypatch.setenv("TANDEM_NATIVE", "off")
    assert native.load() == "TANDEM_NATIVE is off"
