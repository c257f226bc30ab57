"""The records of a transaction: what is put for each of its steps.

    prepare    half       RMQ_SYS_TRANS_HALF_TOPIC, an ordinary message there
    commit     message    the real topic, sysflag COMMIT, names the half by physical offset
    either end op         RMQ_SYS_TRANS_OP_HALF_TOPIC, tags d: queue offsets of halves that ended
    check      half again the same, at the end of the queue, with one more check counted
    give up    half       TRANS_CHECK_MAX_TIME_TOPIC, for people
    resume     half again of what was given up, which was never checked

No record says that a message was rolled back: it just never leaves the half topic.

Source: RocketMQ 5.3.3, TransactionalMessageBridge, EndTransactionProcessor.endMessageTransaction,
DefaultTransactionalMessageCheckListener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from store.results import PutMessage
from tandem.wire.delay_level import delay_level_of
from tandem.wire.ended_halves import OFFSET_SEPARATOR, REMOVE_TAG
from tandem.wire.java_map import NEW_MAP_CAPACITY, encode_in_java_order
from tandem.wire.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK, Host, MessageExt
from tandem.wire.message_properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    decode_properties,
    property_value,
)
from tandem.wire.system_topics import (
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)

HALF_QUEUE_ID: Final = 0
"""RocketMQ has one half queue, and one op queue beside it."""


_PREPARED: Final = PROPERTY_TRANSACTION_PREPARED.encode()


def is_half(message: PutMessage) -> bool:
    """True if a producer wants `message` prepared and not put.

    Source: SendMessageProcessor.sendMessage.
    """
    value = property_value(message.properties, _PREPARED)
    if value is None or value.lower() != b"true":
        return False
    return not (message.reconsume_times > 0 and delay_level_of(message.properties) > 0)


def half_message(message: PutMessage) -> PutMessage:
    """Return the half of `message`, to be put without hooks.

    With its hooks RocketMQ would delay a half that has a delay level, and drop it when it is due.
    Here the level waits in the half, and delays the message once it is committed. What only the
    check may say of a half is taken out.

    Source: TransactionalMessageBridge.parseHalfMessageInner.
    """
    properties = decode_properties(message.properties)
    for name in (PROPERTY_TRANSACTION_CHECK_TIMES, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET):
        properties.pop(name, None)
    if unique_key := properties.get(PROPERTY_UNIQUE_KEY):
        properties[PROPERTY_TRANSACTION_ID] = unique_key
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    return msgspec.structs.replace(
        message,
        topic=RMQ_SYS_TRANS_HALF_TOPIC,
        queue_id=HALF_QUEUE_ID,
        properties=encode_in_java_order(properties),
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
    )


def committed_message(
    half: MessageExt, live_physical_offset: int, delay: Callable[[PutMessage], PutMessage]
) -> PutMessage:
    """Return the message to put, without hooks, for a half that is committed.

    It names the last copy of the half, which is the half itself unless it was checked meanwhile.
    `delay` rewrites one that has a delay level.

    Raises:
        ValueError: the half does not say where it belongs.

    Source: EndTransactionProcessor.endMessageTransaction and processRequest. The property string
    is written before the properties of the transaction go, unless the message is delayed.
    """
    topic = half.properties.get(PROPERTY_REAL_TOPIC, "")
    queue_id = half.properties.get(PROPERTY_REAL_QUEUE_ID, "")
    if not topic or not queue_id.isdecimal():
        raise ValueError(
            f"the half message says that it belongs to topic {topic!r}, queue {queue_id!r}, which"
            " cannot be"
        )
    message = _copy(half, half.properties, topic, int(queue_id))
    message = msgspec.structs.replace(
        message,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT_TYPE,
        prepared_transaction_offset=live_physical_offset,
    )
    if delay_level_of(message.properties) <= 0:
        return message
    properties = half.properties | {PROPERTY_WAIT_STORE_MSG_OK: "false"}
    properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
    delayed = msgspec.structs.replace(message, properties=encode_in_java_order(properties))
    return delay(delayed)


def check_times(half: MessageExt) -> int:
    """Return how often the producer of a half was asked already."""
    return _number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES), 0)


def prepared_queue_offset(half: MessageExt) -> int | None:
    """Return the queue offset of the half that this is an immune copy of, else None."""
    value = _number(half.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET), -1)
    return value if value >= 0 else None


def checked_half(half: MessageExt) -> tuple[PutMessage, dict[str, str]]:
    """Return the copy of a half whose producer is asked, and its properties.

    RocketMQ loses FLAG and reconsume times here; they would be missing in the committed message.

    Source: TransactionalMessageBridge.renewHalfMessageInner.
    """
    properties = half.properties | {PROPERTY_TRANSACTION_CHECK_TIMES: str(check_times(half) + 1)}
    return _copy(half, properties, half.topic, half.queue_id), properties


def immune_half(half: MessageExt) -> PutMessage:
    """Return the copy of a half whose producer must not be asked yet.

    RocketMQ counts it as a check, so that a long immunity ends with a message given up that nobody
    was ever asked about.

    Source: TransactionalMessageBridge.renewImmunityHalfMessageInner.
    """
    origin = prepared_queue_offset(half)
    properties = half.properties | {
        PROPERTY_WAIT_STORE_MSG_OK: "false",
        PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: str(
            half.queue_offset if origin is None else origin
        ),
    }
    return _copy(half, properties, half.topic, half.queue_id)


def given_up_message(half: MessageExt) -> PutMessage:
    """Return the message to put for a half that was checked too often or is too old.

    Source: DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner.
    """
    return _copy(half, half.properties, TRANS_CHECK_MAX_TIME_TOPIC, 0)


def resumed_half(given_up: MessageExt) -> PutMessage:
    """Return the half to put for one that was given up: its producer is asked anew.

    It is no copy of the half that has ended, so it does not name that one.

    Source: AdminBrokerProcessor.resumeCheckHalfMessage and toMessageExtBrokerInner.
    """
    properties = given_up.properties | {
        PROPERTY_TRANSACTION_CHECK_TIMES: "0",
        PROPERTY_WAIT_STORE_MSG_OK: "false",
    }
    properties.pop(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return _copy(given_up, properties, RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID)


def op_message(ended: Iterable[int], now_ms: int, store_host: Host) -> PutMessage:
    """Return the message to put for halves that have ended, by queue offset.

    Source: TransactionalMessageServiceImpl.getOpMessage, TransactionalMessageBridge.writeOp.
    """
    properties = {PROPERTY_TAGS: REMOVE_TAG, PROPERTY_WAIT_STORE_MSG_OK: "true"}
    return PutMessage(
        topic=RMQ_SYS_TRANS_OP_HALF_TOPIC,
        queue_id=HALF_QUEUE_ID,
        body="".join(f"{offset}{OFFSET_SEPARATOR}" for offset in ended).encode(),
        properties=encode_in_java_order(properties, NEW_MAP_CAPACITY),
        born_timestamp_ms=now_ms,
        born_host=store_host.packed,
    )


def identity_of(half: MessageExt) -> tuple[object, ...]:
    """Return what all copies of one half have in common, and no other half has.

    The message that is put for its commit has it as well.
    """
    return (
        half.properties.get(PROPERTY_UNIQUE_KEY),
        half.properties.get(PROPERTY_REAL_TOPIC),
        half.properties.get(PROPERTY_REAL_QUEUE_ID),
        half.born_timestamp_ms,
        half.born_host,
        half.body_crc,
        len(half.body),
    )


def immunity_ms_of(half: MessageExt) -> int | None:
    """Return how long a half asks not to be checked, in ms: negative for the usual time.

    None if it does not ask.
    """
    value = half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
    if not value:
        return None
    try:
        return int(value) * 1000
    except ValueError:
        return -1000


def _copy(half: MessageExt, properties: dict[str, str], topic: str, queue_id: int) -> PutMessage:
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=half.body,
        properties=encode_in_java_order(properties),
        born_timestamp_ms=half.born_timestamp_ms,
        born_host=half.born_host.packed,
        flag=half.flag,
        sys_flag=half.sys_flag,
        reconsume_times=half.reconsume_times,
        store_host=half.store_host.packed,
    )


def _number(text: str | None, otherwise: int) -> int:
    """Return a number that fits 64 bits, as Java's Long.parseLong takes it."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return otherwise
    return int(text)
