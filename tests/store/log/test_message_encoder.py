"""What becomes a record and what cannot: shapes, batches, inner batches, limits in their order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.log.message_encoder import (
    Fault,
    IllegalBatchError,
    MessageEncoder,
    inner_batch,
    inner_batch_fault,
    message_num,
    topic_fault,
    with_inner_base,
)
from store.results import PutMessage, PutMessageStatus
from tandem.wire.batch_body import encode_batch_entry
from tandem.wire.message import (
    RECORD_OVERHEAD_BYTES_MAX,
    Host,
    Message,
    decode_message,
    encode_batch_body,
    record_size,
    unwrap_inner_batch,
)
from tandem.wire.message_properties import PROPERTIES_BYTES_MAX, decode_properties
from tandem.wire.property_crc import CRC32_RESERVED_LEN, property_crc_fault
from tests.store.store_world import STORE_HOST, a_batch, a_message

pytestmark = pytest.mark.usefixtures("_in_c_and_python")

ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
TOO_LONG = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
LIMIT = 100_000
NOW_MS = 1_800_000_000_000


def an_encoder(
    *,
    crc: bool = False,
    limit: int = LIMIT,
    record_bytes_max: int = 1 << 30,
    host: Host = STORE_HOST,
) -> MessageEncoder:
    return MessageEncoder(
        host,
        record_bytes_max=record_bytes_max,
        max_message_size_bytes=limit,
        append_prop_crc=crc,
    )


def fault_of(encoder: MessageEncoder, **parts: object) -> Fault | None:
    return encoder.message_fault(
        msgspec.structs.replace(a_message(0), **{"properties": b"", **parts}), b"TopicA"
    )


def test_records_of_one_shape_share_it_and_shapes_do_not_pile_up() -> None:
    encoder = an_encoder()
    first = encoder.shape(10, b"T", 5, 8)
    assert encoder.shape(10, b"T", 5, 8) is first
    for body in range(20_000):
        encoder.shape(body, b"T", 5, 8)
    assert len(encoder.shapes) <= 8192
    assert encoder.shape(10, b"T", 5, 8).size == first.size


@pytest.mark.parametrize("born", [Host("10.1.2.3", 1), Host("::1", 1)])
@pytest.mark.parametrize("stored", [Host("10.1.2.3", 1), Host("::1", 1)])
@pytest.mark.parametrize("topic", ["T", "L" * 127, "L" * 128, "\u00e9" * 127])
def test_a_shape_has_the_size_and_magic_of_its_record(born: Host, stored: Host, topic: str) -> None:
    """MessageExtEncoder.calMsgLength; V2 from 128 characters on, not bytes."""
    shape = an_encoder(host=stored).shape(10, topic.encode(), 5, len(born.packed))
    flags = 0x10 * born.is_v6 | 0x20 * stored.is_v6
    v2 = len(topic) > 127
    assert shape.size == record_size(10, len(topic.encode()), 5, v2=v2, sys_flag=flags)
    assert (shape.host_flags, shape.magic & 0xFF) == (flags, 0xAB if v2 else 0xA7)


# -- limits of single messages --------------------------------------------------------------------


def test_what_is_at_the_limits_passes() -> None:
    encoder = an_encoder()
    assert fault_of(encoder, body=bytes(LIMIT), properties=b"p" * PROPERTIES_BYTES_MAX) is None
    assert fault_of(encoder, body=b"") is None


def test_properties_are_looked_at_first_then_the_body_then_the_record() -> None:
    """MessageExtEncoder.encode."""
    encoder = an_encoder()
    long = b"p" * (PROPERTIES_BYTES_MAX + 1)
    fault = fault_of(encoder, body=bytes(LIMIT + 1), properties=long)
    assert fault == (TOO_LONG, "properties take 32768 bytes, the limit is 32767")
    fault = fault_of(an_encoder(record_bytes_max=10), body=bytes(LIMIT + 1))
    assert fault == (
        ILLEGAL,
        "the body has 100001 bytes, the limit is 100000 (max_message_size_bytes)",
    )
    fault = fault_of(an_encoder(record_bytes_max=96), body=b"")
    assert fault == (ILLEGAL, "the record has 97 bytes, the limit is 96")


def test_a_record_may_be_64_kib_larger_than_the_largest_body() -> None:
    """MessageExtEncoder: maxMessageSize + 64 KiB. No topic that passes is long enough for more."""
    encoder = an_encoder(limit=LIMIT)
    topic = b"T" * (RECORD_OVERHEAD_BYTES_MAX - PROPERTIES_BYTES_MAX - 92)
    message = msgspec.structs.replace(
        a_message(0), body=bytes(LIMIT), properties=b"p" * PROPERTIES_BYTES_MAX
    )
    assert encoder.message_fault(message, topic) is None
    fault = encoder.message_fault(message, topic + b"T")
    assert fault == (ILLEGAL, "the record has 165537 bytes, the limit is 165536")


def test_a_record_that_fits_no_file_is_refused() -> None:
    """5.3.3 answers PUT_OK, and has lost the message."""
    size = record_size(500, 6, 0)
    assert fault_of(an_encoder(record_bytes_max=size), body=bytes(500)) is None
    fault = fault_of(an_encoder(record_bytes_max=size - 1), body=bytes(500))
    assert fault == (ILLEGAL, f"the record has {size} bytes, the limit is {size - 1}")


@pytest.mark.parametrize(("last", "reserved"), [(b"\x02", 20), (b"p", 21)])
def test_room_for_the_crc_counts_as_properties(last: bytes, reserved: int) -> None:
    encoder = an_encoder(crc=True)
    most = PROPERTIES_BYTES_MAX - reserved
    assert fault_of(encoder, properties=b"p" * (most - 1) + last) is None
    fault = fault_of(encoder, properties=b"p" * most + last)
    assert fault == (TOO_LONG, "properties take 32768 bytes, the limit is 32767")
    forged = b"__CRC32#\x010123456789\x02" + b"p" * (most - 1) + last
    assert fault_of(encoder, properties=forged) is None


@pytest.mark.parametrize("properties", [b"a\x01b\0", b"a" + bytes(600) + b"b"])
def test_properties_that_look_like_a_lost_page_are_refused(properties: bytes) -> None:
    fault = fault_of(an_encoder(), properties=properties)
    assert fault == (ILLEGAL, "the properties end in, or hold many, NUL characters")


@pytest.mark.parametrize("topic", ["T", "T" * 127, "%RETRY%" + "g" * 248, "\u00e9" * 63])
def test_topics_within_the_limits_pass(topic: str) -> None:
    """HookUtils.checkBeforePutMessage."""
    assert topic_fault(topic) is None


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "the topic has 0 bytes, allowed are 1 to 127"),
        ("T" * 128, "the topic has 128 bytes, allowed are 1 to 127"),
        ("\u00e9" * 64, "the topic has 128 bytes, allowed are 1 to 127"),
        ("%RETRY%" + "g" * 249, "the topic has 256 bytes, allowed are 1 to 255"),
        ("a/b", "'a/b' cannot be the name of a directory"),
        ("..", "'..' cannot be the name of a directory"),
        ("a\0b", "'a\\x00b' cannot be the name of a directory"),
    ],
)
def test_topics_beyond_them_do_not(topic: str, reason: str) -> None:
    """HookUtils.checkBeforePutMessage; that a topic is a directory is the store's own reason."""
    assert topic_fault(topic) == (ILLEGAL, reason)


