"""Rows to parts of batches, by columns: no Python object a row.

Most rows of most jobs say no more than body, keys, tags and properties, and have one topic. Their
part of a batch body (`tandem.wire.batch_body`) is put together by Arrow, for all of a slice at
once, without pandas (see `arrow_cut`). What is unusual is left to `rows` and `packer`, which take
everything and say what is wrong: a row with a delay, a queue or a sharding key; a text that cannot
be stored; a body that goes alone. Both make the same bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandem.client.sending import USER_PROPERTIES_BYTES_MAX
from tandem.spark.arrow_cut import (
    binaries,
    indices_of,
    is_there,
    numbers,
    repeated,
    truths,
    truths_of,
    values_of,
    word,
)
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.rows import NOT_COPIED
from tandem.spark.sink.unique_key import KEY_CHARS, RowKeys, key_of
from tandem.wire.batch_body import BATCH_ENTRY_BYTES_MIN
from tandem.wire.message_properties import (
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
)
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

SLICE_BYTES: Final = 4 * 1024 * 1024
"""How much of bodies is put together at a time, unless one is larger."""

USUAL: Final = frozenset(
    {"topic", "body", "value", "keys", "tags", "properties", "flag", "uniqueKey"}
)
"""Columns that are put together here. Another one is unusual where it has a value."""

_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")]
)
_KEY_HEAD: Final = f"{PROPERTY_UNIQUE_KEY}\x01".encode()
_KEY_BYTES: Final = len(_KEY_HEAD) + KEY_CHARS + 1
_KEY_BYTES_MAX: Final = len(_KEY_HEAD) + 56 + 1
_OWN_PLACE: Final = repeated([PROPERTY_SHARDING_KEY, PROPERTY_PRIORITY])
"""Properties that choose the place of a message: it is packed with its like, or goes alone."""

_LEFT_OUT: Final = repeated(sorted(NOT_COPIED))
_NOTHING: Final = binaries([b""])[0]


class PackedRows(msgspec.Struct, frozen=True, eq=False):
    """Rows of one topic as one batch body. Row i is data[bounds[i]:bounds[i + 1]]."""

    topic: str
    data: memoryview
    bounds: NDArray[np.int64]
    body_bounds: NDArray[np.int64]
    """The same of the bodies, if they were in a row."""

    def parcels(self, batch_max_bytes: int) -> "Iterator[PackedParcel]":
        """Cut into requests of at most this many bytes; no row is larger."""
        first, count = 0, len(self.bounds) - 1
        while first < count:
            start = int(self.bounds[first])
            end = int(np.searchsorted(self.bounds, start + batch_max_bytes, side="right")) - 1
            end = max(end, first + 1)
            yield PackedParcel(
                self.topic,
                bytes(self.data[start : int(self.bounds[end])]),
                end - first,
                int(self.body_bounds[end] - self.body_bounds[first]),
            )
            first = end


class PackedParcel:
    """A request of `count` messages whose body is made. It waits for no other."""

    __slots__ = ("body_bytes", "count", "data", "size", "topic")

    def __init__(self, topic: str, data: bytes, count: int, body_bytes: int) -> None:
        self.topic = topic
        self.data = data
        self.count = count
        self.body_bytes = body_bytes
        self.size = len(data)


class RowPacker:
    """Packs the rows of one partition as far as they are usual."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        own = options.compress_over_bytes
        self._body_bytes_max = options.message_max_bytes if own is None else own - 1

    def packed(
        self, table: Mapping[str, pa.Array], count: int, keys: RowKeys
    ) -> list[PackedRows] | None:
        """Return the rows, in slices; None if one of them is unusual: then no key is taken.

        `table` are checked columns of one Arrow batch of `count` rows.
        """
        topic = self._topic(table)
        sizes = _sizes(table[self._columns.body])
        if topic is None or not count or int(sizes.max()) > self._body_bytes_max:
            return None
        if any(name not in USUAL and table[name].null_count < count for name in table):
            return None
        properties = _properties(table, count)
        if properties is None:
            return None
        bounds = np.append(0, np.cumsum(sizes))
        made: list[PackedRows] = []
        longest = BATCH_ENTRY_BYTES_MIN + _KEY_BYTES_MAX + sizes + _sizes(properties)
        if (
            int(longest.max()) >= self._options.batch_max_bytes
            or int(_sizes(properties).max()) > USER_PROPERTIES_BYTES_MAX
        ):
            return None
        start = 0
        while start < count:
            end = int(np.searchsorted(bounds, bounds[start] + SLICE_BYTES, side="right")) - 1
            end = max(end, start + 1)
            part = {name: column.slice(start, end - start) for name, column in table.items()}
            made.append(self._slice(topic, part, properties.slice(start, end - start), keys))
            start = end
        return made

    def _topic(self, table: Mapping[str, pa.Array]) -> str | None:
        """The topic of all rows; None if there are several, or one whose messages go alone."""
        topic = self._options.topic
        if not topic:
            several = pc.unique(table["topic"])
            if len(several) != 1:
                return None
            topic = several[0].as_py()
        return None if not topic or topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else topic

    def _slice(
        self, topic: str, table: Mapping[str, pa.Array], properties: pa.Array, keys: RowKeys
    ) -> PackedRows:
        bodies = table[self._columns.body].cast(pa.binary())
        count = len(bodies)
        unique = _key_entries(keys, count, table.get("uniqueKey"))
        body_sizes = _sizes(bodies)
        property_sizes = _sizes(properties) + _sizes(unique)
        head = np.zeros(count, _HEAD)
        head["size"] = BATCH_ENTRY_BYTES_MIN + body_sizes + property_sizes
        head["body_size"] = body_sizes
        if "flag" in table:
            head["flag"] = np.where(is_there(table["flag"]), values_of(table["flag"]), 0)
        joined = pc.binary_join_element_wise(
            _of_equal(head.view(np.uint8), count),
            bodies,
            _of_equal(property_sizes.astype(">i2").view(np.uint8), count),
            properties,
            unique,
            _NOTHING,
        )
        bounds = np.append(0, np.cumsum(head["size"].astype(np.int64)))
        return PackedRows(
            topic,
            memoryview(joined.buffers()[2])[: int(bounds[-1])],
            bounds,
            np.append(0, np.cumsum(body_sizes)),
        )


