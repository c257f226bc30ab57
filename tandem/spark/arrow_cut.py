"""Cuts stretches of bytes out of a buffer into Arrow arrays, all at once.

An array is laid over the buffer whose every other element is a stretch, and `take` copies those:
one copy a value and no Python object a value.

Arrays are made of buffers and read as such, here and in what uses this. `pa.array`, `pa.scalar` and
`to_numpy` import pandas where it is installed, which costs a worker about a second of processor
time with its first rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.wire.record_scan import Bools, Int64s


def cut_out(
    data: bytes | bytearray | NDArray[np.uint8], starts: Int64s, ends: Int64s
) -> pa.BinaryArray:
    """Copy the stretches [start, end) of `data`. They rise and do not overlap."""
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    over_all = pa.Array.from_buffers(pa.binary(), max(len(bounds) - 1, 0), buffers)
    return over_all.take(numbers(np.arange(0, len(bounds), 2, dtype=np.int32)))


def numbers(values: NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """Lay an array over whole numbers, of `kind`, which has to be as wide as they are."""
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype) if kind is None else kind
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def numbers_or_null(values: NDArray[Any], there: Bools) -> pa.Array:
    """Do the same, with null where there is none."""
    kind = pa.from_numpy_dtype(values.dtype)
    buffers = [_bits(there), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def indices_of(values: pa.DictionaryArray) -> NDArray[np.int32]:
    """Return which word each value is; none of them is null."""
    indices = values.indices
    _, data = indices.buffers()
    return np.frombuffer(data, np.int32, len(indices), indices.offset * 4)


def values_of(array: pa.Array) -> NDArray[Any]:
    """Return whole numbers as they are in the array: any number where it has null."""
    kind = np.dtype(str(array.type))
    _, data = array.buffers()
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize)


def truths_of(array: pa.BooleanArray) -> Bools:
    """Return booleans; none of them is null."""
    return _unpacked(array.buffers()[1], array)


def is_there(array: pa.Array) -> Bools:
    """Return which values are not null."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return _unpacked(array.buffers()[0], array)


def _unpacked(bits: pa.Buffer | None, array: pa.Array) -> Bools:
    if bits is None or not len(array):
        return np.empty(0, np.bool_)
    first, skipped = divmod(array.offset, 8)
    packed = np.frombuffer(bits, np.uint8, (skipped + len(array) + 7) // 8, first)
    unpacked = np.unpackbits(packed, bitorder="little")
    return unpacked[skipped : skipped + len(array)].astype(np.bool_)


def truths(values: Bools) -> pa.BooleanArray:
    """Return booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _bits(values: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


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
        return pa.array(
            [
                None if value is None else value.decode("utf-8", "replace")
                for value in values.to_pylist()
            ],
            pa.string(),
        )


def repeated(words: Sequence[str], times: int = 1) -> pa.StringArray:
    """Return `words` over and over, `times` times."""
    encoded = [word.encode() for word in words]
    sizes = np.tile(np.array([len(word) for word in encoded], np.int32), times)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded) * times)]
    return pa.Array.from_buffers(pa.string(), len(sizes), buffers)


def binaries(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Return these values."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    there = np.array([value is not None for value in values], np.bool_)
    data = b"".join(value or b"" for value in values)
    buffers = [_bits(there), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def word(text: str) -> pa.StringScalar:
    """Return one text."""
    return repeated([text])[0]
