"""From a dead letter to the message that it was: what `tandem message resend` sends.

RocketMQ keeps everything of a message that a group gave up, and adds on its way where it came from
and how often it was tried. Those properties go; two say where the new message comes from.

Source: RocketMQ 5.3.3, AbstractSendMessageProcessor.consumerSendMsgBack; MessageConst.
"""

import hashlib
from typing import Final

from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message, MessageExt
from tandem.wire.message_properties import (
    DELAYING_PROPERTIES,
    PROPERTY_ACK,
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from tandem.wire.system_topics import DLQ_GROUP_TOPIC_PREFIX

PROPERTY_RESENT_BY: Final = "TANDEM_RESENT_BY"
"""Ours: the access key of who had a dead letter sent again, as its sender says."""
_KEY_CHARACTERS: Final = 32
_KEY_TIME: Final = slice(20, 28)
"""Where the milliseconds are in a unique key. Source: MessageClientIDSetter.createUniqID."""

_OF_THE_WAY: Final = DELAYING_PROPERTIES | {
    PROPERTY_ACK,
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RESENT_BY,
    PROPERTY_RETRY_TOPIC,
    "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "CONSUME_START_TIME",
}


def origin_topic(letter: MessageExt) -> str:
    """Return the topic that a dead letter was sent to; empty if it does not say."""
    topic = letter.properties.get(PROPERTY_DLQ_ORIGIN_TOPIC) or letter.properties.get(
        PROPERTY_RETRY_TOPIC, ""
    )
    return "" if topic.startswith(DLQ_GROUP_TOPIC_PREFIX) else topic


def origin_id(letter: MessageExt) -> str:
    """Return what tells a dead letter from all others, in each of its copies."""
    return letter.properties.get(PROPERTY_UNIQUE_KEY) or letter.properties.get(
        PROPERTY_ORIGIN_MESSAGE_ID, letter.offset_msg_id
    )


def key_again(letter: MessageExt, times: int = 0) -> str:
    """Return the unique key of the message that a dead letter becomes: always the same one.

    `times`: how often it was sent again before, each time with the key of that time.

    So a sender can look first whether it was sent already, and two that send it at the same time
    make copies that can be recognized. It depends on the group, which is in the letter's topic. The
    time in it is the origin's, because RocketMQ's tools look from there on.
    """
    origin = origin_id(letter)
    of_time = f"\0{times}" if times else ""
    digest = hashlib.sha256(f"{letter.topic}\0{origin}{of_time}".encode()).hexdigest().upper()
    is_usual = len(origin) == _KEY_CHARACTERS and not origin.strip("0123456789ABCDEF")
    time = origin[_KEY_TIME] if is_usual else digest[_KEY_TIME]
    return f"{digest[: _KEY_TIME.start]}{time}{digest[_KEY_TIME.stop : _KEY_CHARACTERS]}"


def message_again(letter: MessageExt, *, unique_key: str = "", by: str = "") -> Message:
    """Return the message that a dead letter was, to be sent to its topic once more.

    Without a `unique_key` its producer makes one. `by`: who had it sent, an access key.

    Raises:
        ArgumentError: it does not say to which topic.
    """
    topic = origin_topic(letter)
    if not topic:
        raise ArgumentError(
            f"dead letter {letter.offset_msg_id} does not say what its topic was: it has no"
            f" property {PROPERTY_DLQ_ORIGIN_TOPIC}",
            PROPERTY_DLQ_ORIGIN_TOPIC,
        )
    properties = {
        name: value for name, value in letter.properties.items() if name not in _OF_THE_WAY
    }
    properties[PROPERTY_DLQ_ORIGIN_TOPIC] = topic
    properties[PROPERTY_DLQ_ORIGIN_MESSAGE_ID] = origin_id(letter)
    if unique_key:
        properties[PROPERTY_UNIQUE_KEY] = unique_key
    if by:
        properties[PROPERTY_RESENT_BY] = by
    return Message(
        topic,
        letter.body,
        keys=letter.keys,
        tags=letter.tags,
        flag=letter.flag,
        properties=properties,
    )
