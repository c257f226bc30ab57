"""What happens later, in virtual time; and wall clocks that are not quite right.

trio's `MockClock` moves the time (see `deterministic_trio`). On top of it a `Timeline` calls
plain functions at chosen times: the network's deliveries and the faults of a run. One task
serves them all, so that a delayed byte costs a heap entry and not a task.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

import trio

from node.simulated.deterministic_trio import Alarm

WALL_CLOCK_START_MS: Final = 1_700_000_000_000
"""Wall time at virtual time 0, the same in every run (14 November 2023)."""


class Timeline:
    """Functions to be called at given virtual times; equal times in the order of entry."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = count()
        self._alarm = Alarm()

    @property
    def pending(self) -> int:
        """How many calls are still to come."""
        return len(self._entries)

    def call_at(self, time_seconds: float, function: Callable[[], None]) -> None:
        """Call `function` at `time_seconds` on trio's clock; at once if that has passed."""
        heapq.heappush(self._entries, (time_seconds, next(self._counter), function))
        self._alarm.move(self._entries[0][0])

    def call_later(self, delay_seconds: float, function: Callable[[], None]) -> None:
        """Call `function` in `delay_seconds` from now."""
        self.call_at(trio.current_time() + delay_seconds, function)

    async def run(self) -> None:
        """Serve the timeline until cancelled. An error of a function ends the run."""
        while True:
            self._call_what_is_due()
            next_time = self._entries[0][0] if self._entries else float("inf")
            await self._alarm.wait_until(next_time)

    def _call_what_is_due(self) -> None:
        now = trio.current_time()
        while self._entries and self._entries[0][0] <= now:
            heapq.heappop(self._entries)[2]()


class WallClock:
    """The wall clock of one machine: off by `skew_ms`, too fast by `drift_ppm`."""

    def __init__(self, *, skew_ms: int = 0, drift_ppm: int = 0) -> None:
        self._skew_ms = skew_ms
        self._rate = 1 + drift_ppm / 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since 1970 as this machine sees them."""
        return WALL_CLOCK_START_MS + self._skew_ms + int(trio.current_time() * self._rate * 1000)

    def step(self, milliseconds: int) -> None:
        """Set the clock forward, or back if negative."""
        self._skew_ms += milliseconds


class BootClock:
    """CLOCK_BOOTTIME of one machine: seconds since it started, those in suspend included."""

    def __init__(self, *, drift_ppm: int = 0) -> None:
        self._rate = 1 + drift_ppm / 1_000_000
        self._started_at = 0.0
        self._suspended_seconds = 0.0
        self.boot_count = 1

    @property
    def boot_id(self) -> str:
        """Another one after each start of the machine."""
        return f"boot-{self.boot_count}"

    def now_seconds(self) -> float:
        """Seconds since the machine started."""
        awake = (trio.current_time() - self._started_at) * self._rate
        return awake + self._suspended_seconds

    def suspend(self, seconds: float) -> None:
        """Wake up from a suspend that only this clock has noticed."""
        self._suspended_seconds += seconds

    def restart(self) -> None:
        """The machine starts again."""
        self._started_at = trio.current_time()
        self._suspended_seconds = 0.0
        self.boot_count += 1