# -- batches --------------------------------------------------------------------------------------


def test_a_batch_is_refused_for_the_first_thing_that_is_wrong() -> None:
    """CommitLog.asyncPutMessages, then MessageExtEncoder.encode(MessageExtBatch), which raises."""
    encoder = an_encoder(limit=1000)
    wrong = msgspec.structs.replace(
        a_batch(range(1)),
        sys_flag=8,
        body=bytes(1001),
        properties=b"DELAY\x013\x02" + b"p" * 32_760,
    )
    reasons = []
    for repair in (
        {"sys_flag": 0},
        {"properties": wrong.properties.replace(b"DELAY", b"delay")},
        {"body": b""},
        {"body": bytes(1000)},
        {"properties": b""},
    ):
        fault = encoder.batch_fault(wrong)
        assert fault is not None
        reasons.append(fault)
        wrong = msgspec.structs.replace(wrong, **repair)
    assert encoder.batch_fault(wrong) is None
    assert reasons == [
        (ILLEGAL, "a batch cannot be transactional"),
        (ILLEGAL, "a batch cannot be delayed"),
        (ILLEGAL, "the batch takes 1001 bytes, the limit is 1000 (max_message_size_bytes)"),
        (ILLEGAL, "the batch is empty"),
        (TOO_LONG, "properties take 32768 bytes, the limit is 32767"),
    ]


