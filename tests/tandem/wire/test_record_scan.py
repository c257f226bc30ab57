from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.wire import record_scan
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    MESSAGE_MAGIC_CODE,
    Host,
    decode_message,
)
from tandem.wire.record_check import check_records
from tandem.wire.record_rule import ScanStop, look
from tandem.wire.record_scan import (
    body_crcs,
    crc_agrees,
    read_columns,
    scan_records,
    walk_records,
)
from tests.support.judges import crc32_of
from tests.support.log_builder import LogBuilder, mixed_log

pytestmark = pytest.mark.usefixtures("_in_c_and_python")

VECTORS = Path("tests/data/rocketmq-5.3.3")
V6 = Host("2001:db8::1", 4321)


def small_log(count: int = 5, base: int = 0) -> LogBuilder:
    log = LogBuilder(file_bytes=1 << 20, start_offset=base)
    for number in range(count):
        log.put(body=b"x" * number, keys=f"k{number}", queue_id=number % 2)
    return log


def test_the_walk_finds_every_record_and_the_end() -> None:
    log = small_log()
    walk = walk_records(log.log)
    assert walk.starts.tolist() == [message.physical_offset for message in log.messages]
    assert (walk.end, walk.stop, walk.needed_bytes) == (len(log.log), ScanStop.END, 0)


def test_the_walk_stops_at_the_blank_record() -> None:
    log = small_log()
    end = len(log.log)
    log.roll()
    walk = walk_records(log.log)
    assert (walk.end, walk.stop, walk.needed_bytes) == (end, ScanStop.BLANK, len(log.log) - end)


@pytest.mark.parametrize("zeros", [8, 100])
def test_zeros_are_told_from_a_torn_record(zeros: int) -> None:
    log = small_log()
    walk = walk_records(bytes(log.log) + bytes(zeros))
    assert (walk.end, walk.stop) == (len(log.log), ScanStop.ZEROS)


def test_every_cut_inside_the_last_record_is_torn_and_says_what_is_needed() -> None:
    log = small_log()
    last = log.messages[-1]
    for left in range(1, last.store_size):
        walk = walk_records(log.log, 0, last.physical_offset + left)
        assert walk.stop is ScanStop.TORN
        assert walk.end == last.physical_offset
        assert walk.needed_bytes == (8 if left < 8 else last.store_size)
        assert check_records(log.log, 0, 0, last.physical_offset + left).stop is ScanStop.TORN


def test_a_wrong_magic_and_an_impossible_size_are_corrupt() -> None:
    log = small_log()
    third = log.messages[2].physical_offset
    for at, value in ((third + 4, 0x11), (third + 3, 90)):
        data = bytearray(log.log)
        data[at] = value
        walk = walk_records(data)
        assert (walk.end, walk.stop) == (third, ScanStop.CORRUPT)


def test_a_record_above_the_callers_bound_is_corrupt_not_torn() -> None:
    log = LogBuilder()
    log.put(body=bytes(500))
    walk = walk_records(log.log, record_bytes_max=400)
    assert (walk.end, walk.stop) == (0, ScanStop.CORRUPT)
    assert walk_records(log.log, record_bytes_max=600).stop is ScanStop.END


def test_columns_agree_with_the_decoder_for_every_shape_of_record() -> None:
    log = mixed_log()
    columns = read_columns(log.log, walk_records(log.log).starts)
    assert len(columns) == len(log.messages)
    assert columns.sound.all()
    for row, message in enumerate(log.messages):
        decoded, _ = decode_message(log.log, int(columns.start[row]))
        assert decoded.body == message.body
        for column, field in (
            ("size", "store_size"),
            ("body_crc", "body_crc"),
            ("queue_id", "queue_id"),
            ("flag", "flag"),
            ("queue_offset", "queue_offset"),
            ("physical_offset", "physical_offset"),
            ("sys_flag", "sys_flag"),
            ("born_timestamp_ms", "born_timestamp_ms"),
            ("store_timestamp_ms", "store_timestamp_ms"),
            ("reconsume_times", "reconsume_times"),
            ("prepared_transaction_offset", "prepared_transaction_offset"),
        ):
            assert getattr(columns, column)[row] == getattr(decoded, field), (column, row)
        for part, expected in (("body", decoded.body), ("topic", decoded.topic.encode())):
            start = int(getattr(columns, f"{part}_start")[row])
            size = int(getattr(columns, f"{part}_size")[row])
            assert log.log[start : start + size] == expected
        for host in ("born_host", "store_host"):
            packed = getattr(decoded, host).packed
            start = int(getattr(columns, f"{host}_start")[row])
            assert log.log[start : start + len(packed)] == packed


def test_columns_of_nothing_are_empty() -> None:
    columns = read_columns(b"", np.empty(0, np.int64))
    assert len(columns) == 0
    assert columns.sound.dtype == np.bool_


def test_rows_can_be_chosen() -> None:
    log = small_log()
    columns = read_columns(log.log, walk_records(log.log).starts)
    chosen = columns.take(columns.queue_id == 1)
    assert chosen.queue_offset.tolist() == [0, 1]


@pytest.mark.parametrize("store", ["basic", "batch", "crc", "ext", "idx", "sch", "tran", "v6"])
def test_golden_stores_are_sound_from_start_to_end(store: str) -> None:
    """RocketMQ 5.3.3's own bytes: every record sound, then zeros or the blank of a full file."""
    data = (VECTORS / store / "commitlog" / ("0" * 20)).read_bytes()
    scan = scan_records(data, 0)
    assert len(scan.columns) > 0
    assert scan.check.stop in (ScanStop.ZEROS, ScanStop.BLANK)
    assert check_records(data, 0) == scan.check
    crcs = body_crcs(data, scan.columns)
    assert (crcs == scan.columns.body_crc).all()


