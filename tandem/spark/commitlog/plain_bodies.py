"""Records as a consumer gets them: bodies decompressed, inner batches taken apart (`decompress`).

What the record is on the disk stays as it is: physicalOffset, storeSize, bodyCrc and crcOk are
those of the stored record, also in every row of a batch. `sysFlag` loses the bits of what was
undone.

A body that cannot be decompressed, or is no batch where it should be, is damage of that record:
with `onError=row` it is a row with the body as stored and an `error`. Decompressing is bounded,
each body (`compression.BODY_BYTES_MAX`) and what is in memory at once.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.errors import LogDamagedError
from tandem.spark.record_batches import RecordSlice
from tandem.spark.row_filter import message_is_wanted
from tandem.wire.batch_body import BatchPlace, batch_places
from tandem.wire.compression import CompressionError, decompress
from tandem.wire.errors import MalformedMessageError
from tandem.wire.log_end import CORRUPT
from tandem.wire.message import COMPRESSED_FLAG, INNER_BATCH_FLAGS, is_inner_batch
from tandem.wire.message_properties import decode_properties
from tandem.wire.record_scan import Int64s, RecordColumns

PART_BYTES_MAX: Final = 32 * 1024 * 1024
"""Compressed bodies can grow a thousand times: this and one body more is handed on at once."""

_OF_BODIES: Final = frozenset({"body", "error"})


def plain_batches(
    part: RecordSlice,
    file: str,
    options: ScanOptions,
    names: Sequence[str],
    part_bytes_max: int = PART_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Yield records, which are of `file`, as the option `decompress` wants them.

    Raises:
        LogDamagedError: a body cannot be decompressed and `options.on_error` is `fail`.
    """
    flags = part.records.sys_flag
    if not options.decompress or not (flags & (COMPRESSED_FLAG | INNER_BATCH_FLAGS)).any():
        yield part.batch(names)
        return
    is_batch = (flags & INNER_BATCH_FLAGS) == INNER_BATCH_FLAGS
    if not is_batch.any() and _OF_BODIES.isdisjoint(names):
        records = msgspec.structs.replace(part.records, sys_flag=flags & ~COMPRESSED_FLAG)
        yield _like(part, part.data, records, np.arange(len(part))).batch(names)
        return
    rest = _Plain(part, file, options)
    for row in range(len(part)):
        rest.add(row)
        if len(rest.bodies) >= part_bytes_max:
            yield rest.slice().batch(names)
            rest = _Plain(part, file, options)
    if rest.rows:
        yield rest.slice().batch(names)


class _Plain:
    """Rows being made: for each, the record it comes from and what is other than there."""

    def __init__(self, part: RecordSlice, file: str, options: ScanOptions) -> None:
        self._part = part
        self._file = file
        self._options = options
        self._errors: dict[int, str] = {}
        self.rows: list[int] = []
        self.bodies = bytearray()
        self._properties = bytearray()
        # Of each row: index in a batch, flag, sysFlag, and sizes of body and properties.
        self._changed: list[tuple[int, int, int, int, int]] = []

    def add(self, row: int) -> None:
        """Add the rows of a record."""
        part, records = self._part, self._part.records
        sys_flag = int(records.sys_flag[row])
        start = int(records.body_start[row])
        body = bytes(part.data[start : start + int(records.body_size[row])])
        places: list[BatchPlace] | None = None
        try:
            plain, sys_flag, places = self._undone(row, body, sys_flag)
        except (CompressionError, MalformedMessageError) as error:
            self._errors[len(self.rows)] = self._damage(row, str(error))
            plain = body
        if row in part.errors:
            self._errors[len(self.rows)] = part.errors[row]
        if places is None:
            first = int(records.properties_start[row])
            properties = bytes(part.data[first : first + int(records.properties_size[row])])
            self._append(row, 0, int(records.flag[row]), sys_flag, plain, properties)
            return
        for index, place in enumerate(places):
            one = plain[place.body_start : place.body_end]
            properties = plain[place.properties_start : place.properties_end]
            tags = self._options.tags
            if tags is not None and not message_is_wanted(decode_properties(properties), tags):
                continue
            self._append(row, index, place.flag, sys_flag, one, properties)

    def _undone(
        self, row: int, body: bytes, sys_flag: int
    ) -> tuple[bytes, int, list[BatchPlace] | None]:
        if row in self._part.errors:  # its CRC says already that it is not what was written
            return body, sys_flag, None
        if sys_flag & COMPRESSED_FLAG:
            body = decompress(body, sys_flag)
            sys_flag &= ~COMPRESSED_FLAG
        if not is_inner_batch(sys_flag):
            return body, sys_flag, None
        return body, sys_flag & ~INNER_BATCH_FLAGS, list(batch_places(body))

    def _append(
        self, row: int, index: int, flag: int, sys_flag: int, body: bytes, properties: bytes
    ) -> None:
        self.rows.append(row)
        self.bodies += body
        self._properties += properties
        self._changed.append((index, flag, sys_flag, len(body), len(properties)))

    def _damage(self, row: int, reason: str) -> str:
        """Return what is said of a record in its row, or raise, as the options say."""
        if self._options.on_error == "fail":
            offset = int(self._part.records.physical_offset[row])
            raise LogDamagedError(self._file, offset, CORRUPT, reason)
        return f"{CORRUPT}: {reason} ({self._file})"

    def slice(self) -> RecordSlice:
        """Return the rows: their bodies and properties follow the bytes of the records."""
        rows = np.array(self.rows, np.int64)
        records = self._part.records.take(rows)
        changed = np.array(self._changed, np.int64).reshape(-1, 5).T
        index, flag, sys_flag, body_size, properties_size = changed
        bodies_at = len(self._part.data)
        properties_at = bodies_at + len(self.bodies)
        plain = msgspec.structs.replace(
            records,
            queue_offset=records.queue_offset + index,
            flag=flag,
            sys_flag=sys_flag,
            body_size=body_size,
            body_start=bodies_at + np.cumsum(body_size) - body_size,
            properties_size=properties_size,
            properties_start=properties_at + np.cumsum(properties_size) - properties_size,
        )
        data = self._part.data + self.bodies + self._properties
        made = _like(self._part, data, plain, rows)
        made.errors = self._errors
        return made


def _like(part: RecordSlice, data: bytearray, records: RecordColumns, rows: Int64s) -> RecordSlice:
    """Return other records of the same store, each with the CRC's verdict on the one it is from."""
    made = RecordSlice(data, records, part.store, check_crc=part.check_crc)
    if part.check_crc:
        made.crc_ok = part.crc_ok[rows]
    made.errors = part.errors
    return made
