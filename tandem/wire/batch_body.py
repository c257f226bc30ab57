"""The body of a client's batch: messages of one topic, one after the other.

    TOTALSIZE 4 | MAGIC 4 = 0 | BODYCRC 4 = 0 | FLAG 4
    BODYLENGTH 4, BODY | PROPERTIESLENGTH 2, PROPERTIES

Source: RocketMQ 5.3.3, MessageDecoder.encodeMessage and decodeMessage.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from tandem.wire.errors import ArgumentError, MalformedMessageError
from tandem.wire.message_properties import PROPERTIES_BYTES_MAX, PROPERTY_UNIQUE_KEY

BATCH_ENTRY_BYTES_MIN: Final = 22

_SHORT = struct.Struct(">h")
_HEAD = struct.Struct(">iiiii")
_pack_head = _HEAD.pack
_pack_short = _SHORT.pack
_KEY_HEAD = f"{PROPERTY_UNIQUE_KEY}\x01".encode()
_KEY_HEAD_BYTES = len(_KEY_HEAD)


class BatchEntry(msgspec.Struct, frozen=True):
    """One message of a batch body, as it is there."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch_entry(flag: int, body: bytes, properties: bytes) -> bytes:
    """Return one message of a batch body; a body is these in a row.

    Raises:
        ValueError: the properties take more than 32,767 bytes.
    """
    body_bytes = len(body)
    properties_bytes = len(properties)
    if properties_bytes > PROPERTIES_BYTES_MAX:
        text = (
            f"message properties take {properties_bytes} bytes; the limit is {PROPERTIES_BYTES_MAX}"
        )
        raise ArgumentError(text, "properties")
    size = BATCH_ENTRY_BYTES_MIN + body_bytes + properties_bytes
    head = _pack_head(size, 0, 0, flag, body_bytes)
    return b"".join((head, body, _pack_short(properties_bytes), properties))


def keyed_entry_parts(flag: int, body: bytes, unique_key: bytes) -> tuple[bytes, ...]:
    """Return, in parts, the entry of a message that has no property but its UNIQ_KEY.

    Joined with those of others, its body is copied once.
    """
    properties_bytes = _KEY_HEAD_BYTES + len(unique_key) + 1
    size = BATCH_ENTRY_BYTES_MIN + len(body) + properties_bytes
    return (
        _pack_head(size, 0, 0, flag, len(body)),
        body,
        _pack_short(properties_bytes),
        _KEY_HEAD,
        unique_key,
        b"\x02",
    )


class BatchPlace(msgspec.Struct, frozen=True, gc=False):
    """Where one message of a batch body is; ends are not included."""

    flag: int
    body_start: int
    body_end: int
    properties_start: int
    properties_end: int


def batch_places(body: bytes | memoryview) -> Iterator[BatchPlace]:
    """Yield where the entries of a batch body are; see `decode_batch_body`.

    Raises:
        MalformedMessageError: a length is negative or runs past the end.
    """
    end = len(body)
    position = 0
    while position < end:
        try:
            _, _, _, flag, size = _HEAD.unpack_from(body, position)
            body_start = position + _HEAD.size
            body_end = _checked_end(body_start, size, end)
            (size,) = _SHORT.unpack_from(body, body_end)
        except struct.error as error:
            text = f"batch entry at byte {position}: {error}"
            raise MalformedMessageError(text, position) from error
        position = _checked_end(body_end + 2, size, end)
        yield BatchPlace(flag, body_start, body_end, body_end + 2, position)


def decode_batch_body(body: bytes | memoryview) -> Iterator[BatchEntry]:
    """Yield the entries of a batch body. TOTALSIZE, magic and CRC are ignored, as RocketMQ does.

    Raises:
        MalformedMessageError: a length is negative or runs past the end.
    """
    view = memoryview(body)
    for place in batch_places(view):
        properties = bytes(view[place.properties_start : place.properties_end])
        yield BatchEntry(place.flag, bytes(view[place.body_start : place.body_end]), properties)


def _checked_end(start: int, size: int, end: int) -> int:
    if size < 0 or start + size > end:
        raise MalformedMessageError(
            f"a field of {size} bytes at byte {start} runs past the end at {end}", start
        )
    return start + size
