"""Units of queues as columns: what both kinds of consume queues do with theirs.

A unit begins with the physical offset of a record, and its size.

    | files of units |  below  |  at or behind `physical_offset`  |  at or behind the log's end  |
                               ^ end_of_units_below               ^ the same of that end
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE, FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.files.mapped_file import MappedFile

Int64s: TypeAlias = NDArray[np.int64]
Units: TypeAlias = NDArray[Any]
"""Units as they lie in the file, by the names of their type."""


CQ_UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert CQ_UNIT.itemsize == CQ_STORE_UNIT_SIZE

_PHYSICAL_OFFSET_MAX: Final = (1 << 63) - FILLER_SIZE - 1
"""No record lies behind this: its end would not fit 64 bits."""

_RECOVERED_AT_ONCE: Final = 1 << 14
"""How many units recovery looks at in one go: the rest of most last files is empty."""

QUEUE_REMEDY: Final = (
    "restore it from another node or let `tandem log repair --write` build the queue anew"
)


class QueueGapError(Exception):
    """Queue and log do not fit together: the queue has lost units, or has some of its own.

    Never leaves the store: it builds the queues anew.
    """


def units_of(file: MappedFile, unit: np.dtype[np.void]) -> Units:
    """Return the units written to `file` as they lie there. Do not keep: it keeps the mapping."""
    return np.ndarray(file.wrote_position // unit.itemsize, unit, file.buffer)


def end_of_units_below(
    files: Sequence[MappedFile], unit: np.dtype[np.void], physical_offset: int
) -> int:
    """Return the logic offset behind the last unit of a record below `physical_offset`.

    Fillers are below everything, zeros nowhere. The start of the first file if there is none, 0
    without files.
    """
    for file in reversed(files):
        units = units_of(file, unit)
        sizes = units["size"].astype(np.int64)
        below = (units["offset"] <= physical_offset - sizes) | (sizes == FILLER_SIZE)
        below &= sizes > 0
        kept = np.flatnonzero(below)
        if kept.size:
            return file.file_from_offset + (int(kept[-1]) + 1) * unit.itemsize
    return files[0].file_from_offset if files else 0


def first_not_below(low: int, high: int, is_below: Callable[[int], bool]) -> int:
    """Return the first number from `low` on that is not below; `high` if all before that are.

    The search begins at `high` and doubles its steps: what is near the end costs a few looks,
    however long the row is.
    """
    step = 1
    while low < high:
        middle = max(low, high - step)
        if is_below(middle):
            low = middle + 1
            break
        high = middle
        step *= 2
    while low < high:
        middle = (low + high) // 2
        if is_below(middle):
            low = middle + 1
        else:
            high = middle
    return low


def end_of_units(files: Sequence[MappedFile]) -> tuple[int, int]:
    """Return where the units of an ordinary queue end, and where their last record does."""
    end = behind = 0
    for file in files:
        count, behind = _valid_units(file, behind)
        end = file.file_from_offset + count * CQ_STORE_UNIT_SIZE
        if end < file.file_from_offset + file.size:
            break
    return end, behind


def _valid_units(file: MappedFile, behind: int) -> tuple[int, int]:
    """Return how many units at the head of `file` are some, and where the last record ends.

    `behind` is where the record before them ends. Fillers come before any record.
    """
    units = units_of(file, CQ_UNIT)
    for start in range(0, len(units), _RECOVERED_AT_ONCE):
        some = units[start : start + _RECOVERED_AT_ONCE]
        offsets, sizes = some["offset"].astype(np.int64), some["size"].astype(np.int64)
        is_filler = sizes == FILLER_SIZE
        ends = np.where(is_filler, offsets, offsets + sizes)
        bad = (sizes <= 0) | (offsets < np.concatenate(([behind], ends[:-1])))
        bad |= (is_filler & (offsets != 0)) | (offsets > _PHYSICAL_OFFSET_MAX)
        count = int(np.argmax(bad)) if bad.any() else len(some)
        if count:
            behind = int(ends[count - 1])
        if count < len(some):
            return start + count, behind
    return len(units), behind


def ends_in_doubt(files: Sequence[MappedFile], end: int) -> bool:
    """Say whether more units than those up to the logic offset `end` may have been in these files.

    There are bytes behind it that are no units, or there is no place where such could be seen.
    """
    if not files or end == files[-1].file_from_offset + files[-1].size:
        return bool(files)
    behind = [(file, max(0, end - file.file_from_offset)) for file in files]
    return any(
        file.last_used_position(position) > position
        for file, position in behind
        if position < file.size
    )


class ConfirmedUnits:
    """Counts the units found on disk that a walk over the log has met the records of.

    Whatever the files hold, units that were confirmed are right: each stands for a record of its
    own, and the records of the log that belong in the queue are all there.
    """

    def __init__(self) -> None:
        self.found_end = 0
        """Logic offset behind the last unit that was found on disk."""
        self.count = 0
        self.lacks_units = False
        """Whether there was a record that the queue should know, and does not."""

    def met(self, queue_offsets: Int64s, next_offset: int) -> None:
        """Take note of records that lie in front of the end of the last one the queue knows.

        Numbers that the queue has not got to are those of an earlier life of its topic, if they
        begin at 0 again behind that. Otherwise their units are missing.
        """
        starts = np.flatnonzero(queue_offsets == 0)
        if starts.size:
            self.lacks_units = False
            queue_offsets = queue_offsets[int(starts[-1]) :]
        self.lacks_units |= bool((queue_offsets >= next_offset).any())

    def confirm(self, name: str, start: int, end: int, unit_bytes: int) -> None:
        """Expect that all units between two logic offsets were met.

        Raises:
            QueueGapError: they were not, or others were.
        """
        if self.lacks_units:
            raise QueueGapError(f"{name}: its last unit lies behind records that it does not know")
        expected = max(0, min(end, self.found_end) - start) // unit_bytes
        if expected != self.count:
            raise QueueGapError(
                f"{name}: of {expected} units that name records here, {self.count} name the right"
                " ones"
            )
