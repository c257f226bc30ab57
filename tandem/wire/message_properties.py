"""The property string of a message, and the hash that tags are filtered by.

    name 0x01 value 0x02 name 0x01 value 0x02 ...

No escaping exists. The last 0x02 may be missing (4.x clients leave it out). Empty names and empty
values cannot be expressed: the parser drops them, as RocketMQ does.

Source: org.apache.rocketmq.common.message.MessageDecoder.messageProperties2String and
string2messageProperties; MessageConst and TransactionalMessageUtil for the names.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from tandem.wire.errors import ArgumentError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_UNIQUE_KEY: Final = "UNIQ_KEY"
PROPERTY_DELAY_LEVEL: Final = "DELAY"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"

PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"

PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_REQUEST_PROPERTIES: Final = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
"""Any one of them asks for a deliver time of its own; a delay level overrides them."""

DELAYING_PROPERTIES: Final = frozenset({PROPERTY_DELAY_LEVEL, *TIMER_REQUEST_PROPERTIES})
"""A message with one of them is put aside until its time has come."""

PROPERTY_FIRST_POP_TIME: Final = "1ST_POP_TIME"
"""Of a message that comes again to a group that pops: when it was handed out first, in ms."""

PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_PRIORITY: Final = "_SYS_MSG_PRIORITY_"
"""Of RocketMQ 5.4: the queue that a message goes to. Groups that pop take the last one first."""
PROPERTY_LITE_TOPIC: Final = "__LITE_TOPIC"
"""Of RocketMQ 5.5: a queue of its own within the topic, made by the first message."""
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_TTL: Final = "TTL"
PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_INNER_BASE: Final = "INNER_BASE"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
REGION: Final = "DefaultRegion"
"""Of every broker that is given no other. Source: MixAll.DEFAULT_TRACE_REGION_ID."""
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_CRC32: Final = "__CRC32#"
PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
PROPERTY_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
"""Of a message that was sent for a dead letter: the unique key of the one that was given up."""
PROPERTY_ACK: Final = "TANDEM_ACK"
"""Ours: what the answer to a send waits for beyond WAIT. Known to masters of fenced groups only."""
ACK_FLUSHED: Final = "flushed"
"""Its one value: on the disk of every in-sync replica, whatever the level of the group."""
KEY_SEPARATOR: Final = " "

_SEPARATOR_BYTE: Final = 2
_INNER_BASE: Final = PROPERTY_INNER_BASE.encode()
_INNER_NUM: Final = PROPERTY_INNER_NUM.encode()
_BATCH_SIZE_MAX: Final = 2**15 - 1
_DIGITS_MAX: Final = 18
"""Fewer than a number of 64 bits may have."""

PROPERTIES_BYTES_MAX: Final = 32_767
"""The length field is a signed 16-bit integer (MessageDecoder, MessageStoreConfig)."""

PARSED_MAP_CAPACITY: Final = 128
"""Of the hash map that RocketMQ parses a property string into (string2messageProperties)."""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the property string of `properties` in UTF-8, closing separator included.

    The order is the mapping's own; readers give it no meaning.

    Raises:
        ValueError: a name or value holds a separator or a name is empty.
    """
    for name, value in properties.items():
        if not name or _has_separator(name) or _has_separator(value):
            raise ArgumentError(
                f"message property {name!r} cannot be stored: names must not be empty and neither"
                " names nor values may hold the bytes 0x01 or 0x02",
                name,
            )
    return join_properties(properties)


def join_properties(properties: Mapping[str, str]) -> bytes:
    """Return the property string of what was read from one: values may hold 0x01, as there."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode()


def joined_keys(keys: object) -> str:
    """Return the value of KEYS for several keys.

    Raises:
        TypeError: they are no texts.
        ValueError: one is empty, or holds a blank or a byte that separates properties.

    Source: Message.setKeys(Collection).
    """
    if isinstance(keys, bytes) or not isinstance(keys, Iterable):
        raise TypeError(f"message keys {keys!r}: expected a text or a list of texts")
    checked: list[str] = []
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"message key {key!r} is no text; write str(key), or key.decode()")
        if not key or KEY_SEPARATOR in key or _has_separator(key):
            raise ArgumentError(
                f"message key {key!r}: a key must not be empty, and must not hold a blank, which"
                " separates keys, nor the bytes 0x01 or 0x02",
                "keys",
            )
        checked.append(key)
    return KEY_SEPARATOR.join(checked)


def _has_separator(text: str) -> bool:
    return NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text


def decode_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """Return the properties in `data`; duplicates: the last one wins.

    A piece is taken only if it has a name and a value; the first 0x01 splits. Bytes that are not
    UTF-8 are replaced, as Java's String constructor does.

    Source: MessageDecoder.string2messageProperties.
    """
    return parse_properties(str(data, "utf-8", "replace"))


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a property string that is text already; see `decode_properties`."""
    properties: dict[str, str] = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, separator, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and separator and value:
            properties[name] = value
    return properties


