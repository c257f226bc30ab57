"""When the time of what is with consumers is over, as one node sees it. No I/O, no clock.

A node counts from the moment at which it got to know of a handout, by a clock that only goes
forward. So no wall clock of another machine matters, and nothing is over too early: the master that
has handed a message out counts from then, every other node from a little later.

Memory: what is done stays until its time is over, but never more than there is with consumers, and
a little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from node.pop.changes import QueueKey
from node.pop.deliveries import Deliveries, Handout

ROOM: Final = 1_024
"""Handouts that are done may stay here, before it is looked which are."""


class Over(NamedTuple):
    """A handout whose time is over, and what of it is not done."""

    key: QueueKey
    handout: Handout
    offsets: list[int]


class DueTimes:
    """Of all handouts that a node knows of."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueueKey, Handout]] = []
        self._count = 0
        self._look_at = ROOM
        self._over: dict[QueueKey, set[Handout]] = {}
        """Handouts of orderly groups whose time is over, and that were not done then."""
        self._attempts: dict[tuple[str, str], list[tuple[QueueKey, Handout]]] = {}
        """By group and attempt id."""
        self._beside = 0
        """How many handouts the last two hold, done or not, beside those of the heap."""

    def note(
        self, fresh: Iterable[tuple[QueueKey, Handout]], now: float, deliveries: Deliveries
    ) -> None:
        """Count from now on for these handouts."""
        for key, handout in fresh:
            self._push(now + handout.invisible_ms / 1000, key, handout)
            if handout.attempt_id:
                entries = self._attempts.setdefault((key.group, handout.attempt_id), [])
                entries.append((key, handout))
                self._beside += 1
        if len(self._heap) + self._beside > self._look_at:
            self.drop_done(deliveries)

    def again(self, over: Over, at: float) -> None:
        """Say once more at `at` that this is over: it could not be put again."""
        self._push(at, over.key, over.handout)

    def _push(self, due: float, key: QueueKey, handout: Handout) -> None:
        self._count += 1
        heappush(self._heap, (due, self._count, key, handout))

    @property
    def next_due(self) -> float:
        """When to look next; infinity if nothing is with anybody."""
        return self._heap[0][0] if self._heap else math.inf

    @property
    def kept_count(self) -> int:
        """How many handouts are kept here, done or not."""
        return len(self._heap)

    def take_over(self, now: float, deliveries: Deliveries, count_max: int) -> list[Over]:
        """Return what is over and not done, about so many messages; orderly ones are noted."""
        found: list[Over] = []
        count = 0
        while self._heap and self._heap[0][0] <= now and count < count_max:
            _, _, key, handout = heappop(self._heap)
            queue = deliveries.of(key)
            offsets = queue.held_of(handout) if queue is not None else []
            if not offsets:
                continue
            if handout.is_orderly:
                self._over.setdefault(key, set()).add(handout)
                self._beside += 1
            count += len(offsets)
            found.append(Over(key, handout, offsets))
        return found

    def drop_done_first(self, deliveries: Deliveries) -> None:
        """Forget what is due next as long as it is done: nobody has to wake up for it.

        To be called when it is written that it is: what could not be written is not done again.
        """
        while self._heap and not _is_held(deliveries, self._heap[0][2], self._heap[0][3]):
            heappop(self._heap)

    def is_open(self, key: QueueKey, handouts: Iterable[Handout]) -> bool:
        """Whether the time of all these handouts of an orderly group is over."""
        over = self._over.get(key)
        return over is not None and over.issuperset(handouts)

    def of_attempt(
        self, group: str, attempt_id: str, deliveries: Deliveries
    ) -> list[tuple[QueueKey, Handout]]:
        """Return what was handed out for an attempt of a group and is not all done."""
        return [
            (key, handout)
            for key, handout in self._attempts.get((group, attempt_id), ())
            if (queue := deliveries.of(key)) is not None and queue.held_of(handout)
        ]

    def drop_done(self, deliveries: Deliveries) -> None:
        """Forget what is done: once for as many as are left."""
        self._heap = [item for item in self._heap if _is_held(deliveries, item[2], item[3])]
        heapify(self._heap)
        over = {
            key: {each for each in handouts if _is_held(deliveries, key, each)}
            for key, handouts in self._over.items()
        }
        self._over = {key: handouts for key, handouts in over.items() if handouts}
        attempts = {
            attempt: [each for each in entries if _is_held(deliveries, *each)]
            for attempt, entries in self._attempts.items()
        }
        self._attempts = {attempt: entries for attempt, entries in attempts.items() if entries}
        self._beside = sum(map(len, self._over.values()))
        self._beside += sum(map(len, self._attempts.values()))
        self._look_at = 2 * (len(self._heap) + self._beside) + ROOM


def _is_held(deliveries: Deliveries, key: QueueKey, handout: Handout) -> bool:
    queue = deliveries.of(key)
    return queue is not None and any(
        queue.invisible.get(offset) is handout for offset in handout.offsets
    )
