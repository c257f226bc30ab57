"""The short way of most records says what the long way says, of whole ones and of damaged ones."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import Host, MessageExt, decode_messages, encode_record
from tandem.wire.message_properties import encode_properties
from tandem.wire.pulled_records import decode_pulled

HOSTS = st.builds(Host, st.sampled_from(["10.1.2.3", "127.0.0.1", "::1"]), st.integers(0, 65_535))
MESSAGES = st.builds(
    MessageExt,
    topic=st.text(st.sampled_from("aT%é"), max_size=140),
    body=st.binary(max_size=100),
    properties=st.dictionaries(st.sampled_from(["KEYS", "p", "é"]), st.text("v ü", min_size=1)),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    physical_offset=st.integers(0, 2**63 - 1),
    store_size=st.just(0),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.integers(-(2**31), 2**31 - 1),
    born_timestamp_ms=st.integers(0, 2**62),
    born_host=HOSTS,
    store_timestamp_ms=st.integers(0, 2**62),
    store_host=HOSTS,
    reconsume_times=st.integers(0, 2**31 - 1),
    prepared_transaction_offset=st.integers(0, 2**62),
    body_crc=st.just(0),
)
A_MESSAGE = MessageExt(
    topic="TopicA",
    body=b"hello",
    properties={"KEYS": "k", "WAIT": "true"},
    queue_id=3,
    queue_offset=5,
    physical_offset=1000,
    store_size=0,
    flag=7,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    born_host=Host("10.1.2.3", 1234),
    store_timestamp_ms=1_700_000_000_001,
    store_host=Host("127.0.0.1", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body_crc=0,
)
RECORD = encode_record(A_MESSAGE)


def said(decode: Callable[[bytes], list[MessageExt]], data: bytes) -> object:
    try:
        return decode(data)
    except MalformedMessageError as error:
        return str(error)


def assert_same(data: bytes) -> None:
    messages, error = decode_pulled(data)
    assert (messages if error is None else str(error)) == said(decode_messages, data)
    assert messages == decode_messages(data[: sum(message.store_size for message in messages)])


@given(
    st.lists(MESSAGES, max_size=3),
    st.integers(0, 1000),
    st.integers(0, 255),
    st.integers(0, 1000),
)
def test_both_ways_say_the_same_of_any_records(
    messages: list[MessageExt], at: int, byte: int, size: int
) -> None:
    records = bytearray(b"".join(encode_record(message) for message in messages))
    assert_same(bytes(records))
    assert_same(bytes(records[:size]))
    if records:
        records[at % len(records)] = byte
        assert_same(bytes(records))


@pytest.mark.parametrize("at", range(len(RECORD)))
def test_both_ways_say_the_same_of_any_damaged_byte(at: int) -> None:
    for byte in (0, 1, 0x10, 0x20, 0x7F, 0x80, 0xFF, RECORD[at] ^ 1):
        damaged = RECORD[:at] + bytes([byte]) + RECORD[at + 1 :]
        assert_same(damaged + RECORD)


@pytest.mark.parametrize("size", [32_767, 32_768, 40_000])
def test_both_ways_say_the_same_of_long_properties(size: int) -> None:
    properties = b"p\x01".ljust(size - 1, b"v") + b"\x02"
    own = len(encode_properties(A_MESSAGE.properties)) + 2
    record = RECORD[4:-own] + size.to_bytes(2, "big") + properties
    assert_same((4 + len(record)).to_bytes(4, "big") + record)


def test_most_records_are_read_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.wire.pulled_records.decode_message", None)
    assert [message.body for message in decode_pulled(RECORD * 3)[0]] == [b"hello"] * 3