def _sizes(column: pa.Array) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = values_of(pc.binary_length(column)).astype(np.int64)
    return sizes


def _of_equal(data: NDArray[np.uint8], count: int) -> pa.Array:
    """Return rows of equal size as an Arrow array."""
    kind = pa.binary(data.size // count)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        kind, count, [None, pa.py_buffer(np.ascontiguousarray(data))]
    )
    return fixed.cast(pa.binary())


def _key_entries(keys: RowKeys, count: int, own: pa.Array | None) -> pa.Array:
    """Return the property UNIQ_KEY of the next rows, which may have keys of their own."""
    entries = np.empty((count, _KEY_BYTES), np.uint8)
    entries[:, : len(_KEY_HEAD)] = np.frombuffer(_KEY_HEAD, np.uint8)
    entries[:, len(_KEY_HEAD) : -1] = keys.take_digits(count)
    entries[:, -1] = 2
    counted = _of_equal(entries, count)
    if own is None or own.null_count == count:
        return counted
    given = [
        b"%b%b\x02" % (_KEY_HEAD, key_of(text).encode()) if text else None
        for text in own.to_pylist()
    ]
    return pc.coalesce(binaries(given), counted)


def _properties(table: Mapping[str, pa.Array], count: int) -> pa.Array | None:
    """Return the property strings without their UNIQ_KEY; None if one of them is unusual."""
    parts: list[pa.Array] = []
    maps = table.get("properties")
    own: frozenset[str] = frozenset()
    if maps is not None and maps.null_count < count:
        found = _of_maps(maps)
        if found is None:
            return None
        strings, own = found
        parts.append(strings)
    for column, name in (("keys", PROPERTY_KEYS), ("tags", PROPERTY_TAGS)):
        values = table.get(column)
        if values is None or values.null_count == count:
            continue
        texts = _texts(values)
        if texts is None or name in own:
            return None
        parts.append(_named(name, texts))
    if not parts:
        return repeated([""], count).cast(pa.binary())
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _texts(values: pa.Array) -> pa.Array | None:
    """Return keys or tags as one text a row; None if one of them cannot be stored."""
    if pa.types.is_list(values.type):
        each = values.flatten()
        if each.null_count or _has_separators(each):
            return None
        if not _sizes(each).all():
            return None
        if pc.any(pc.match_substring(each, KEY_SEPARATOR)).as_py():
            return None
        # As Spark gives them where no element may be null, there is no kernel for them.
        return pc.binary_join(values.cast(pa.list_(pa.string())), word(KEY_SEPARATOR))
    return None if _has_separators(values) else values


def _named(name: str, texts: pa.Array) -> pa.Array:
    """Return one property of each row; nothing where it has no text."""
    filled = pc.if_else(truths(_sizes(texts) > 0), texts, pa.NULL)
    entries = pc.binary_join_element_wise(word(f"{name}\x01"), filled, word("\x02"), word(""))
    return pc.fill_null(entries, word("")).cast(pa.binary())


def _of_maps(maps: pa.MapArray) -> tuple[pa.Array, frozenset[str]] | None:
    """Return the property strings of maps, and the names in them; None if one is unusual."""
    offsets = values_of(maps.offsets)
    first, end = int(offsets[0]), int(offsets[-1])
    names, values = maps.keys.slice(first, end - first), maps.items.slice(first, end - first)
    encoded = names.dictionary_encode()
    known = encoded.dictionary
    if values.null_count or _has_separators(values) or _has_separators(known):
        return None
    if pc.any(pc.is_in(known, _OWN_PLACE)).as_py() or "" in known.to_pylist():
        return None
    codes = indices_of(encoded)
    kept = ~truths_of(pc.is_in(known, _LEFT_OUT))[codes]
    lengths = np.diff(offsets)
    if maps.null_count:
        lengths = np.where(is_there(maps), lengths, 0)
        if int(lengths.sum()) != end - first:
            return None
    rows = np.repeat(np.arange(len(maps)), lengths)
    if len(np.unique(rows * max(1, len(known)) + codes)) != len(codes):
        return None
    pairs = pc.binary_join_element_wise(names, values, word("\x01"))
    ended = pc.binary_join_element_wise(pairs, word("\x02"), word(""))
    if not kept.all():
        ended = ended.filter(truths(kept))
        rows = rows[kept]
    bounds = np.searchsorted(rows, np.arange(len(maps) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(numbers(bounds), ended)
    left = frozenset(known.take(numbers(np.unique(codes[kept]))).to_pylist())
    return pc.binary_join(lists, word("")).cast(pa.binary()), left


def _has_separators(texts: pa.Array) -> bool:
    """Whether a text has a byte that separates properties."""
    _, _, data = texts.buffers()
    if data is None or not len(texts):
        return False
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    raw = np.frombuffer(data, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return bool(((raw == 1) | (raw == 2)).any())
