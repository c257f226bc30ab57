"""A row of callers that wait for a position: an end offset, a deadline, a callback each.

    add() --> waiting --+--> take_reached()   the position has passed their end offset
                        +--> take_expired()   their time is up
                        `--> take_all()       nobody will be served any more

The owner of a row takes waiting callers out of it and answers them; the row calls nobody. So an
answer that makes a caller wait anew finds the row in order.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

DoneT = TypeVar("DoneT")


class WaitingRow(Generic[DoneT]):
    """Sorted by end offset and by deadline: what is written comes in order, and waits equally long.

    `DoneT` is what the owner calls in the end. Nobody is in here twice.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float, DoneT]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_end(self) -> int:
        """The end offset that is reached next. Only while somebody waits."""
        return self._waiting[0][0]

    @property
    def next_deadline(self) -> float | None:
        """When `take_expired` is due next; None if nobody waits."""
        return self._waiting[0][1] if self._waiting else None

    def add(self, end_offset: int, deadline: float, done: DoneT) -> None:
        """Have somebody wait for `end_offset`, until `deadline` on the owner's clock.

        Raises:
            ValueError: somebody is waiting already for more, or for longer.
        """
        waiting = self._waiting
        if waiting:
            last_end_offset, last_deadline, _ = waiting[-1]
            if end_offset < last_end_offset or deadline < last_deadline:
                raise ValueError(
                    f"offset {end_offset} (deadline {deadline}) is waited for out of order, after"
                    f" offset {last_end_offset} (deadline {last_deadline})"
                )
        waiting.append((end_offset, deadline, done))

    def take_reached(self, offset: int) -> list[DoneT]:
        """Take out the callers whose end offset is `offset` or below."""
        waiting = self._waiting
        taken = []
        while waiting and waiting[0][0] <= offset:
            taken.append(waiting.popleft()[2])
        return taken

    def take_expired(self, now: float) -> list[tuple[int, DoneT]]:
        """Take out the callers whose deadline has passed, each with its end offset."""
        waiting = self._waiting
        taken = []
        while waiting and waiting[0][1] <= now:
            end_offset, _, done = waiting.popleft()
            taken.append((end_offset, done))
        return taken

    def take_all(self) -> list[DoneT]:
        """Take out everybody."""
        taken = [done for _, _, done in self._waiting]
        self._waiting.clear()
        return taken
