"""Long polling: a pull that finds nothing new waits here for a message, or for its deadline.

    hold() --> HELD --+--> READY --> run again, once, by the service task
                      |
                      +-- message_arrived(): a message the pull wants
                      +-- its deadline passed

Messages arrive in the middle of somebody's round of puts. So an arrival only moves pulls to the
ready list; the service task runs them when the round is over, and a consumer gets the whole round
in one answer instead of its first message alone.

Source: RocketMQ 5.3.3, PullRequestHoldService; its sweep every 5 s is a deadline here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from store.machine.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

HELD_MAX: Final = 65_536
"""Pulls held at any time. Beyond it a pull is answered at once, empty."""

SWEEP_SECONDS_MIN: Final = 0.05
"""Between two looks at all deadlines: many deadlines cost one look."""


class HeldPull:
    """One waiting pull.

    Attributes:
        offset: The queue offset it wants to read from.
        tags_codes: Codes it is interested in; None for all.
        deadline: In trio's time.
        run: Reads again and answers; called exactly once.
    """

    __slots__ = ("deadline", "offset", "run", "tags_codes")

    def __init__(
        self,
        offset: int,
        tags_codes: frozenset[int] | None,
        deadline: float,
        run: Callable[[], None],
    ) -> None:
        self.offset = offset
        self.tags_codes = tags_codes
        self.deadline = deadline
        self.run = run

    def wants(self, max_queue_offset: int, tags_code: int | None) -> bool:
        """Whether a message makes it worth running again.

        Args:
            max_queue_offset: Queue offset after the message.
            tags_code: Code of its tags; None if unknown or several messages came at once.
        """
        if max_queue_offset <= self.offset:
            return False
        return tags_code is None or self.tags_codes is None or tags_code in self.tags_codes


class PullRequestHoldService:
    """The held pulls of one node. `after_run` is called after each round, to send the answers."""

    def __init__(self, after_run: Callable[[], None]) -> None:
        self._after_run = after_run
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._held_count = 0
        self._ready: list[HeldPull] = []
        self._next_deadline = math.inf
        self._wake = Signal()

    @property
    def held_count(self) -> int:
        """How many pulls are waiting."""
        return self._held_count

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """Take in a pull; False if there are too many."""
        if self._held_count >= HELD_MAX:
            return False
        self._held.setdefault((topic, queue_id), []).append(pull)
        self._held_count += 1
        if pull.deadline < self._next_deadline:
            self._next_deadline = pull.deadline
            self._wake.notify()
        return True

    def message_arrived(
        self, topic: str, queue_id: int, max_queue_offset: int, tags_code: int | None
    ) -> None:
        """A message is in its queue. Called for every message, so cheap when nobody waits."""
        if not self._held_count:
            return
        pulls = self._held.get((topic, queue_id))
        if pulls is None:
            return
        waiting = [pull for pull in pulls if not pull.wants(max_queue_offset, tags_code)]
        if len(waiting) < len(pulls):
            self._ready += [pull for pull in pulls if pull.wants(max_queue_offset, tags_code)]
            self._keep((topic, queue_id), waiting, before=len(pulls))
            self._wake.notify()

    async def run(self) -> None:
        """Run pulls as they become ready, until cancelled. Held pulls are then never answered."""
        while True:
            if not self._ready:
                with trio.move_on_at(self._next_deadline):
                    await self._wake.wait()
            self._expire(trio.current_time())
            ready, self._ready = self._ready, []
            for pull in ready:
                pull.run()
            if ready:
                self._after_run()
            await trio.lowlevel.checkpoint()

    def _expire(self, now: float) -> None:
        if now < self._next_deadline:
            return
        earliest = math.inf
        for key, pulls in list(self._held.items()):
            waiting = [pull for pull in pulls if pull.deadline > now]
            if len(waiting) < len(pulls):
                self._ready += [pull for pull in pulls if pull.deadline <= now]
                self._keep(key, waiting, before=len(pulls))
            for pull in waiting:
                earliest = min(earliest, pull.deadline)
        self._next_deadline = max(earliest, now + SWEEP_SECONDS_MIN)

    def _keep(self, key: tuple[str, int], waiting: list[HeldPull], *, before: int) -> None:
        self._held_count -= before - len(waiting)
        if waiting:
            self._held[key] = waiting
        else:
            del self._held[key]
