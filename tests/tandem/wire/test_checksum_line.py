import json

import msgspec
import pytest

from tandem.wire.checksum_line import (
    ChecksumError,
    checksum_of,
    decode_checked_json,
    encode_checked_json,
    with_checksum,
    without_checksum,
)
from tandem.wire.untrusted import UnreadableError

NAME = "replica.json"


class Record(msgspec.Struct, frozen=True):
    incarnation: str
    promised: int = 0


RECORD = Record("4f00a1", 70)
DATA = encode_checked_json(NAME, RECORD)


def test_each_line_is_json_for_people() -> None:
    first, last = DATA.decode().splitlines()
    assert json.loads(first) == {"incarnation": "4f00a1", "promised": 70}
    crc = checksum_of(NAME, f"{first}\n".encode())
    assert json.loads(last) == {"crc32": f"{crc:08x}"}


def test_what_was_written_is_read() -> None:
    assert decode_checked_json(NAME, DATA, Record) == RECORD
    assert without_checksum(NAME, with_checksum(NAME, b"a\nb")) == (b"a\nb\n", True)


def test_a_file_of_an_earlier_version_is_read_as_it_is() -> None:
    old = msgspec.json.encode(RECORD)
    assert decode_checked_json(NAME, old, Record) == RECORD
    assert decode_checked_json(NAME, old + b"\n", Record) == RECORD
    assert without_checksum(NAME, b"") == (b"", False)


def test_no_flipped_bit_is_taken() -> None:
    for position in range(len(DATA)):
        for bit in range(8):
            changed = bytearray(DATA)
            changed[position] ^= 1 << bit
            with pytest.raises(UnreadableError):
                decode_checked_json(NAME, bytes(changed), Record)


def test_a_file_cut_at_any_byte_is_damaged_or_says_the_same() -> None:
    for size in range(len(DATA)):
        try:
            record = decode_checked_json(NAME, DATA[:size], Record)
        except UnreadableError:
            continue
        assert record == RECORD


def test_the_content_of_another_file_is_not_taken() -> None:
    with pytest.raises(ChecksumError):
        decode_checked_json("other.json", DATA, Record)
