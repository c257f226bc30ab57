"""Records, batch bodies and message ids against RocketMQ's own bytes, and against damage."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.batch_body import decode_batch_body
from tandem.wire.crc import crc32
from tandem.wire.errors import ArgumentError, MalformedMessageError
from tandem.wire.message import (
    Host,
    Message,
    MessageExt,
    decode_message,
    decode_messages,
    decode_offset_msg_id,
    encode_batch_body,
    encode_record,
    is_inner_batch,
    offset_msg_id,
    record_size,
    unpack_host,
    unwrap_inner_batch,
)

RECORD_V1 = bytes.fromhex(
    "00000088 daa320a7 7036e992 00000001 00000000 0000000000000000 0000000000000000"
    "00000000 0000018bcfe56800 0a010203000004d2 000001a1fb61dff6 7f00000100002a9f"
    "00000000 0000000000000000 00000006 68656c6c6f30 06 546f70696341 0021"
    "4b455953016b31206b3202 554e49515f4b455901553002 5441475301 5461674102"
)
MESSAGE_V1 = MessageExt(
    topic="TopicA",
    body=b"hello0",
    properties={"KEYS": "k1 k2", "UNIQ_KEY": "U0", "TAGS": "TagA"},
    queue_id=1,
    queue_offset=0,
    physical_offset=0,
    store_size=136,
    flag=0,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    born_host=Host("10.1.2.3", 1234),
    store_timestamp_ms=1_795_218_857_974,
    store_host=Host("127.0.0.1", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body_crc=0x7036E992,
)
BATCH = bytes.fromhex(
    "00000034 00000000 00000000 00000000 00000002 6230 001c"
    "4b455953014b3002 57414954017472756502 5441475301 5461674202"
    "00000034 00000000 00000000 00000000 00000002 6231 001c"
    "4b455953014b3102 57414954017472756502 5441475301 5461674202"
)
# With the CRC property, which we keep like any other.
RECORD_CRC = bytes.fromhex(
    "00000081daa320a73610a686000000000000000000000000000000000000000000000000000000"
    "000000018bcfe568000a010203000004d2000001a1fb6b4a637f00000100002a9f000000000000"
    "0000000000000000000568656c6c6f06546f70696341001b4b455953016b025f5f435243333223"
    "013535303032313234363002"
)

HOSTS = st.builds(
    Host, st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535)
)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
MESSAGES = st.builds(
    MessageExt,
    topic=st.text(st.sampled_from("abcTopic%-_"), max_size=200),
    body=st.binary(max_size=300),
    properties=st.dictionaries(TEXT, TEXT, max_size=4),
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


def test_the_golden_record_is_read_and_written() -> None:
    """MessageDecoder.decode and MessageExtEncoder.encode."""
    assert decode_message(RECORD_V1) == (MESSAGE_V1, 136)
    assert encode_record(MESSAGE_V1) == RECORD_V1
    assert MESSAGE_V1.body_crc == crc32(b"hello0")


def test_the_golden_record_with_a_crc_property_is_read_and_written() -> None:
    message, end = decode_message(RECORD_CRC)
    assert end == 129
    assert message.properties == {"KEYS": "k", "__CRC32#": "5500212460"}
    assert encode_record(message) == RECORD_CRC


@given(MESSAGES)
def test_what_was_encoded_comes_back(message: MessageExt) -> None:
    record = encode_record(message)
    decoded, end = decode_message(record)
    assert end == len(record) == decoded.store_size
    assert encode_record(decoded) == record
    assert (decoded.topic, decoded.body, decoded.properties) == (
        message.topic,
        message.body,
        message.properties,
    )
    assert (decoded.born_host, decoded.store_host) == (message.born_host, message.store_host)
    assert decoded.body_crc == crc32(message.body)
    hosts = 0x10 * message.born_host.is_v6 | 0x20 * message.store_host.is_v6
    assert decoded.sys_flag == message.sys_flag & ~0x30 | hosts


@pytest.mark.parametrize(("letters", "magic"), [(127, "daa320a7"), (128, "daa320ab")])
def test_a_topic_of_more_than_127_characters_makes_a_v2_record(letters: int, magic: str) -> None:
    """MessageVersion, with autoMessageVersionOnTopicLen."""
    message, _ = decode_message(encode_record(_with_topic("L" * letters)))
    record = encode_record(message)
    assert record[4:8].hex() == magic
    assert message.topic == "L" * letters
    assert len(record) == record_size(6, letters, 33, v2=letters > 127)


def _with_topic(topic: str) -> MessageExt:
    return msgspec.structs.replace(MESSAGE_V1, topic=topic)


@pytest.mark.parametrize("size", range(len(RECORD_V1)))
def test_a_record_cut_anywhere_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode_message(RECORD_V1[:size])


def test_bytes_behind_a_record_are_the_next_one() -> None:
    two = RECORD_V1 + RECORD_CRC
    first, position = decode_message(two)
    assert decode_message(two, position)[1] == len(two)
    assert [m.body for m in decode_messages(two)] == [first.body, b"hello"]
    assert decode_messages(b"") == []


def test_good_records_before_a_bad_one_do_not_hide_it() -> None:
    """RocketMQ's MessageDecoder.decodes drops the rest silently."""
    with pytest.raises(MalformedMessageError) as caught:
        decode_messages(RECORD_V1 + RECORD_V1[:-1])
    assert caught.value.position == 136


