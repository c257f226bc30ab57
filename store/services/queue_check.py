"""QueueCheck: do the units of queues name the records that are theirs? Wrong ones are written anew.

A unit is wrong where the log has a record of this queue with this number, and the unit names
something that is none, or has another code of its tags: readers of these tags would never get it.
What is a record of the queue with this number as well stays: a topic that
was deleted and created again has had the same numbers twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.log.log_end import DELAY_LEVELS, DispatchRequest, read_record
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import is_queued
from tandem.wire.column_values import distinct_values, tags_codes
from tandem.wire.delay_level import SCHEDULE_TOPIC
from tandem.wire.store_layout import FILLER_SIZE

if TYPE_CHECKING:
    from store.log.commit_log import CommitLog
    from store.queue.consume_queue_store import ConsumeQueueStore
    from tandem.wire.delay_level import DelayLevels
    from tandem.wire.record_scan import RecordColumns

_log = logging.getLogger(__name__)


class QueueCheck:
    """Compares the queues of one store with its log. Queues of batches it passes over.

    `left` counts wrong units that were not written anew: what they name in an extension is not
    known.
    """

    def __init__(
        self, log: CommitLog, queues: ConsumeQueueStore, levels: DelayLevels = DELAY_LEVELS
    ) -> None:
        self.left = 0
        self._log = log
        self._queues = queues
        self._levels = levels

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
        wrong = [
            (queue, number, offset, size, code)
            for topic, queue_id, number, offset, size, sys_flag, code in rows
            if isinstance(queue := self._queues.find(topic, queue_id), ConsumeQueue)
            and queue.min_offset <= number < queue.next_offset
            and is_queued(sys_flag)
            and queue.unit(number) != (offset, size, code)
        ]
        return sum(
            self._is_code_rewritten(queue, number, code)
            if queue.unit(number)[:2] == (offset, size)
            else self._is_rewritten(queue, number, offset, size, code)
            for queue, number, offset, size, code in wrong
        )

    def _is_rewritten(
        self, queue: ConsumeQueue, number: int, offset: int, size: int, code: int
    ) -> bool:
        found = queue.unit(number)
        owner = (queue.topic, queue.queue_id, number)
        if found[1] == FILLER_SIZE or not self._log.record_fault(found[0], found[1], owner):
            return False
        if not self._fits_between(queue, number, offset):
            return False
        if len(queue.file_queues) > 1:
            self.left += 1
            _log.error(
                "%s-%d: number %d names %d bytes at %d, and not its record at %d;"
                " tandem log repair --write builds the queue anew",
                *owner,
                found[1],
                found[0],
                offset,
            )
            return False
        if queue.topic == SCHEDULE_TOPIC:
            record = self._log.record_at(offset)
            if record is None:
                return False
            found_again = read_record(record, 0, len(record), offset, levels=self._levels)
            if not isinstance(found_again, DispatchRequest):
                return False
            code = found_again.tags_code
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
        if len(queue.file_queues) > 1 or queue.topic == SCHEDULE_TOPIC:
            return False
        offset, size, found = queue.unit(number)
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
