"""When a load is warm, and when it is over."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.pipelined import WARM_SHARE, Answered, LoadError

FAILED_SHARE_MAX: Final = 0.05
"""A server of which others have most of the machine may give up after some seconds."""


class Stopwatch:
    """Of one load, from its beginning.

    Attributes:
        done: How many messages are done, counted by the caller.
        failed: How many could not be done.
    """

    def __init__(self, seconds: float) -> None:
        self._began = time.perf_counter()
        self._warm = self._began + WARM_SHARE * seconds
        self._end = self._warm + seconds
        self._warm_at = 0.0
        self._before = self._measured = 0
        self.done = 0
        self.failed = 0
        self._over_at = 0.0

    def is_over(self) -> bool:
        """Whether nothing new is to begin."""
        now = time.perf_counter()
        if not self._warm_at and now >= self._warm:
            self._warm_at, self._before = now, self.done
        if not self._over_at and now >= self._end:
            self._over_at, self._measured = now, self.done
        return bool(self._over_at)

    def answered(self) -> Answered:
        """Return what was done."""
        if not self._over_at:
            raise LoadError("it ended before its time")
        if self.failed > FAILED_SHARE_MAX * self.done:
            raise LoadError(f"{self.failed} messages failed, {self.done} did not")
        if self._over_at == self._warm_at:  # the first answer came after all of its time
            return Answered(self._measured, self._over_at - self._began, self.done)
        return Answered(self._measured - self._before, self._over_at - self._warm_at, self.done)
