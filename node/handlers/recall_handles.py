"""The handle that a producer gets for a message that waits for its time; see `recall_message`.

Every such send is answered with one, also where recalls are switched off, as in RocketMQ. Messages
with a delay level have none.

Source: RocketMQ 5.3.3, SendMessageProcessor.attachRecallHandle.
"""

from __future__ import annotations

from store import MessageStore, PutMessageResult
from tandem.wire.message import decode_messages
from tandem.wire.message_properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
)
from tandem.wire.recall_handle import RecallHandle, encode_recall_handle
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX, TIMER_TOPIC


def recall_handle(store: MessageStore, result: PutMessageResult, broker_name: str) -> str | None:
    """Return the handle of what was just put, None unless it waits for its time."""
    record = store.commit_log.message(result.wrote_offset, result.wrote_bytes)
    if record is None:
        return None
    message = decode_messages(record)[0]  # the first of a batch, which waits for nothing
    properties = message.properties
    topic = properties.get(PROPERTY_REAL_TOPIC, "")
    if message.topic != TIMER_TOPIC or topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return None
    deliver_ms = int(properties[PROPERTY_TIMER_OUT_MS]) + 1
    key = properties.get(PROPERTY_UNIQUE_KEY, "")
    return encode_recall_handle(RecallHandle(topic, broker_name, deliver_ms, key))