def test_the_golden_body_crc_is_checked() -> None:
    data = bytearray((VECTORS / "basic" / "commitlog" / ("0" * 20)).read_bytes())
    data[90] ^= 1
    scan = scan_records(data, 0)
    assert (scan.check.count, scan.check.stop) == (0, ScanStop.CORRUPT)
    assert scan_records(data, 0, check_crc=False).check.stop is ScanStop.ZEROS


def test_a_record_of_another_place_ends_the_scan() -> None:
    """A leftover behind a truncated log: sound in itself, but not where it says it is."""
    log = small_log(base=4096)
    check = check_records(log.log, 4096)
    assert (check.count, check.stop) == (5, ScanStop.END)
    moved = scan_records(log.log, 0)
    assert (moved.check.count, moved.check.end) == (0, 0)
    assert moved.check.stop is ScanStop.CORRUPT


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_never_a_record_and_never_raise(data: bytes) -> None:
    scan = scan_records(data, 0)
    assert scan.check.count == 0
    assert scan.check.stop is not ScanStop.END or not data
    assert check_records(data, 0) == scan.check
    with pytest.raises(MalformedMessageError):
        decode_message(data)


def test_nothing_returned_holds_on_to_the_buffer() -> None:
    """The caller may unmap or shrink it at once: a kept export would raise BufferError."""
    log = small_log(100)
    scan = scan_records(log.log, 0)
    crcs = body_crcs(log.log, scan.columns)
    log.log.clear()
    assert len(crcs) == len(scan.columns) == 100


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=8), st.data())
def test_the_crcs_of_a_column_are_crcmods_values(bodies: list[bytes], data: st.DataObject) -> None:
    log = LogBuilder()
    messages = [log.put(body=body) for body in bodies]
    damaged = data.draw(st.integers(0, len(bodies) - 1))
    if bodies[damaged]:
        at = log.log.index(bodies[damaged], messages[damaged].physical_offset + 88)
        log.log[at] ^= 1 + data.draw(st.integers(0, 254))
    columns = read_columns(log.log, walk_records(log.log).starts)
    found = [
        bytes(log.log[start : start + size])
        for start, size in zip(columns.body_start.tolist(), columns.body_size.tolist(), strict=True)
    ]
    crcs = body_crcs(log.log, columns)
    assert crcs.tolist() == [crc32_of(body) & 0x7FFFFFFF for body in found]
    same = [body == seen for body, seen in zip(bodies, found, strict=True)]
    assert crc_agrees(columns, crcs).tolist() == same


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([b"", b"a" * 9, b"bc" * 9, b"d" * 600, bytes(9)]), max_size=60),
    st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 255)), max_size=4),
    st.integers(1, 3),
)
def test_crcs_of_bodies_of_one_size_are_those_of_each_alone(
    bodies: list[bytes], damage: list[tuple[int, int]], sizes_max: int
) -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for body in bodies:
        log.put(body=body)
    raw = bytearray(log.log)
    columns = read_columns(raw, walk_records(raw).starts)
    for at, value in damage if raw else []:
        raw[at % len(raw)] = value
    ends = columns.body_start + columns.body_size
    alone = [
        crc32_of(bytes(raw[start:end])) & 0x7FFFFFFF
        for start, end in zip(columns.body_start.tolist(), ends.tolist(), strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_scan, "EQUAL_BODIES_MIN", 2)
        patch.setattr(record_scan, "EQUAL_SIZES_MAX", sizes_max)
        assert body_crcs(raw, columns).tolist() == alone


def test_a_damaged_body_among_many_of_its_size_ends_the_scan() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    places = [log.put(body=b"%08d" % number).physical_offset for number in range(200)]
    log.log[places[150] + 88 + 7] ^= 1
    check = scan_records(log.log, 0).check
    assert (check.count, check.end, check.stop) == (150, places[150], ScanStop.CORRUPT)
    assert scan_records(log.log, 0, check_crc=False).check.count == 200


def _added_up(data: bytes, end: int) -> tuple[list[int], int]:
    """Record starts by the rule for one place, and where it says that there is no more."""
    starts = []
    position = 0
    while (found := look(data, position, end))[0] is None:
        starts.append(position)
        position += found[2]
    return starts, position


@settings(deadline=None, max_examples=4 * settings().max_examples)
@given(st.data())
@pytest.mark.thorough
def test_small_records_are_found_by_their_magic_as_by_adding_sizes_up(data: st.DataObject) -> None:
    log = LogBuilder(file_bytes=1 << 20)
    count = record_scan.PROBED_RECORDS + data.draw(st.integers(1, 30))
    magic = MESSAGE_MAGIC_CODE.to_bytes(4, "big")
    for number in range(count):
        log.put(body=data.draw(st.sampled_from([b"", b"x" * 9, magic, b"\0\0\0\x64" + magic])))
        if number % 7 == 0 and data.draw(st.booleans()):
            log.put(topic="T" * 128)
    log.log += data.draw(st.sampled_from([b"", bytes(200), magic * 60, b"\0\0\0\x08" + magic * 2]))
    raw = bytearray(log.log)
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 8, 0xDA, 255]))
    end = data.draw(st.integers(len(raw) - 150, len(raw)))
    walk = walk_records(raw, 0, end)
    assert (walk.starts.tolist(), walk.end) == _added_up(bytes(raw), end)
