"""What becomes of a message that a consumer could not handle.

    record --+--> %RETRY%<group>, after the delay of its level   tries are left
             +--> %DLQ%<group>, queue 0                          no more, or a level below 0

The record itself stays where it is: a copy with one more reconsume time is put, to be put through
`schedule_message_service.delay_rewrite` like anything that a client sends. ORIGIN_MESSAGE_ID
names the first record of all, RETRY_TOPIC the topic it was in.

Source: RocketMQ 5.3.3, AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

from typing import Final

from store.results import PutMessage
from tandem.wire.java_map import encode_in_java_order
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import (
    PROPERTY_CRC32,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from tandem.wire.system_topics import dlq_topic, retry_topic

FIRST_RETRY_LEVEL: Final = 3
"""Of a message sent back for the first time with level 0: ten seconds, with the usual levels."""

DLQ_QUEUE_ID: Final = 0


def is_given_up(reconsume_times: int, delay_level: int, max_reconsume_times: int) -> bool:
    """True if a message sent back goes to the dead letters and not to the consumers again."""
    return delay_level < 0 or reconsume_times >= max_reconsume_times


def send_back(
    message: MessageExt,
    *,
    group: str,
    delay_level: int,
    max_reconsume_times: int,
    retry_queue_id: int,
) -> PutMessage:
    """Return the message to put for `message`, which a consumer of `group` sends back.

    Args:
        message: The record, as it was read from the log.
        group: The consumer group.
        delay_level: 0 leaves it to the broker: one level more each time. Below 0: give up.
        max_reconsume_times: How often the group tries again.
        retry_queue_id: A queue of the retry topic; RocketMQ takes any one at random.
    """
    properties = dict(message.properties)
    properties.pop(PROPERTY_CRC32, None)  # of the record, not of the message
    properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
    properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
    if is_given_up(message.reconsume_times, delay_level, max_reconsume_times):
        topic, queue_id, level = dlq_topic(group), DLQ_QUEUE_ID, 0
    else:
        topic, queue_id = retry_topic(group), retry_queue_id
        level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
    properties[PROPERTY_DELAY_LEVEL] = str(level)
    if not properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "").strip():
        properties[PROPERTY_ORIGIN_MESSAGE_ID] = message.offset_msg_id
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=encode_in_java_order(properties),
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host.packed,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times + 1,
    )
