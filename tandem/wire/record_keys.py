"""The keys that a stored message is found by, and the hashes that an index file keeps of them.

    UNIQ_KEY property    one key, as it is; comes first
    KEYS property        one key between any two spaces, empty ones left out

RocketMQ 5.4 and later enter TAGS as well, as the key `T#tag`; 5.3.3 and we do not.

The text `topic#key` is hashed, as Java's String.hashCode does it: over UTF-16 code units,
in 32 bits, then without the sign. Bytes that are not UTF-8 are read as U+FFFD.

Many records at once (`hash_keys`) go through numpy without a Python object a key. A polynomial hash
of any stretch of bytes is the difference of two running sums:

    weight[i] = 31 ** -i mod 2**32                        31 is odd, so it has an inverse
    sum[i]    = byte[0] * weight[0] + ... + byte[i - 1] * weight[i - 1]
    hash(start, end) = (sum[end] - sum[start]) * 31 ** (end - 1)

which holds as long as a byte is a code unit, that is, for ASCII. Other texts take the slow way.

Source: RocketMQ 5.3.3, IndexService.buildIndex and buildKey, IndexFile.indexKeyHashMethod,
MessageDecoder.string2messageProperties.
"""

import struct
from functools import cache, lru_cache
from operator import mul
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.wire import native
from tandem.wire.message import MESSAGE_MAGIC_CODE_V2
from tandem.wire.message_properties import java_string_hash, property_value
from tandem.wire.record_rule import Buffer, body_at
from tandem.wire.record_scan import Int64s, RecordColumns
from tandem.wire.store_layout import index_key, index_key_hash

KEY_SEPARATOR: Final = b" "
TAG_MARK: Final = b"T#"
"""Before a tag that is a key. Source: RocketMQ 5.4.0, IndexService.buildKey, INDEX_TAG_TYPE."""

CHUNK_BYTES: Final = 1 << 17
"""How many bytes of topics and properties are hashed at once: what stays in a core's own cache."""

_MASK: Final = 0xFFFF_FFFF
_TOP_BIT: Final = 0x8000_0000
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(256))
_MAGIC_V2: Final = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big")
_HASH_MARK: Final = ord("#")
_SEPARATOR: Final = 2
_PADDING: Final = b"\x02" * 8
"""Before all records, so that one may look back from any place in them."""

_HEAD: Final = struct.Struct(">4xI28xi")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class KeyHashes(msgspec.Struct, frozen=True, eq=False):
    """The hash of every key of some records, in the order in which an index takes them.

    `row` is the record's place in the columns; it does not fall.
    """

    row: Int64s
    key_hash: Int64s

    def __len__(self) -> int:
        return len(self.row)


def key_values(properties: bytes) -> list[bytes]:
    """Return the keys in a property string, in the order in which they are indexed."""
    unique_key = property_value(properties, b"UNIQ_KEY")
    values = [unique_key] if unique_key else []
    keys = property_value(properties, b"KEYS")
    if keys:
        values += [piece for piece in keys.split(KEY_SEPARATOR) if piece]
    return values


def tag_key(properties: bytes) -> bytes | None:
    """Return the key that RocketMQ 5.4 and later enter for the tags in a property string."""
    tags = property_value(properties, b"TAGS")
    return TAG_MARK + tags if tags else None


def key_hash(topic: str, key: bytes) -> int:
    """Return the hash stored for `key` of a message in `topic`: what `index_key_hash` says."""
    size = len(key)
    if size >= len(_POWERS) or not key.isascii():
        return index_key_hash(index_key(topic, key.decode("utf-8", "replace")))
    own: int = sum(map(mul, key[::-1], _POWERS))
    value = _prefix_hash(topic) * _POWERS[size] + own & _MASK
    return value if value < _TOP_BIT else -value & ~_TOP_BIT & _MASK


@lru_cache(maxsize=1024)
def _prefix_hash(topic: str) -> int:
    return java_string_hash(index_key(topic, ""))


def record_texts(record: bytes) -> tuple[bytes, bytes]:
    """Return topic and property string of one record, which must be sound."""
    (sys_flag,) = _INT.unpack_from(record, 36)
    body_start = body_at(sys_flag)
    topic_start = body_start + _INT.unpack_from(record, body_start - 4)[0] + 1
    topic_bytes = record[topic_start - 1]
    if record[4:8] == _MAGIC_V2:
        topic_start += 1
        topic_bytes = topic_bytes << 8 | record[topic_start - 1]
    topic_end = topic_start + topic_bytes
    return record[topic_start:topic_end], record[topic_end + 2 :]


