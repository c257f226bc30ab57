"""Property strings of many records at once: the positions of the separators bound names and values.

Most records of a log have properties of the same few names, and strings in which every piece has a
name and a value. Those go a short way, without a search or a sort a piece; what is unusual goes a
general way, which takes everything by the rules of `decode_properties`. Both give the same.
"""

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.spark.arrow_cut import cut_out, indices_of, numbers, numbers_or_null, repeated, text
from tandem.wire.record_scan import Bools, Int64s

_NAME_VALUE_SEPARATOR = 1
_PROPERTY_SEPARATOR = 2

_WORD_BYTES: Final = 8
_NAME_BYTES_SHORT: Final = 2 * _WORD_BYTES
# A name never holds the separator, so a short one filled up with it stands for itself alone.
_KEEP = np.array([(1 << 64) - (1 << 8 * (8 - size)) for size in range(9)], np.uint64)
_FILL = np.array(
    [int.from_bytes(bytes(size) + b"\2" * (8 - size), "big") for size in range(9)], np.uint64
)


class Properties:
    """Name and value pairs of records, those of record i at [bounds[i], bounds[i + 1]).

    Pair j has the name `names[codes[j]]` and the value `raw[value_start[j]:value_end[j]]`.
    """

    def __init__(
        self,
        raw: NDArray[np.uint8],
        bounds: NDArray[np.int32],
        names: list[str],
        codes: NDArray[np.int32],
        values: tuple[Int64s, Int64s],
    ) -> None:
        self._raw = raw
        self._bounds = bounds
        self._names = names
        self._codes = codes
        self._value_start, self._value_end = values

    def as_maps(self) -> pa.MapArray:
        """One map a record."""
        names = self._all_names()
        values = text(cut_out(self._raw, self._value_start, self._value_end))
        return pa.MapArray.from_arrays(numbers(self._bounds), names, values)

    def values_of(self, name: str) -> pa.StringArray:
        """The value of one property in each record, null where a record has none."""
        count = len(self._bounds) - 1
        if name not in self._names:
            return pa.nulls(count, pa.string())
        at = np.flatnonzero(self._codes == self._names.index(name))
        values = text(cut_out(self._raw, self._value_start[at], self._value_end[at]))
        if len(at) == count:  # each name is there once a record at most
            return values
        places = np.full(count, -1, np.int64)
        places[np.searchsorted(self._bounds, at, side="right") - 1] = np.arange(len(at))
        return values.take(numbers_or_null(places, places >= 0))

    def _all_names(self) -> pa.StringArray:
        width = len(self._names)
        if (
            width
            and len(self._codes) % width == 0
            and not (self._in_rows(width) != np.arange(width)).any()
        ):
            return repeated(self._names, len(self._codes) // width)
        return repeated(self._names).take(numbers(self._codes))

    def _in_rows(self, width: int) -> NDArray[np.int32]:
        return self._codes.reshape(-1, width)


class _Pieces:
    """Pieces [start, end) of property strings with their first 0x01 at `split`, in order.

    Those of string i are at [bounds[i], bounds[i + 1]); each has a name and a value.
    """

    def __init__(
        self, start: Int64s, split: Int64s, end: Int64s, bounds: NDArray[np.int32]
    ) -> None:
        self.start = start
        self.split = split
        self.end = end
        self.bounds = bounds

    @cached_property
    def strings(self) -> Int64s:
        """The number of the string of each piece."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def take(self, kept: Int64s | Bools) -> "_Pieces":
        """Return some of them, in order."""
        strings = self.strings[kept]
        bounds = np.searchsorted(strings, np.arange(len(self.bounds))).astype(np.int32)
        return _Pieces(self.start[kept], self.split[kept], self.end[kept], bounds)


def parse_properties(strings: pa.BinaryArray) -> Properties:
    """Parse property strings by the rules of `decode_properties`, all at once.

    A piece counts only with a name and a value; its first 0x01 splits; the last of equals wins.
    """
    offsets = np.frombuffer(strings.buffers()[1], np.int32, len(strings) + 1, strings.offset * 4)
    base = int(offsets[0])
    ends = (offsets[1:] - base).astype(np.int64)
    size = int(ends[-1]) if len(strings) else 0
    data = strings.buffers()[2]
    raw = np.frombuffer(data, np.uint8, size, base) if size else np.empty(0, np.uint8)
    pieces = _regular_pieces(raw, ends) or _any_pieces(raw, ends)
    names, codes = _named(raw, pieces)
    kept = _last_of_equals(pieces, codes, len(names))
    if kept is not None:
        pieces = pieces.take(kept)
        codes = codes[kept]
    return Properties(raw, pieces.bounds, names, codes, (pieces.split + 1, pieces.end))


def _regular_pieces(raw: NDArray[np.uint8], string_ends: Int64s) -> _Pieces | None:
    """Return the pieces if every string ends with a separator and each has one name and value."""
    ends = np.flatnonzero(raw == _PROPERTY_SEPARATOR)
    splits = np.flatnonzero(raw == _NAME_VALUE_SEPARATOR)
    if len(ends) != len(splits) or not len(ends):
        return None
    bounds = np.empty(len(string_ends) + 1, np.int32)
    bounds[0] = 0
    bounds[1:] = np.searchsorted(ends, string_ends)
    filled = string_ends[np.diff(string_ends, prepend=0) > 0]
    if (raw[filled - 1] != _PROPERTY_SEPARATOR).any():
        return None
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    if not ((starts < splits) & (splits + 1 < ends)).all():
        return None
    return _Pieces(starts, splits, ends, bounds)


def _any_pieces(raw: NDArray[np.uint8], string_ends: Int64s) -> _Pieces:
    """Return the pieces that have a name and a value, whatever the strings are like."""
    separators = np.flatnonzero(raw == _PROPERTY_SEPARATOR)
    # One number sorts both kinds of end: a string's end comes before a separator at its place,
    # which belongs to the next string.
    marks = np.concatenate((2 * string_ends, 2 * separators + 1))
    marks.sort(kind="stable")  # two sorted runs: merged, not sorted
    ends = marks >> 1
    by_separator = marks & 1
    starts = np.empty_like(ends)
    if len(ends):
        starts[0] = 0
        starts[1:] = ends[:-1] + by_separator[:-1]
    strings = np.cumsum(1 - by_separator) - (1 - by_separator)
    splits = np.flatnonzero(raw == _NAME_VALUE_SEPARATOR)
    split = np.append(splits, len(raw))[np.searchsorted(splits, starts)]
    counts = (starts < split) & (split + 1 < ends)
    bounds = np.searchsorted(strings[counts], np.arange(len(string_ends) + 1)).astype(np.int32)
    return _Pieces(starts[counts], split[counts], ends[counts], bounds)


def _named(raw: NDArray[np.uint8], pieces: _Pieces) -> tuple[list[str], NDArray[np.int32]]:
    """Return the different names, and for each piece which of them it has."""
    sizes = pieces.split - pieces.start
    if len(sizes) and int(sizes.max()) <= _NAME_BYTES_SHORT:
        found = _short_names(raw, pieces, sizes)
        if found is not None:
            return found
    encoded = text(cut_out(raw, pieces.start, pieces.split).dictionary_encode())
    return encoded.dictionary.to_pylist(), indices_of(encoded)


def _short_names(
    raw: NDArray[np.uint8], pieces: _Pieces, sizes: Int64s
) -> tuple[list[str], NDArray[np.int32]] | None:
    """Tell names apart as numbers; None if one of them is not UTF-8."""
    padded = np.concatenate((raw, np.zeros(_NAME_BYTES_SHORT, np.uint8)))
    codes = _codes(_words(padded, pieces.start, np.minimum(sizes, _WORD_BYTES)))
    if int(sizes.max()) > _WORD_BYTES:
        second = _codes(
            _words(padded, pieces.start + _WORD_BYTES, np.clip(sizes - _WORD_BYTES, 0, _WORD_BYTES))
        )
        codes = _codes(codes.astype(np.int64) * (int(second.max()) + 1) + second)
    firsts = np.zeros(int(codes.max()) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    starts, ends = pieces.start[firsts].tolist(), pieces.split[firsts].tolist()
    try:
        names = [raw[start:end].tobytes().decode() for start, end in zip(starts, ends, strict=True)]
    except UnicodeDecodeError:
        return None
    return names, codes


def _words(padded: NDArray[np.uint8], starts: Int64s, sizes: Int64s) -> Int64s:
    """Return the first `sizes` (0 to 8) bytes at each place as one number, filled up."""
    at_every_byte = np.ndarray((len(padded) - _WORD_BYTES + 1,), ">u8", padded, strides=(1,))
    words = at_every_byte[starts].astype(np.uint64)
    numbers: Int64s = ((words & _KEEP[sizes]) | _FILL[sizes]).view(np.int64)
    return numbers


def _codes(values: Int64s) -> NDArray[np.int32]:
    """Return small numbers from 0 on that are equal where `values` are."""
    return indices_of(numbers(values).dictionary_encode())


def _last_of_equals(pieces: _Pieces, codes: NDArray[np.int32], names: int) -> Int64s | None:
    """Return which pieces to keep so that no string has a name twice; None: all of them."""
    width = names
    if width and len(codes) % width == 0:
        rows = codes.reshape(-1, width)
        per_string = np.diff(pieces.bounds)
        if (
            (per_string == width).all()
            and (rows == rows[0]).all()
            and len(set(rows[0].tolist())) == width
        ):
            return None
    pair = pieces.strings * names + codes
    cells = len(pieces.bounds) * names
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
