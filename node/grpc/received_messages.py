"""From a stored message to a message of gRPC.

Source: RocketMQ 5.3.3, GrpcConverter.buildMessage; recorded answers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from node.grpc.property_names import (
    PROPERTY_BORN_HOST,
    RESERVED,
)
from node.grpc.protocol import messages as pb
from tandem.wire.compression import decompressed
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message_choices import NO_PRIORITY, priority_of
from tandem.wire.message_properties import (
    DELAYING_PROPERTIES,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_PRIORITY,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_CONTEXT,
    PROPERTY_TRANSACTION_PREPARED,
)
from tandem.wire.untrusted import UnreadableError, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.timestamp_pb2 import Timestamp

    from tandem.wire.message import MessageExt

_INT32_MAX = 2**31 - 1
"""A producer of remoting may say that a message has come so often."""

_HIDDEN = RESERVED | {PROPERTY_PRIORITY, PROPERTY_SHARDING_KEY, PROPERTY_TRACE_CONTEXT}


def set_time(time: Timestamp, ms: int) -> None:
    """Set a time, given in milliseconds since 1970."""
    time.seconds, rest = divmod(ms, 1000)
    time.nanos = rest * 1_000_000


def grpc_message(stored: MessageExt, topic: str) -> pb.Message:
    """Return what a client gets. Bodies go as they were before compression.

    Raises:
        MalformedMessageError: the body is not that of the record; the digest would fit it.
        WireError: the body cannot be decompressed.
    """
    if stored.body_crc != raw_crc32(stored.body) & CRC_MASK:
        text = f"the body of message {stored.queue_offset} of queue {stored.queue_id}, topic"
        raise MalformedMessageError(f"{text} {stored.topic}: its CRC is not {stored.body_crc}")
    plain = decompressed(stored)
    properties = plain.properties
    message = pb.Message(body=plain.body)
    message.topic.name = topic
    for name, value in properties.items():
        if name not in _HIDDEN:
            message.user_properties[name] = value
    system = message.system_properties
    if tag := properties.get(PROPERTY_TAGS):
        system.tag = tag
    system.keys.extend(properties.get(PROPERTY_KEYS, "").split())
    system.message_id = plain.msg_id
    system.body_digest.type = pb.MD5
    digest = hashlib.md5(plain.body, usedforsecurity=False)
    system.body_digest.checksum = digest.hexdigest().upper()
    system.body_encoding = pb.IDENTITY
    system.message_type = _type_number(properties)
    set_time(system.born_timestamp, plain.born_timestamp_ms)
    system.born_host = properties.get(PROPERTY_BORN_HOST) or str(plain.born_host)
    set_time(system.store_timestamp, plain.store_timestamp_ms)
    system.store_host = str(plain.store_host)
    system.queue_id = plain.queue_id
    system.queue_offset = plain.queue_offset
    system.delivery_attempt = min(plain.reconsume_times, _INT32_MAX - 1) + 1
    _set_optional(system, properties)
    return message


def original_topic(stored: MessageExt) -> str:
    """Return the topic that a producer has sent to, of a message that was put aside."""
    return stored.properties.get(PROPERTY_REAL_TOPIC) or stored.topic


def _type_number(properties: Mapping[str, str]) -> pb.MessageType:
    """Source: TopicMessageType.parseFromMessageProperty."""
    if properties.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return pb.TRANSACTION
    if not DELAYING_PROPERTIES.isdisjoint(properties):
        return pb.DELAY
    if PROPERTY_SHARDING_KEY in properties:
        return pb.FIFO
    if priority_of(properties) != NO_PRIORITY:
        return pb.PRIORITY
    return pb.NORMAL


def _set_optional(system: pb.SystemProperties, properties: Mapping[str, str]) -> None:
    if (group := properties.get(PROPERTY_SHARDING_KEY)) is not None:
        system.message_group = group
    if (priority := priority_of(properties)) != NO_PRIORITY:
        system.priority = priority
    if (trace := properties.get(PROPERTY_TRACE_CONTEXT)) is not None:
        system.trace_context = trace
    if (deliver_ms := _number(properties.get(PROPERTY_TIMER_DELIVER_MS))) is not None:
        set_time(system.delivery_timestamp, deliver_ms)
    if (topic := properties.get(PROPERTY_DLQ_ORIGIN_TOPIC)) is not None:
        system.dead_letter_queue.topic = topic
        system.dead_letter_queue.message_id = properties.get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID, "")


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = whole_number(text)
    except UnreadableError:
        return None
    return number if 0 <= number < 1 << 47 else None
