"""Units of queues as columns: what both kinds of consume queues do with theirs.

A unit begins with the physical offset of a record, and its size.

    | files of units |  below  |  at or after `physical_offset`  |  at or after the log's end  |
                               ^ end_of_units_below              ^ the same of that end
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from store.files.mapped_file import MappedFile
from tandem.wire.store_layout import FILLER_SIZE

Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Units: TypeAlias = NDArray[Any]
"""Units as they are in the file, by the names of their type."""

Ends: TypeAlias = tuple[int, ...]
"""Where a unit ends: its record in the log and, where units hold several messages, its last one."""


class UnitKind(NamedTuple):
    """What the units of a kind of queue look like."""

    layout: struct.Struct
    columns: np.dtype[np.void]
    """The same as `layout`; the first two fields are `offset` and `size`."""
    examine: Callable[[Units, Ends], tuple[Bools, tuple[Int64s, ...]]]
    """(places, ends of the unit before them) -> which of them hold no unit, ends of all."""
    before_all: Ends
    """The ends of what is before the first unit."""


_RECOVERED_AT_ONCE: Final = 1 << 14
"""How many units recovery looks at in one go: the rest of most last files is empty."""


class QueueEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What has to be known of a queue to go on with it, as it is written down at a clean stop."""

    queue_id: int
    first: int
    """Logic offset of its first file."""
    end: int
    """Logic offset after its last unit."""
    max_physic_offset: int
    min_offset: int
    first_record: int
    corrected_to: int
    modified_ms: int
    """When its last file was written to last."""


QUEUE_REMEDY: Final = (
    "restore it from another node or let `tandem log repair DIR --write` build the queue anew"
)


class QueueGapError(Exception):
    """Queue and log do not fit together: the queue has lost units, or has some of its own.

    Never leaves the store: it builds the queues anew. Of a record that does not continue its queue
    `queue_offset` is the number, and `next_offset` the one that was to come.
    """

    def __init__(self, message: str, *, queue_offset: int = -1, next_offset: int = -1) -> None:
        super().__init__(message)
        self.queue_offset = queue_offset
        self.next_offset = next_offset


def units_of(file: MappedFile, columns: np.dtype[np.void]) -> Units:
    """Return the units written to `file` as they are there. Do not keep: it keeps the mapping."""
    end = min(file.wrote_position, file.allocated_position)
    return np.ndarray(end // columns.itemsize, columns, file.buffer)


def end_of_units_below(
    files: Sequence[MappedFile], columns: np.dtype[np.void], physical_offset: int
) -> int:
    """Return the logic offset after the last unit of a record below `physical_offset`.

    Fillers are below everything, zeros nowhere. The start of the first file if there is none, 0
    without files.
    """
    for file in reversed(files):
        units = units_of(file, columns)
        sizes = units["size"].astype(np.int64)
        below = (units["offset"] <= physical_offset - sizes) | (sizes == FILLER_SIZE)
        below &= sizes > 0
        kept = np.flatnonzero(below)
        if kept.size:
            return file.file_from_offset + (int(kept[-1]) + 1) * columns.itemsize
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


def first_held(low: int, high: int, is_gone: Callable[[int], bool]) -> int:
    """Return the first number whose record is not gone; `high` if all from `low` on are.

    What is gone was before all that is not. One that seems to be gone after another that is not is
    damaged: it is held.
    """
    numbers = range(low, high)
    at = bisect_left(numbers, True, key=lambda number: not is_gone(number))  # noqa: FBT003
    while at > 1 and not is_gone(numbers[at - 2]):
        at = bisect_left(numbers, True, hi=at - 1, key=lambda number: not is_gone(number))  # noqa: FBT003
    return low + at


def end_of_units(files: Sequence[MappedFile], kind: UnitKind) -> int:
    """Return the logic offset where the units end that follow one another from the first file."""
    end, ends = 0, kind.before_all
    for file in files:
        count, ends = _valid_units(file, kind, ends)
        end = file.file_from_offset + count * kind.columns.itemsize
        if end < file.file_from_offset + file.size:
            break
    return end


def _valid_units(file: MappedFile, kind: UnitKind, before: Ends) -> tuple[int, Ends]:
    """Return how many places at the head of `file` hold units, and where the last one ends.

    `before` is where the unit before them ends.
    """
    units = units_of(file, kind.columns)
    for start in range(0, len(units), _RECOVERED_AT_ONCE):
        some = units[start : start + _RECOVERED_AT_ONCE]
        bad, ends = kind.examine(some, before)
        count = int(np.argmax(bad)) if bad.any() else len(some)
        if count:
            before = tuple(int(column[count - 1]) for column in ends)
        if count < len(some):
            return start + count, before
    return len(units), before


def begins_before(starts: Int64s, ends: Int64s, end_before: int) -> Bools:
    """Say which of these begin before the one before them ends, the first one `end_before`."""
    early: Bools = starts < np.concatenate(([end_before], ends[:-1]))
    return early


def ends_in_doubt(files: Sequence[MappedFile], end: int) -> bool:
    """Say whether more units than those up to the logic offset `end` may have been in these files.

    There are bytes after it that are no units, or there is no place where such could be seen.
    """
    if not files or end == files[-1].file_from_offset + files[-1].size:
        return bool(files)
    after = [(file, max(0, end - file.file_from_offset)) for file in files]
    return any(
        file.last_used_position(position) > position
        for file, position in after
        if position < file.size
    )


class ConfirmedUnits:
    """Counts the units found on disk that a walk over the log has met the records of.

    Whatever the files hold, units that were confirmed are right: each stands for a record of its
    own, and the records of the log that belong in the queue are all there.
    """

    __slots__ = ("count", "found_end", "lacks_units")

    def __init__(self, found_end: int = 0) -> None:
        self.found_end = found_end
        """Logic offset after the last unit that was found on disk."""
        self.count = 0
        self.lacks_units = False
        """Whether there was a record that the queue should know, and does not."""

    def met(self, queue_offsets: Int64s, next_offset: int) -> None:
        """Take note of records before the end of the last one that the queue knows.

        Numbers that the queue has not got to are those of an earlier life of its topic, if the
        numbers begin at 0 again after them. Otherwise their units are missing.
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
            raise QueueGapError(f"{name}: its last unit is after records that it does not know")
        expected = max(0, min(end, self.found_end) - start) // unit_bytes
        if expected != self.count:
            raise QueueGapError(
                f"{name}: of {expected} units that name records here, {self.count} name the right"
                " ones"
            )
