"""One wake-up for many tasks.

Check the condition and call `wait` with no await in between: then no wake-up can be missed.
"""

import trio


class Signal:
    """Wakes all tasks that wait at that moment; remembers nothing."""

    def __init__(self) -> None:
        self._waiting = trio.lowlevel.ParkingLot()

    def notify(self) -> None:
        """Wake all waiting tasks. Costs next to nothing when there is none."""
        if self._waiting:
            self._waiting.unpark_all()

    async def wait(self) -> None:
        """Sleep until the next `notify`. Cancelling it leaves nothing behind."""
        await self._waiting.park()
