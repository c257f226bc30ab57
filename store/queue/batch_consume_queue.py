"""BatchConsumeQueue: from the number of a message in its queue to the batch that holds it.

The queue of a topic whose batches are stored as they come, one record each. One unit a record, 46
bytes, big-endian:

    0   8  physical offset of the record      28  8  base: queue offset of its first message
    8   4  size of the record                 36  2  how many messages it holds
    12  8  tags code                          38  4  -1
    20  8  store timestamp, ms                42  4  0

A unit covers several queue offsets, so the one of a message has to be searched for. Nothing is
filled in where a queue starts late.

Invariant: units rise by physical offset and by base, and do not overlap. `UnitQueue` has all that
both kinds of queues do.

Source: org.apache.rocketmq.store.queue.BatchConsumeQueue of 5.3.3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from store.log.log_end import DispatchRequest
from store.machine.disk import Disk
from store.queue.queue_units import (
    Bools,
    Ends,
    Int64s,
    UnitKind,
    Units,
    begins_before,
    first_not_below,
)
from store.queue.shared_by_queues import SharedByQueues
from store.queue.unit_queue import UnitQueue
from tandem.wire.store_layout import (
    BATCH_CQ_COMPACTED_OFFSET,
    BATCH_CQ_STORE_UNIT,
    BATCH_CQ_STORE_UNIT_SIZE,
)
from tandem.wire.unit_types import BATCH_CQ_UNIT_TYPE

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
        """The queue offset after its last message."""
        return self.base + self.batch_size


def _examine(units: Units, before: Ends) -> tuple[Bools, tuple[Int64s, ...]]:
    """Say which of these are no units, and where their records and their messages end."""
    offsets, sizes, bases, counts = (
        units[name].astype(np.int64) for name in ("offset", "size", "base_offset", "batch_size")
    )
    ends, queue_ends = offsets + sizes, bases + counts
    bad = (sizes <= 0) | (counts <= 0) | (offsets > _OFFSET_MAX) | (bases > _BASE_MAX)
    bad |= begins_before(offsets, ends, before[0]) | begins_before(bases, queue_ends, before[1])
    return bad, (ends, queue_ends)


BATCH_CQ_UNIT: Final = UnitKind(
    BATCH_CQ_STORE_UNIT,
    BATCH_CQ_UNIT_TYPE,
    _examine,
    before_all=(0, 0),
)


class BatchConsumeQueue(UnitQueue):
    """One queue of one topic of batches."""

    def __init__(
        self,
        directory: str,
        topic: str,
        queue_id: int,
        mapped_file_size: int,
        disk: Disk,
        shared: SharedByQueues[UnitQueue] | None = None,
    ) -> None:
        super().__init__(
            *(directory, topic, queue_id, mapped_file_size, disk), BATCH_CQ_UNIT, shared
        )
        self._max_msg_phy_offset = -1

    def _end_at(self, index: int) -> None:
        first, last = self._first_index, index - 1
        if last < first:
            self.max_physic_offset = self._max_msg_phy_offset = -1
            self.next_offset = self.min_offset = 0
            return
        unit = self._batch_at(last)
        self._max_msg_phy_offset = unit.offset
        self.max_physic_offset = unit.offset + unit.size
        self.next_offset = unit.end
        self.min_offset = self._batch_at(first).base

    def _queue_offset_at(self, index: int) -> int:
        return self._batch_at(index).base if index < self._end_index else self.next_offset

    # -- entering --------------------------------------------------------------------------------

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

    def _repair(self, offset: int, size: int, base: int, batch_size: int) -> None:
        """Write the end of a unit again, if a power loss has taken it."""
        index = self._index_of(base)
        if index == self._end_index:
            self._confirmed.lacks_units = True
            return
        found = self._batch_at(index)
        if (found.offset, found.size, *found[4:]) != (offset, size, base, batch_size):
            # One further on is of a later life of the topic.
            if found.offset <= offset and found.base <= base:
                raise self._gap(base, offset)
            self._confirmed.lacks_units = True
            return
        self._confirmed.count += 1
        unit = self._unit_at(index)
        whole = (*unit[:6], BATCH_CQ_COMPACTED_OFFSET, 0)
        if unit != whole:
            self.rewrite_unit(index, *whole)

    # -- reading ---------------------------------------------------------------------------------

    def _batch_at(self, index: int) -> BatchUnit:
        return BatchUnit(*self._unit_at(index)[:6])

    def _index_of(self, queue_offset: int) -> int:
        """Return the first unit that ends after `queue_offset`; the end if there is none."""
        indexes = range(self._first_index, self._end_index)
        at = bisect_right(indexes, queue_offset, key=lambda index: self._batch_at(index).end)
        return self._first_index + at

    def names(self, rows: list[tuple[int, int, int, int]]) -> bool:
        """True if units that follow one another name these: place, size, number, how many."""
        start = self._index_of(rows[0][2])
        if start + len(rows) > self._end_index:
            return False
        found = (self._batch_at(index) for index in range(start, start + len(rows)))
        return all(
            (unit.offset, unit.size, unit.base, unit.batch_size) == row
            for unit, row in zip(found, rows, strict=True)
        )

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

    def batch_before(self, queue_offset: int) -> BatchUnit | None:
        """Return the last unit before the one that `batch_units` begins with."""
        index = self._index_of(queue_offset)
        return self._batch_at(index - 1) if index > self._first_index else None

    def batch_near(self, queue_offset: int) -> BatchUnit | None:
        """Return the last unit of the queue where none is found for a message before its end."""
        has_units = self._first_index < self._end_index and queue_offset < self.next_offset
        return self._batch_at(self._end_index - 1) if has_units else None

    def units(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Yield physical offset, size and tags code of `batch_units`."""
        return (unit[:3] for unit in self.batch_units(queue_offset, count_max))

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Return (physical offset, size, tags code) of the record that holds a message."""
        offset, size, tags_code, *_ = self._unit_at(self._index_of(queue_offset))
        return offset, size, tags_code

    def readable_end(self, physical_offset: int) -> int:
        """Return the queue offset after the last record that ends by then.

        See `ConsumeQueue.readable_end`.
        """
        if self.max_physic_offset <= physical_offset:
            return self.next_offset

        def is_below(index: int) -> bool:
            unit = self._batch_at(index)
            return unit.offset + unit.size <= physical_offset

        first = self._first_index
        index = first_not_below(first, self._end_index, is_below)
        end = self._batch_at(index - 1).end if index > first else 0
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
        at = search(indexes, timestamp_ms, key=lambda i: self._batch_at(i).store_timestamp_ms)
        at = max(0, at - 1) if upper else at
        return self._batch_at(indexes[at]).base if at < len(indexes) else end

    def _first_index_from(self, min_physical_offset: int) -> int:
        indexes = range(self._first_index, self._end_index)
        at = bisect_left(indexes, min_physical_offset, key=lambda i: self._batch_at(i).offset)
        return self._first_index + at

    # -- deleting --------------------------------------------------------------------------------

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_offset` past the batches that the commit log no longer holds.

        Source: BatchConsumeQueue.reviseMinOffsetInQueue.
        """
        first, kept = self._first_index, self._first_index_from(min_physical_offset)
        self.corrected_to = min_physical_offset
        if kept > first:
            self.min_offset = self._batch_at(kept - 1).end
        elif kept < self._end_index:
            self.min_offset = self._batch_at(first).base
