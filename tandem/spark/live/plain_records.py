"""Records as consumers see them: bodies decompressed, batches taken apart into their messages.

Producers compress long bodies, and a producer of batches may have one record hold all of them; a
broker hands out both as they are stored. Such records are made anew, as if their producer had done
neither; all others are left as they are. Their STORESIZE and BODYCRC are those of the new record.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from tandem.spark.errors import SparkSourceError
from tandem.spark.record_batches import RecordSlice
from tandem.wire.compression import CompressionError, decompressed
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAGS,
    MessageExt,
    decode_message,
    encode_record,
    is_inner_batch,
    unwrap_inner_batch,
)
from tandem.wire.record_scan import read_columns, walk_records

PART_BYTES_MAX: Final = 32 * 1024 * 1024
"""Compressed bodies can grow a thousand times: this much is handed on at once."""


def plain_records(
    part: RecordSlice,
    start: int,
    end: int,
    part_bytes_max: int = PART_BYTES_MAX,
    *,
    keeps_broken: bool = False,
) -> Iterator[RecordSlice]:
    """Yield the messages at queue offsets `start` up to `end`, in order.

    With `keeps_broken` a body that cannot be decompressed stays as it is, with its flag.

    Raises:
        SparkSourceError: a body cannot be decompressed.
    """
    flags = part.records.sys_flag
    if not (flags & (COMPRESSED_FLAG | INNER_BATCH_FLAGS)).any():
        yield part
        return
    special = [
        flag for flag in np.unique(flags).tolist() if flag & COMPRESSED_FLAG or is_inner_batch(flag)
    ]
    if not special:
        yield part
        return
    is_special = np.isin(flags, special).tolist()
    data = bytearray()
    places = zip(part.records.start.tolist(), part.records.size.tolist(), is_special, strict=True)
    for position, size, has_to_change in places:
        if has_to_change:
            message, _ = decode_message(part.data, position)
            for single in _singles(message, keeps_broken=keeps_broken):
                if start <= single.queue_offset < end:
                    data += encode_record(single)
        else:
            data += part.data[position : position + size]
        if len(data) >= part_bytes_max:
            yield _slice(data, part)
            data = bytearray()
    if data:
        yield _slice(data, part)


def _singles(message: MessageExt, *, keeps_broken: bool) -> list[MessageExt]:
    """Return the messages of a record. A batch that does not parse is given out as it is.

    Source: RocketMQ 5.3.3, PullAPIWrapper.processPullResult.
    """
    try:
        plain = decompressed(message)
    except CompressionError as error:
        if keeps_broken:
            return [message]
        raise SparkSourceError(
            f"source tandem: offset {message.queue_offset} of queue {message.queue_id} of topic"
            f" {message.topic!r}: {error}. With decompress=false bodies come as they are stored"
        ) from error
    try:
        return unwrap_inner_batch(plain)
    except MalformedMessageError:
        return [plain]


def _slice(data: bytearray, part: RecordSlice) -> RecordSlice:
    records = read_columns(data, walk_records(data).starts)
    return RecordSlice(data, records, part.store, check_crc=part.check_crc)
