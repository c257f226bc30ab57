"""Values inside of many records at once: a property of each, equal topics, tags codes.

The columnar twin of `message_properties`: what is returned is what its functions return for each
record alone, at a tenth of the cost. The property strings of records that have about the same size
are laid side by side in one array, aligned at their ends, and that array is searched as a whole:

    |.....KEYS 1 k7 2 TAGS 1 TagA 2|      . belongs to what precedes the string
    |...KEYS 1 key8 2 TAGS 1 TagA 2|
    |TAGS 1 TagB 2 KEYS 1 k9 2 A 1 |

Nothing returned from here refers to the buffer that was read.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.wire import native
from tandem.wire.message_properties import property_value, tags_code
from tandem.wire.record_rule import Buffer
from tandem.wire.record_scan import Int64s, RecordColumns

_Windows = NDArray[np.uint8]

_WINDOW_BYTES_MIN: Final = 64
_PEELED_VALUES_MAX: Final = 16
"""Up to this many different values are told apart by comparing columns; the rest by a dict."""

_NAME_END: Final = 1
_VALUE_END: Final = 2


class ColumnValues(msgspec.Struct, frozen=True, eq=False):
    """One value a record: where it starts in the buffer, -1 if there is none, and its bytes."""

    start: Int64s
    size: Int64s

    def __len__(self) -> int:
        return len(self.start)


def property_values(buffer: Buffer, columns: RecordColumns, name: bytes) -> ColumnValues:
    """Return where the property called `name` is in each record; all records have to be sound.

    The same as `property_value` for each: the last one that is not empty counts.
    """
    found = ColumnValues(np.full(len(columns), -1, np.int64), np.zeros(len(columns), np.int64))
    ends = columns.properties_start + columns.properties_size
    for rows, width in _size_classes(columns.properties_size, len(name) + 2):
        # The window of a record at the very beginning would start before the buffer.
        fits = ends[rows] >= width
        for row in rows[~fits].tolist():
            _look_alone(buffer, columns, name, row, found)
        if fits.any():
            _look_at_all(buffer, columns, name, rows[fits], width, found)
    return found


def _size_classes(sizes: Int64s, least: int) -> Iterator[tuple[Int64s, int]]:
    """Yield rows of similar size, of at least `least`, and the width of a window for them."""
    low, width = least - 1, _WINDOW_BYTES_MIN
    largest = int(sizes.max(initial=0))
    while low < largest:
        rows = np.flatnonzero((sizes > low) & (sizes <= width))
        if rows.size:
            yield rows, width
        low, width = max(low, width), 2 * width


def _look_alone(
    buffer: Buffer, columns: RecordColumns, name: bytes, row: int, found: ColumnValues
) -> None:
    start = int(columns.properties_start[row])
    properties = bytes(buffer[start : start + int(columns.properties_size[row])])
    value = property_value(properties, name)
    if value is None:
        return
    # The last place with this very value, after its name: the one that counted.
    at = (b"\x02" + properties + b"\x02").rfind(b"\x02" + name + b"\x01" + value + b"\x02")
    found.start[row] = start + at + len(name) + 1
    found.size[row] = len(value)


def _look_at_all(
    buffer: Buffer,
    columns: RecordColumns,
    name: bytes,
    rows: Int64s,
    width: int,
    found: ColumnValues,
) -> None:
    sizes = columns.properties_size[rows]
    window_starts = columns.properties_start[rows] + sizes - width
    windows: _Windows = _strided(buffer, f"V{width}")[window_starts].view(np.uint8)
    marks = _marks(windows, name, sizes, width)
    if not marks.size:
        return
    which = marks // width
    stops = np.append(np.flatnonzero(windows == _VALUE_END), len(windows))
    ends = np.minimum(stops[np.searchsorted(stops, marks)], (which + 1) * width)
    # Several in one record: the last assignment stays.
    found.start[rows[which]] = window_starts[which] + marks - which * width + 1
    found.size[rows[which]] = ends - marks - 1


def _marks(windows: _Windows, name: bytes, sizes: Int64s, width: int) -> Int64s:
    """Return where a 0x01 follows `name` and is followed by a value that is not empty."""
    # A mark that its name's first byte does not precede is not looked at: most are of other names.
    likely = windows[len(name) :] == _NAME_END
    likely &= windows[: -len(name)] == name[0]
    marks = np.flatnonzero(likely) + len(name)
    same = _strided(windows, f"V{len(name)}")[marks - len(name)] == np.void(name)
    marks = marks[same]
    which = marks // width
    starts = marks - len(name)
    first = (which + 1) * width - sizes[which]
    good = (starts == first) | ((starts > first) & (windows[starts - 1] == _VALUE_END))
    good &= marks + 1 < (which + 1) * width
    marks = marks[good]
    not_empty: Int64s = marks[windows[marks + 1] != _VALUE_END]
    return not_empty


def _strided(buffer: Buffer | _Windows, dtype: str) -> NDArray[Any]:
    """View `buffer` as one `dtype` value at every byte position."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(buffer) - width + 1,), dtype, buffer, strides=(1,))


