"""The CRC over a whole record: as RocketMQ wrote it, and against damage anywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.crc import crc32
from tandem.wire.message import encode_record
from tandem.wire.property_crc import (
    CRC32_RESERVED_LEN,
    property_crc_agrees,
    property_crc_fault,
    reserve_batch_crc,
    with_reserved_crc,
    write_crc,
)
from tandem.wire.record_scan import read_columns, walk_records
from tests.support.judges import crc32_of
from tests.support.paths import GOLDEN
from tests.support.reasons import words
from tests.tandem.client.fake_broker import message_ext

LOG = (GOLDEN / "crc" / "commitlog" / f"{0:020d}").read_bytes()
PLACES = [(0, 129), (129, 251), (251, 377), (377, 503)]


@pytest.mark.parametrize(("start", "end"), PLACES)
def test_every_record_of_rocketmqs_passes(start: int, end: int) -> None:
    """CommitLog.checkMessageAndReturnSize with forceVerifyPropCRC."""
    assert property_crc_fault(LOG, start, end) is None


@pytest.mark.parametrize(("start", "end"), PLACES)
def test_the_same_digits_are_written(start: int, end: int) -> None:
    """MessageDecoder.createCrc32: the lowest digit first."""
    record = bytearray(LOG[start:end])
    record[:4] = bytes(4)
    record[-11:-1] = b"0" * 10
    write_crc(record, 0, LOG[start : start + 4], len(record))
    assert record[4:] == LOG[start + 4 : end]


def test_the_golden_value_is_written_backwards() -> None:
    assert crc32(LOG[:109]) == 642_120_055
    assert LOG[109:129] == b"__CRC32#\x015500212460\x02"


@given(st.integers(0, 128), st.integers(1, 255))
def test_damage_anywhere_is_found(at: int, change: int) -> None:
    """That is what the property is for: the body's CRC covers the body only."""
    record = bytearray(LOG[:129])
    record[at] ^= change
    assert property_crc_fault(record, 0, 129) is not None


@given(st.binary(max_size=400), st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")))
def test_what_is_written_is_crcmods_value(body: bytes, properties: dict[str, str]) -> None:
    record = bytearray(
        encode_record(message_ext(body, properties=properties | {"__CRC32#": "0" * 10}))
    )
    write_crc(record, 0, bytes(record[:4]), len(record))
    value = crc32_of(record[:-20]) & 0x7FFFFFFF
    assert record[-11:-1] == str(value)[::-1].ljust(10, "0").encode()
    assert property_crc_fault(record, 0, len(record)) is None
    columns = read_columns(record, walk_records(record).starts)
    assert property_crc_agrees(record, columns).tolist() == [True]


def test_the_reason_names_both_values_or_says_that_there_is_none() -> None:
    record = bytearray(LOG[:129])
    record[40] ^= 1
    assert "the record says 642120055" in words(property_crc_fault(record, 0, 129))
    plain = encode_record(message_ext(b"x" * 50))
    assert property_crc_fault(plain, 0, len(plain)) == "no property __CRC32# at its end"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"", b""),
        (b"a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b", b"a\x01b\x02"),
        (b"__CRC32#\x01forged\x02", b""),
        (b"__CRC32#\x01forged", b""),
        (b"a\x01b\x02__CRC32#\x011\x02c\x01d\x02__CRC32#\x012", b"a\x01b\x02c\x01d\x02"),
        (b"a__CRC32#\x01b\x02", b"a__CRC32#\x01b\x02"),
        (b"__CRC32#\x02", b"__CRC32#\x02"),
    ],
)
def test_room_is_made_and_what_a_client_forged_is_dropped(
    properties: bytes, expected: bytes
) -> None:
    """CommitLog.asyncPutMessage, MessageExtEncoder.encode, MessageUtils.deleteProperty."""
    assert with_reserved_crc(properties) == expected + b"__CRC32#\x010000000000\x02"
    assert len(with_reserved_crc(properties)) == len(expected) + CRC32_RESERVED_LEN


def test_in_a_batch_room_is_made_and_nothing_else() -> None:
    """MessageExtEncoder.encode(MessageExtBatch)."""
    forged = b"__CRC32#\x01forged"
    assert reserve_batch_crc(forged) == forged + b"__CRC32#\x010000000000\x02"


def test_columns_of_records_are_checked_in_one_go() -> None:
    columns = read_columns(LOG, walk_records(LOG).starts)
    assert property_crc_agrees(LOG, columns).tolist() == [True] * 4
    damaged = bytearray(LOG)
    damaged[129 + 20] ^= 1
    assert property_crc_agrees(damaged, columns).tolist() == [True, False, True, True]
    none = read_columns(LOG, np.empty(0, np.int64))
    assert property_crc_agrees(LOG, none).tolist() == []


@given(st.lists(st.tuples(st.integers(0, 502), st.integers(1, 255)), max_size=6))
def test_columns_and_the_single_record_agree(changes: list[tuple[int, int]]) -> None:
    data = bytearray(LOG[:503]) + encode_record(message_ext(b"no room", properties={"a": "b"}))
    for at, change in changes:
        data[at] ^= change
    columns = read_columns(data, walk_records(data).starts)
    singly = [
        sound and not property_crc_fault(data, start, start + size)
        for start, size, sound in zip(
            columns.start.tolist(), columns.size.tolist(), columns.sound.tolist(), strict=True
        )
    ]
    assert property_crc_agrees(data, columns).tolist() == singly
