"""ConsumeQueue: from the number of a message in its queue to its place in the commit log.

One unit a message, 20 bytes, big-endian:

    0   8  physical offset of the record
    8   4  size of the record
    12  8  tags code: Java's hash of the TAGS property, 0 without tags

Queue offset q is unit q. The commit log is the truth; a queue can always be built again from it.

Invariants: units rise by physical offset; `next_offset` is the queue offset of the next message;
`max_physic_offset` the end of the last record entered, -1 if none. A queue whose log starts late
has filler units (offset 0, size 2**31 - 1) at the head of its first file, below `min_offset`.

Source: org.apache.rocketmq.store.ConsumeQueue of 5.3.3.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from store.mapped_file_queue import MappedFileQueue
from tandem.wire.store_layout import CQ_STORE_UNIT, CQ_STORE_UNIT_SIZE, FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.disk import Disk
    from store.mapped_file import MappedFile
    from store.recovery import DispatchRequest

Int64s: TypeAlias = NDArray[np.int64]
_Units: TypeAlias = NDArray[Any]
"""Units as they lie in the file, by the names of `_UNIT`."""

_UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert _UNIT.itemsize == CQ_STORE_UNIT_SIZE

_FILES_RECOVERED: Final = 3
"""Older files were synced long ago (ConsumeQueue.recover)."""

_QUEUE_OFFSET_MAX: Final = 1 << 58
"""No queue gets there; behind it the place of a unit would not fit 64 bits."""

_PLAIN_LOOP_ROWS_MAX: Final = 16
"""Below this many rows a plain loop beats numpy's cost per call."""


class QueueGapError(Exception):
    """The log holds a message that does not continue its queue: the queue has lost units.

    Never leaves the store: it builds the queues anew.
    """


