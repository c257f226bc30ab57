"""What a message of the timer topic becomes when its slot is emptied: itself again, or a later one.

    rmq_sys_wheel_timer --+--> real topic       its time has come
                          +--> the same topic   it has to wait longer than the wheel goes round

Source: RocketMQ 5.3.3, TimerMessageStore.convert, convertMessage.
"""

from __future__ import annotations

import logging
from typing import Final

from store.results import PutMessage, PutMessageStatus
from tandem.wire.errors import MalformedMessageError
from tandem.wire.java_map import encode_in_java_order
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.message_properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQUE_KEY,
)
from tandem.wire.system_topics import TIMER_TOPIC

_log = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""Until a put is tried again that was refused, but may succeed later."""

NEVER_STORED: Final = (
    PutMessageStatus.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
    PutMessageStatus.WHEEL_TIMER_NOT_ENABLE,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL,
)
"""Refusals of the message itself: another try ends the same way."""


def read_timed_message(record: memoryview | None, offset: int) -> MessageExt | None:
    """Return a message of the timer topic, None if there is none, or it says too little."""
    try:
        message = decode_message(record)[0] if record is not None else None
    except MalformedMessageError as error:
        _log.error("no timed message at %d: %s", offset, error)
        return None
    if message is None or message.topic != TIMER_TOPIC:
        return None
    if not says_where_and_when(message):
        _log.error("timed message at %d of the log is passed over: it belongs nowhere", offset)
        return None
    return message


def is_cancelled(message: MessageExt, cancelled: set[str]) -> bool:
    """True if one of these keys (topic, +, UNIQ_KEY, or UNIQ_KEY alone) is this message's."""
    key = message.properties.get(PROPERTY_UNIQUE_KEY, "")
    topic = message.properties[PROPERTY_REAL_TOPIC]
    return bool(key) and (key in cancelled or f"{topic}+{key}" in cancelled)


def roll_time_ms(out_ms: int, write_ms: int, window_ms: int) -> int | None:
    """Return when a message is taken out to be put back; None if it is to be delivered then.

    Not so late that the rest would be a short roll.

    Source: TimerMessageStore.doEnqueue.
    """
    rest_ms = out_ms - write_ms - window_ms
    if rest_ms < 0:
        return None
    return write_ms + (window_ms // 2 if rest_ms < window_ms // 3 else window_ms)


def says_where_and_when(message: MessageExt) -> bool:
    """True if a message of the timer topic names a topic, a queue and a time."""
    properties = message.properties
    numbers = (properties.get(PROPERTY_TIMER_OUT_MS), properties.get(PROPERTY_REAL_QUEUE_ID))
    topic = properties.get(PROPERTY_REAL_TOPIC, "")
    return bool(topic) and topic != TIMER_TOPIC and all(map(_is_number, numbers))


def delivered_message(message: MessageExt, enqueued_ms: int, now_ms: int) -> PutMessage:
    """Return the message to put when the time of `message` has come."""
    properties = message.properties | {
        PROPERTY_TIMER_ENQUEUE_MS: str(enqueued_ms),
        PROPERTY_TIMER_DEQUEUE_MS: str(now_ms),
    }
    topic, queue_id = properties[PROPERTY_REAL_TOPIC], int(properties[PROPERTY_REAL_QUEUE_ID])
    return _copy(message, properties, topic, queue_id)


def rolled_message(message: MessageExt, enqueued_ms: int, now_ms: int) -> PutMessage:
    """Return the message to put when `message` has to go through the wheel once more."""
    times = message.properties.get(PROPERTY_TIMER_ROLL_TIMES)
    properties = message.properties | {
        PROPERTY_TIMER_ENQUEUE_MS: str(enqueued_ms),
        PROPERTY_TIMER_ROLL_TIMES: str(int(times) + 1 if times and _is_number(times) else 1),
        PROPERTY_TIMER_DEQUEUE_MS: str(now_ms),
    }
    return _copy(message, properties, TIMER_TOPIC, 0)


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit() and len(text) <= 18


def _copy(message: MessageExt, properties: dict[str, str], topic: str, queue_id: int) -> PutMessage:
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=encode_in_java_order(properties),
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host.packed,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        store_host=message.store_host.packed,
    )
