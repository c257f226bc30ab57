"""Bodies of batches against RocketMQ's own bytes, and against damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.batch_body import (
    BatchEntry,
    decode_batch_body,
    encode_batch_entry,
    keyed_entry_parts,
)
from tandem.wire.errors import ArgumentError, MalformedMessageError
from tandem.wire.message_properties import encode_properties

BATCH = bytes.fromhex(
    "00000034 00000000 00000000 00000000 00000002 6230 001c"
    "4b455953014b3002 57414954017472756502 5441475301 5461674202"
    "00000034 00000000 00000000 00000000 00000002 6231 001c"
    "4b455953014b3102 57414954017472756502 5441475301 5461674202"
)


def test_the_golden_batch_is_read_and_written() -> None:
    """MessageDecoder.encodeMessages."""
    entries = list(decode_batch_body(BATCH))
    properties = b"KEYS\x01K%d\x02WAIT\x01true\x02TAGS\x01TagB\x02"
    assert entries == [BatchEntry(0, b"b%d" % n, properties % n) for n in range(2)]
    written = [encode_batch_entry(entry.flag, entry.body, entry.properties) for entry in entries]
    assert b"".join(written) == BATCH


@pytest.mark.parametrize("size", [n for n in range(1, len(BATCH)) if n != 52])
def test_a_batch_cut_anywhere_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessageError):
        list(decode_batch_body(BATCH[:size]))


@given(st.binary(max_size=200))
def test_any_batch_body_is_read_or_refused_and_nothing_else(data: bytes) -> None:
    try:
        entries = list(decode_batch_body(data))
    except MalformedMessageError:
        return
    assert sum(22 + len(e.body) + len(e.properties) for e in entries) == len(data)


def test_size_magic_and_crc_of_a_batch_entry_are_ignored() -> None:
    damaged = b"\xff" * 12 + BATCH[12:52] + BATCH[52:]
    assert list(decode_batch_body(damaged)) == list(decode_batch_body(BATCH))


def test_properties_that_are_too_long_are_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        encode_batch_entry(0, b"", bytes(32_768))
    assert caught.value.names == ("properties",)


@given(st.integers(-(2**31), 2**31 - 1), st.binary(), st.text("0123456789ABCDEF", max_size=56))
def test_an_entry_in_parts_is_the_entry(flag: int, body: bytes, unique_key: str) -> None:
    whole = encode_batch_entry(flag, body, encode_properties({"UNIQ_KEY": unique_key}))
    assert b"".join(keyed_entry_parts(flag, body, unique_key.encode())) == whole
