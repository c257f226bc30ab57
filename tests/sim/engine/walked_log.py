"""A commit log walked from its bytes, and how two logs compare."""

import zlib
from bisect import bisect_left

import msgspec

from tandem.wire.crc import crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import BLANK_MAGIC_CODE, decode_message

FILLER_BYTES_MIN = 8


class LogRecord(msgspec.Struct, frozen=True):
    """One record of a log. Two of them are the same bytes if they are equal."""

    topic: str
    key: str
    body_crc: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    end: int
    content_crc: int
    """Of all its bytes."""


class Log(msgspec.Struct, frozen=True):
    """A commit log from its start to its end, walked."""

    data: bytes
    records: tuple[LogRecord, ...]
    fault: str = ""
    """Why it cannot be walked to its end; empty if it can."""


def walk_log(data: bytes, base: int = 0) -> Log:
    """Decode a log from offset `base`; every byte up to the end must belong to a valid record."""
    records: list[LogRecord] = []
    position = 0
    while position < len(data):
        filler_bytes = int.from_bytes(data[position : position + 4], "big")
        magic = int.from_bytes(data[position + 4 : position + 8], "big")
        if magic == BLANK_MAGIC_CODE and filler_bytes >= FILLER_BYTES_MIN:
            position += filler_bytes
            continue
        try:
            message, end = decode_message(data, position)
        except MalformedMessageError as error:
            return Log(data, tuple(records), f"byte {base + position}: {error}")
        if crc32(message.body) != message.body_crc or message.physical_offset != base + position:
            fault = f"record at byte {base + position}: wrong CRC or offset"
            return Log(data, tuple(records), fault)
        records.append(
            LogRecord(
                topic=message.topic,
                key=message.keys,
                body_crc=message.body_crc,
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
                physical_offset=message.physical_offset,
                end=base + end,
                content_crc=zlib.crc32(data[position:end]),
            )
        )
        position = end
    fault = "" if position == len(data) else f"ends inside the filler at byte {base + len(data)}"
    return Log(data, tuple(records), fault)


def first_difference(left: bytes, right: bytes) -> int:
    """Return the first offset at which two logs differ; the shorter length if none does."""
    size = min(len(left), len(right))
    # The first position at which the beginnings up to and with it differ.
    return bisect_left(range(size), 1, key=lambda at: left[: at + 1] != right[: at + 1])
