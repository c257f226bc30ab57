"""Who may handle requests now, so that no task of a node waits long for the others.

All of a node runs in one thread: answers to clients, replication, renewal of its lease. A client
that has much to ask for is served in turns of some milliseconds.

    take --> requests, for TURN_SECONDS at most --> give

While little is used, a turn is there at once. After PASS_SECONDS of work all other tasks run
first, and tasks that want a turn wait in a row, out of which a few at a time go on: what has to be
done besides clients is late by as much as those few may take, however long the row is.
Tasks with new requests and tasks that come back for more go on alternately, so that one request
waits for a few turns of others and not for all they have asked for.
"""

from __future__ import annotations

from typing import Final

import trio

TURN_SECONDS: Final = 0.005
"""After this much time no further request of a connection is begun."""

PASS_SECONDS: Final = 0.02
"""After this much time of all connections together every other task gets its turn."""

ABREAST_MAX: Final = 4
"""How many of the row get their turn in one pass over all tasks."""


class Turns:
    """The turns of the connections of one server. A turn is a step: nothing in it waits."""

    def __init__(self) -> None:
        self._used_seconds = 0.0
        self._is_pausing = False
        self._new = trio.lowlevel.ParkingLot()
        self._again = trio.lowlevel.ParkingLot()
        self._is_again_next = False
        self._row_count = 0

    @property
    def is_free(self) -> bool:
        """Whether there is a turn at once."""
        return self._used_seconds < PASS_SECONDS and not self._row_count and not self._is_pausing

    @property
    def waiting_count(self) -> int:
        """How many tasks wait in the row."""
        return self._row_count

    async def take(self, *, again: bool = False) -> None:
        """Wait for a turn; `again` says that the last one was not enough.

        After it there is to be no await before `give`.
        """
        if self._is_pausing or self._row_count:
            self._row_count += 1
            try:
                await (self._again if again else self._new).park()
            finally:
                self._row_count -= 1
        elif again or self._used_seconds >= PASS_SECONDS:
            await self._pause()

    def give(self, used_seconds: float) -> None:
        """End a turn that took this long; the next in the row goes on in the next pass."""
        self._used_seconds += used_seconds
        if self._row_count and not self._is_pausing:
            self._let_go_on()

    def passed(self) -> None:
        """All tasks have had their turn, without anybody asking for it."""
        if not self._is_pausing:
            self._used_seconds = 0.0

    @property
    def has_time(self) -> bool:
        """Whether there is time before the next pass, also if tasks wait in the row for it."""
        return self._used_seconds < PASS_SECONDS and not self._is_pausing

    async def _pause(self) -> None:
        """Let all other tasks run; tasks that want a turn meanwhile wait in the row."""
        self._is_pausing = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._is_pausing = False
            self._used_seconds = 0.0
            # The caller's own turn lets one more go on.
            for _ in range(ABREAST_MAX - 1):
                self._let_go_on()

    def _let_go_on(self) -> None:
        first, second = self._new, self._again
        if self._is_again_next:
            first, second = second, first
        row = first or second
        if row:
            row.unpark()
            self._is_again_next = row is self._new
