"""A message as JSON: bodies are data, and of a long one only the beginning."""

import codecs
from base64 import b64encode
from typing import Final

import msgspec

from tandem.client.admin_results import FoundMessage
from tandem.wire.message import MessageExt

LIST_BODY_BYTES_MAX: Final = 4 * 1024
BODY_BYTES_MAX: Final = 256 * 1024


class BodyJSON(msgspec.Struct, frozen=True):
    """A body, or its beginning. `size` is that of all of it; `text` is None if it is not UTF-8."""

    size: int
    truncated: bool
    base64: str
    text: str | None


class MessageJSON(msgspec.Struct, frozen=True, kw_only=True):
    """A message. `broker_name` is empty if it is not known."""

    id: str
    offset_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    keys: str
    tags: str
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    physical_offset: int
    store_size: int
    reconsume_times: int
    flag: int
    sys_flag: int
    properties: dict[str, str]
    body: BodyJSON


def message_json(
    message: MessageExt, broker_name: str = "", body_bytes_max: int = BODY_BYTES_MAX
) -> MessageJSON:
    """Return a message with the beginning of its body."""
    return MessageJSON(
        id=message.msg_id,
        offset_id=message.offset_msg_id,
        topic=message.topic,
        broker_name=broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        keys=message.keys,
        tags=message.tags,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=str(message.born_host),
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=str(message.store_host),
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        reconsume_times=message.reconsume_times,
        flag=message.flag,
        sys_flag=message.sys_flag,
        properties=message.properties,
        body=body_json(message.body, body_bytes_max),
    )


def listed(found: FoundMessage) -> MessageJSON:
    """Return a message as it is in a list."""
    return message_json(found.message, found.broker_name, LIST_BODY_BYTES_MAX)


def body_json(body: bytes, bytes_max: int) -> BodyJSON:
    """Return a body, cut after this many bytes."""
    shown = body[:bytes_max]
    truncated = len(shown) < len(body)
    try:
        decoder = codecs.getincrementaldecoder("utf-8")()
        text = decoder.decode(shown, final=not truncated)
    except UnicodeDecodeError:
        text = None
    return BodyJSON(len(body), truncated, b64encode(shown).decode(), text)
