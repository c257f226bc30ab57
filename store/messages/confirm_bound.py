"""ConfirmBound: what may be seen of the log of a fenced group.

    commit log   |==============================|--------|
                                                ^ offset ^ end of the log

Below `offset` every replica that counts has the log, so nothing there can be taken back by a change
of master. Later records are in the log and in the queues, but no reader sees them: a record can
be read when it ends at or below `offset`.

Arrivals are reported when messages can be read, not when they arrive. Until then they are kept
here, in the order of the log: at most one for each record that is not confirmed, so no more than
the group lets be under way (puts are refused when replicas do not follow).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from store.queue.consume_queue_store import ConsumeQueueStore
    from store.results import OnArrival

_Arrival: TypeAlias = "tuple[int, str, int, int, int | None]"
"""Where the record ends, and the arguments of `OnArrival`. No two are equal up to the last one: a
queue grows with every record."""


class ConfirmBound:
    """The bound of one store."""

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self.offset = 0
        self.on_arrival: OnArrival | None = None
        """Called for every message that can be read from now on."""
        self._queues = queues
        self._waiting: list[_Arrival] = []

    def raise_to(self, offset: int) -> None:
        """Let everything below `offset` be read, and report it. Never goes back."""
        self.offset = max(self.offset, offset)
        while self._waiting and self._waiting[0][0] <= self.offset:
            _, topic, queue_id, max_offset, tags_code = heappop(self._waiting)
            if self.on_arrival is not None:
                self.on_arrival(topic, queue_id, max_offset, tags_code)

    def arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int | None) -> None:
        """Take note of what has just entered its queue; an `OnArrival`.

        Of several records that enter at once, as on a slave, only the last one counts: they are
        reported together.
        """
        queue = self._queues.find(topic, queue_id)
        end = -1 if queue is None else queue.max_physic_offset
        if end > self.offset:
            heappush(self._waiting, (end, topic, queue_id, max_offset, tags_code))
        elif self.on_arrival is not None:
            self.on_arrival(topic, queue_id, max_offset, tags_code)