class ConsumeQueue:
    """One queue of one topic. `ConsumeQueueStore` owns and closes it."""

    def __init__(
        self, directory: str, topic: str, queue_id: int, mapped_file_size: int, disk: Disk
    ) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.max_physic_offset = -1
        self.next_offset = 0
        self._assigned_offset = 0
        self._min_logic_offset = 0
        self._files = MappedFileQueue(directory, mapped_file_size, disk)

    @property
    def files(self) -> MappedFileQueue:
        """The files, for the flush service and for tools."""
        return self._files

    @property
    def min_offset(self) -> int:
        """The first queue offset that can be read."""
        return self._min_logic_offset // CQ_STORE_UNIT_SIZE

    @property
    def assigned_offset(self) -> int:
        """The queue offset of the next message put.

        It is ahead of `next_offset` where units are entered later than their messages are put.
        Source: QueueOffsetOperator.
        """
        return max(self._assigned_offset, self.next_offset)

    def assign(self, count: int) -> None:
        """Give the next `count` queue offsets away: their messages are in the log."""
        self._assigned_offset = self.assigned_offset + count

    def load(self) -> None:
        """Open the files. See `MappedFileQueue.load`."""
        self._files.load()

    def recover(self) -> None:
        """Find the end: the first unit, from the third file from the end on, that is none.

        Unlike in RocketMQ, a unit that does not lie behind the one before it is none: a power loss
        can leave the second half of a unit without its first. And a last file without a unit is
        deleted. Source: ConsumeQueue.recover.
        """
        files = self._files.files
        end = behind = 0
        for file in files[max(0, len(files) - _FILES_RECOVERED) :]:
            position = 0
            for offset, size, _ in CQ_STORE_UNIT.iter_unpack(bytes(file.buffer)):
                if offset < behind or size <= 0:
                    break
                position += CQ_STORE_UNIT_SIZE
                if size != FILLER_SIZE:
                    self.max_physic_offset = behind = offset + size
            end = file.file_from_offset + position
            if position < file.size:
                break
        self._truncate(end)

    def _truncate(self, end: int) -> None:
        self._assigned_offset = 0
        self._files.truncate_dirty_files(end)
        self.drop_empty_file()
        self.next_offset = self._files.max_offset // CQ_STORE_UNIT_SIZE

    def drop_empty_file(self) -> None:
        """Delete files without a unit, which RocketMQ would take for one with units."""
        self._files.discard_prepared()
        last = self._files.last
        if last is not None and last.wrote_position == 0:
            self._files.drop_last()

    def truncate_dirty_logic_files(self, physical_offset: int) -> None:
        """Drop the units of records at or behind `physical_offset`.

        Source: ConsumeQueue.truncateDirtyLogicFiles.
        """
        keep = self.next_offset
        while keep > self._first_offset and self.unit(keep - 1)[0] >= physical_offset:
            keep -= 1
        self.max_physic_offset = -1
        if keep > self._first_offset:
            offset, size, _ = self.unit(keep - 1)
            self.max_physic_offset = offset + size if size != FILLER_SIZE else -1
        self._truncate(keep * CQ_STORE_UNIT_SIZE)

    @property
    def _first_offset(self) -> int:
        return max(0, self._files.min_offset) // CQ_STORE_UNIT_SIZE

    def ensure_room(self, count: int = 1) -> None:
        """Make sure that the next `count` units, at most a file full, can be written.

        Raises:
            StoreFullError: no room for the next file.
        """
        files = self._files.files
        last = files[-1] if files else None
        if last is None or last.wrote_position == last.size:
            last = self._files.last_or_create(self.next_offset * CQ_STORE_UNIT_SIZE)
        if last.size - last.wrote_position < count * CQ_STORE_UNIT_SIZE:
            self._files.reserve_next()

    def append(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Add the unit of the next message. Call `ensure_room` first where a file may be full."""
        last = self._files.files[-1]
        CQ_STORE_UNIT.pack_into(last.buffer, last.wrote_position, physical_offset, size, tags_code)
        last.wrote_position += CQ_STORE_UNIT_SIZE
        self.max_physic_offset = physical_offset + size
        self.next_offset += 1

    def append_many(self, units: list[int]) -> None:
        """Add several units: physical offset, size, tags code of the first, of the second, ...

        Raises:
            StoreFullError: no room for the next file; the units before it were added.
        """
        done = 0
        while done < len(units):
            self.ensure_room()
            last = self._files.files[-1]
            room = (last.size - last.wrote_position) // CQ_STORE_UNIT_SIZE
            some = units[done : done + 3 * room]
            count = len(some) // 3
            _units_struct(count).pack_into(last.buffer, last.wrote_position, *some)
            last.wrote_position += count * CQ_STORE_UNIT_SIZE
            self.max_physic_offset = some[-3] + some[-2]
            self.next_offset += count
            done += len(some)

    def dispatch(self, request: DispatchRequest, *, may_start_late: bool = True) -> bool:
        """Enter a record read from the log; return False if it had been entered before.

        A queue without any unit may start with any record if `may_start_late`.

        Raises:
            QueueGapError: the record does not continue the queue. RocketMQ logs this and appends
                the unit at the wrong place.
            StoreFullError: no room for the next file.

        Source: ConsumeQueue.putMessagePositionInfo.
        """
        return self._enter(
            request.offset,
            request.size,
            request.tags_code,
            request.queue_offset,
            may_start_late=may_start_late,
        )

    def dispatch_many(
        self,
        offsets: Int64s,
        sizes: Int64s,
        tags_codes: Int64s,
        queue_offsets: Int64s,
        *,
        may_start_late: bool = True,
    ) -> int:
        """Enter records read from the log, in the order of the log; return how many are new.

        The effect is that of `dispatch` row by row: rows before one that raises are entered.

        Raises:
            QueueGapError, StoreFullError: see `dispatch`.
        """
        ends = offsets + sizes
        if len(ends) <= _PLAIN_LOOP_ROWS_MAX or not (ends[1:] > ends[:-1]).all():
            rows = zip(
                offsets.tolist(),
                sizes.tolist(),
                tags_codes.tolist(),
                queue_offsets.tolist(),
                strict=True,
            )
            return sum(self._enter(*row, may_start_late=may_start_late) for row in rows)
        built = int(np.searchsorted(ends, self.max_physic_offset, side="right"))
        if built:
            self._repair_many(
                offsets[:built], sizes[:built], tags_codes[:built], queue_offsets[:built]
            )
        if built == len(ends):
            return 0
        self._start(int(queue_offsets[built]), int(offsets[built]), may_start_late=may_start_late)
        expected = np.arange(self.next_offset, self.next_offset + len(ends) - built)
        wrong = np.flatnonzero(queue_offsets[built:] != expected)
        gap = built + int(wrong[0]) if wrong.size else len(ends)
        self._append_columns(offsets[built:gap], sizes[built:gap], tags_codes[built:gap])
        if gap < len(ends):
            raise self._gap(int(queue_offsets[gap]), int(offsets[gap]))
        return gap - built

    def _enter(
        self, offset: int, size: int, tags_code: int, queue_offset: int, *, may_start_late: bool
    ) -> bool:
        if offset + size <= self.max_physic_offset:
            self._repair(offset, size, tags_code, queue_offset)
            return False
        self._start(queue_offset, offset, may_start_late=may_start_late)
        self.ensure_room()
        self.append(offset, size, tags_code)
        return True

    def _start(self, queue_offset: int, offset: int, *, may_start_late: bool) -> None:
        """Make sure that the record with this queue offset is the one to come."""
        if queue_offset == self.next_offset:
            return
        possible = 0 < queue_offset <= _QUEUE_OFFSET_MAX
        if self._files.files or not may_start_late or not possible:
            raise self._gap(queue_offset, offset)
        self._pre_blank(queue_offset)

    def _gap(self, queue_offset: int, offset: int) -> QueueGapError:
        return QueueGapError(
            f"{self.topic}-{self.queue_id}: the record at {offset} is number"
            f" {queue_offset}, the queue ends at {self.next_offset}"
        )

    def _append_columns(self, offsets: Int64s, sizes: Int64s, tags_codes: Int64s) -> None:
        done = 0
        while done < len(offsets):
            self.ensure_room()
            last = self._files.files[-1]
            room = (last.size - last.wrote_position) // CQ_STORE_UNIT_SIZE
            some = slice(done, min(len(offsets), done + room))
            count = some.stop - done
            units: _Units = np.ndarray(count, _UNIT, last.buffer, last.wrote_position)
            units["offset"] = offsets[some]
            units["size"] = sizes[some]
            units["tags_code"] = tags_codes[some]
            last.wrote_position += count * CQ_STORE_UNIT_SIZE
            self.max_physic_offset = int(offsets[some.stop - 1] + sizes[some.stop - 1])
            self.next_offset += count
            done = some.stop

    def _repair(self, offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Write the tags code of a unit again if a power loss has left zeros in its place.

        Any other code stays: RocketMQ also puts times and addresses there.
        """
        if not self._first_offset <= queue_offset < self.next_offset:
            return
        place = (offset, size)
        found = self.unit(queue_offset)
        if found[:2] != place or found[2] == tags_code:
            return
        if found[2] not in (0, tags_code & ~0xFFFFFFFF):
            return
        file = self._file_of(queue_offset)
        assert file is not None
        position = queue_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset
        CQ_STORE_UNIT.pack_into(file.buffer, position, *place, tags_code)
        file.flushed_position = min(file.flushed_position, position)

    def _repair_many(
        self, offsets: Int64s, sizes: Int64s, tags_codes: Int64s, queue_offsets: Int64s
    ) -> None:
        """Look at all these rows at once, and again at those that differ."""
        per_file = self._files.mapped_file_size // CQ_STORE_UNIT_SIZE
        first = self._first_offset
        from_file, to_file = (
            max(0, (int(end) - first) // per_file)
            for end in (queue_offsets.min(), queue_offsets.max() + per_file)
        )
        for file in self._files.files[from_file:to_file]:
            numbers = queue_offsets - file.file_from_offset // CQ_STORE_UNIT_SIZE
            units = _units_of(file)
            rows = np.flatnonzero((numbers >= 0) & (numbers < len(units)))
            differs = units["tags_code"][numbers[rows]] != tags_codes[rows]
            for row in rows[differs].tolist():
                self._repair(
                    int(offsets[row]),
                    int(sizes[row]),
                    int(tags_codes[row]),
                    int(queue_offsets[row]),
                )

    def _pre_blank(self, queue_offset: int) -> None:
        """Start the queue at `queue_offset`: fillers from the start of the file up to there."""
        logic_offset = queue_offset * CQ_STORE_UNIT_SIZE
        file = self._files.last_or_create(logic_offset)
        count = (logic_offset - file.file_from_offset) // CQ_STORE_UNIT_SIZE
        fillers = CQ_STORE_UNIT.pack(0, FILLER_SIZE, 0) * count
        file.buffer[: len(fillers)] = fillers
        file.wrote_position = len(fillers)
        self._min_logic_offset = logic_offset
        self.next_offset = queue_offset

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Return (physical offset, size, tags code) of a unit that exists."""
        file = self._file_of(queue_offset)
        assert file is not None
        position = queue_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset
        offset, size, code = CQ_STORE_UNIT.unpack_from(file.buffer, position)
        return offset, size, code

    def _file_of(self, queue_offset: int) -> MappedFile | None:
        return self._files.find_by_offset(queue_offset * CQ_STORE_UNIT_SIZE)

    def units(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Yield at most `count_max` units from `queue_offset` on, only those of one file."""
        file = self._file_of(queue_offset)
        if file is None:
            return iter(())
        start = queue_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset
        end = min(file.wrote_position, start + count_max * CQ_STORE_UNIT_SIZE)
        return CQ_STORE_UNIT.iter_unpack(bytes(file.buffer[start : max(start, end)]))

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_offset` up to the first message that the commit log still holds.

        Source: ConsumeQueue.correctMinOffset.
        """
        low, high = self._first_offset, self.next_offset
        while low < high:
            middle = (low + high) // 2
            offset, size, _ = self.unit(middle)
            if size == FILLER_SIZE or offset < min_physical_offset:
                low = middle + 1
            else:
                high = middle
        self._min_logic_offset = low * CQ_STORE_UNIT_SIZE

    def destroy(self) -> None:
        """Delete all files and start at nothing."""
        self._files.destroy()
        self.max_physic_offset = -1
        self.next_offset = self._assigned_offset = 0
        self._min_logic_offset = 0

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()


def _units_of(file: MappedFile) -> _Units:
    """Return the units written to `file` as they lie there. Do not keep: it keeps the mapping."""
    return np.ndarray(file.wrote_position // CQ_STORE_UNIT_SIZE, _UNIT, file.buffer)


@lru_cache(maxsize=256)
def _units_struct(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)