def distinct_values(buffer: Buffer, start: Int64s, size: Int64s) -> tuple[list[bytes], Int64s]:
    """Return the different values at `start`, `size` as they come, and for each row its number."""
    if native.loops is not None:
        found = native.loops.distinct_values(buffer, start, size, _PEELED_VALUES_MAX)
        if found is not None:
            rows, numbers = found
            places = zip(start[rows].tolist(), size[rows].tolist(), strict=True)
            return [bytes(buffer[at : at + width]) for at, width in places], numbers
    values: list[bytes] = []
    numbers = np.full(len(start), -1, np.int64)
    left = np.arange(len(start))
    while left.size and len(values) < _PEELED_VALUES_MAX:
        first = int(left[0])
        begin, width = int(start[first]), int(size[first])
        rows = left[size[left] == width]
        if width:
            windows = _strided(buffer, f"V{width}")
            rows = rows[windows[start[rows]] == windows[begin]]
        numbers[rows] = len(values)
        values.append(bytes(buffer[begin : begin + width]) if width else b"")
        left = left[numbers[left] < 0]
    if left.size:
        _number_by_dict(buffer, start, size, left, values, numbers)
    return values, numbers


def _number_by_dict(
    buffer: Buffer, start: Int64s, size: Int64s, left: Int64s, values: list[bytes], numbers: Int64s
) -> None:
    known = {value: number for number, value in enumerate(values)}
    found = []
    for begin, width in zip(start[left].tolist(), size[left].tolist(), strict=True):
        value = bytes(buffer[begin : begin + width])
        found.append(known.setdefault(value, len(known)))
    numbers[left] = found
    values.extend(list(known)[len(values) :])


def tags_codes(buffer: Buffer, columns: RecordColumns) -> Int64s:
    """Return the tags code of each record: see `tags_code_of`. All records have to be sound."""
    if native.loops is None:
        return _tags_codes(buffer, columns)
    codes, done = native.loops.tags_codes(buffer, columns.properties_start, columns.properties_size)
    if done < len(codes):
        codes[done:] = _tags_codes(buffer, columns.take(slice(done, None)))
    return codes


def _tags_codes(buffer: Buffer, columns: RecordColumns) -> Int64s:
    tags = property_values(buffer, columns, b"TAGS")
    tagged = np.flatnonzero(tags.start >= 0)
    codes = np.zeros(len(columns), np.int64)
    values, numbers = distinct_values(buffer, tags.start[tagged], tags.size[tagged])
    of_value = [tags_code(value.decode("utf-8", "replace")) for value in values]
    codes[tagged] = np.array(of_value, np.int64)[numbers]
    return codes
