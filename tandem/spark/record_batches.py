"""Turns columns of records into Arrow batches: no Python object a record, except for its CRC.

Variable-length fields are cut out of the raw bytes by Arrow itself: an array is laid over the
buffer whose every other element is the field, and `take` copies those. Property strings are parsed
all at once: the positions of the separators bound names and values.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.wire.message import (
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOSTADDRESS_V6_FLAG,
    unpack_host,
)
from tandem.wire.record_scan import Bools, Int64s, RecordColumns, body_crcs, crc_agrees

TIMESTAMP: Final = pa.timestamp("us", "UTC")
PROPERTIES: Final = pa.map_(pa.string(), pa.string())

_NAME_VALUE_SEPARATOR = 1
_PROPERTY_SEPARATOR = 2
_TIME_MS_MAX = (2**63 - 1) // 1000


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

    @cached_property
    def crcs(self) -> Int64s:
        """The CRC of each body as it is."""
        return body_crcs(self.data, self.records)

    @cached_property
    def crc_ok(self) -> Bools:
        """Whether each body is what its record says it is."""
        return crc_agrees(self.records, self.crcs)

    @cached_property
    def properties(self) -> "Properties":
        """The properties of all records."""
        r = self.records
        return parse_properties(self.cut(r.properties_start, r.properties_size))

    def cut(self, starts: Int64s, sizes: Int64s) -> pa.BinaryArray:
        """Copy one stretch of bytes a record into an Arrow array."""
        return _cut_out(self.data, starts, starts + sizes)

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


class Properties(msgspec.Struct, frozen=True, eq=False):
    """Name and value pairs of records, those of record i at [bounds[i], bounds[i + 1])."""

    bounds: NDArray[np.int32]
    names: pa.DictionaryArray
    values: pa.StringArray

    def as_maps(self) -> pa.MapArray:
        """One map a record."""
        return pa.MapArray.from_arrays(
            pa.array(self.bounds), self.names.cast(pa.string()), self.values
        )

    def values_of(self, name: str) -> pa.StringArray:
        """The value of one property in each record, null where a record has none."""
        count = len(self.bounds) - 1
        code = self.names.dictionary.index(name).as_py()
        if code < 0:
            return pa.nulls(count, pa.string())
        at = np.flatnonzero(self.names.indices.to_numpy() == code)
        rows = np.searchsorted(self.bounds, at, side="right") - 1
        places = np.full(count, -1, np.int64)
        places[rows] = at
        return self.values.take(pa.array(places, mask=places < 0))


def text(values: pa.Array) -> pa.Array:
    """Return binary values as text. Bytes that are not UTF-8 are replaced, as in Java.

    Takes plain and dictionary arrays of binaries.
    """
    if isinstance(values, pa.DictionaryArray):
        words = text(values.dictionary)
        if len(words.unique()) < len(words):  # different bytes, replaced by the same text
            return words.take(values.indices).dictionary_encode()
        return pa.DictionaryArray.from_arrays(values.indices, words)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()])


def parse_properties(strings: pa.BinaryArray) -> Properties:
    """Parse property strings by the rules of `decode_properties`, all at once.

    A piece counts only with a name and a value; its first 0x01 splits; the last of equals wins.
    """
    offsets = np.frombuffer(strings.buffers()[1], np.int32, len(strings) + 1, strings.offset * 4)
    base = int(offsets[0])
    ends_of_strings = offsets[1:] - base
    size = int(ends_of_strings[-1]) if len(strings) else 0
    data = strings.buffers()[2]
    raw = np.frombuffer(data, np.uint8, size, base) if size else np.empty(0, np.uint8)
    start, end, row = _pieces(raw, ends_of_strings)
    splits = np.flatnonzero(raw == _NAME_VALUE_SEPARATOR)
    split = np.append(splits, size)[np.searchsorted(splits, start)]
    counts = (start < split) & (split + 1 < end)
    start, split, end, row = start[counts], split[counts], end[counts], row[counts]
    names = text(_cut_out(raw, start, split).dictionary_encode())
    kept = _last_of_equals(row, names.indices.to_numpy())
    values = text(_cut_out(raw, split + 1, end))
    if kept is not None:
        row = row[kept]
        names = names.take(pa.array(kept))
        values = values.take(pa.array(kept))
    bounds = np.searchsorted(row, np.arange(len(strings) + 1)).astype(np.int32)
    return Properties(bounds, names, values)


def _pieces(
    raw: NDArray[np.uint8], string_ends: NDArray[np.int32]
) -> tuple[Int64s, Int64s, Int64s]:
    """Return start, end and string number of each piece between property separators."""
    separators = np.flatnonzero(raw == _PROPERTY_SEPARATOR)
    # One number sorts both kinds of end: a string's end comes before a separator at its place,
    # which belongs to the next string.
    marks = np.concatenate((2 * string_ends.astype(np.int64), 2 * separators + 1))
    marks.sort(kind="stable")  # two sorted runs: merged, not sorted
    ends = marks >> 1
    by_separator = marks & 1
    starts = np.empty_like(ends)
    if len(ends):
        starts[0] = 0
        starts[1:] = ends[:-1] + by_separator[:-1]
    strings_before = np.cumsum(1 - by_separator) - (1 - by_separator)
    return starts, ends, strings_before


def _cut_out(data: bytearray | NDArray[np.uint8], starts: Int64s, ends: Int64s) -> pa.BinaryArray:
    """Copy the stretches [start, end) of `data`. They rise and do not overlap."""
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    over_all = pa.Array.from_buffers(pa.binary(), max(len(bounds) - 1, 0), buffers)
    return over_all.take(pa.array(np.arange(0, len(bounds), 2)))


def _last_of_equals(row: Int64s, name: NDArray[np.int32]) -> Int64s | None:
    """Return which (row, name) pairs to keep so that none is there twice; None: all of them."""
    names = int(name.max(initial=0)) + 1
    pair = row * names + name
    cells = (int(row[-1]) + 1) * names if len(row) else 0
    if cells <= 8 * len(pair):  # few names: a table of what was seen beats sorting
        seen = np.zeros(cells, np.bool_)
        seen[pair] = True
        if np.count_nonzero(seen) == len(pair):
            return None
    distinct, last = np.unique(pair[::-1], return_index=True)
    if len(distinct) == len(pair):
        return None
    kept: Int64s = np.sort(len(pair) - 1 - last)
    return kept


def _int32(values: Int64s) -> pa.Array:
    return pa.array(values.astype(np.int32))


def _timestamp(values_ms: Int64s) -> pa.Array:
    # Born times come from producers and may be anything; Arrow counts microseconds.
    return pa.array(np.clip(values_ms, -_TIME_MS_MAX, _TIME_MS_MAX) * 1000).view(TIMESTAMP)


def _hosts(part: RecordSlice, starts: Int64s, v6_flag: int) -> pa.StringArray:
    """Address and port as text; each distinct one is formatted once."""
    v6 = (part.records.sys_flag & v6_flag) != 0
    packed = part.cut(starts, np.where(v6, 20, 8)).dictionary_encode()
    names = [str(unpack_host(value)) for value in packed.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(packed.indices)


def _crc_ok(part: RecordSlice) -> pa.Array:
    return pa.array(part.crc_ok) if part.check_crc else pa.nulls(len(part), pa.bool_())


def _errors(part: RecordSlice) -> pa.Array:
    if not part.errors:
        return pa.nulls(len(part), pa.string())
    return pa.array([part.errors.get(row) for row in range(len(part))], pa.string())


def _store(part: RecordSlice) -> pa.Array:
    return pa.repeat(pa.scalar(part.store, pa.string()), len(part))


COLUMNS: Final[dict[str, tuple[pa.DataType, Callable[[RecordSlice], pa.Array]]]] = {
    "topic": (pa.string(), lambda part: part.topics.cast(pa.string())),
    "queueId": (pa.int32(), lambda part: _int32(part.records.queue_id)),
    "queueOffset": (pa.int64(), lambda part: pa.array(part.records.queue_offset)),
    "physicalOffset": (pa.int64(), lambda part: pa.array(part.records.physical_offset)),
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
        lambda part: pa.array(part.records.prepared_transaction_offset),
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
