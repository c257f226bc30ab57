"""What a message of the timer topic becomes when its slot is emptied: itself again, or a later one.

    rmq_sys_wheel_timer --+--> real topic       its time has come
                          +--> the same topic   it has to wait longer than the wheel goes round

Source: RocketMQ 5.3.3, TimerMessageStore.convert, convertMessage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.results import PutMessage
from tandem.wire.java_map import encode_in_java_order
from tandem.wire.system_topics import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    TIMER_TOPIC,
)

if TYPE_CHECKING:
    from tandem.wire.message import MessageExt


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
