"""Dispatch: records of the log enter their queues.

One record at a time, some usual ones in a plain loop, or whole pieces of the log at once: then the
records are sorted by topic and queue with comparisons of columns, and each queue takes its own in
one call.

    columns of records --+-- prepared, rolled back, nameless: in no queue
                         |
                         +-- by topic and queue id --> dispatch_many of that queue
                         |
                         |
                         +-- of a topic of batches: with how many messages each of them is

A queue whose numbers begin again at 0 belongs to a topic that was deleted and created again. It
starts anew: older messages are in the log, but in no queue, as they were before the log was read.

Entering is harmless when repeated: a queue takes a record once. So after an interruption, or an
error, it starts again with the same records.

Source: DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import numpy as np

from store.log.log_end import DELAY_LEVELS, DispatchRequest
from store.machine.tell_once import TellOnce
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore, is_queued
from store.queue.queue_units import QueueGapError
from store.results import Arrival
from store.services.usual_records import UsualRecord
from tandem.wire.column_values import distinct_values, property_values, tags_codes
from tandem.wire.delay_level import DelayLevels, delay_level_of
from tandem.wire.message import (
    INNER_BATCH_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tandem.wire.message_properties import PROPERTY_DELAY_LEVEL, inner_batch_of, tags_code_of
from tandem.wire.record_scan import Bools, Int64s, RecordColumns
from tandem.wire.system_topics import SCHEDULE_TOPIC

_log = logging.getLogger(__name__)

DIRECTORY_NAME_BYTES_MAX: Final = 255
"""A topic is the name of a directory."""

QUEUE_OFFSET_MAX: Final = (2**63 - 1) // 46
"""What the position of a unit, of 46 bytes in the largest queues, can express."""

_DELAY: Final = PROPERTY_DELAY_LEVEL.encode()


class _Run:
    """Units that a queue gets at once. Physical offset, size, tags code; and the next ones."""

    __slots__ = ("next_offset", "queue", "units")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.next_offset = queue.next_offset
        self.units: list[int] = []


class ConsumeQueueDispatcher:
    """Enters records in the queues of one store."""

    def __init__(self, queues: ConsumeQueueStore, levels: DelayLevels = DELAY_LEVELS) -> None:
        self.levels = levels
        self._queues = queues
        self._told: TellOnce[str] = TellOnce()

    def dispatch(
        self,
        request: DispatchRequest,
        *,
        may_start_late: bool = True,
        arrivals: list[Arrival] | None = None,
    ) -> None:
        """Enter one record, if it belongs in a queue.

        Raises:
            QueueGapError, StoreFullError: see `ConsumeQueue.dispatch`.
        """
        if not is_queued(request.sys_flag):
            return
        if not self._has_place(request.topic, request.queue_id, request.queue_offset):
            return
        queue = self._queues.find_or_create(
            request.topic,
            request.queue_id,
            holds_batches=bool(request.sys_flag & INNER_BATCH_FLAG),
        )
        try:
            is_new = queue.dispatch(request, may_start_late=may_start_late)
        except QueueGapError:
            if request.queue_offset or request.offset < queue.max_physic_offset:
                raise
            _start_anew(queue, request.offset)
            is_new = queue.dispatch(request)
        if is_new and arrivals is not None:
            arrivals += (_arrival(queue, request.tags_code),)

    def dispatch_usual(
        self,
        records: Iterable[UsualRecord],
        since_ms: int,
        *,
        arrivals: list[Arrival] | None = None,
    ) -> tuple[int, UsualRecord | None]:
        """Enter these records up to the first that `dispatch` has to look at.

        Return how many, and the last one. `dispatch` looks at a record that does not simply go on
        in a queue that is there, or that was stored earlier than the one before it (the first:
        earlier than `since_ms`). `arrivals` gets one entry for each queue that has grown.

        Raises:
            StoreFullError: see `ConsumeQueue.dispatch`. Some queues may have their records, others
                not.
        """
        runs: dict[tuple[bytes, int], _Run] = {}
        count, last = 0, None
        for record in records:
            offset, size, queue_id, queue_offset, stored_ms, topic, properties = record
            run = runs.get((topic, queue_id)) or self._run_of(topic, queue_id, offset)
            if run is None or queue_offset != run.next_offset or stored_ms < since_ms:
                break
            if not run.units:
                runs[topic, queue_id] = run
            run.next_offset += 1
            run.units += offset, size, tags_code_of(properties)
            since_ms = stored_ms
            last = record
            count += 1
        for run in runs.values():
            _enter_run(run, arrivals)
        return count, last

    def _run_of(self, topic: bytes, queue_id: int, offset: int) -> _Run | None:
        """Return what the queue gets from `offset` on; None if it may need more than units."""
        name = topic.decode("utf-8", "replace")
        queue = self._queues.find(name, queue_id)
        # A text that is no UTF-8 is the name of another one.
        if type(queue) is not ConsumeQueue or queue.topic_bytes != topic:
            return None
        has_extensions = len(queue.file_queues) > 1
        is_late = queue.max_physic_offset > offset
        return None if has_extensions or is_late or name == SCHEDULE_TOPIC else _Run(queue)

    def dispatch_columns(
        self,
        buffer: bytes | memoryview,
        columns: RecordColumns,
        *,
        may_start_late: bool = True,
        arrivals: list[Arrival] | None = None,
        new_queues_max: int | None = None,
    ) -> int:
        """Enter the records in `buffer` that `columns` describe; all of them are sound.

        `arrivals` gets one entry for each queue that has grown. Return how many records were
        entered: all, or those before the one that needs one queue more than `new_queues_max`, which
        is 1 at least.

        Raises:
            QueueGapError, StoreFullError: see `ConsumeQueue.dispatch`. Some queues may have their
                records, others not.
        """
        names, numbers, codes, placed = self.places(buffer, columns)
        rows = np.flatnonzero(placed)
        keys = numbers[rows] << 32 | columns.queue_id[rows]
        rows, runs = _grouped(rows, keys)
        if new_queues_max is not None:
            firsts = [int(rows[run.start]) for run in runs]
            new = sorted(
                row
                for row in firsts
                if self._queues.find(names[numbers[row]], int(columns.queue_id[row])) is None
            )
            if len(new) > new_queues_max:
                columns = columns.take(slice(0, new[new_queues_max]))
                return self.dispatch_columns(
                    buffer, columns, may_start_late=may_start_late, arrivals=arrivals
                )
        units = (
            columns.physical_offset[rows],
            columns.size[rows],
            codes[rows],
            columns.queue_offset[rows],
            columns.store_timestamp_ms[rows],
        )
        for run in runs:
            first = rows[run.start]
            queue = self._queues.find_or_create(
                names[numbers[first]],
                int(columns.queue_id[first]),
                holds_batches=bool(columns.sys_flag[first] & INNER_BATCH_FLAG),
            )
            own = tuple(column[run] for column in units)
            if isinstance(queue, BatchConsumeQueue):
                own = with_batches(buffer, columns.take(rows[run]), own)
            before = queue.next_offset
            try:
                _enter(queue, own, may_start_late=may_start_late)
            finally:
                if arrivals is not None and queue.next_offset != before:
                    arrivals += (_arrival(queue, _common(codes[rows[run]])),)
        return len(columns)

    def places(
        self, buffer: bytes | memoryview, columns: RecordColumns
    ) -> tuple[list[str], Int64s, Int64s, Bools]:
        """Return the topics, and of each record: which of them, tags code, whether it is queued."""
        names, numbers = _topics(buffer, columns)
        codes = self._dispatch_codes(buffer, columns, names, numbers)
        return names, numbers, codes, self._rows_with_place(columns, names, numbers)

    def _dispatch_codes(
        self,
        buffer: bytes | memoryview,
        columns: RecordColumns,
        names: list[str],
        numbers: Int64s,
    ) -> Int64s:
        """Return what the units carry: tags codes, or times for delayed messages.

        The columnar form of `DelayLevels.dispatch_code`.
        """
        codes = tags_codes(buffer, columns)
        if SCHEDULE_TOPIC not in names:
            return codes
        delayed = np.flatnonzero(numbers == names.index(SCHEDULE_TOPIC))
        values = property_values(buffer, columns.take(delayed), _DELAY)
        texts, of_row = distinct_values(buffer, np.maximum(values.start, 0), values.size)
        found = [delay_level_of(_DELAY + b"\x01" + text) for text in texts]
        levels = [max(0, min(level, self.levels.level_max)) for level in found]
        delays = np.array([self.levels.delay_ms(level) for level in levels], np.int64)
        times = columns.store_timestamp_ms[delayed] + delays[of_row]
        codes[delayed] = np.where(np.array(levels)[of_row] > 0, times, codes[delayed])
        return codes

    def _rows_with_place(self, columns: RecordColumns, names: list[str], numbers: Int64s) -> Bools:
        kind = columns.sys_flag & TRANSACTION_MASK
        queued = (kind != TRANSACTION_PREPARED_TYPE) & (kind != TRANSACTION_ROLLBACK_TYPE)
        good = np.array([is_directory_name(name) for name in names], np.bool_)[numbers]
        good &= (columns.queue_id >= 0) & (columns.queue_offset >= 0)
        good &= columns.queue_offset <= QUEUE_OFFSET_MAX
        for row in np.flatnonzero(queued & ~good).tolist():
            self._tell(names[numbers[row]], int(columns.queue_id[row]))
        placed: Bools = queued & good
        return placed

    def _has_place(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        if is_directory_name(topic) and queue_id >= 0 and 0 <= queue_offset <= QUEUE_OFFSET_MAX:
            return True
        self._tell(topic, queue_id)
        return False

    def _tell(self, topic: str, queue_id: int) -> None:
        if not self._told.is_full and self._told.is_news("no place", about=(topic, queue_id)):
            _log.warning(
                "records of topic %r, queue %d, are in the log but cannot be in a queue: no"
                " directory can have that name, or no file such numbers",
                topic,
                queue_id,
            )


def _enter_run(run: _Run, arrivals: list[Arrival] | None) -> None:
    queue, codes = run.queue, run.units[2::3]
    before = queue.next_offset
    try:
        queue.append_many(run.units)
    finally:
        if arrivals is not None and queue.next_offset != before:
            code = codes[0] if codes.count(codes[0]) == len(codes) else None
            end = queue.max_physic_offset
            arrivals += ((end, queue.topic, queue.queue_id, queue.next_offset, code),)


def _arrival(queue: AnyConsumeQueue, code: int | None) -> Arrival:
    end = queue.max_physic_offset
    return (end, queue.topic, queue.queue_id, queue.next_offset, code)


def _enter(queue: AnyConsumeQueue, units: tuple[Int64s, ...], *, may_start_late: bool) -> None:
    """Enter units, the columns that `dispatch_many` of that queue takes."""
    while True:
        try:
            queue.dispatch_many(*units, may_start_late=may_start_late)
        except QueueGapError:
            offsets, sizes, _, queue_offsets, *_ = units
            left = np.flatnonzero(offsets + sizes > queue.max_physic_offset)
            if not left.size or queue_offsets[left[0]]:
                raise
            _start_anew(queue, int(offsets[left[0]]))
            units = tuple(column[left] for column in units)
        else:
            return


def _start_anew(queue: AnyConsumeQueue, offset: int) -> None:
    _log.warning(
        "%s-%d: its numbers begin again at 0 with the record at %d, as those of a topic that was"
        " deleted and created again; the queue starts there, older messages are in the log only",
        queue.topic,
        queue.queue_id,
        offset,
    )
    queue.destroy()


def with_batches(
    buffer: bytes | memoryview, columns: RecordColumns, units: tuple[Int64s, ...]
) -> tuple[Int64s, ...]:
    """Return the units with the number of the first message in each record, and their count."""
    bases, counts = inner_batches(buffer, columns)
    return *units[:3], bases, *units[4:], counts


def inner_batches(buffer: bytes | memoryview, columns: RecordColumns) -> tuple[Int64s, Int64s]:
    """Return the number of the first message in each of these records, and how many there are."""
    batches = [
        inner_batch_of(bytes(buffer[start : start + size]), queue_offset)
        for start, size, queue_offset in zip(
            columns.properties_start.tolist(),
            columns.properties_size.tolist(),
            columns.queue_offset.tolist(),
            strict=True,
        )
    ]
    bases, counts = np.array(batches, np.int64).T
    return bases, counts


def is_directory_name(topic: str) -> bool:
    """True if a directory can have the name of this topic, as its queues need."""
    if not 0 < len(topic.encode()) <= DIRECTORY_NAME_BYTES_MAX or topic in {".", ".."}:
        return False
    return "/" not in topic and "\0" not in topic


def _topics(buffer: bytes | memoryview, columns: RecordColumns) -> tuple[list[str], Int64s]:
    """Return the different topics, and for each record the number of its own."""
    topics, numbers = distinct_values(buffer, columns.topic_start, columns.topic_size)
    names = [topic.decode("utf-8", "replace") for topic in topics]
    distinct = list(dict.fromkeys(names))
    if len(distinct) < len(names):  # they differed in bytes that are no text
        numbers = np.array([distinct.index(name) for name in names])[numbers]
    return distinct, numbers


def _grouped(rows: Int64s, keys: Int64s) -> tuple[Int64s, list[slice]]:
    """Return the rows with equal keys side by side, their order kept, and where each run is."""
    if not rows.size or (keys == keys[0]).all():
        return rows, [slice(0, rows.size)] if rows.size else []
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    cuts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), rows.size]
    return rows[order], [slice(*cut) for cut in pairwise(cuts)]


def _common(codes: Int64s) -> int | None:
    """Return the code that all have, None if there are several."""
    first: Any = codes[0]
    return int(first) if (codes == first).all() else None
