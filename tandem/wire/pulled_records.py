"""Decodes the records of a pull's answer, of which a consumer gets tens of thousands a second.

A record with v4 hosts and a topic of up to 127 characters, as nearly all are, is read with one call
of `struct` and four slices. Every other one, and every one that does not add up, goes the long way:
`tandem.wire.message.decode_message`, which says the same of all of them.
"""

import struct
from typing import Final

from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    BORNHOST_V6_FLAG,
    FIXED_HEADER,
    MESSAGE_MAGIC_CODE,
    STOREHOSTADDRESS_V6_FLAG,
    MessageExt,
    decode_message,
    unpack_host,
)
from tandem.wire.message_properties import PROPERTIES_BYTES_MAX, decode_properties

_V4_HEAD: Final = struct.Struct(FIXED_HEADER.format + "8sq8siqi")
"""TOTALSIZE to BODYLENGTH of a record with v4 hosts."""


def decode_pulled(body: bytes) -> tuple[list[MessageExt], MalformedMessageError | None]:
    """Decode the records of a pull's body, which are back to back, up to one that is none.

    The second value says what is wrong with that one. The fast form of `decode_messages`.
    """
    messages: list[MessageExt] = []
    position = 0
    end = len(body)
    while position < end:
        decoded = None
        if position + _V4_HEAD.size <= end:
            decoded = _decode_short(body, position)
        try:
            message, position = decoded or decode_message(body, position)
        except MalformedMessageError as error:
            return messages, error
        messages.append(message)
    return messages, None


def _decode_short(data: bytes, start: int) -> tuple[MessageExt, int] | None:
    """Decode a record with v4 hosts and a short topic, as nearly all are; None: it is no such one.

    What is wrong with a record, the long way says.
    """
    head = _V4_HEAD.unpack_from(data, start)
    size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = head[:9]
    born_host, stored, store_host, reconsume_times, prepared_offset, body_bytes = head[9:]
    body_start = start + _V4_HEAD.size
    body_end = body_start + body_bytes
    end = start + size
    if (
        magic != MESSAGE_MAGIC_CODE
        or sys_flag & (BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG)
        or not body_start <= body_end < end <= len(data)
    ):
        return None
    topic_end = body_end + 1 + data[body_end]
    properties_start = topic_end + 2
    if properties_start > end:
        return None
    properties_bytes = data[topic_end] << 8 | data[topic_end + 1]
    if properties_start + properties_bytes != end or properties_bytes > PROPERTIES_BYTES_MAX:
        return None
    message = MessageExt(
        str(data[body_end + 1 : topic_end], "utf-8", "replace"),
        data[body_start:body_end],
        decode_properties(data[properties_start:end]),
        queue_id,
        queue_offset,
        physical_offset,
        size,
        flag,
        sys_flag,
        born,
        unpack_host(born_host),
        stored,
        unpack_host(store_host),
        reconsume_times,
        prepared_offset,
        body_crc,
    )
    return message, end
