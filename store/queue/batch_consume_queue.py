"""BatchConsumeQueue: from the number of a message in its queue to the batch that holds it.

The queue of a topic whose batches are stored as they come, one record each. One unit a record, 46
bytes, big-endian:

    0   8  physical offset of the record      28  8  base: queue offset of its first message
    8   4  size of the record                 36  2  how many messages it holds
    12  8  tags code                          38  4  -1
    20  8  store timestamp, ms                42  4  0

Units lie end to end, so the one that covers a queue offset has to be searched for. Nothing is
filled in where a queue starts late.

Invariants: units rise by physical offset and by base, and do not overlap; `next_offset` is behind
the last message; `max_physic_offset` the end of the last record entered, -1 if none. RocketMQ calls
that record's *start* so, and recovers from there; for us all queues mean the same by it.

Source: org.apache.rocketmq.store.queue.BatchConsumeQueue of 5.3.3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store.files.mapped_file_queue import MappedFileQueue
from store.queue.queue_units import (
    QUEUE_REMEDY,
    ConfirmedUnits,
    Int64s,
    QueueGapError,
    Units,
    end_of_units_below,
    ends_in_doubt,
    first_not_below,
    units_of,
)
from tandem.wire.store_layout import (
    BATCH_CQ_COMPACTED_OFFSET,
    BATCH_CQ_STORE_UNIT,
    BATCH_CQ_STORE_UNIT_SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from store.files.mapped_file import MappedFile
    from store.log.log_end import DispatchRequest
    from store.machine.disk import Disk

_UNIT: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp_ms", ">i8"),
        ("base", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
assert _UNIT.itemsize == BATCH_CQ_STORE_UNIT_SIZE

_FILES_RECOVERED: Final = 3
"""Older files were synced long ago (BatchConsumeQueue.recover)."""

_RECOVERED_AT_ONCE: Final = 1 << 13

_OFFSET_MAX: Final = 1 << 62
"""Physical offsets stay below: sums with a size then fit 64 bits."""

_BASE_MAX: Final = (2**63 - 1) // BATCH_CQ_STORE_UNIT_SIZE
"""The largest queue offset that dispatch enters."""

BATCH_SIZE_MAX: Final = 32_767
"""The most messages that one unit can stand for."""


class BatchUnit(NamedTuple):
    """One record of the queue, and which messages it holds."""

    offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    base: int
    batch_size: int

    @property
    def end(self) -> int:
        """The queue offset behind its last message."""
        return self.base + self.batch_size


class BatchConsumeQueue:
    """One queue of one topic of batches. `ConsumeQueueStore` owns and closes it."""

    def __init__(
        self, directory: str, topic: str, queue_id: int, mapped_file_size: int, disk: Disk
    ) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.max_physic_offset = -1
        self.next_offset = 0
        self.min_offset = 0
        """The first queue offset that can be read. RocketMQ says -1 of an empty queue."""
        self.confirmed_from = 0
        """See `ConsumeQueue.confirmed_from`."""
        self.ends_in_doubt = False
        """See `ConsumeQueue.ends_in_doubt`."""
        self._assigned_offset = 0
        self._max_msg_phy_offset = -1
        self._confirmed = ConfirmedUnits()
        self._files = MappedFileQueue(directory, mapped_file_size, disk, remedy=QUEUE_REMEDY)

    @property
    def files(self) -> MappedFileQueue:
        """The files, for tools."""
        return self._files

    @property
    def file_queues(self) -> tuple[MappedFileQueue, ...]:
        """All files, for the flush service."""
        return (self._files,)

    @property
    def assigned_offset(self) -> int:
        """The queue offset of the next message put; see `ConsumeQueue.assigned_offset`."""
        return max(self._assigned_offset, self.next_offset)

    def assign(self, count: int) -> None:
        """Give the next `count` queue offsets away: their messages are in the log."""
        self._assigned_offset = self.assigned_offset + count

    # -- opening ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Open the files. See `MappedFileQueue.load`."""
        self._files.load()

    def recover(self) -> None:
        """Find the end: the first unit, from the third file from the end on, that is none.

        As in `ConsumeQueue.recover`, a unit has to lie behind the one before it.

        Source: BatchConsumeQueue.recover.
        """
        files = self._files.files
        start = max(0, len(files) - _FILES_RECOVERED)
        end = _end_of_units(files[start:])
        while start > 0 and end == files[start].file_from_offset:
            start -= 1
            end = _end_of_units(files[start : start + 1])
        self.ends_in_doubt = ends_in_doubt(files, end)
        self._truncate(end)
        self._confirmed = ConfirmedUnits()
        self._confirmed.found_end = self._files.max_offset
        self.confirmed_from = self.next_offset

    def confirm(self, start: int, end: int) -> None:
        """Expect that `dispatch` has met the records of all units; see `ConsumeQueue.confirm`.

        Raises:
            QueueGapError: there is a unit too many, or one that names the wrong place.
        """
        first, last = (end_of_units_below(self._files.files, _UNIT, at) for at in (start, end))
        name = f"{self.topic}-{self.queue_id}"
        self._confirmed.confirm(name, first, last, BATCH_CQ_STORE_UNIT_SIZE)
        if first < self._files.max_offset:
            self.confirmed_from = self._unit_at(first // BATCH_CQ_STORE_UNIT_SIZE).base

    def units_below(self, physical_offset: int) -> Iterator[tuple[int, int, int]]:
        """Yield the units of records below, the last one first: place, size, first queue offset."""
        end = end_of_units_below(self._files.files, _UNIT, physical_offset)
        for index in range(end // BATCH_CQ_STORE_UNIT_SIZE - 1, self._first_index - 1, -1):
            unit = self._unit_at(index)
            yield unit.offset, unit.size, unit.base

    def _truncate(self, end: int) -> None:
        self._files.truncate_dirty_files(end)
        self.drop_empty_file()
        self._assigned_offset = 0
        first, last = self._first_index, self._end_index - 1
        if last < first:
            self.max_physic_offset = self._max_msg_phy_offset = -1
            self.next_offset = self.min_offset = 0
            return
        unit = self._unit_at(last)
        self._max_msg_phy_offset = unit.offset
        self.max_physic_offset = unit.offset + unit.size
        self.next_offset = unit.end
        self.min_offset = self._unit_at(first).base

    def drop_empty_file(self) -> None:
        """Delete files without a unit."""
        self._files.discard_prepared()
        last = self._files.last
        if last is not None and last.wrote_position == 0:
            self._files.drop_last()

    def truncate_dirty_logic_files(self, physical_offset: int) -> None:
        """Drop the units of records at or behind `physical_offset`.

        Source: BatchConsumeQueue.truncateDirtyLogicFiles.
        """
        self._truncate(end_of_units_below(self._files.files, _UNIT, physical_offset))

    # -- entering --------------------------------------------------------------------------------

    def ensure_room(self, count: int = 1) -> None:
        """Make sure that the next `count` units, at most a file full, can be written.

        Raises:
            StoreFullError: no room for the next file.
        """
        last = self._files.last_or_create(self._files.max_offset)
        if last.size - last.wrote_position < count * BATCH_CQ_STORE_UNIT_SIZE:
            self._files.reserve_next()

    def append(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int = 0,
        batch_size: int = 1,
    ) -> None:
        """Add the unit of a record with the next messages. Call `ensure_room` first."""
        base = self.next_offset
        self._append(physical_offset, size, tags_code, store_timestamp_ms, base, batch_size)

    def append_many(self, units: list[int], store_timestamp_ms: int = 0) -> None:
        """Add records of one message each: physical offset, size, tags code, and so on.

        Raises:
            StoreFullError: no room for the next file; the units before it were added.
        """
        for at in range(0, len(units), 3):
            offset, size, tags_code = units[at : at + 3]
            self.ensure_room()
            self.append(offset, size, tags_code, store_timestamp_ms)

    def _append(
        self,
        offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        base: int,
        batch_size: int,
    ) -> None:
        last = self._files.files[-1]
        if self.next_offset == 0:
            self.min_offset = base
        BATCH_CQ_STORE_UNIT.pack_into(
            last.buffer,
            last.wrote_position,
            *(offset, size, tags_code, store_timestamp_ms, base, batch_size),
            BATCH_CQ_COMPACTED_OFFSET,
            0,
        )
        last.wrote_position += BATCH_CQ_STORE_UNIT_SIZE
        self._max_msg_phy_offset = offset
        self.max_physic_offset = offset + size
        self.next_offset = base + batch_size

    def dispatch(self, request: DispatchRequest, *, may_start_late: bool = True) -> bool:
        """Enter a record read from the log; return False if it had been entered before.

        A record that does not say which messages it holds is in no queue. It has used up its queue
        offset nevertheless: the next record may leave it out.

        Raises:
            QueueGapError: the record does not continue the queue. RocketMQ appends it.
            StoreFullError: no room for the next file.

        Source: BatchConsumeQueue.putMessagePositionInfoWrapper.
        """
        base, batch_size = request.msg_base_offset, request.batch_size
        if base < 0 or not 0 < batch_size <= BATCH_SIZE_MAX:
            if request.offset > self._max_msg_phy_offset:
                self._assigned_offset = max(self._assigned_offset, request.queue_offset + 1)
            return False
        return self._enter(
            request.offset,
            request.size,
            request.tags_code,
            base,
            request.store_timestamp_ms,
            batch_size,
            may_start_late=may_start_late,
        )

    def dispatch_many(
        self,
        offsets: Int64s,
        sizes: Int64s,
        tags_codes: Int64s,
        queue_offsets: Int64s,
        store_timestamps_ms: Int64s | None = None,
        batch_sizes: Int64s | None = None,
        *,
        may_start_late: bool = True,
    ) -> int:
        """Enter records read from the log, in the order of the log; return how many are new.

        `queue_offsets` are those of the first message in each; without `batch_sizes` every record
        is one message. Rows before one that raises are entered.

        Raises:
            QueueGapError, StoreFullError: see `dispatch`.
        """
        assert store_timestamps_ms is not None, "batch queues need store timestamps"
        if batch_sizes is None:
            batch_sizes = np.ones_like(offsets)
        columns = (offsets, sizes, tags_codes, queue_offsets, store_timestamps_ms, batch_sizes)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return sum(self._enter(*row, may_start_late=may_start_late) for row in rows)

    def _enter(
        self,
        offset: int,
        size: int,
        tags_code: int,
        base: int,
        store_timestamp_ms: int,
        batch_size: int,
        *,
        may_start_late: bool,
    ) -> bool:
        if offset <= self._max_msg_phy_offset:
            self._confirmed.met(np.array([base]), self.next_offset)
            self._repair(offset, size, base, batch_size)
            return False
        continues = self.next_offset <= base <= self.assigned_offset
        starts = not self._files.files and may_start_late
        if not (continues or starts) or base > _BASE_MAX:
            raise self._gap(base, offset)
        self.ensure_room()
        self._append(offset, size, tags_code, store_timestamp_ms, base, batch_size)
        return True

    def _gap(self, base: int, offset: int) -> QueueGapError:
        return QueueGapError(
            f"{self.topic}-{self.queue_id}: the batch at {offset} begins with number"
            f" {base}, the queue ends at {self.next_offset}"
        )

    def _repair(self, offset: int, size: int, base: int, batch_size: int) -> None:
        """Write the end of a unit again, if a power loss has taken it."""
        index = self._index_of(base)
        if index == self._end_index:
            self._confirmed.lacks_units = True
            return
        found = self._unit_at(index)
        if (found.offset, found.size, *found[4:]) != (offset, size, base, batch_size):
            # One further on is of a later life of the topic.
            if found.offset <= offset and found.base <= base:
                raise self._gap(base, offset)
            self._confirmed.lacks_units = True
            return
        self._confirmed.count += 1
        file, position = self._place_of(index)
        unit = BATCH_CQ_STORE_UNIT.unpack_from(file.buffer, position)
        whole = (*unit[:6], BATCH_CQ_COMPACTED_OFFSET, 0)
        if unit != whole:
            BATCH_CQ_STORE_UNIT.pack_into(file.buffer, position, *whole)
            file.flushed_position = min(file.flushed_position, position)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def _first_index(self) -> int:
        return max(0, self._files.min_offset) // BATCH_CQ_STORE_UNIT_SIZE

    @property
    def _end_index(self) -> int:
        return self._files.max_offset // BATCH_CQ_STORE_UNIT_SIZE

    def _place_of(self, index: int) -> tuple[MappedFile, int]:
        logic_offset = index * BATCH_CQ_STORE_UNIT_SIZE
        file = self._files.find_by_offset(logic_offset)
        assert file is not None
        return file, logic_offset - file.file_from_offset

    def _unit_at(self, index: int) -> BatchUnit:
        file, position = self._place_of(index)
        return BatchUnit(*BATCH_CQ_STORE_UNIT.unpack_from(file.buffer, position)[:6])

    def _index_of(self, queue_offset: int) -> int:
        """Return the first unit that ends behind `queue_offset`; the end if there is none."""
        indexes = range(self._first_index, self._end_index)
        at = bisect_right(indexes, queue_offset, key=lambda index: self._unit_at(index).end)
        return self._first_index + at

    def batch_units(self, queue_offset: int, count_max: int) -> Iterator[BatchUnit]:
        """Yield at most `count_max` units, only those of one file.

        The first one holds the message with this queue offset, so it may begin before it.

        Source: BatchConsumeQueue.iterateFrom.
        """
        index = self._index_of(queue_offset)
        if index == self._end_index:
            return iter(())
        file, start = self._place_of(index)
        end = min(file.wrote_position, start + count_max * BATCH_CQ_STORE_UNIT_SIZE)
        units = BATCH_CQ_STORE_UNIT.iter_unpack(bytes(file.buffer[start:end]))
        return (BatchUnit(*unit[:6]) for unit in units)

    def units(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Yield physical offset, size and tags code of `batch_units`."""
        return (unit[:3] for unit in self.batch_units(queue_offset, count_max))

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Return (physical offset, size, tags code) of the record that holds a message."""
        return self._unit_at(self._index_of(queue_offset))[:3]

    def readable_end(self, physical_offset: int) -> int:
        """Return the queue offset behind the last record that ends by then.

        See `ConsumeQueue.readable_end`.
        """
        if self.max_physic_offset <= physical_offset:
            return self.next_offset

        def is_below(index: int) -> bool:
            unit = self._unit_at(index)
            return unit.offset + unit.size <= physical_offset

        first = self._first_index
        index = first_not_below(first, self._end_index, is_below)
        end = self._unit_at(index - 1).end if index > first else 0
        return max(self.min_offset, end)

    def offset_by_time(
        self,
        store_timestamp_of: Callable[[int], int],
        timestamp_ms: int,
        min_physical_offset: int,
        *,
        upper: bool = False,
        end: int | None = None,
    ) -> int:
        """Return the first queue offset of the batch for a store time; see `ConsumeQueue`.

        The units know when their records were stored: `store_timestamp_of` is not asked.

        Source: BatchConsumeQueue.getOffsetInQueueByTime.
        """
        del store_timestamp_of
        end = self.next_offset if end is None else end
        end_index = self._end_index if end == self.next_offset else self._index_of(end)
        indexes = range(self._first_index_from(min_physical_offset), end_index)
        search = bisect_right if upper else bisect_left
        at = search(indexes, timestamp_ms, key=lambda i: self._unit_at(i).store_timestamp_ms)
        at = max(0, at - 1) if upper else at
        return self._unit_at(indexes[at]).base if at < len(indexes) else end

    def _first_index_from(self, min_physical_offset: int) -> int:
        indexes = range(self._first_index, self._end_index)
        at = bisect_left(indexes, min_physical_offset, key=lambda i: self._unit_at(i).offset)
        return self._first_index + at

    # -- deleting --------------------------------------------------------------------------------

    def delete_expired_files(
        self, min_physical_offset: int, *, now_ms: int = 0, interval_forcibly_ms: int = 60_000
    ) -> int:
        """Delete the oldest files all of whose messages have left the log; return how many.

        Never the last one. `correct_min_offset` is to be called behind it.
        """
        deleted = self._files.delete_expired_file_by_offset(
            min_physical_offset,
            lambda file: int(_units_of(file)["offset"][-1]),
            now_ms=now_ms,
            interval_forcibly_ms=interval_forcibly_ms,
        )
        return len(deleted)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_offset` behind the batches that the commit log no longer holds.

        Source: BatchConsumeQueue.reviseMinOffsetInQueue.
        """
        first, kept = self._first_index, self._first_index_from(min_physical_offset)
        if kept > first:
            self.min_offset = self._unit_at(kept - 1).end
        elif kept < self._end_index:
            self.min_offset = self._unit_at(first).base

    def destroy(self) -> None:
        """Delete all files and start at nothing."""
        self._files.destroy()
        self._truncate(0)
        self._confirmed = ConfirmedUnits()
        self.confirmed_from = 0

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()


def _units_of(file: MappedFile) -> Units:
    return units_of(file, _UNIT)


def _end_of_units(files: Sequence[MappedFile]) -> int:
    end = 0
    behind = (0, 0)
    for file in files:
        count, behind = _valid_units(file, behind)
        end = file.file_from_offset + count * BATCH_CQ_STORE_UNIT_SIZE
        if end < file.file_from_offset + file.size:
            break
    return end


def _valid_units(file: MappedFile, behind: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """Return how many units at the head of `file` are some, and where the last one ends.

    `behind` is where the unit before them ends: physical offset and queue offset.
    """
    units = _units_of(file)
    for start in range(0, len(units), _RECOVERED_AT_ONCE):
        some = units[start : start + _RECOVERED_AT_ONCE]
        offsets, sizes, bases, counts = (
            some[name].astype(np.int64) for name in ("offset", "size", "base", "batch_size")
        )
        ends, queue_ends = offsets + sizes, bases + counts
        bad = (sizes <= 0) | (counts <= 0) | (offsets > _OFFSET_MAX) | (bases > _BASE_MAX)
        bad |= _begins_before(offsets, behind[0], ends) | _begins_before(
            bases, behind[1], queue_ends
        )
        count = int(np.argmax(bad)) if bad.any() else len(some)
        if count:
            behind = int(ends[count - 1]), int(queue_ends[count - 1])
        if count < len(some):
            return start + count, behind
    return len(units), behind


def _begins_before(starts: Int64s, behind: int, ends: Int64s) -> NDArray[np.bool_]:
    """Say which of these begin before the one in front of them ends."""
    before: NDArray[np.bool_] = starts < np.concatenate(([behind], ends[:-1]))
    return before
