"""One question for many who ask: it is asked once, and not again before some time has passed."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """The newest answer to a question that anybody may ask at any time.

    No task of its own: who comes first asks, and who comes meanwhile waits for the same answer. If
    the one that asks is cancelled, the next asks in its place. Errors are for the one that asked.

    Attributes:
        number: How many answers there were.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], pause_seconds: float) -> None:
        self._ask = ask
        self._pause_seconds = pause_seconds
        self._lock = trio.Lock()
        self._answer: T | None = None
        self._asked_at = -float("inf")
        self.number = 0

    async def newer_than(self, number: int) -> tuple[T, int]:
        """Return an answer that comes after this one, and its number; wait for it."""
        came_at = self.number
        async with self._lock:
            if self.number <= number or not self._is_fresh(came_at):
                await trio.sleep_until(self._asked_at + self._pause_seconds)
                await self._ask_now()
            assert self._answer is not None
            return self._answer, self.number

    async def fresh(self) -> T:
        """Return an answer that is no older than the pause, or came while one waited for it."""
        came_at = self.number
        async with self._lock:
            if not self._is_fresh(came_at):
                await self._ask_now()
            assert self._answer is not None
            return self._answer

    def _is_fresh(self, came_at: int) -> bool:
        """Whether there is an answer for who came when there were so many.

        One that took longer than the pause is not asked for again by each who has waited for it.
        """
        is_young = trio.current_time() < self._asked_at + self._pause_seconds
        return self._answer is not None and (self.number != came_at or is_young)

    async def _ask_now(self) -> None:
        self._asked_at = trio.current_time()
        self._answer = await self._ask()
        self.number += 1
