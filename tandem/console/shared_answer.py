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
        async with self._lock:
            if self._answer is None or self.number <= number:
                await trio.sleep_until(self._asked_at + self._pause_seconds)
                await self._ask_now()
            assert self._answer is not None
            return self._answer, self.number

    async def fresh(self) -> T:
        """Return an answer that is no older than the pause."""
        async with self._lock:
            if self._answer is None or trio.current_time() >= self._asked_at + self._pause_seconds:
                await self._ask_now()
            assert self._answer is not None
            return self._answer

    async def _ask_now(self) -> None:
        self._asked_at = trio.current_time()
        self._answer = await self._ask()
        self.number += 1
