"""QueueGrowth: how many messages have come into which topic, and how many bytes their records have.

    queue   |==========|=========|
            counted -->^         ^ what can be read now

Nothing is counted when a message is put. A queue knows its number of messages, and its units know
the sizes of their records, so what has come since the last look can be found out at any time, for
all messages at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import CQ_UNIT, ConsumeQueue
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.queue_units import units_of
from store.queue.unit_queue import UnitQueue
from store.results import QueueOffset
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE, FILLER_SIZE


class Growth(NamedTuple):
    """What has come into one queue since the last look."""

    topic: str
    messages: int
    record_bytes: int


class QueueGrowth:
    """Looks at the queues of one store from time to time; what is there at first does not count."""

    def __init__(
        self, queues: ConsumeQueueStore, end_of: Callable[[str, int], QueueOffset]
    ) -> None:
        """Begin to count. `end_of` says up to where a queue can be read."""
        self._queues = queues
        self._end_of = end_of
        queues.awake.take_grown()
        self._counted: dict[UnitQueue, QueueOffset] = {}
        """Up to where queues are counted of which more may come without their waking up."""
        for key in queues.queues():
            queue, end = queues.find(*key), end_of(*key)
            if queue is not None and (end != queue.next_offset or queue in queues.awake):
                self._counted[queue] = end

    @property
    def changed_count(self) -> int:
        """How many queues the next look is at, about."""
        return len(self._counted) + self._queues.awake.grown_count

    def look(self) -> Iterator[Growth | None]:
        """Yield once for each queue that may have grown: what has come into it, None if nothing.

        The caller may let others have their turn between two of them.
        """
        looked_at = self._queues.awake.take_grown() | self._counted
        self._counted.update(looked_at)
        for queue, counted in looked_at.items():
            yield self._look_at(queue, counted)

    def _look_at(self, queue: UnitQueue, counted: QueueOffset) -> Growth | None:
        if self._queues.find(queue.topic, queue.queue_id) is not queue:
            del self._counted[queue]
            return None
        end = self._end_of(queue.topic, queue.queue_id)
        self._counted[queue] = end
        if end == queue.next_offset and queue not in self._queues.awake:
            del self._counted[queue]  # it wakes up before anything comes
        if end <= counted:
            return None  # its numbers have begun anew, or nothing of it can be read yet
        if isinstance(queue, BatchConsumeQueue):
            return Growth(queue.topic, end - counted, _bytes_of_batches(queue, counted, end))
        assert isinstance(queue, ConsumeQueue)
        return Growth(queue.topic, end - counted, _bytes_of_records(queue, counted, end))


def _bytes_of_records(queue: ConsumeQueue, start: QueueOffset, end: QueueOffset) -> int:
    total = 0
    per_file = queue.files.mapped_file_size
    for file in queue.files.files:
        if not start * CQ_STORE_UNIT_SIZE < file.file_from_offset + per_file:
            continue
        first = file.file_from_offset // CQ_STORE_UNIT_SIZE
        sizes = units_of(file, CQ_UNIT.columns)["size"][max(0, start - first) : max(0, end - first)]
        total += int(sizes[sizes != FILLER_SIZE].sum(dtype=np.int64))
    return total


def _bytes_of_batches(queue: BatchConsumeQueue, start: QueueOffset, end: QueueOffset) -> int:
    total = 0
    while start < end:
        before = start
        for unit in queue.batch_units(start, 1000):
            if unit.base >= end:
                return total
            total += unit.size
            start = unit.end
        if start == before:
            break
    return total
