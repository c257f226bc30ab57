"""What `tandem produce` reads: lines of text, or a JSON object a line; and their messages."""

import base64
import binascii
from typing import Any, Final

import msgspec

from tandem.cli.times import DURATION_FORMS, duration_ms
from tandem.client.sending import MESSAGE_BYTES_MAX, USER_PROPERTIES_BYTES_MAX
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message
from tandem.wire.message_properties import (
    DELAYING_PROPERTIES,
    PROPERTY_ACK,
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_PRIORITY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
)
from tandem.wire.remoting_command import Int32
from tandem.wire.untrusted import UnreadableError, json_decoder

TEXT_BYTES_MAX: Final = MESSAGE_BYTES_MAX
"""Of a line that is a body: the largest that a producer and a broker take by default."""

RECORD_BYTES_MAX: Final = 4 * MESSAGE_BYTES_MAX
"""Of a line that is a JSON object, whose body may be in base64, or in hexadecimal digits."""

DELAY_LEVEL_MAX: Final = 18
"""With RocketMQ's levels."""

SYSTEM_PROPERTIES: Final = DELAYING_PROPERTIES | {
    PROPERTY_ACK,
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
}
"""What client and broker add. In a record that was read from a topic they are of its first life."""


class BadRecordError(Exception):
    """A record cannot be sent as it is.

    `names` are the fields that are wrong, missing or too many; of what is no record there are none.
    """

    def __init__(self, text: str, *names: str) -> None:
        super().__init__(text)
        self.names = names


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same in all messages, unless a record says otherwise."""

    topic: str
    keys: tuple[str, ...] = ()
    tags: str = ""
    properties: dict[str, str] = {}
    delay_ms: int = 0
    delay_level: int = 0
    sharding_key: str = ""
    priority: int | None = None

    def message(self, body: bytes) -> Message:
        """Return the message of a line of text.

        Raises:
            BadRecordError: It cannot be sent.
        """
        return _checked(self, body)


class LineReader:
    """Takes lines out of bytes as they come: with their numbers, without their ends, no empty ones.

    A line of more than `line_bytes_max` is no message: it is counted, and not kept in memory.
    """

    def __init__(self, line_bytes_max: int = TEXT_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._rest = b""
        self._number = 0
        self._is_skipping = False
        """Inside a line that is too long, and is counted already."""
        self.too_long_count = 0

    def lines(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Return the lines that end in `chunk`."""
        *ended, self._rest = (self._rest + chunk).split(b"\n")
        found = []
        for raw in ended:
            self._number += 1
            if self._is_skipping:
                self._is_skipping = False
            elif line := self._fitting(raw.removesuffix(b"\r")):
                found.append((self._number, line))
        if self._is_skipping or len(self._rest) > self._line_bytes_max:
            self.too_long_count += not self._is_skipping
            self._is_skipping = True
            self._rest = b""
        return found

    def last(self) -> list[tuple[int, bytes]]:
        """Return the line without an end, at the end of all bytes, if there is one."""
        line = self._fitting(self._rest)
        return [(self._number + 1, line)] if line else []

    def _fitting(self, line: bytes) -> bytes:
        if len(line) <= self._line_bytes_max:
            return line
        self.too_long_count += 1
        return b""


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """A line of JSON. The second half is what `tandem consume` prints besides; it is not used."""

    topic: str | None = None
    keys: str | list[str] | None = None
    key: str | None = None
    tags: str | None = None
    properties: dict[str, str] = {}
    body: str | None = None
    body_base64: str | None = None
    body_hex: str | None = None
    delay: str | None = None
    delay_level: int | None = None
    sharding_key: str | None = None
    priority: Int32 | None = None

    broker: Any = None
    queue_id: Any = None
    queue_offset: Any = None
    physical_offset: Any = None
    msg_id: Any = None
    born_timestamp_ms: Any = None
    store_timestamp_ms: Any = None


_decode_record: Final = json_decoder(_Record)


