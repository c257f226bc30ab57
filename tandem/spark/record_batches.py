"""Turns columns of records into Arrow batches: no Python object a record, except for its CRC.

Variable-length fields are cut out of the raw bytes by Arrow itself (`arrow_cut`), and property
strings are parsed all at once (`property_columns`). A column that is not asked for costs nothing.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from tandem.spark.arrow_cut import cut_out, numbers, repeated, text, truths
from tandem.spark.property_columns import Properties, parse_properties
from tandem.wire.message import (
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOSTADDRESS_V6_FLAG,
    unpack_host,
)
from tandem.wire.record_scan import (
    Bools,
    Int64s,
    RecordColumns,
    body_crcs,
    crc_agrees,
    gather,
)

TIMESTAMP: Final = pa.timestamp("us", "UTC")
PROPERTIES: Final = pa.map_(pa.string(), pa.string())

# The first and the last millisecond of the years 1 to 9999, which both Spark and Python can show.
_TIME_MS_MIN = -62_135_596_800_000
_TIME_MS_MAX = 253_402_300_799_999


class RecordSlice:
    """Some records of a buffer on their way to Arrow. The buffer must outlive it.

    `errors` says by row what is wrong with a record; it is filled in by the reader that judges
    them.
    """

    def __init__(
        self, data: bytearray, records: RecordColumns, store: str, *, check_crc: bool = True
    ) -> None:
        self.data = data
        self.records = records
        self.store = store
        self.check_crc = check_crc
        self.errors: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.records)

    def take(self, chosen: Bools) -> "RecordSlice":
        """Return the chosen records."""
        if chosen.all():
            return self
        records = self.records.take(chosen)
        return RecordSlice(self.data, records, self.store, check_crc=self.check_crc)

    @cached_property
    def topics(self) -> pa.DictionaryArray:
        """The topics as an Arrow dictionary: a log holds few."""
        r = self.records
        return text(self.cut(r.topic_start, r.topic_size).dictionary_encode())

    def has_topic(self, topic: str) -> Bools:
        """Say which records are of a topic. Nothing is cut out for that."""
        wanted = topic.encode()
        records = self.records
        has: Bools = records.topic_size == len(wanted)
        rows = np.flatnonzero(has)
        if wanted and len(rows):
            starts = records.topic_start[rows]
            at_every_byte = np.ndarray(
                (len(self.data) - len(wanted) + 1,), f"V{len(wanted)}", self.data, strides=(1,)
            )
            found = at_every_byte[starts].view(np.uint8).reshape(len(rows), -1)
            has[rows] = (found == np.frombuffer(wanted, np.uint8)).all(axis=1)
        return has

    @cached_property
    def crcs(self) -> Int64s:
        """The CRC of each body as it is."""
        return body_crcs(self.data, self.records)

    @cached_property
    def crc_ok(self) -> Bools:
        """Whether each body is what its record says it is."""
        return crc_agrees(self.records, self.crcs)

    @cached_property
    def properties(self) -> Properties:
        """The properties of all records."""
        r = self.records
        return parse_properties(self.cut(r.properties_start, r.properties_size))

    def cut(self, starts: Int64s, sizes: Int64s) -> pa.BinaryArray:
        """Copy one stretch of bytes a record into an Arrow array."""
        return cut_out(self.data, starts, starts + sizes)

    def batch(self, names: Sequence[str]) -> pa.RecordBatch:
        """Return the columns called `names`."""
        return pa.RecordBatch.from_arrays([COLUMNS[name][1](self) for name in names], names)


def error_batch(
    names: Sequence[str], store: str, physical_offset: int, error: str
) -> pa.RecordBatch:
    """Return one row that only says what could not be read, and where."""
    known: dict[str, str | int] = {
        "store": store,
        "physicalOffset": physical_offset,
        "error": error,
    }
    arrays = [pa.array([known.get(name)], COLUMNS[name][0]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names)


def _int32(values: Int64s) -> pa.Array:
    return numbers(values.astype(np.int32))


def _timestamp(values_ms: Int64s) -> pa.Array:
    # Born times come from producers and may be anything; Arrow counts microseconds.
    if len(values_ms) and not _TIME_MS_MIN <= values_ms.min() <= values_ms.max() <= _TIME_MS_MAX:
        values_ms = np.clip(values_ms, _TIME_MS_MIN, _TIME_MS_MAX)
    return numbers(values_ms * 1000, TIMESTAMP)


def _hosts(part: RecordSlice, starts: Int64s, v6_flag: int) -> pa.StringArray:
    """Address and port as text; each distinct one is formatted once."""
    v6 = (part.records.sys_flag & v6_flag) != 0
    if v6.any():
        packed = part.cut(starts, np.where(v6, 20, 8)).dictionary_encode()
        different = packed.dictionary.to_pylist()
    else:
        packed = numbers(gather(part.data, ">i8", starts)).dictionary_encode()
        different = [
            value.to_bytes(8, "big", signed=True) for value in packed.dictionary.to_pylist()
        ]
    names = [str(unpack_host(value)) for value in different]
    if len(names) == 1:
        return repeated(names, len(packed))
    return repeated(names).take(packed.indices)


def _crc_ok(part: RecordSlice) -> pa.Array:
    return truths(part.crc_ok) if part.check_crc else pa.nulls(len(part), pa.bool_())


def _errors(part: RecordSlice) -> pa.Array:
    if not part.errors:
        return pa.nulls(len(part), pa.string())
    return pa.array([part.errors.get(row) for row in range(len(part))], pa.string())


def _store(part: RecordSlice) -> pa.Array:
    return repeated([part.store], len(part))


COLUMNS: Final[dict[str, tuple[pa.DataType, Callable[[RecordSlice], pa.Array]]]] = {
    "topic": (
        pa.string(),
        lambda part: text(part.cut(part.records.topic_start, part.records.topic_size)),
    ),
    "queueId": (pa.int32(), lambda part: _int32(part.records.queue_id)),
    "queueOffset": (pa.int64(), lambda part: numbers(part.records.queue_offset)),
    "physicalOffset": (pa.int64(), lambda part: numbers(part.records.physical_offset)),
    "storeSize": (pa.int32(), lambda part: _int32(part.records.size)),
    "flag": (pa.int32(), lambda part: _int32(part.records.flag)),
    "sysFlag": (pa.int32(), lambda part: _int32(part.records.sys_flag)),
    "bornTimestamp": (TIMESTAMP, lambda part: _timestamp(part.records.born_timestamp_ms)),
    "storeTimestamp": (TIMESTAMP, lambda part: _timestamp(part.records.store_timestamp_ms)),
    "bornHost": (
        pa.string(),
        lambda part: _hosts(part, part.records.born_host_start, BORNHOST_V6_FLAG),
    ),
    "storeHost": (
        pa.string(),
        lambda part: _hosts(part, part.records.store_host_start, STOREHOSTADDRESS_V6_FLAG),
    ),
    "reconsumeTimes": (pa.int32(), lambda part: _int32(part.records.reconsume_times)),
    "preparedTransactionOffset": (
        pa.int64(),
        lambda part: numbers(part.records.prepared_transaction_offset),
    ),
    "keys": (pa.string(), lambda part: part.properties.values_of("KEYS")),
    "tags": (pa.string(), lambda part: part.properties.values_of("TAGS")),
    "properties": (PROPERTIES, lambda part: part.properties.as_maps()),
    "body": (
        pa.binary(),
        lambda part: part.cut(part.records.body_start, part.records.body_size),
    ),
    "bodyCrc": (pa.int32(), lambda part: _int32(part.records.body_crc)),
    "crcOk": (pa.bool_(), _crc_ok),
    "version": (
        pa.int32(),
        lambda part: _int32(1 + (part.records.magic == MESSAGE_MAGIC_CODE_V2)),
    ),
    "store": (pa.string(), _store),
    "error": (pa.string(), _errors),
}
"""Every column of the source, in the order of its schema, with how it is made."""
