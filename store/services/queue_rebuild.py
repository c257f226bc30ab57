"""QueueRebuild: the units of queues that are in doubt, built anew from the log in their places.

    the log, from its beginning --> records of these queues --> their units, where they are wrong

Everything else goes on meanwhile. Messages that are put get units after those that are in doubt,
and those are right. Readers of such a queue get an error, which clients try again: nobody is sent
past a message. What is put in place is:

    an ordinary queue    by number: unit n is at n * 20. A number that the log has twice is that of
                         the later record, of a topic that was deleted and created again
    a queue of batches   counted from the last unit back: a unit covers several numbers. Only where
                         all of the log could be read, else the count means nothing

A unit that had an extension gets its plain tags code: that is allowed, and costs readers with a
filter a look at the record. What cannot be put in place is left to the next start: see
`rebuild_order.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import trio

from store.files.mapped_file import MappedFile
from store.log.commit_log import CommitLog
from store.log.log_end import Blank, Damage, next_records, record_behind
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import CQ_UNIT
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore
from store.queue.queue_units import Int64s, units_of
from store.services.dispatch import ConsumeQueueDispatcher, with_batches
from tandem.wire.delay_level import DelayLevels
from tandem.wire.record_scan import RecordColumns
from tandem.wire.store_layout import BATCH_CQ_COMPACTED_OFFSET

_log = logging.getLogger(__name__)

SLICE_BYTES: Final = 1 << 20


class Rebuilt(NamedTuple):
    """What has become of it."""

    rewritten: int
    """How many units were wrong, and are right now."""
    left: str
    """Why something is left to the next start, in words; "" if nothing is."""


class _Found:
    """One queue, as it was when the walk began, and the records of it that the log has."""

    def __init__(self, queue: AnyConsumeQueue) -> None:
        self.queue = queue
        self.end_index = queue.end_index
        self.end_offset = queue.max_physic_offset
        self.pieces: list[tuple[Int64s, ...]] = []

    def rows(self) -> tuple[Int64s, ...]:
        """Offset, size, tags code, number, store time, count of messages: of the last life."""
        if not self.pieces:
            return ()
        columns = tuple(np.concatenate(parts) for parts in zip(*self.pieces, strict=True))
        is_own = columns[0] + columns[1] <= self.end_offset
        columns = tuple(column[is_own] for column in columns)
        begins = np.flatnonzero(columns[3] == 0)
        start = int(begins[-1]) if begins.size else 0
        return tuple(column[start:] for column in columns)


class QueueRebuild:
    """Builds queues of one store. `levels` say when delayed messages are due."""

    def __init__(self, log: CommitLog, queues: ConsumeQueueStore, levels: DelayLevels) -> None:
        self._log = log
        self._dispatcher = ConsumeQueueDispatcher(queues, levels)

    async def run(
        self,
        doubted: Sequence[AnyConsumeQueue],
        rest: Callable[[float], Awaitable[object]],
    ) -> Rebuilt:
        """Build these queues. `rest` is called after each slice, with how long it took."""
        found = {(queue.topic, queue.queue_id): _Found(queue) for queue in doubted}
        is_whole_log = True
        at, end = self._log.min_offset, max((each.end_offset for each in found.values()), default=0)
        while at < end:
            began = trio.current_time()
            at, is_sound = self._step(at, found)
            is_whole_log &= is_sound
            await rest(trio.current_time() - began)
        rewritten, left = 0, ""
        for each in found.values():
            count, why = self._mend(each, is_whole_log=is_whole_log)
            rewritten += count
            left = left or why
            if not why:
                _log.error("%s: %s units built anew", each.queue.name, count)
        return Rebuilt(rewritten, left)

    def _step(self, at: int, found: dict[tuple[str, int], _Found]) -> tuple[int, bool]:
        """Take what is in one slice; return where the next one begins, and if all was sound."""
        log = self._log
        at = max(at, log.min_offset)
        file = log.files.find_by_offset(at)
        if file is None or at >= log.max_offset:
            return log.max_offset, True
        position = at - file.file_from_offset
        end = min(file.size, log.max_offset - file.file_from_offset)
        data, columns = next_records(
            file.buffer, position, end, at, bytes_max=SLICE_BYTES, check_crc=False
        )
        after_file = file.file_from_offset + file.size
        if isinstance(columns, Blank):
            return after_file, True
        if isinstance(columns, Damage):
            behind = record_behind([file], at)
            return (after_file if behind is None else behind.offset), False
        self._take(data, columns, found)
        is_bad = log.damage.within(at, at + len(data)) is not None
        return int(columns.physical_offset[-1] + columns.size[-1]), not is_bad

    def _take(
        self,
        data: bytes | memoryview,
        columns: RecordColumns,
        found: dict[tuple[str, int], _Found],
    ) -> None:
        names, of_row, codes, placed = self._dispatcher.places(data, columns)
        for (topic, queue_id), each in found.items():
            if topic not in names:
                continue
            own = placed & (of_row == names.index(topic)) & (columns.queue_id == queue_id)
            rows = np.flatnonzero(own)
            if not rows.size:
                continue
            units: tuple[Int64s, ...] = (
                columns.physical_offset[rows],
                columns.size[rows],
                codes[rows],
                columns.queue_offset[rows],
                columns.store_timestamp_ms[rows],
            )
            if isinstance(each.queue, BatchConsumeQueue):
                units = with_batches(data, columns.take(rows), units)
            else:
                units = (*units, np.ones(rows.size, np.int64))
            each.pieces.append(units)

    def _mend(self, found: _Found, *, is_whole_log: bool) -> tuple[int, str]:
        """Put the units of one queue in place; return how many, and what is left and why."""
        queue, rows = found.queue, found.rows()
        if queue.end_index < found.end_index:  # it has begun anew meanwhile
            queue.trouble = ""
            return 0, ""
        if isinstance(queue, BatchConsumeQueue):
            return _mend_batches(queue, found, rows, is_whole_log=is_whole_log)
        count = (
            sum(_mend_file(file, rows, found.end_index) for file in queue.files.files)
            if rows
            else 0
        )
        queue.wake()
        # A unit without a sound record stays as it is: each is compared when it is read.
        queue.trouble = ""
        return count, ""


def _mend_file(file: MappedFile, rows: tuple[Int64s, ...], end: int) -> int:
    """Write the units of one file again that are wrong; return how many."""
    offsets, sizes, codes, numbers = rows[:4]
    units = units_of(file, CQ_UNIT.columns)
    first = file.file_from_offset // CQ_UNIT.columns.itemsize
    own = np.flatnonzero((numbers >= first) & (numbers < min(first + len(units), end)))
    at = numbers[own] - first
    is_wrong = (units["offset"][at] != offsets[own]) | (units["size"][at] != sizes[own])
    own, at = own[is_wrong], at[is_wrong]
    if not own.size:
        return 0
    units["offset"][at] = offsets[own]
    units["size"][at] = sizes[own]
    units["tags_code"][at] = codes[own]
    file.flushed_position = min(file.flushed_position, int(at.min()) * CQ_UNIT.columns.itemsize)
    return int(own.size)


def _mend_batches(
    queue: BatchConsumeQueue, found: _Found, rows: tuple[Int64s, ...], *, is_whole_log: bool
) -> tuple[int, str]:
    count = len(rows[0]) if rows else 0
    start = found.end_index - count
    reaches_end = count > 0 and int(rows[0][-1] + rows[1][-1]) == found.end_offset
    if not is_whole_log or not reaches_end or start < queue.first_index:
        why = "a part of the log is damaged" if not is_whole_log else "it lacks units"
        return 0, f"{queue.name} cannot be built anew in place: {why}"
    rewritten = 0
    for index, row in enumerate(zip(*(column.tolist() for column in rows), strict=True), start):
        offset, size, code, base, stored_ms, messages = row
        unit = (offset, size, code, stored_ms, base, messages, BATCH_CQ_COMPACTED_OFFSET, 0)
        if queue.unit_at(index) != unit:
            queue.rewrite_unit(index, *unit)
            rewritten += 1
    queue.trouble = ""
    return rewritten, ""