def record_message(fields: Fields, line: bytes) -> Message:
    """Return the message of a JSON object; `fields` is for what it does not say.

    A topic in `fields` wins, so that what was read from one topic can be sent to another.

    Raises:
        BadRecordError: It is none, or cannot be sent.
    """
    try:
        record: _Record = _decode_record(line)
    except UnreadableError as error:
        raise BadRecordError(str(error)) from error
    properties = {
        name: value for name, value in record.properties.items() if name not in SYSTEM_PROPERTIES
    }
    changed: dict[str, Any] = {
        "topic": fields.topic or record.topic,
        "keys": _keys(record),
        "tags": record.tags,
        "properties": {**fields.properties, **properties},
        "sharding_key": record.sharding_key,
        "priority": record.priority,
    }
    if record.delay is not None or record.delay_level is not None:
        changed |= {"delay_ms": _delay_ms(record), "delay_level": record.delay_level or 0}
    given = {name: value for name, value in changed.items() if value is not None}
    if record.priority is None and PROPERTY_PRIORITY in properties:
        given["priority"] = None  # what it had in the topic that it was read from counts
    return _checked(msgspec.structs.replace(fields, **given), _body(record))


def _keys(record: _Record) -> tuple[str, ...] | None:
    if record.key is not None:
        if record.keys is not None:
            raise BadRecordError("has both key and keys; give one of them", "key", "keys")
        return (record.key,) if record.key else ()
    if record.keys is None:
        return None
    return tuple(record.keys.split() if isinstance(record.keys, str) else record.keys)


def _delay_ms(record: _Record) -> int:
    if record.delay is None:
        return 0
    milliseconds = duration_ms(record.delay)
    if milliseconds is None:
        text = f"delay {record.delay!r} is no duration; give one as {DURATION_FORMS}"
        raise BadRecordError(text, "delay")
    return milliseconds


_BODIES: Final = ("body", "body_base64", "body_hex")


def _body(record: _Record) -> bytes:
    given = [name for name in _BODIES if getattr(record, name) is not None]
    if len(given) != 1:
        there = " and ".join(given) if given else "none of them"
        words = f"needs one of body, body_base64 and body_hex; it has {there}"
        raise BadRecordError(words, *(given or _BODIES))
    text: str = getattr(record, given[0])
    try:
        if given[0] == "body":
            return text.encode()
        return (
            bytes.fromhex(text) if given[0] == "body_hex" else base64.b64decode(text, validate=True)
        )
    except (ValueError, binascii.Error) as error:
        raise BadRecordError(f"{given[0]}: {error}", given[0]) from error


def _checked(fields: Fields, body: bytes) -> Message:
    """Return a message that a producer does not refuse.

    Raises:
        BadRecordError: It would.
    """
    if not fields.topic:
        text = "has no topic; name one in it, or as TOPIC of the command"
        raise BadRecordError(text, "topic")
    if not 0 <= fields.delay_level <= DELAY_LEVEL_MAX:
        text = f"delay_level is {fields.delay_level}; it is 1 to {DELAY_LEVEL_MAX}"
        raise BadRecordError(text, "delay_level")
    try:
        message = Message(
            fields.topic,
            body,
            keys=list(fields.keys),
            tags=fields.tags,
            properties=fields.properties,
            delay_ms=fields.delay_ms,
            delay_time_level=fields.delay_level,
            sharding_key=fields.sharding_key,
            priority=fields.priority,
        )
        properties_bytes = len(encode_properties(message.property_map()))
    except ArgumentError as error:
        raise BadRecordError(str(error), *error.names) from error
    if properties_bytes > USER_PROPERTIES_BYTES_MAX:
        raise BadRecordError(
            f"keys, tags and properties take {properties_bytes:,} bytes; at most"
            f" {USER_PROPERTIES_BYTES_MAX:,} can be stored",
            *("keys", "tags", "properties"),
        )
    if len(body) > MESSAGE_BYTES_MAX:
        raise BadRecordError(
            f"a body of {len(body):,} bytes; at most {MESSAGE_BYTES_MAX:,} are sent", "body"
        )
    return message
