"""From a message of gRPC to a request of remoting that puts it.

Source: RocketMQ 5.3.3, SendMessageActivity (buildMessage, validateMessage*), GrpcValidator;
recorded answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from node.grpc.errors import CallError
from node.grpc.property_names import (
    PROPERTY_BORN_HOST,
    RESERVED,
    RESERVED_OF_OURS,
)
from node.grpc.protocol import messages as pb
from node.grpc.topic_types import DELAY, FIFO, NORMAL, TRANSACTION
from node.tables.topic_attributes import NO_LITE, PRIORITY
from tandem.wire.message import TRANSACTION_PREPARED_TYPE
from tandem.wire.message_properties import (
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_KEYS,
    PROPERTY_PRIORITY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_CONTEXT,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    encode_properties,
)
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.system_topics import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

MESSAGE_GROUP_BYTES_MAX: Final = 64
USER_PROPERTIES_MAX: Final = 128
USER_PROPERTIES_BYTES_MAX: Final = 16_384
DELAY_MS_MAX: Final = 24 * 3_600_000
TIME_MS_MAX: Final = (1 << 47) - 1
"""Of any time: beyond it there is no year that anybody means."""
RECOVERY_MS_MAX: Final = 3_600_000
MESSAGE_ID_BYTES_MAX: Final = 255
MESSAGES_MAX: Final = 1_024
"""Of one call. Clients send one."""


def milliseconds(time: Timestamp | Duration) -> int:
    """Return a time, or a length of time, in milliseconds."""
    return time.seconds * 1000 + time.nanos // 1_000_000


def message_type(message: pb.Message) -> str:
    """Return the type that a message has, by what it asks for."""
    system = message.system_properties
    if system.message_type == pb.TRANSACTION:
        return TRANSACTION
    if system.HasField("delivery_timestamp"):
        return DELAY
    if system.HasField("message_group"):
        return FIFO
    if system.HasField("priority"):
        return PRIORITY
    return NORMAL


def check_message(message: pb.Message, now_ms: int, body_bytes_max: int) -> None:
    """Ask whether a message can be stored as it is.

    Raises:
        CallError: why it cannot.
    """
    if not message.body:
        raise CallError(pb.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(message.body) > body_bytes_max:
        raise CallError(
            pb.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {body_bytes_max}"
        )
    system = message.system_properties
    if not system.message_id.strip():
        raise CallError(pb.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    if len(system.message_id.encode()) > MESSAGE_ID_BYTES_MAX or not _is_clean(system.message_id):
        raise CallError(
            pb.ILLEGAL_MESSAGE_ID,
            f"a message id has at most {MESSAGE_ID_BYTES_MAX} bytes, and no control characters",
        )
    if system.body_encoding == pb.GZIP:
        raise CallError(pb.NOT_IMPLEMENTED, "send bodies as they are (IDENTITY), not as GZIP")
    if system.HasField("tag"):
        _check_tag(system.tag)
    for key in system.keys:
        if not key.strip() or not _is_clean(key):
            raise CallError(
                pb.ILLEGAL_MESSAGE_KEY,
                "key cannot be the char sequence of whitespace, nor contain control characters",
            )
    _check_place(system)
    _check_times(system, now_ms)
    _check_group(system)
    _check_user_properties(message)


def _check_tag(tag: str) -> None:
    if not tag.strip():
        raise CallError(pb.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace")
    if "|" in tag:
        raise CallError(pb.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    if not _is_clean(tag):
        raise CallError(pb.ILLEGAL_MESSAGE_TAG, "tag cannot contain control character")


def _check_place(system: pb.SystemProperties) -> None:
    if system.lite_topic:
        raise CallError(pb.NOT_IMPLEMENTED, NO_LITE)
    if system.priority < 0:
        raise CallError(pb.BAD_REQUEST, f"the priority is {system.priority}; it is 0 or more")


def _check_group(system: pb.SystemProperties) -> None:
    if not system.HasField("message_group"):
        return
    group = system.message_group
    if not group.strip() or not _is_clean(group):
        raise CallError(
            pb.ILLEGAL_MESSAGE_GROUP,
            "message group cannot be the char sequence of whitespace, nor contain control"
            " characters",
        )
    if len(group.encode()) >= MESSAGE_GROUP_BYTES_MAX:
        raise CallError(
            pb.ILLEGAL_MESSAGE_GROUP,
            f"message group exceed the max size {MESSAGE_GROUP_BYTES_MAX}",
        )


def _check_times(system: pb.SystemProperties, now_ms: int) -> None:
    if not 0 <= milliseconds(system.born_timestamp) <= TIME_MS_MAX:
        raise CallError(pb.BAD_REQUEST, "the time of birth of the message is none")
    deliver_ms = milliseconds(system.delivery_timestamp)
    if deliver_ms < 0:
        raise CallError(pb.ILLEGAL_DELIVERY_TIME, "the delivery time is before 1970")
    if system.HasField("delivery_timestamp") and deliver_ms - now_ms > DELAY_MS_MAX:
        raise CallError(
            pb.ILLEGAL_DELIVERY_TIME,
            f"the max delay time of message is too large, max is {DELAY_MS_MAX}",
        )
    if system.HasField("orphaned_transaction_recovery_duration"):
        ms = milliseconds(system.orphaned_transaction_recovery_duration)
        if not 0 <= ms <= RECOVERY_MS_MAX:
            raise CallError(
                pb.BAD_REQUEST,
                f"transaction recovery time is not from 0 to {RECOVERY_MS_MAX} ms: {ms}",
            )


def _check_user_properties(message: pb.Message) -> None:
    properties = message.user_properties
    system = message.system_properties
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        if name in RESERVED or name in RESERVED_OF_OURS:
            raise CallError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if not name or not _is_clean(name) or not _is_clean(value):
            raise CallError(
                pb.ILLEGAL_MESSAGE_PROPERTY_KEY,
                "names of properties cannot be empty, nor names and values contain control"
                " characters",
            )
        size += len(name.encode()) + len(value.encode())
    if len(properties) > USER_PROPERTIES_MAX or size > USER_PROPERTIES_BYTES_MAX:
        raise CallError(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"more than {USER_PROPERTIES_MAX} user properties, or, with tag and keys, more than"
            f" {USER_PROPERTIES_BYTES_MAX} bytes",
        )


def _is_clean(text: str) -> bool:
    """Whether it has no control characters. Source: CharMatcher.javaIsoControl."""
    return text.isprintable() or not any(code < 32 or 127 <= code < 160 for code in map(ord, text))


def put_request(message: pb.Message, topic: str, queue_id: int) -> SendMessageRequestHeaderV2:
    """Return the header of the request; its body is the message's.

    The producer group of a message is its topic, as the proxy has it: clients name none.
    """
    system = message.system_properties
    properties = dict(message.user_properties)
    properties[PROPERTY_UNIQUE_KEY] = system.message_id
    properties[PROPERTY_PRODUCER_GROUP] = topic
    sys_flag = 0
    if system.tag:
        properties[PROPERTY_TAGS] = system.tag
    if system.keys:
        properties[PROPERTY_KEYS] = " ".join(system.keys)
    if system.HasField("message_group"):
        properties[PROPERTY_SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        properties[PROPERTY_PRIORITY] = str(system.priority)
    if system.message_type == pb.TRANSACTION:
        sys_flag = TRANSACTION_PREPARED_TYPE
        properties[PROPERTY_TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = milliseconds(system.orphaned_transaction_recovery_duration) // 1000
            properties[PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    elif system.HasField("delivery_timestamp"):
        properties[PROPERTY_TIMER_DELIVER_MS] = str(milliseconds(system.delivery_timestamp))
    born_ms = milliseconds(system.born_timestamp)
    properties[PROPERTY_BORN_TIMESTAMP] = str(born_ms)
    if system.born_host and _is_clean(system.born_host):
        properties[PROPERTY_BORN_HOST] = system.born_host
    if system.trace_context and _is_clean(system.trace_context):
        properties[PROPERTY_TRACE_CONTEXT] = system.trace_context
    return SendMessageRequestHeaderV2(
        producer_group=topic,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        flag=0,
        properties=str(encode_properties(properties), "utf-8"),
        batch=False,
    )
