"""QueueGrowth: how many messages have come into which topic, and how many bytes their records have.

    queue   |==========|=========|
            counted -->^         ^ what can be read now

Nothing is counted when a message is put. A queue knows its number of messages, and its units know
the sizes of their records, so what has come since the last look can be found out at any time, for
all messages at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import CQ_UNIT
from store.queue.queue_units import units_of
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE, FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.queue.consume_queue import ConsumeQueue
    from store.queue.consume_queue_store import ConsumeQueueStore
    from store.results import QueueOffset


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
        self._counted = {key: end_of(*key) for key in queues.queues()}

    def look(self) -> Iterator[Growth | None]:
        """Yield once for each queue: what has come into it, None if nothing has.

        The caller may let others have their turn between two of them.
        """
        keys = self._queues.queues()
        for key in keys:
            yield self._look_at(key)
        for key in self._counted.keys() - set(keys):
            del self._counted[key]

    def _look_at(self, key: tuple[str, int]) -> Growth | None:
        queue = self._queues.find(*key)
        if queue is None:
            return None
        counted, end = self._counted.get(key), self._end_of(*key)
        if end == counted:
            return None
        self._counted[key] = end
        start = queue.min_offset if counted is None else counted
        if end <= start:
            return None  # deleted and made anew, or a new queue of which nothing can be read yet
        if isinstance(queue, BatchConsumeQueue):
            return Growth(key[0], end - start, _bytes_of_batches(queue, start, end))
        return Growth(key[0], end - start, _bytes_of_records(queue, start, end))


def _bytes_of_records(queue: ConsumeQueue, start: QueueOffset, end: QueueOffset) -> int:
    total = 0
    for file in queue.files.files:
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
