"""QueueCheck: do the units of queues name the records that are theirs?

    an ordinary queue    a wrong unit is written anew, in its place
    a queue of batches   where one is wrong all are in doubt: see `queue_rebuild.py`
    no place for it      units that are missing before the first one, or whole queues: these are
                         built at the next start, see `rebuild_order.py`

A unit is wrong where the log has a record of this queue with this number, and the unit names
something that is none, or has another code of its tags: readers of these tags would never get it.
What is a record of the queue with this number as well stays: a topic that
was deleted and created again has had the same numbers twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from store.log.commit_log import CommitLog
from store.log.log_end import DELAY_LEVELS, DispatchRequest, read_record
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import ConsumeQueueStore, is_queued
from store.services.dispatch import inner_batches, is_directory_name
from tandem.wire.column_values import distinct_values, tags_codes
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import INNER_BATCH_FLAG
from tandem.wire.record_scan import RecordColumns
from tandem.wire.store_layout import FILLER_SIZE, is_ext_address
from tandem.wire.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC

_log = logging.getLogger(__name__)


class QueueCheck:
    """Compares the queues of one store with its log.

    `dispatched` returns up to where in the log the queues have their records. `doubted` has the
    queues of batches that are wrong: their units have no places by number, so they are built anew
    as a whole. `lost` says which queue lacks units for which it has no place, in words.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        levels: DelayLevels = DELAY_LEVELS,
        dispatched: Callable[[], int] | None = None,
    ) -> None:
        self.doubted: set[BatchConsumeQueue] = set()
        self.lost: str | None = None
        self._log = log
        self._queues = queues
        self._levels = levels
        self._dispatched = dispatched or (lambda: log.max_offset)

    def check(self, buffer: bytes | memoryview, columns: RecordColumns) -> int:
        """Look at the units of these records, which are sound; return how many were written anew.

        The tags code of a delayed message is the time when it is due, by the levels there are now,
        as when a queue is built from the log.
        """
        topics, of_row = distinct_values(buffer, columns.topic_start, columns.topic_size)
        names = [topic.decode("utf-8", "replace") for topic in topics]
        rows = zip(
            [names[number] for number in of_row.tolist()],
            columns.queue_id.tolist(),
            columns.queue_offset.tolist(),
            columns.physical_offset.tolist(),
            columns.size.tolist(),
            columns.sys_flag.tolist(),
            tags_codes(buffer, columns).tolist(),
            strict=True,
        )
        wrong: list[tuple[ConsumeQueue, int, int, int, int]] = []
        batches: dict[BatchConsumeQueue, list[int]] = {}
        for row, (topic, queue_id, number, offset, size, sys_flag, code) in enumerate(rows):
            if not is_queued(sys_flag):
                continue
            queue = self._queues.find(topic, queue_id)
            if isinstance(queue, BatchConsumeQueue):
                if sys_flag & INNER_BATCH_FLAG:
                    batches.setdefault(queue, []).append(row)
            elif queue is None or number < queue.first_index or not queue.end_index:
                self._look_for_lost(queue, topic, queue_id, number, offset)
            elif queue.min_offset <= number < queue.next_offset and queue.unit(number) != (
                offset,
                size,
                code,
            ):
                wrong.append((queue, number, offset, size, code))
        for batch_queue, own in batches.items():
            self._look_at_batches(batch_queue, buffer, columns.take(np.array(own)))
        return sum(
            self._is_code_rewritten(queue, number, code)
            if queue.unit(number)[:2] == (offset, size)
            else self._is_rewritten(queue, number, offset, size, code)
            for queue, number, offset, size, code in wrong
        )

    def _look_for_lost(
        self, queue: ConsumeQueue | None, topic: str, queue_id: int, number: int, offset: int
    ) -> None:
        """Say of a record that it belongs in a part of a queue that is not there."""
        is_nameless = not is_directory_name(topic) or queue_id < 0 or number < 0
        start = max(self._log.min_offset, self._queues.hidden_before(topic))
        is_held = start <= offset < self._dispatched()
        if self.lost is not None or is_nameless or not is_held or topic.startswith(LMQ_PREFIX):
            return
        there = "there is no such queue"
        if queue is not None and queue.end_index:
            first = queue.first_unit
            if first is None or first[0] <= offset:
                return
            there = f"the queue begins with number {first[1]}"
        self.lost = f"{topic}-{queue_id}: {there}, and the log has number {number} at {offset}"

    def _look_at_batches(
        self, queue: BatchConsumeQueue, buffer: bytes | memoryview, columns: RecordColumns
    ) -> None:
        """Doubt a queue of batches whose units are not those of these records, in their order."""
        offsets, sizes = columns.physical_offset, columns.size
        bases, counts = inner_batches(buffer, columns)
        is_there = (offsets + sizes <= queue.max_physic_offset) & (
            bases + counts > queue.min_offset
        )
        rows = np.flatnonzero(is_there)
        if not rows.size or queue in self.doubted:
            return
        wanted = list(
            zip(*(column[rows].tolist() for column in (offsets, sizes, bases, counts)), strict=True)
        )
        if queue.names(wanted):
            return
        first = queue.first_unit
        if first is not None and wanted[0][2] < first[1]:
            self._look_for_lost(None, queue.topic, queue.queue_id, wanted[0][2], wanted[0][0])
        self.doubted.add(queue)

    def _is_rewritten(
        self, queue: ConsumeQueue, number: int, offset: int, size: int, code: int
    ) -> bool:
        found = queue.unit(number)
        owner = (queue.topic, queue.queue_id, number)
        if found[1] == FILLER_SIZE or not self._log.record_fault(found[0], found[1], owner):
            return False
        if not self._fits_between(queue, number, offset):
            return False
        if queue.topic == SCHEDULE_TOPIC:
            record = self._log.record_at(offset)
            if record is None:
                return False
            found_again = read_record(record, 0, len(record), offset, levels=self._levels)
            if not isinstance(found_again, DispatchRequest):
                return False
            code = found_again.tags_code
        # Where the queue has extensions, its own is lost: a plain code is allowed there as well.
        queue.rewrite_unit(number, offset, size, code)
        _log.error(
            "%s-%d: number %d named %d bytes at %d, and not its record at %d; written anew",
            *owner,
            found[1],
            found[0],
            offset,
        )
        return True

    def _is_code_rewritten(self, queue: ConsumeQueue, number: int, code: int) -> bool:
        """Write the code of a message's tags anew; return whether that was done.

        An extension has its own code, and delayed messages the time when they are due.
        """
        offset, size, found = queue.unit(number)
        has_other = len(queue.file_queues) > 1 or is_ext_address(found)
        if has_other or queue.topic == SCHEDULE_TOPIC:
            return False
        queue.rewrite_unit(number, offset, size, code)
        _log.error(
            "%s-%d: number %d had %d for its tags, and not %d; written anew",
            *(queue.topic, queue.queue_id, number, found, code),
        )
        return True

    def _fits_between(self, queue: ConsumeQueue, number: int, offset: int) -> bool:
        """True unless the units around it name records before or after: one of another life.

        A neighbour that is wrong itself says nothing.
        """
        before = self._place(queue, number - 1) if number > queue.min_offset else -1
        after = self._place(queue, number + 1) if number + 1 < queue.next_offset else -1
        return before < offset and (after < 0 or offset < after)

    def _place(self, queue: ConsumeQueue, number: int) -> int:
        """Return where the record of a unit is, -1 if it names none that is its own."""
        offset, size, _ = queue.unit(number)
        fault = self._log.record_fault(offset, size, (queue.topic, queue.queue_id, number))
        return -1 if fault else offset
