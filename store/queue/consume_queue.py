"""ConsumeQueue: from the number of a message in its queue to its place in the commit log.

One unit a message, 20 bytes, big-endian:

    0   8  physical offset of the record
    8   4  size of the record
    12  8  tags code: Java's hash of the TAGS property, 0 without tags; the deliver time of a
           delayed message; or where the `ConsumeQueueExt` keeps either of them

Queue offset q is unit q. The commit log is the truth; a queue can always be built again from it. A
queue whose log starts late has filler units (offset 0, size 2**31 - 1) at the head of its first
file, below `min_offset`. `UnitQueue` has all that both kinds of queues do.

Source: org.apache.rocketmq.store.ConsumeQueue of 5.3.3.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from store.queue.queue_units import (
    Bools,
    Ends,
    Int64s,
    UnitKind,
    Units,
    begins_before,
    first_held,
    first_not_below,
    units_of,
)
from store.queue.unit_queue import UnitQueue
from tandem.wire.store_layout import (
    CQ_STORE_UNIT,
    CQ_STORE_UNIT_SIZE,
    EXT_ADDRESS_MAX,
    FILLER_SIZE,
    is_ext_address,
)
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tandem.wire.unit_types import CQ_UNIT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.files.mapped_file import MappedFile
    from store.files.mapped_file_queue import MappedFileQueue
    from store.log.log_end import DispatchRequest
    from store.machine.disk import Disk, FoundFile
    from store.queue.consume_queue_ext import ConsumeQueueExt, CqExtUnit
    from store.queue.shared_by_queues import SharedByQueues

_QUEUE_OFFSET_MAX: Final = 1 << 58
"""No queue gets there; past it the place of a unit would not fit 64 bits."""

_PHYSICAL_OFFSET_MAX: Final = (1 << 63) - FILLER_SIZE - 1
"""No record is past this: its end would not fit 64 bits."""

_PLAIN_LOOP_ROWS_MAX: Final = 12
"""Below this many rows a plain loop beats numpy's cost per call."""


def _examine(units: Units, before: Ends) -> tuple[Bools, tuple[Int64s, ...]]:
    """Say which of these are no units, and where their records end. Fillers precede any record."""
    offsets, sizes = units["offset"].astype(np.int64), units["size"].astype(np.int64)
    is_filler = sizes == FILLER_SIZE
    ends = np.where(is_filler, offsets, offsets + sizes)
    bad = (sizes <= 0) | begins_before(offsets, ends, before[0])
    bad |= (is_filler & (offsets != 0)) | (offsets > _PHYSICAL_OFFSET_MAX)
    return bad, (ends,)


CQ_UNIT: Final = UnitKind(CQ_STORE_UNIT, CQ_UNIT_TYPE, _examine, before_all=(0,))