def java_map_order(
    properties: Mapping[str, str], capacity: int = PARSED_MAP_CAPACITY
) -> dict[str, str]:
    """Return `properties` in the order in which a Java hash map of this capacity lists them.

    RocketMQ writes them so; readers give the order no meaning, but the bytes of a record depend on
    it. A map that was built empty has capacity 16.

    Source: java.util.HashMap.hash and resize.
    """
    while 4 * len(properties) > 3 * capacity:
        capacity *= 2

    def bucket(name: str) -> int:
        code = java_string_hash(name) & 0xFFFF_FFFF
        return (code ^ code >> 16) & (capacity - 1)

    return {name: properties[name] for name in sorted(properties, key=bucket)}


def with_properties(data: bytes, added: Mapping[str, str]) -> bytes:
    """Return the property string `data` with `added`, in the order in which RocketMQ writes it.

    What the parser drops is gone afterwards: broken pieces, and all duplicates but the last.

    Source: MessageAccessor.putProperty, then MessageDecoder.messageProperties2String.
    """
    return join_properties(java_map_order({**decode_properties(data), **added}))


def without_property(data: bytes, name: bytes) -> bytes:
    """Return the property string `data` without the properties called `name`; the rest as it is.

    Source: MessageUtils.deleteProperty.
    """
    needle = name + b"\x01"
    if needle not in data:
        return data
    *closed, rest = data.split(b"\x02")
    kept = [piece + b"\x02" for piece in closed if not piece.startswith(needle)]
    return b"".join(kept) + (b"" if rest.startswith(needle) else rest)


def property_value(data: bytes, name: bytes) -> bytes | None:
    """Return the raw value of the property called `name`, without decoding the others.

    None if there is no such property or its value is empty; duplicates: the last one with a value
    wins, as in `decode_properties`. `data` is a whole property string.
    """
    needle = b"\x02" + name + b"\x01"
    stop = len(data)
    while (start := data.rfind(needle, 0, stop)) >= 0:
        if value := _value_at(data, start + len(needle)):
            return value
        stop = start + 1
    return _value_at(data, len(needle) - 1) if data.startswith(needle[1:]) else None


def _value_at(data: bytes, start: int) -> bytes | None:
    end = data.find(b"\x02", start)
    return data[start : end if end >= 0 else len(data)] or None


@lru_cache(maxsize=4096)
def java_string_hash(text: str) -> int:
    """Return what `String.hashCode()` returns in Java: a signed 32-bit integer.

    It runs over UTF-16 code units, so a character outside the basic plane counts as two.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def tags_code(tags: str | None) -> int:
    """Return the code that a consume queue stores for `tags`: the hash of the whole value, or 0.

    Source: MessageExtBrokerInner.tagsString2tagsCode.
    """
    return java_string_hash(tags) if tags else 0


def tags_code_of(properties: bytes) -> int:
    """Return the tags code of a message with this property string."""
    at = properties.rfind(b"TAGS\x01")
    if at < 0:
        return 0
    if at == 0 or properties[at - 1] == _SEPARATOR_BYTE:
        end = properties.find(b"\x02", at)
        tags = properties[at + 5 : end] if end >= 0 else properties[at + 5 :]
        if tags:
            return _tags_code_of_bytes(tags)
    # The end of another name, or an empty value that hides one before it.
    last = property_value(properties, b"TAGS")
    return _tags_code_of_bytes(last) if last else 0


@lru_cache(maxsize=4096)
def _tags_code_of_bytes(tags: bytes) -> int:
    return java_string_hash(tags.decode("utf-8", "replace"))


def inner_batch_of(properties: bytes, queue_offset: int) -> tuple[int, int]:
    """Return the queue offset of the first message in a record, and how many there are.

    A record that does not say so in numbers is one message.

    Source: CommitLog.setBatchSizeIfNeeded.
    """
    if _INNER_NUM not in properties:
        return queue_offset, 1
    base = property_value(properties, _INNER_BASE) or b""
    count = property_value(properties, _INNER_NUM) or b""
    digits = base + count
    if not digits.isdigit() or not base or not count or len(digits) > _DIGITS_MAX:
        return queue_offset, 1
    if not 0 < int(count) <= _BATCH_SIZE_MAX:
        return queue_offset, 1
    return int(base), int(count)