def hash_keys(buffer: Buffer, columns: RecordColumns) -> KeyHashes:
    """Return the hashes of all keys of these records, all of which must be sound."""
    if native.loops is None:
        return _hash_columns(buffer, columns)
    places = (
        columns.topic_start,
        columns.topic_size,
        columns.properties_start,
        columns.properties_size,
    )
    row, hashes, done = native.loops.hash_keys(buffer, places)
    if done == len(columns):
        return KeyHashes(row, hashes)
    # From what is not ASCII on, or has many keys.
    rest = _hash_columns(buffer, columns.take(slice(done, None)))
    return KeyHashes(
        np.concatenate((row, rest.row + done)), np.concatenate((hashes, rest.key_hash))
    )


def hash_tags(buffer: Buffer, columns: RecordColumns) -> KeyHashes:
    """Return the hash of `tag_key` of these records, as far as they have tags."""
    return _hash_columns(buffer, columns, TAG_MARK)


def _hash_columns(buffer: Buffer, columns: RecordColumns, mark: bytes = b"") -> KeyHashes:
    """Hash the keys; with a mark, the tags behind it."""
    ends = np.cumsum(columns.topic_size + columns.properties_size + 3)
    parts = []
    start = 0
    # Parts of bytes, which the garbage collector does not count as it counts views.
    data = buffer if isinstance(buffer, bytes) else bytes(buffer)
    while start < len(columns):
        done = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, done + CHUNK_BYTES, "right"))
        parts.append(_hash_chunk(data, columns, slice(start, stop), mark))
        start = stop
    if len(parts) == 1:
        return parts[0]
    none = [np.empty(0, np.int64)]
    return KeyHashes(
        np.concatenate(none + [part.row for part in parts]),
        np.concatenate(none + [part.key_hash for part in parts]),
    )


class _Texts(msgspec.Struct, frozen=True, eq=False):
    """Topics and properties of some records, one after the other.

        topic # 0x02 properties 0x02 topic # 0x02 ...

    `start` is where each topic begins, `mark` where its `#` is. So everything that is hashed is
    in one piece, and every property begins and ends at a separator.
    """

    data: bytearray
    units: NDArray[np.uint8]
    start: Int64s
    mark: Int64s


def _texts(buffer: bytes, columns: RecordColumns, rows: slice) -> _Texts:
    topic_start = columns.topic_start[rows]
    topic_size = columns.topic_size[rows]
    ends = columns.properties_start[rows] + columns.properties_size[rows]
    pieces = [_PADDING]
    pieces += [buffer[a:b] for a, b in zip(topic_start.tolist(), ends.tolist(), strict=True)]
    pieces.append(b"")
    data = bytearray((_SEPARATOR,)).join(pieces)
    units = np.frombuffer(data, np.uint8)
    sizes = ends - topic_start + 1
    start = np.cumsum(sizes) - sizes + len(_PADDING) + 1
    mark = start + topic_size
    # Where a record has the length of its properties.
    units[mark] = _HASH_MARK
    units[mark + 1] = _SEPARATOR
    return _Texts(data, units, start, mark)


def _hash_chunk(buffer: bytes, columns: RecordColumns, rows: slice, mark: bytes) -> KeyHashes:
    texts = _texts(buffer, columns, rows)
    row, start, end = _tag_places(texts) if mark else _key_places(texts)
    powers, weights = _power_tables()
    sums = np.zeros(len(texts.units) + 1, np.uint32)
    np.cumsum(texts.units * weights[: len(texts.units)], dtype=np.uint32, out=sums[1:])
    prefix = (sums[texts.mark + 1] - sums[texts.start]) * powers[texts.mark]
    for unit in mark:
        prefix = prefix * powers[1] + np.uint32(unit)
    values = prefix[row] * powers[end - start] + (sums[end] - sums[start]) * powers[end - 1]
    hashes = np.abs(values.view(np.int32)).astype(np.int64)
    hashes[hashes < 0] = 0
    if not texts.data.isascii():
        _hash_again(texts, row, start, end, mark, hashes)
    return KeyHashes(row + rows.start, hashes)