@given(st.integers(0, len(RECORD_V1) - 1), st.integers(0, 255))
def test_one_damaged_byte_is_read_or_refused_and_nothing_else(at: int, byte: int) -> None:
    damaged = bytearray(RECORD_V1)
    damaged[at] = byte
    try:
        _, end = decode_message(damaged)
    except MalformedMessageError:
        return
    assert end == 136


@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    for start in (b"", RECORD_V1[:8], RECORD_V1[:60], RECORD_V1[:90]):
        try:
            _, end = decode_message(start + data)
        except MalformedMessageError:
            continue
        assert 0 < end <= len(start + data)


def test_an_unknown_magic_is_named() -> None:
    with pytest.raises(MalformedMessageError) as caught:
        decode_message(bytes.fromhex("00000080cbd43194") + bytes(120))
    assert caught.value.position == 0


def test_message_ids_say_where_the_message_lies() -> None:
    """MessageDecoder.createMessageId and decodeMessageId."""
    golden = "7F00000100002A9F0000000000000000"
    assert MESSAGE_V1.offset_msg_id == golden
    assert decode_offset_msg_id(golden) == (Host("127.0.0.1", 10911), 0)
    v6 = offset_msg_id(Host("2001:db8::1", 10911), 0x0102030405060708)
    assert v6 == "20010DB800000000000000000000000100002A9F0102030405060708"
    assert decode_offset_msg_id(v6) == (Host("2001:db8::1", 10911), 0x0102030405060708)


@pytest.mark.parametrize("text", ["", "7F", "zz" * 16, "7F" * 17, "7F" * 28 + "0"])
def test_a_message_id_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessageError):
        decode_offset_msg_id(text)


def test_the_id_of_the_producer_comes_first() -> None:
    """MessageClientIDSetter: clients show UNIQ_KEY; without one, the offset id."""
    assert MESSAGE_V1.msg_id == "U0"
    message, _ = decode_message(RECORD_CRC)
    assert message.msg_id == message.offset_msg_id
    assert (MESSAGE_V1.keys, MESSAGE_V1.tags) == ("k1 k2", "TagA")
    assert (message.keys, message.tags) == ("k", "")


def test_the_golden_batch_is_read_and_written() -> None:
    """MessageDecoder.encodeMessages; the order of properties is the sender's own."""
    entries = list(decode_batch_body(BATCH))
    assert [(e.flag, e.body) for e in entries] == [(0, b"b0"), (0, b"b1")]
    messages = [
        Message(
            "T",
            entry.body,
            properties={"KEYS": f"K{number}", "WAIT": "true", "TAGS": "TagB"},
        )
        for number, entry in enumerate(entries)
    ]
    assert encode_batch_body(messages) == BATCH


def test_properties_too_long_for_a_batch_entry_are_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        encode_batch_body([Message("T", b"", properties={"p": "x" * 32_766})])
    assert caught.value.names == ("properties",)


def an_inner_batch(body: bytes = BATCH, sys_flag: int = 0xC2) -> MessageExt:
    return msgspec.structs.replace(MESSAGE_V1, body=body, sys_flag=sys_flag, queue_offset=40)


def test_a_record_that_holds_a_batch_comes_apart() -> None:
    """MessageDecoder.decodeMessage: what is not in an entry is the record's."""
    singles = unwrap_inner_batch(an_inner_batch())
    assert [(m.queue_offset, m.body) for m in singles] == [(40, b"b0"), (41, b"b1")]
    assert [m.properties["KEYS"] for m in singles] == ["K0", "K1"]
    assert {(m.topic, m.queue_id, m.sys_flag, m.physical_offset) for m in singles} == {
        ("TopicA", 1, 2, 0)
    }
    assert [m.body_crc for m in singles] == [crc32(b"b0"), crc32(b"b1")]
    assert unwrap_inner_batch(singles[0]) == [singles[0]]


