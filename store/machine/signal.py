"""One wake-up for many tasks, and calls in the same step for what cannot wait for one.

Check the condition and call `wait` with no await in between: then no wake-up can be missed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Signal:
    """Wakes all tasks that wait at that moment; remembers nothing."""

    def __init__(self) -> None:
        self._waiting = trio.lowlevel.ParkingLot()
        self._waiting_count = 0
        self._calls: tuple[Callable[[], None], ...] = ()

    def notify(self) -> None:
        """Call who listens and wake all waiting tasks. Costs next to nothing when there is none."""
        for call in self._calls:
            call()
        if self._waiting_count:
            self._waiting.unpark_all()

    async def wait(self) -> None:
        """Sleep until the next `notify`. Cancelling it leaves nothing behind."""
        self._waiting_count += 1
        try:
            await self._waiting.park()
        finally:
            self._waiting_count -= 1

    @contextmanager
    def heard_by(self, call: Callable[[], None]) -> Iterator[None]:
        """Have `call` made by every `notify`, before it returns. It must not raise."""
        self._calls = (*self._calls, call)
        try:
            yield
        finally:
            self._calls = tuple(other for other in self._calls if other is not call)