@cache
def _power_tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return 31**n and 31**-n, both modulo 2**32, for every place in a chunk."""
    count = CHUNK_BYTES + len(_PADDING) + 2
    tables = []
    for base in (31, pow(31, -1, 1 << 32)):
        table = np.full(count, base, np.uint32)
        table[0] = 1
        tables.append(np.cumprod(table, dtype=np.uint32))
    return tables[0], tables[1]


def _key_places(texts: _Texts) -> tuple[Int64s, Int64s, Int64s]:
    """Return record number, start and end of every key, in the order of the index."""
    units = texts.units
    equals = np.flatnonzero(units == 1)
    separators = np.flatnonzero(units == _SEPARATOR)
    last = units[equals - 1]
    unique_row, unique_start, unique_end = _values(
        texts, equals[last == ord("Y")], separators, b"UNIQ_KEY"
    )
    keys = _values(texts, equals[last == ord("S")], separators, b"KEYS")
    keys_row, keys_start, keys_end = _split(units, *keys)
    row = np.concatenate((unique_row, keys_row))
    order = np.argsort(row, kind="stable")
    return (
        row[order],
        np.concatenate((unique_start, keys_start))[order],
        np.concatenate((unique_end, keys_end))[order],
    )


def _tag_places(texts: _Texts) -> tuple[Int64s, Int64s, Int64s]:
    """Return record number, start and end of the tags of each record that has some."""
    equals = np.flatnonzero(texts.units == 1)
    separators = np.flatnonzero(texts.units == _SEPARATOR)
    return _values(texts, equals[texts.units[equals - 1] == ord("S")], separators, b"TAGS")


def _values(
    texts: _Texts, at: Int64s, separators: Int64s, name: bytes
) -> tuple[Int64s, Int64s, Int64s]:
    """Return record number, start and end of the values of the property called `name`.

    `at` are places of 0x01 that may follow the name. An empty value is none, and the last one with
    a value wins; there is at most one a record.
    """
    size = len(name)
    words = np.ndarray((len(texts.units) - size + 1,), f"u{size}", texts.data, strides=(1,))
    wanted = np.frombuffer(name, f"u{size}")[0]
    at = at[(words[at - size] == wanted) & (texts.units[at - size - 1] == _SEPARATOR)]
    end = separators[np.searchsorted(separators, at)]
    row = np.searchsorted(texts.start, at, "right") - 1
    # A topic may hold anything, also what looks like a property.
    real = (end > at + 1) & (at > texts.mark[row])
    row, start, end = row[real], at[real] + 1, end[real]
    if len(row) > 1 and not (row[1:] != row[:-1]).all():
        last = np.append(row[1:] != row[:-1], True)
        row, start, end = row[last], start[last], end[last]
    return row, start, end


def _split(
    units: NDArray[np.uint8], row: Int64s, start: Int64s, end: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Split these values at every space; leave out what is empty."""
    if not len(row):
        return row, start, end
    spaces = np.flatnonzero(units == KEY_SEPARATOR[0])
    within = np.maximum(np.searchsorted(start, spaces, "right") - 1, 0)
    inside = (spaces >= start[within]) & (spaces < end[within])
    spaces, within = spaces[inside], within[inside]
    if not len(spaces):
        return row, start, end
    starts = np.sort(np.concatenate((start, spaces + 1)))
    ends = np.sort(np.concatenate((end, spaces)))
    rows = np.sort(np.concatenate((row, row[within])))
    some = ends > starts
    return rows[some], starts[some], ends[some]


def _hash_again(
    texts: _Texts, row: Int64s, start: Int64s, end: Int64s, mark: bytes, hashes: Int64s
) -> None:
    """Put right the hashes of texts that are not ASCII."""
    foreign = np.concatenate(([0], np.cumsum(texts.units >= 0x80)))
    in_topic = foreign[texts.mark] > foreign[texts.start]
    for n in np.flatnonzero(in_topic[row] | (foreign[end] > foreign[start])).tolist():
        topic = texts.data[texts.start[row[n]] : texts.mark[row[n]]].decode("utf-8", "replace")
        key = (mark + texts.data[start[n] : end[n]]).decode("utf-8", "replace")
        hashes[n] = index_key_hash(index_key(topic, key))