@pytest.mark.parametrize("shared", [b"", b"CLUSTER\x01c\x02"])
@pytest.mark.parametrize("crc", [False, True])
def test_the_properties_of_each_message_of_a_batch_are_bounded(*, shared: bytes, crc: bool) -> None:
    """5.3.3 does not look, and cuts the length off to 16 bits."""
    batch = msgspec.structs.replace(a_batch(range(1)), properties=shared)
    most = PROPERTIES_BYTES_MAX - len(shared) - CRC32_RESERVED_LEN * crc

    def encode(size: int) -> None:
        properties = {"p": "x" * (size - 3)}
        body = encode_batch_body([Message("TopicA", b"", properties=properties)])
        encoder = an_encoder(crc=crc)
        encoder.encode_batch(msgspec.structs.replace(batch, body=body), b"TopicA", 0, 0, NOW_MS)

    encode(most)
    if most < PROPERTIES_BYTES_MAX:
        with pytest.raises(IllegalBatchError):
            encode(most + 1)


OWN = st.sampled_from([b"", b"a\x01b", b"a\x01b\x02", b"\x02", b"a\x01" + b"x" * 480 + b"\x02"])


@given(st.lists(OWN, min_size=1, max_size=6), st.sampled_from([b"", b"c\x01d\x02", b"c\x01d"]))
def test_the_properties_of_a_batch_follow_those_of_each_message(
    owns: list[bytes], shared: bytes
) -> None:
    """With one separator between them. Source: MessageExtEncoder.encode(MessageExtBatch)."""
    body = b"".join(encode_batch_entry(0, b"body", own) for own in owns)
    batch = msgspec.structs.replace(a_batch(range(1)), body=body, properties=shared)
    records, units = an_encoder().encode_batch(batch, b"TopicA", 3, 5000, NOW_MS)
    for number, own in enumerate(owns):
        offset, size = units[3 * number : 3 * number + 2]
        between = b"\x02" if own and shared and own[-1] != 2 else b""
        wanted = own + between + shared
        record = records[offset - 5000 : offset - 5000 + size]
        assert record.endswith(b"\x06TopicA" + len(wanted).to_bytes(2, "big") + wanted)
        assert decode_message(record, 0)[1] == size


@pytest.mark.parametrize("own", [b"a\x01b\x02", b"a\x01" + bytes(400) + b"b\x02"])
@pytest.mark.parametrize("shared", [b"c\x01\0", b"c\x01" + bytes(600) + b"d", b"\0"])
def test_properties_that_a_batch_makes_look_torn_are_refused(own: bytes, shared: bytes) -> None:
    body = encode_batch_entry(0, b"body", own)
    batch = msgspec.structs.replace(a_batch(range(1)), body=body, properties=shared)
    with pytest.raises(IllegalBatchError):
        an_encoder().encode_batch(batch, b"TopicA", 3, 5000, NOW_MS)


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.booleans()), min_size=1, max_size=8),
    st.sampled_from([b"", b"CLUSTER\x01c\x02", b"CLUSTER\x01c"]),
)
def test_every_record_of_a_batch_gets_its_own_crc(
    contents: list[tuple[bytes, bool]], shared: bytes
) -> None:
    """MessageExtEncoder.encode(MessageExtBatch) with enabledAppendPropCRC."""
    entries = []
    for body, is_closed in contents:
        entry = encode_batch_body([Message("TopicA", body, tags="TagA")])
        if not is_closed:  # as a 4.x client writes it
            entry = entry[: -(2 + 10)] + (9).to_bytes(2, "big") + entry[-10:-1]
        entries.append(entry)
    batch = msgspec.structs.replace(a_batch(range(1)), body=b"".join(entries), properties=shared)
    records, units = an_encoder(crc=True).encode_batch(batch, b"TopicA", 3, 5000, NOW_MS)
    position = 0
    for number, (body, is_closed) in enumerate(contents):
        message, end = decode_message(records, position)
        assert property_crc_fault(records, position, end) is None
        assert (message.body, message.queue_offset) == (body, 3 + number)
        assert units[3 * number : 3 * number + 2] == [5000 + position, end - position]
        if shared.endswith(b"\x02") or (is_closed and not shared):
            names = {"TAGS", "__CRC32#", *decode_properties(shared)}
            assert set(message.properties) == names
        position = end
    assert position == len(records)


def test_without_a_separator_in_front_the_crc_of_a_batch_is_part_of_a_value() -> None:
    """As in 5.3.3, whose nodes always add properties of their own to a batch."""
    entry = encode_batch_body([Message("TopicA", b"b", tags="TagA")])
    entry = entry[:-12] + (9).to_bytes(2, "big") + entry[-10:-1]
    batch = msgspec.structs.replace(a_batch(range(1)), body=entry, properties=b"")
    records, _ = an_encoder(crc=True).encode_batch(batch, b"TopicA", 0, 0, NOW_MS)
    assert records.endswith(b"TAGS\x01TagA__CRC32#\x01" + records[-11:-1] + b"\x02")
    assert property_crc_fault(records, 0, len(records)) is None


