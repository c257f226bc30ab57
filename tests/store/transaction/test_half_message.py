import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.delayed.schedule_message_service import delay_rewrite
from store.results import PutMessage
from store.transaction.half_message import (
    check_times,
    checked_half,
    committed_message,
    given_up_message,
    half_message,
    immune_half,
    is_half,
    op_message,
    prepared_queue_offset,
)
from tandem.wire.delay_level import DelayLevels
from tandem.wire.ended_halves import ended_halves
from tandem.wire.message import Host, MessageExt
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.system_topics import SCHEDULE_TOPIC

LEVELS = DelayLevels()
BORN = Host("10.1.2.3", 1234)
PREPARED = {
    "KEYS": "k",
    "UNIQ_KEY": "U",
    "TRAN_MSG": "true",
    "PGROUP": "pg",
    "WAIT": "true",
}


def delay(message: PutMessage) -> PutMessage:
    return delay_rewrite(message, LEVELS)


def prepared(**more: str) -> PutMessage:
    return PutMessage("T", 3, b"body", encode_properties(PREPARED | more), 5, BORN.packed, 7, 5, 0)


def stored(message: PutMessage, *, queue_offset: int = 4, physical_offset: int = 999) -> MessageExt:
    return MessageExt(
        topic=message.topic,
        body=message.body,
        properties=decode_properties(message.properties),
        queue_id=message.queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_size=100,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=BORN,
        store_timestamp_ms=6,
        store_host=Host("127.0.0.1", 10911),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=0,
        body_crc=0,
    )


def a_half(**more: str) -> MessageExt:
    half = stored(half_message(prepared()))
    return msgspec.structs.replace(half, properties=half.properties | more)


@pytest.mark.parametrize(
    ("properties", "reconsume_times", "expected"),
    [
        ({"TRAN_MSG": "true"}, 0, True),
        ({"TRAN_MSG": "TRUE", "DELAY": "3"}, 0, True),
        ({"TRAN_MSG": "true"}, 2, True),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 2, False),
        ({"TRAN_MSG": "false"}, 0, False),
        ({}, 0, False),
    ],
)
def test_a_half_is_what_the_producer_says_unless_it_is_a_retry(
    properties: dict[str, str],
    reconsume_times: int,
    expected: bool,  # noqa: FBT001
) -> None:
    """SendMessageProcessor.sendMessage."""
    message = msgspec.structs.replace(
        prepared(), properties=encode_properties(properties), reconsume_times=reconsume_times
    )
    assert is_half(message) is expected


def test_a_half_lies_in_the_half_topic_and_says_where_it_belongs() -> None:
    """TransactionalMessageBridge.parseHalfMessageInner."""
    half = half_message(prepared())
    assert (half.topic, half.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert half.sys_flag == 1, "the bits of a transaction go, others stay"
    assert decode_properties(half.properties) == PREPARED | {
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "__transactionId__": "U",
    }
    assert (half.body, half.flag, half.born_host) == (b"body", 7, BORN.packed)


def test_a_half_without_a_unique_key_has_no_transaction_id() -> None:
    message = msgspec.structs.replace(prepared(), properties=b"")
    assert decode_properties(half_message(message).properties) == {
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }


def test_a_producer_cannot_say_what_only_the_check_may() -> None:
    half = half_message(prepared(TRANSACTION_CHECK_TIMES="15", TRAN_PREPARED_QUEUE_OFFSET="1"))
    assert half == half_message(prepared())


def test_a_committed_message_names_its_half_and_keeps_the_property_string() -> None:
    """EndTransactionProcessor.endMessageTransaction."""
    half = a_half()
    message = committed_message(half, 999, delay)
    assert (message.topic, message.queue_id) == ("T", 3)
    assert message.sys_flag == 9
    assert message.prepared_transaction_offset == 999
    assert decode_properties(message.properties) == half.properties
    assert (message.body, message.flag, message.born_timestamp_ms) == (b"body", 7, 5)
    assert message.born_host == BORN.packed
    assert message.store_host == half.store_host.packed


def test_a_committed_message_with_a_delay_goes_to_the_schedule_topic() -> None:
    """The hook writes the property string again, without what the commit has taken out."""
    message = committed_message(a_half(DELAY="2"), 999, delay)
    assert (message.topic, message.queue_id) == (SCHEDULE_TOPIC, 1)
    assert (message.sys_flag, message.prepared_transaction_offset) == (9, 999)
    properties = decode_properties(message.properties)
    assert "TRAN_MSG" not in properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "3")
    assert properties["WAIT"] == "false"


@pytest.mark.parametrize("wrong", [{"REAL_TOPIC": ""}, {"REAL_QID": "x"}, {"REAL_QID": "-1"}])
def test_a_half_that_belongs_nowhere_is_an_error(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="the half message says that it belongs to topic"):
        committed_message(a_half(**wrong), 999, delay)


def test_a_checked_half_counts_the_check_and_is_the_same_otherwise() -> None:
    """TransactionalMessageBridge.renewHalfMessageInner, which loses the flag."""
    half = a_half()
    copy, properties = checked_half(half)
    again = stored(copy)
    assert again == msgspec.structs.replace(half, properties=properties)
    assert properties == half.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    assert (check_times(half), check_times(again)) == (0, 1)
    assert check_times(stored(checked_half(again)[0])) == 2


def test_an_immune_half_names_the_first_of_its_kind_and_counts_no_check() -> None:
    """TransactionalMessageBridge.renewImmunityHalfMessageInner."""
    half = a_half()
    first = stored(immune_half(half), queue_offset=8)
    second = stored(immune_half(first), queue_offset=12)
    assert prepared_queue_offset(half) is None
    assert prepared_queue_offset(first) == prepared_queue_offset(second) == 4
    assert check_times(second) == 0
    assert first.properties["WAIT"] == "false"


def test_a_half_given_up_goes_to_the_topic_for_people() -> None:
    message = given_up_message(a_half())
    assert (message.topic, message.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    assert decode_properties(message.properties) == a_half().properties


def test_an_op_message_lists_the_offsets_of_halves() -> None:
    """TransactionalMessageServiceImpl.getOpMessage; the properties of RocketMQ's own Message."""
    op = op_message([12, 15], 77, Host("127.0.0.1", 10911))
    assert (op.topic, op.queue_id) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
    assert op.body == b"12,15,"
    assert op.properties == b"WAIT\x01true\x02TAGS\x01d\x02"
    assert (op.born_timestamp_ms, op.born_host) == (77, Host("127.0.0.1", 10911).packed)


def an_op(body: bytes) -> MessageExt:
    return msgspec.structs.replace(stored(prepared()), body=body, properties={"TAGS": "d"})


@given(st.lists(st.integers(0, (1 << 59) - 1)))
def test_what_an_op_message_says_is_read_back(offsets: list[int]) -> None:
    assert ended_halves(an_op(op_message(offsets, 0, BORN).body)) == offsets
