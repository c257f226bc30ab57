import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.wire import record_check
from tandem.wire.message import MESSAGE_MAGIC_CODE, decode_message
from tandem.wire.record_check import check_records
from tandem.wire.record_rule import ScanStop
from tandem.wire.record_scan import RecordCheck, scan_records
from tests.support.judges import crc32_of
from tests.support.log_builder import LogBuilder, mixed_log

pytestmark = pytest.mark.usefixtures("_in_c_and_python")


def test_the_check_says_where_the_last_sound_record_starts() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for number in range(40):
        log.put(body=b"x" * number)
    for count in (0, 1, 30, 40):
        end = log.messages[count].physical_offset if count < 40 else len(log.log)
        check = check_records(log.log, 0, 0, end)
        last = log.messages[count - 1].physical_offset if count else -1
        assert check == RecordCheck(count, last, end, ScanStop.END, "", 0)


@settings(deadline=None)
@given(
    damage=st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 1_000_000),
    check_crc=st.booleans(),
)
def test_plain_loop_columns_and_decoder_agree_on_damaged_bytes(
    damage: list[tuple[int, int]], cut: int, *, check_crc: bool
) -> None:
    data = bytearray(mixed_log().log + bytes(64))
    for at, value in damage:
        data[at % len(data)] = value
    del data[len(data) - cut % 200 :]
    by_columns = scan_records(data, 0, check_crc=check_crc).check
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_check, "PLAIN_LOOP_RECORDS_MAX", 1_000_000)
        assert check_records(data, 0, check_crc=check_crc) == by_columns
        patch.setattr(record_check, "PLAIN_LOOP_RECORDS_MAX", 3)
        assert check_records(data, 0, check_crc=check_crc) == by_columns
    position = 0
    while position < by_columns.end:
        _, position = decode_message(data, position)
    assert position == by_columns.end


def plain_record(
    *, size: int = 0, magic: int = MESSAGE_MAGIC_CODE, place: int = 0, sys_flag: int = 0,
    crc: int | None = None, body: bytes = b"body", body_bytes: int | None = None,
    topic: bytes = b"T", topic_bytes: int | None = None, properties_bytes: int = 2,
) -> bytes:  # fmt: skip
    """Return a record with v4 hosts whose fields may say what is not so."""
    tail = bytes([len(topic) if topic_bytes is None else topic_bytes]) + topic
    tail += struct.pack(">h", properties_bytes) + b"pp"
    head = struct.pack(
        ">IIIiiqqI",
        size or 88 + len(body) + len(tail),
        magic,
        crc32_of(body) & 0x7FFFFFFF if crc is None else crc,
        *(0, 0, 0),
        place,
        sys_flag,
    )
    said = len(body) if body_bytes is None else body_bytes
    return head + bytes(44) + struct.pack(">I", said) + body + tail


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 0xDAA320AB},
        {"magic": 0xCBD43194},
        {"magic": 0},
        {"place": 1},
        {"sys_flag": 16},
        {"sys_flag": 32},
        {"size": 90},
        {"size": 97},
        {"size": 99},
        {"size": 2**32 - 1},
        {"crc": 1},
        {"crc": 2**32 - 1},
        {"body": b"", "crc": 7},
        {"body_bytes": 3},
        {"body_bytes": 9},
        {"body_bytes": 2**32 - 1},
        {"topic": b"t" * 127},
        {"topic": b"t" * 128},
        {"topic": b"t" * 255},
        {"topic_bytes": 200},
        {"topic_bytes": 2},
        {"properties_bytes": 1},
        {"properties_bytes": -1},
        {"body": b"b" * 900},
    ],
)
@pytest.mark.parametrize("check_crc", [True, False])
def test_plain_loop_and_columns_agree_on_every_field(
    fields: dict[str, Any], *, check_crc: bool
) -> None:
    good = plain_record()
    bad = plain_record(**{"place": len(good), **fields})
    last = plain_record(place=len(good) + len(bad))
    data = good + bad + last
    check = check_records(data, 0, check_crc=check_crc, record_bytes_max=900)
    assert check == scan_records(data, 0, check_crc=check_crc, record_bytes_max=900).check
    assert check.count in (1, 3)


@settings(deadline=None, max_examples=4 * settings().max_examples)
@given(st.binary(min_size=80, max_size=120), st.integers(0, 0xFFFFFFFF))
def test_random_bytes_behind_a_good_head_never_raise(tail: bytes, sys_flag: int) -> None:
    size = 40 + len(tail)
    head = struct.pack(">IIIiiqqI", size, 0xDAA320A7, 0, 0, 0, 0, 0, sys_flag)
    assert check_records(head + tail, 0) == scan_records(head + tail, 0).check
