"""AwakeQueues: the queues of a store that have changed lately, so that nothing has to look at all.

    asleep --the next unit needs room, or one is written anew--> awake
    awake  --a look of a thorough flush that finds all of it on the disk--> asleep

A queue is asked for room before each unit; while it is asleep it has none, so that waking costs
nothing where units come often. Flush and close look at queues that are awake, statistics at
those that have grown since their last look.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Q = TypeVar("Q")


class AwakeQueues(Generic[Q]):
    """What all queues of one store share."""

    def __init__(self) -> None:
        self._awake: dict[Q, None] = {}
        self._grown: dict[Q, int] = {}

    def __contains__(self, queue: Q) -> bool:
        return queue in self._awake

    def woke(self, queue: Q, next_offset: int) -> None:
        """Take note that a queue changes; the next message will have this number."""
        self._awake[queue] = None
        self._grown.setdefault(queue, next_offset)

    def slept(self, queue: Q) -> None:
        """Take note that all of a queue is on the disk."""
        self._awake.pop(queue, None)

    def gone(self, queue: Q) -> None:
        """Forget a queue that is deleted."""
        self._awake.pop(queue, None)
        self._grown.pop(queue, None)

    @property
    def count(self) -> int:
        """How many are awake."""
        return len(self._awake)

    def queues(self) -> list[Q]:
        """Return those that are awake, in the order in which they woke."""
        return list(self._awake)

    @property
    def grown_count(self) -> int:
        """How many `take_grown` would return."""
        return len(self._grown)

    def take_grown(self) -> dict[Q, int]:
        """Return queues that woke since the last call, with their next number before that.

        One that stays awake is returned once: whoever takes it looks again until it sleeps.
        """
        grown, self._grown = self._grown, {}
        return grown
