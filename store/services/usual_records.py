"""Usual records of the log, one at a time, with what queues and index want of them.

Columns (`tandem.wire.record_scan`) cost some hundred microseconds however few records they have.
A slave gets tens of records at a time, an index between two queries perhaps one: these are read
here, by a plain loop that takes what nearly all records are and stops at any other:

    in the first format, with IPv4 hosts, without flags: no transaction, no inner batch
    at the place that they say, with lengths that add up
    with properties of less than 512 bytes that do not look torn, and a topic without NUL

What it stops at has to be read again by somebody who knows every case.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from store.log.log_end import TORN_BYTES_MIN
from store.log.message_encoder import TOPIC_BYTES_MAX
from tandem.wire.message import MESSAGE_MAGIC_CODE, RECORD_BYTES_MIN
from tandem.wire.record_rule import BODY_AT, LogBytes

UsualRecord: TypeAlias = tuple[int, int, int, int, int, bytes, bytes]
"""Physical offset, size, queue id, queue offset, store time in ms, topic, property string."""

_HEAD: Final = struct.Struct(">II4xi4xqqi16xq20xi")
_NUL: Final = b"\0"

assert _HEAD.size == BODY_AT


def usual_records(buffer: LogBytes, position: int, end: int, offset: int) -> Iterator[UsualRecord]:
    """Yield the records from `position` on, up to `end` or the first that is not usual.

    `offset` is where in the log `position` is. No CRC is checked.
    """
    while position + RECORD_BYTES_MIN <= end:
        size, magic, queue_id, queue_offset, said_offset, sys_flag, stored_ms, body_bytes = (
            _HEAD.unpack_from(buffer, position)
        )
        record_end = position + size
        topic_at = position + BODY_AT + 1 + body_bytes
        if magic != MESSAGE_MAGIC_CODE or sys_flag or said_offset != offset or body_bytes < 0:
            return
        if not topic_at + 2 <= record_end <= end:
            return
        # Length of the topic, topic, length of the properties in two bytes, properties.
        texts = bytes(buffer[topic_at - 1 : record_end])
        topic_end = 1 + texts[0]
        topic, properties = texts[1:topic_end], texts[topic_end + 2 :]
        said_bytes = int.from_bytes(texts[topic_end : topic_end + 2], "big")
        if said_bytes != len(properties) or len(topic) > TOPIC_BYTES_MAX or _NUL in topic:
            return
        if len(properties) >= TORN_BYTES_MIN or properties.endswith(_NUL):
            return
        yield offset, size, queue_id, queue_offset, stored_ms, topic, properties
        position = record_end
        offset += size
