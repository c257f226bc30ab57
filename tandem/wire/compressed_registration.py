"""What a RocketMQ broker with `compressedRegister=true` tells a name server of its topics.

A zlib stream. In it, each number in four bytes: the length and the JSON of the version of its
topics; how many topics; of each the length and a text, `name read write perm SINGLE_TAG {JSON of
attributes}`; the length and the JSON list of its filter servers; from 5.0 on how many static
topics, of each a length and JSON. Source: RegisterBrokerBody, TopicConfig.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, TypeVar

from tandem.wire.errors import MalformedFrameError
from tandem.wire.request_headers import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from collections.abc import Generator

ValueT = TypeVar("ValueT")
INFLATED_BYTES_MAX: Final = 16 << 20
"""More than `TOPICS_MAX` topics take. A small body must not fill the memory of a name server."""
TOPICS_MAX: Final = 65_536
"""Of one broker. Each takes CPU, also if it is the same one again: its text may be a few bytes."""
TOPICS_IN_A_PIECE: Final = 1_000
_INT: Final = struct.Struct(">i")
_FIELDS_MIN: Final = 5
_ZLIB: Final = b"\x78"
"""Of a window of 32 KiB, which Java's Deflater has."""
_INT_32_MIN: Final = -(1 << 31)


def decode_compressed_registration(body: bytes) -> Generator[None, None, RegisterBrokerBody]:
    """Return the registration in `body`; yield after each `TOPICS_IN_A_PIECE` topics.

    Static topics are not looked at: there are none here.

    Raises:
        MalformedFrameError: it is no such body, or is longer than `INFLATED_BYTES_MAX`.
    """
    fields = _Fields(_inflated(body))
    version = _json(fields.block("version of the topics"), DataVersion)
    topics: dict[str, TopicConfig] = {}
    count = fields.number("count of topics")
    if count > TOPICS_MAX:
        raise _malformed(f"it has {count} topics, more than {TOPICS_MAX}")
    for number in range(count):
        topic = _topic_config(fields.block("topic"))
        topics[topic.topic_name] = topic
        if number % TOPICS_IN_A_PIECE == TOPICS_IN_A_PIECE - 1:
            yield
    filter_servers = _json(fields.block("list of filter servers"), list[str])
    return RegisterBrokerBody(TopicConfigSerializeWrapper(topics, version), filter_servers)


def is_zlib(body: bytes) -> bool:
    """Whether a body may be a zlib stream of Java's, and is no JSON."""
    return body.startswith(_ZLIB)


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise _malformed(f"it is no zlib stream: {error}") from error
    if inflater.unconsumed_tail:
        raise _malformed(f"it is longer than {INFLATED_BYTES_MAX} bytes")
    if not inflater.eof:
        raise _malformed("its zlib stream has no end")
    return inflated


class _Fields:
    """Numbers and blocks of bytes, one after the other."""

    def __init__(self, inflated: bytes) -> None:
        self._inflated = inflated
        self._at = 0

    def number(self, what: str) -> int:
        """Return the next number: a count or a length, never below 0."""
        if len(self._inflated) - self._at < _INT.size:
            raise _malformed(f"it ends before its {what}")
        (number,) = _INT.unpack_from(self._inflated, self._at)
        if number < 0:
            raise _malformed(f"a {what} of {number}")
        self._at += _INT.size
        return int(number)

    def block(self, what: str) -> bytes:
        """Return the bytes that a length is before."""
        length_bytes = self.number(f"length of a {what}")
        if length_bytes > len(self._inflated) - self._at:
            raise _malformed(f"it ends within a {what}")
        start, self._at = self._at, self._at + length_bytes
        return self._inflated[start : self._at]


def _topic_config(text: bytes) -> TopicConfig:
    """Return a topic. Attributes are JSON, and the last field: they may have blanks."""
    try:
        fields = text.decode().split(" ", _FIELDS_MIN)
        if len(fields) < _FIELDS_MIN:
            raise _malformed(f"a topic with {len(fields)} of {_FIELDS_MIN} fields")
        name, read, write, perm, filter_type, *attributes = fields
    except UnicodeDecodeError as error:
        raise _malformed("a topic that is not UTF-8") from error
    json = attributes[0].encode() if attributes and attributes[0] else b"{}"
    return TopicConfig(
        name,
        _number(read),
        _number(write),
        _number(perm),
        filter_type,
        attributes=_json(json, dict[str, str]),
    )


def _json(text: bytes, value_type: type[ValueT]) -> ValueT:
    try:
        return decode_json(text, value_type)
    except UnreadableError as error:
        raise _malformed(str(error)) from error


def _number(field: str) -> int:
    # What Python takes beyond Java's digits ("1_0", blanks, other digits) is refused.
    is_short = len(field) <= len(str(_INT_32_MIN))
    if is_short and field.isascii() and field.removeprefix("-").isdigit():
        number = int(field)
        if _INT_32_MIN <= number <= -_INT_32_MIN - 1:
            return number
    raise _malformed(f"a topic with {field[:20]!r} for a number")


def _malformed(fault: str) -> MalformedFrameError:
    return MalformedFrameError(f"compressed registration: {fault}")