# -- inner batches --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sys_flag", "properties", "is_batch_topic", "reason"),
    [
        (0x00, b"", False, None),
        (0x00, b"", True, None),
        (0xC0, b"INNER_NUM\x013\x02", True, None),
        (0x80, b"", True, None),
        (0x40, b"", False, None),
        (0x00, b"MY_INNER_NUM\x013\x02", False, None),
        (0x00, b"INNER_NUM\x013\x02", True, "but is no inner batch"),
        (0x40, b"a\x01b\x02INNER_NUM\x013\x02", True, "but is no inner batch"),
        (0x80, b"INNER_NUM\x013\x02", False, "topics with batch queues only"),
        (0x80, b"INNER_NUM\x01three\x02", True, "not a number up to 32767"),
        (0x80, b"INNER_NUM\x0132768\x02", True, "not a number up to 32767"),
    ],
)
def test_flag_property_and_topic_have_to_agree_about_an_inner_batch(
    *, sys_flag: int, properties: bytes, is_batch_topic: bool, reason: str | None
) -> None:
    """HookUtils.checkInnerBatch."""
    fault = inner_batch_fault(sys_flag, properties, is_batch_topic=is_batch_topic)
    if reason is None:
        assert fault is None
    else:
        assert fault is not None
        assert (fault[0], reason in fault[1]) == (ILLEGAL, True)


def test_a_batch_becomes_one_message_that_can_be_taken_apart_again() -> None:
    """SendMessageProcessor.sendBatchMessage, BatchConsumeQueue.assignQueueOffset."""
    batch = msgspec.structs.replace(
        a_batch(range(3)), properties=b"UNIQ_KEY\x01U\x02CLUSTER\x01c\x02", sys_flag=2
    )
    message = with_inner_base(inner_batch(batch), 40)
    assert message.sys_flag == 0xC2
    assert decode_properties(message.properties) == {
        "UNIQ_KEY": "U",
        "CLUSTER": "c",
        "INNER_NUM": "3",
        "INNER_BASE": "40",
    }
    assert inner_batch_fault(message.sys_flag, message.properties, is_batch_topic=True) is None
    assert message_num(message.properties) == 3
    assert message.body == batch.body


def test_the_queue_offsets_run_on_inside_a_record() -> None:
    encoder = an_encoder()
    message = with_inner_base(inner_batch(a_batch(range(3))), 40)
    stored, _ = decode_message(_record(encoder, message, 40))
    assert [m.queue_offset for m in unwrap_inner_batch(stored)] == [40, 41, 42]
    assert [m.body for m in unwrap_inner_batch(stored)] == [b"0:", b"1:", b"2:"]


def _record(encoder: MessageEncoder, message: PutMessage, queue_offset: int) -> bytes:
    body, properties, host = message.body, message.properties, message.born_host
    shape = encoder.shape(len(body), b"T", len(properties), len(host))
    record = bytearray(shape.size_bytes + bytes(shape.size - 4))
    shape.pack_into.pack_into(
        record, 4, shape.magic, 0, 0, 0, queue_offset, 0, message.sys_flag, 0, host, 0,
        encoder.store_host, 0, 0, len(body), body, 1, b"T", len(properties), properties,
    )  # fmt: skip
    return bytes(record)


@pytest.mark.parametrize(
    ("properties", "count"),
    [(b"", 1), (b"INNER_NUM\x010\x02", 1), (b"INNER_NUM\x017\x02", 7), (b"INNER_NUM\x01\x02", 1)],
)
def test_a_queue_moves_on_by_at_least_one(properties: bytes, count: int) -> None:
    """CommitLog.getMessageNum."""
    assert message_num(properties) == count


@pytest.mark.parametrize("body", [b"", b"x", encode_batch_body([Message("T", b"b")])[:-1]])
def test_what_is_no_batch_cannot_be_an_inner_one(body: bytes) -> None:
    with pytest.raises(IllegalBatchError):
        inner_batch(msgspec.structs.replace(a_batch(range(1)), body=body))


def test_more_messages_than_a_unit_can_count_are_refused() -> None:
    entry = encode_batch_body([Message("T", b"")])
    batch = a_batch(range(1))
    most = inner_batch(msgspec.structs.replace(batch, body=entry * 32_767))
    assert message_num(most.properties) == 32_767
    with pytest.raises(IllegalBatchError):
        inner_batch(msgspec.structs.replace(batch, body=entry * 32_768))
