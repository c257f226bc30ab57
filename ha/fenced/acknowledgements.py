"""The puts of a fenced master that wait for their replicas: answers, no I/O and no clock.

    submit() --+--> PUT_OK                at once, if it is replicated and may be said
               +--> waiting --+--> PUT_OK               reached(): everybody who must has it
                              +--> FLUSH_SLAVE_TIMEOUT  expire(): its time is up
                              +--> FLUSH_SLAVE_TIMEOUT  fail_all(): this node is master no more

Two rows: puts that wait until the replicas have them as the group's ack level says, and puts that
wait for everybody's disk. Both are sorted by end offset and by deadline.

"May be said" is asked directly before each round of answers, in the same step: lease, epoch, and
enough live replicas. If not, they go on waiting; it may become true again, or their time ends.

A message answered with FLUSH_SLAVE_TIMEOUT is in this node's log. Whether it survives is unknown.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ha.errors import LocalHAError
from store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.classic.group_transfer_service import Done
    from ha.results import Refusal


class WaitingRow:
    """Puts that wait for one kind of progress.

    Invariant: sorted by end offset and by deadline, because puts arrive in log order and all wait
    equally long.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float, Done]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_end(self) -> int:
        """End of the put that is to be answered next. Only while somebody waits."""
        return self._waiting[0][0]

    @property
    def next_deadline(self) -> float | None:
        """When `pop_expired` is due next, None if nobody waits."""
        return self._waiting[0][1] if self._waiting else None

    def add(self, end_offset: int, deadline: float, done: Done) -> None:
        """Have a put wait.

        Raises:
            LocalHAError: one that is further on waits already.
        """
        if self._waiting:
            last_end_offset, last_deadline, _ = self._waiting[-1]
            if end_offset < last_end_offset or deadline < last_deadline:
                raise LocalHAError(f"put up to offset {end_offset} was submitted out of order")
        self._waiting.append((end_offset, deadline, done))

    def pop_reached(self, offset: int) -> list[tuple[int, Done]]:
        """Take out those that end at or below `offset`."""
        popped = []
        while self._waiting and self._waiting[0][0] <= offset:
            end_offset, _, done = self._waiting.popleft()
            popped.append((end_offset, done))
        return popped

    def pop_expired(self, now: float) -> list[tuple[int, Done]]:
        """Take out those whose deadline has passed."""
        popped = []
        while self._waiting and self._waiting[0][1] <= now:
            end_offset, _, done = self._waiting.popleft()
            popped.append((end_offset, done))
        return popped

    def pop_all(self) -> list[tuple[int, Done]]:
        """Take out everybody."""
        popped = [(end_offset, done) for end_offset, _, done in self._waiting]
        self._waiting.clear()
        return popped


class Acknowledgements:
    """Both rows of one master.

    `why_not_answer` is asked with the highest end that is about to be answered PUT_OK, directly
    before it is; None means that it may be.
    """

    def __init__(self, why_not_answer: Callable[[int], Refusal | None]) -> None:
        self._why_not_answer = why_not_answer
        self.replicated = WaitingRow()
        self.flushed = WaitingRow()
        self._closed_because = ""

    def submit(self, row: WaitingRow, end: int, reached: int, deadline: float, done: Done) -> None:
        """Call `done` at once or later. `reached` is how far the row's kind of progress is."""
        if self._closed_because:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._closed_because)
        elif end <= reached and not row and self._why_not_answer(end) is None:
            done(PutMessageStatus.PUT_OK, "")
        else:
            row.add(end, deadline, done)

    def reached(self, replicated: int, flushed: int) -> bool:
        """Answer everybody who has what they wait for. True if somebody was answered."""
        return self._release(self.replicated, replicated) | self._release(self.flushed, flushed)

    def expire(self, now: float, why_late: Callable[[int], str]) -> bool:
        """Answer everybody whose deadline has passed, after `reached`. True if there was any."""
        expired = self.replicated.pop_expired(now) + self.flushed.pop_expired(now)
        for end, done in expired:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, why_late(end))
        return bool(expired)

    def fail_all(self, reason: str) -> bool:
        """Nobody is answered PUT_OK any more, now or later. True if somebody waited."""
        self._closed_because = self._closed_because or reason
        failed = self.replicated.pop_all() + self.flushed.pop_all()
        for _, done in failed:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._closed_because)
        return bool(failed)

    @property
    def waiting_count(self) -> int:
        """How many puts, or rounds of them, wait."""
        return len(self.replicated) + len(self.flushed)

    @property
    def next_deadline(self) -> float | None:
        """When `expire` is due next, None if nobody waits."""
        deadlines = [self.replicated.next_deadline, self.flushed.next_deadline]
        return min((d for d in deadlines if d is not None), default=None)

    def _release(self, row: WaitingRow, offset: int) -> bool:
        if not row or row.first_end > offset or self._why_not_answer(offset):
            return False
        for _, done in row.pop_reached(offset):
            done(PutMessageStatus.PUT_OK, "")
        return True