class ConsumeQueue(UnitQueue):
    """One queue of one topic. With `ext` every new unit has an extension: see `ConsumeQueueExt`."""

    def __init__(
        self,
        directory: str,
        topic: str,
        queue_id: int,
        mapped_file_size: int,
        disk: Disk,
        ext: ConsumeQueueExt | None = None,
        shared: SharedByQueues[UnitQueue] | None = None,
    ) -> None:
        super().__init__(*(directory, topic, queue_id, mapped_file_size, disk), CQ_UNIT, shared)
        self._ext = ext

    @property
    def file_queues(self) -> tuple[MappedFileQueue, ...]:
        """Extensions first: units point at them."""
        return (self._files,) if self._ext is None else (self._ext.files, self._files)

    # -- opening ---------------------------------------------------------------------------------

    def load(self, found: Sequence[FoundFile] | None = None) -> int:
        """Open the files, those of the extension too."""
        modified_ms = super().load(found)
        if self._ext is not None:
            self._ext.load()
        return modified_ms

    def recover(self) -> None:
        """Find the end of extension and units; see `UnitQueue.recover`."""
        if self._ext is not None:
            self._ext.recover()
        super().recover()

    def _end_at(self, index: int) -> None:
        self.next_offset = index
        self.max_physic_offset = -1
        if index > self._first_index:
            offset, size, _ = self.unit(index - 1)
            self.max_physic_offset = offset + size if size != FILLER_SIZE else -1
        if self._ext is not None:
            self._truncate_ext(self._ext)

    def _queue_offset_at(self, index: int) -> int:
        return index

    def _truncate_ext(self, ext: ConsumeQueueExt) -> None:
        """Drop the extensions that no unit points at, always.

        RocketMQ keeps most of them, and nothing finds those after the last unit.
        """
        # Units that point there no longer have to be on disk before they could not any more.
        self._files.sync_all()
        for file in reversed(self._files.files):
            codes = units_of(file, CQ_UNIT.columns)["tags_code"]
            addresses = np.flatnonzero(codes <= EXT_ADDRESS_MAX)
            if addresses.size:
                ext.truncate_by_max_address(int(codes[addresses[-1]]))
                return
        ext.destroy()

    # -- entering --------------------------------------------------------------------------------

    @property
    def _next_logic_offset(self) -> int:
        # Also of a queue whose only file, an empty one, was deleted.
        return self.next_offset * CQ_STORE_UNIT_SIZE

    def append(
        self, physical_offset: int, size: int, tags_code: int, store_timestamp_ms: int = 0
    ) -> None:
        """Add the next message's unit; the time is for its extension. Call `ensure_room` first."""
        if self._ext is not None:
            tags_code = self._ext.code_of(tags_code, store_timestamp_ms, physical_offset, size)
        last = self._files.files[-1]
        CQ_STORE_UNIT.pack_into(last.buffer, last.wrote_position, physical_offset, size, tags_code)
        last.wrote_position += CQ_STORE_UNIT_SIZE
        self.max_physic_offset = physical_offset + size
        self.next_offset += 1

    def append_many(self, units: list[int], store_timestamp_ms: int = 0) -> None:
        """Add several units, stored at that time: place, size, tags code of the first, and so on.

        Raises:
            StoreFullError: no room for the next file; the units before it were added.
        """
        done = 0
        while done < len(units):
            self.ensure_room()
            last = self._files.files[-1]
            room = (last.allocated_position - last.wrote_position) // CQ_STORE_UNIT_SIZE
            some = units[done : done + 3 * room]
            count = len(some) // 3
            if self._ext is not None:
                some[2::3] = [
                    self._ext.code_of(code, store_timestamp_ms, offset, size)
                    for offset, size, code in zip(*[iter(some)] * 3, strict=True)
                ]
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
            request.store_timestamp_ms,
            may_start_late=may_start_late,
        )

    def dispatch_many(
        self,
        offsets: Int64s,
        sizes: Int64s,
        tags_codes: Int64s,
        queue_offsets: Int64s,
        store_timestamps_ms: Int64s | None = None,
        *,
        may_start_late: bool = True,
    ) -> int:
        """Enter records read from the log, in the order of the log; return how many are new.

        The effect is that of `dispatch` row by row: rows before one that raises are entered. Store
        timestamps are needed for extensions only.

        Raises:
            QueueGapError, StoreFullError: see `dispatch`.
        """
        if store_timestamps_ms is None:
            assert self._ext is None, "extensions need store timestamps"
            store_timestamps_ms = np.zeros_like(offsets)
        columns = (offsets, sizes, tags_codes, queue_offsets, store_timestamps_ms)
        is_few = len(offsets) <= _PLAIN_LOOP_ROWS_MAX
        ends = offsets if is_few else offsets + sizes
        if is_few or not (ends[1:] > ends[:-1]).all():
            rows = zip(*(column.tolist() for column in columns), strict=True)
            return sum(self._enter(*row, may_start_late=may_start_late) for row in rows)
        built = int(np.searchsorted(ends, self.max_physic_offset, side="right"))
        if built:
            self._repair_many(*(column[:built] for column in columns))
        if built == len(ends):
            return 0
        self._start(int(queue_offsets[built]), int(offsets[built]), may_start_late=may_start_late)
        expected = np.arange(self.next_offset, self.next_offset + len(ends) - built)
        wrong = np.flatnonzero(queue_offsets[built:] != expected)
        gap = built + int(wrong[0]) if wrong.size else len(ends)
        new = slice(built, gap)
        self._append_columns(offsets[new], sizes[new], tags_codes[new], store_timestamps_ms[new])
        if gap < len(ends):
            raise self._gap(int(queue_offsets[gap]), int(offsets[gap]))
        return gap - built

    def _enter(
        self,
        offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        store_timestamp_ms: int,
        *,
        may_start_late: bool,
    ) -> bool:
        if offset + size <= self.max_physic_offset:
            self._confirmed.met(np.array([queue_offset]), self.next_offset)
            self._repair(offset, size, tags_code, queue_offset, store_timestamp_ms)
            return False
        self._start(queue_offset, offset, may_start_late=may_start_late)
        self.ensure_room()
        self.append(offset, size, tags_code, store_timestamp_ms)
        return True

    def _start(self, queue_offset: int, offset: int, *, may_start_late: bool) -> None:
        """Make sure that the record with this queue offset is the one to come."""
        if queue_offset == self.next_offset:
            return
        possible = 0 < queue_offset <= _QUEUE_OFFSET_MAX
        if self._files.files or not may_start_late or not possible:
            raise self._gap(queue_offset, offset)
        self._pre_blank(queue_offset)

    def _append_columns(
        self, offsets: Int64s, sizes: Int64s, tags_codes: Int64s, store_timestamps_ms: Int64s
    ) -> None:
        done = 0
        while done < len(offsets):
            self.ensure_room()
            last = self._files.files[-1]
            room = (last.allocated_position - last.wrote_position) // CQ_STORE_UNIT_SIZE
            some = slice(done, min(len(offsets), done + room))
            codes = tags_codes[some]
            if self._ext is not None:
                columns = (codes, store_timestamps_ms[some], offsets[some], sizes[some])
                rows = zip(*(column.tolist() for column in columns), strict=True)
                codes = np.array([self._ext.code_of(*row) for row in rows], np.int64)
            count = some.stop - done
            units: Units = np.ndarray(count, CQ_UNIT.columns, last.buffer, last.wrote_position)
            units["offset"] = offsets[some]
            units["size"] = sizes[some]
            units["tags_code"] = codes
            last.wrote_position += count * CQ_STORE_UNIT_SIZE
            self.max_physic_offset = int(offsets[some.stop - 1] + sizes[some.stop - 1])
            self.next_offset += count
            done = some.stop

    def _repair(
        self, offset: int, size: int, tags_code: int, queue_offset: int, store_timestamp_ms: int
    ) -> None:
        """Write the tags code of a unit again if it is another one than that of its record.

        A power loss leaves zeros in its place, or an address of an extension that is not this
        message's; a byte may have changed. RocketMQ also puts times there, of delayed messages by
        the levels that it had, and addresses of extensions that are not read here: these stay.
        """
        if not self._first_index <= queue_offset < self.next_offset:
            return
        found = self.unit(queue_offset)
        if found[:2] != (offset, size):
            # One further on is of a later life of the topic.
            if found[0] <= offset and found[1] != FILLER_SIZE:
                raise self._gap(queue_offset, offset)
            return
        self._confirmed.count += 1
        if found[2] == tags_code:
            return
        if self._ext is not None and is_ext_address(found[2]):
            unit = self._ext.get(found[2])
            if unit and (unit.tags_code, unit.store_timestamp_ms) == (
                tags_code,
                store_timestamp_ms,
            ):
                return
        elif found[2] not in (0, tags_code & ~0xFFFFFFFF) and (
            self.topic == SCHEDULE_TOPIC or is_ext_address(found[2])
        ):
            return
        self.rewrite_unit(queue_offset, offset, size, tags_code)

    def _repair_many(
        self,
        offsets: Int64s,
        sizes: Int64s,
        tags_codes: Int64s,
        queue_offsets: Int64s,
        store_timestamps_ms: Int64s,
    ) -> None:
        """Look at all these rows at once, and again at those that differ."""
        self._confirmed.met(queue_offsets, self.next_offset)
        per_file = self._files.mapped_file_size // CQ_STORE_UNIT_SIZE
        first = self._first_index
        from_file, to_file = (
            max(0, (int(end) - first) // per_file)
            for end in (queue_offsets.min(), queue_offsets.max() + per_file)
        )
        columns = (offsets, sizes, tags_codes, queue_offsets, store_timestamps_ms)
        for file in self._files.files[from_file:to_file]:
            numbers = queue_offsets - file.file_from_offset // CQ_STORE_UNIT_SIZE
            units = units_of(file, CQ_UNIT.columns)
            rows = np.flatnonzero((numbers >= 0) & (numbers < len(units)))
            # As plain bytes: numpy copies structured values one field at a time.
            units = units.view(f"V{CQ_STORE_UNIT_SIZE}")[numbers[rows]].view(units.dtype)
            differs = units["tags_code"] != tags_codes[rows]
            differs |= (units["offset"] != offsets[rows]) | (units["size"] != sizes[rows])
            self._confirmed.count += len(rows) - int(np.count_nonzero(differs))
            for row in rows[differs].tolist():
                self._repair(*(int(column[row]) for column in columns))

    def _pre_blank(self, queue_offset: int) -> None:
        """Start the queue at `queue_offset`: fillers from the start of the file up to there."""
        logic_offset = queue_offset * CQ_STORE_UNIT_SIZE
        file = self._files.last_or_create(logic_offset)
        count = (logic_offset - file.file_from_offset) // CQ_STORE_UNIT_SIZE
        # One unit more: the first message, or a filler of `start_at`.
        file.allocate(min(file.size, (count + 1) * CQ_STORE_UNIT_SIZE))
        fillers = CQ_STORE_UNIT.pack(0, FILLER_SIZE, 0) * count
        file.buffer[: len(fillers)] = fillers
        file.wrote_position = len(fillers)
        self.min_offset = self.next_offset = queue_offset

    def start_at(self, queue_offset: int) -> None:
        """Let an empty queue go on with this number: all its messages have left the commit log.

        Raises:
            StoreFullError: no room for a file.
        """
        assert not self._files.files
        assert queue_offset > 0
        self._pre_blank(queue_offset - 1)
        last = self._files.files[-1]
        # One filler more, so that the number is in the files also where one of them ends.
        CQ_STORE_UNIT.pack_into(last.buffer, last.wrote_position, 0, FILLER_SIZE, 0)
        last.wrote_position += CQ_STORE_UNIT_SIZE
        self.min_offset = self.next_offset = queue_offset
        self.wake()

    # -- reading ---------------------------------------------------------------------------------

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Return (physical offset, size, tags code or address) of a unit that exists."""
        file = self.file_of(queue_offset)
        assert file is not None
        position = queue_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset
        offset, size, code = CQ_STORE_UNIT.unpack_from(file.buffer, position)
        return offset, size, code

    def file_of(self, queue_offset: int) -> MappedFile | None:
        """Return the file of this unit, if there is one."""
        return self._files.find_by_offset(queue_offset * CQ_STORE_UNIT_SIZE)

    def ext_unit(self, number: int) -> CqExtUnit | None:
        """What the extension keeps of the message with this number, if anything."""
        return None if self._ext is None else self._ext.get(self.unit(number)[2])

    def units(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Yield at most `count_max` units from `queue_offset` on, only those of one file.

        Physical offset, size, tags code. A code that `is_ext_address` is unknown: a filter by
        tags has to let the message pass.
        """
        file = self.file_of(queue_offset)
        if file is None:
            return iter(())
        start = queue_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset
        end = min(file.wrote_position, start + count_max * CQ_STORE_UNIT_SIZE)
        units = CQ_STORE_UNIT.iter_unpack(bytes(file.buffer[start : max(start, end)]))
        ext = self._ext
        if ext is None:
            return units
        return ((offset, size, ext.tags_code(code)) for offset, size, code in units)

    def readable_end(self, physical_offset: int) -> int:
        """Return the end of the messages whose records end by then: `min_offset` if none does."""
        if self.max_physic_offset <= physical_offset:
            return self.next_offset

        def is_below(number: int) -> bool:
            offset, size, _ = self.unit(number)
            return size == FILLER_SIZE or offset + size <= physical_offset

        return first_not_below(self.min_offset, self.next_offset, is_below)

    def offset_by_time(
        self,
        store_timestamp_of: Callable[[int], int],
        timestamp_ms: int,
        min_physical_offset: int,
        *,
        upper: bool = False,
        end: int | None = None,
    ) -> int:
        """Return the queue offset for a store time, never outside of the queue.

        Lower bound: the first message stored at `timestamp_ms` or later, the end if there is none.
        Upper bound: the last one stored then or earlier, the first one if there is none.

        `store_timestamp_of` returns when the record at a physical offset was stored, -1 if there is
        none; the answer then is the first message. Records below `min_physical_offset` count as
        earlier than any time. `end` stands in for the end of the queue.

        Source: ConsumeQueue.getOffsetInQueueByTime, ConsumeQueueStore.getOffsetInQueueByTime.
        """
        low, high = self.min_offset, self.next_offset if end is None else end
        while low < high:
            middle = (low + high) // 2
            offset, size, _ = self.unit(middle)
            is_early = offset < min_physical_offset or size == FILLER_SIZE
            stored_ms = 0 if is_early else store_timestamp_of(offset)
            if stored_ms < 0:
                return self.min_offset
            if is_early or stored_ms < timestamp_ms or (upper and stored_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(self.min_offset, low - 1) if upper else low

    # -- deleting --------------------------------------------------------------------------------

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_offset` up to the first message that the commit log still holds.

        If it holds none, that is the end of the queue; 5.3.3 looks for it in the first file only,
        and fails if the last one has no unit.

        Source: ConsumeQueue.correctMinOffset.
        """

        def is_gone(number: int) -> bool:
            offset, size, _ = self.unit(number)
            return size == FILLER_SIZE or offset < min_physical_offset

        self.corrected_to = min_physical_offset
        low = self._first_index
        if 0 <= self.max_physic_offset <= min_physical_offset:
            # All are gone. Most queues may be idle and closed: no file is opened to see that.
            low = self.next_offset
        elif min_physical_offset > self._first_record or self._ext is not None:
            low = first_held(low, self.next_offset, is_gone)
        self.min_offset = low
        if self._ext is not None and low < self.next_offset:
            self._ext.truncate_by_min_address(self.unit(low)[2])


@lru_cache(maxsize=256)
def _units_struct(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)