@pytest.mark.parametrize("sys_flag", [0x00, 0x40, 0x80])
def test_only_both_flags_together_make_a_batch(sys_flag: int) -> None:
    """PullAPIWrapper.processPullResult."""
    assert not is_inner_batch(sys_flag)
    message = an_inner_batch(sys_flag=sys_flag)
    assert unwrap_inner_batch(message) == [message]


@pytest.mark.parametrize("size", [1, 20, 51, 103])
def test_a_cut_batch_in_a_record_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessageError):
        unwrap_inner_batch(an_inner_batch(BATCH[:size]))


@pytest.mark.parametrize(
    ("message", "properties"),
    [
        (Message("T", b"", delay_time_level=3), {"DELAY": "3"}),
        (Message("T", b"", delay_ms=1500), {"TIMER_DELAY_MS": "1500"}),
        (
            Message("T", b"", deliver_time_ms=1_700_000_000_000),
            {"TIMER_DELIVER_MS": "1700000000000"},
        ),
        (Message("T", b"", properties={"TIMER_DELAY_SEC": "1"}), {"TIMER_DELAY_SEC": "1"}),
    ],
)
def test_a_delayed_message_says_so_in_a_property(
    message: Message, properties: dict[str, str]
) -> None:
    assert message.property_map() == properties
    assert message.is_delayed
    assert not Message("T", b"", sharding_key="k", properties={"p": "1"}).is_delayed


def test_most_messages_say_nothing_about_how_to_store_them() -> None:
    assert Message("T", b"", keys="k", tags="t", flag=1).is_plain
    for message in (
        Message("T", b"", properties={"a": "b"}),
        Message("T", b"", sharding_key="k"),
        Message("T", b"", wait_store_msg_ok=True),
        Message("T", b"", delay_ms=1),
        Message("T", b"", deliver_time_ms=1),
        Message("T", b"", delay_time_level=1),
    ):
        assert not message.is_plain


def test_the_sharding_key_is_a_property_as_in_rocketmq() -> None:
    assert Message("T", b"", sharding_key="o-7").property_map() == {"__SHARDINGKEY": "o-7"}


def test_a_message_has_one_delay() -> None:
    with pytest.raises(ArgumentError) as caught:
        Message("T", b"", delay_time_level=3, delay_ms=10)
    assert caught.value.names == ("delay_time_level", "delay_ms")
    with pytest.raises(ArgumentError) as caught:
        Message("T", b"", delay_ms=-1)
    assert caught.value.names == ("delay_ms",)


@pytest.mark.parametrize("keys", [["a", "b"], ("a", "b"), "a b"])
def test_several_keys_are_stored_with_blanks_between_them(keys: str | list[str]) -> None:
    assert Message("T", b"", keys=keys).property_map() == {"KEYS": "a b"}


def test_a_key_that_cannot_be_looked_up_again_is_refused() -> None:
    for key in ("a b", "", "a\x01", "a\x02"):
        with pytest.raises(ArgumentError) as caught:
            Message("T", b"", keys=["good", key])
        assert caught.value.names == ("keys",)
    with pytest.raises(TypeError):
        Message("T", b"", keys=[7])  # type: ignore[list-item]
    for keys in (7, b"k"):
        with pytest.raises(TypeError):
            Message("T", b"", keys=keys)  # type: ignore[arg-type]


def test_a_body_that_is_no_bytes_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"expected bytes, not str; give it body.encode\(\)"):
        Message("T", "hello")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Message("T", {"a": 1})  # type: ignore[arg-type]
    for alike in (bytearray(b"x"), memoryview(b"x")):
        message = Message("T", alike)  # type: ignore[arg-type]
        assert (type(message.body), message.body) == (bytes, b"x")


@pytest.mark.parametrize("wait", [None, True, False])
def test_what_a_message_says_of_itself_becomes_properties(wait: bool | None) -> None:  # noqa: FBT001 - a parameter of the test
    expected = {None: {}, True: {"WAIT": "true"}, False: {"WAIT": "false"}}[wait]
    message = Message("T", b"", keys="a b", tags="x", properties={"p": "1"}, wait_store_msg_ok=wait)
    assert message.property_map() == {"p": "1", "KEYS": "a b", "TAGS": "x"} | expected
    assert message.properties == {"p": "1"}


@pytest.mark.parametrize(
    ("ip", "packed", "text"),
    [
        ("10.1.2.3", "0a010203000004d2", "10.1.2.3:1234"),
        ("::1", "00000000000000000000000000000001000004d2", "[::1]:1234"),
    ],
)
def test_hosts_are_packed_as_address_and_port(ip: str, packed: str, text: str) -> None:
    host = Host(ip, 1234)
    assert host.packed == bytes.fromhex(packed)
    assert unpack_host(host.packed) == host
    assert str(host) == text
    assert host.is_v6 == (":" in ip)
