"""The puts of a fenced master that wait for their replicas: answers, no I/O and no clock.

    submit() --+--> PUT_OK                at once, if it is replicated and that may be said
               +--> waiting --+--> PUT_OK               reached(): all who must have it, have it
                              +--> FLUSH_SLAVE_TIMEOUT  expire(): its time is up
                              +--> FLUSH_SLAVE_TIMEOUT  fail_all(): this node is no longer master

Two rows: puts that wait until the replicas have them as the group's ack level says, and puts that
wait for everybody's disk.

"May be said" is asked directly before each round of answers, in the same step: lease, epoch, and
enough live replicas. If not, they go on waiting; it may become true again, or their time ends.

A message answered with FLUSH_SLAVE_TIMEOUT is in this node's log. Whether it survives is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.results import Refusal
from store.machine.waiting_row import WaitingRow
from store.results import Done, PutMessageStatus


class Acknowledgements:
    """Both rows of one master.

    Directly before a round of PUT_OK, `why_not_answer` is asked; if it returns None, `answering` is
    called with the highest end that is about to be answered.
    """

    def __init__(
        self,
        why_not_answer: Callable[[], Refusal | None],
        answering: Callable[[int], None],
    ) -> None:
        self._why_not_answer = why_not_answer
        self._answering = answering
        self.replicated: WaitingRow[Done] = WaitingRow()
        self.flushed: WaitingRow[Done] = WaitingRow()
        self._closed_because: str | None = None

    def submit(
        self, row: WaitingRow[Done], end: int, reached: int, deadline: float, done: Done
    ) -> None:
        """Call `done` at once or later. `reached` is how far the row's kind of progress is."""
        if self._closed_because is not None:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._closed_because)
        elif end <= reached and not row and self._why_not_answer() is None:
            self._answering(end)
            done(PutMessageStatus.PUT_OK, "")
        else:
            row.add(end, deadline, done)

    def reached(self, replicated: int, flushed: int) -> bool:
        """Answer every put that has what it waits for. True if there was one."""
        return self._release(self.replicated, replicated) | self._release(self.flushed, flushed)

    def expire(self, now: float, why_late: Callable[[int], str]) -> bool:
        """Answer every put whose deadline has passed, after `reached`. True if there was one."""
        expired = self.replicated.take_expired(now) + self.flushed.take_expired(now)
        for end, done in expired:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, why_late(end))
        return bool(expired)

    def fail_all(self, reason: str) -> bool:
        """Answer no put PUT_OK any more, now or later. True if one was waiting."""
        why = self._closed_because = self._closed_because or reason
        failed = self.replicated.take_all() + self.flushed.take_all()
        for done in failed:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, why)
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

    def _release(self, row: WaitingRow[Done], offset: int) -> bool:
        if not row or row.first_end > offset or self._why_not_answer() is not None:
            return False
        self._answering(offset)
        for done in row.take_reached(offset):
            done(PutMessageStatus.PUT_OK, "")
        return True
