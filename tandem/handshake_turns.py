"""Handshakes take turns, so that those of strangers do not take the time of everybody else.

A handshake costs some hundred times what a request costs, and anybody may begin one. So all of them
together get a share of the time, one after the other, and the addresses they come from take turns:

    waiting   10.0.0.7: o o o o o o     the next turn is of 10.0.0.9, then of 10.0.0.7
              10.0.0.9: o
    a turn of 0.3 ms --> nobody has one for 1.2 ms

A node and the embedded coordinator have this in common.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

Outcome = TypeVar("Outcome")

PAUSE_TIMES: Final = 4.0
"""How much longer than a turn the pause after it is: handshakes get a fifth of a node's time."""

WAITING_MAX: Final = 1024
WAITING_OF_ADDRESS_MAX: Final = 128
"""A failover makes all clients come back at once, and many may be behind one address."""


class TooManyHandshakesError(Exception):
    """More wait than may; the connection is to be closed.

    Attributes:
        address: Whence it comes.
    """

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        return f"too many of {self.address} are waiting for a TLS handshake"


class HandshakeTurns:
    """Whose handshake is calculated next. One per process."""

    def __init__(self, pause_times: float = PAUSE_TIMES) -> None:
        """Pause after each turn for `pause_times` its length."""
        self._pause_times = pause_times
        self._waiting: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        """The address with the next turn is the first."""
        self._count = 0
        self._is_taken = False
        self._free_at = 0.0

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return self._count

    async def take(self, address: str) -> None:
        """Wait for a turn, which ends with `give`.

        Raises:
            TooManyHandshakesError: too many wait already.
        """
        if self._is_taken:
            await self._wait(address)
        self._is_taken = True
        try:
            await trio.sleep_until(self._free_at)
        except BaseException:
            self._pass_on()
            raise

    async def run(self, address: str, step: Callable[[], Outcome]) -> Outcome:
        """Run a step of a handshake when it may, as long as it takes.

        Raises:
            TooManyHandshakesError: too many wait already.
        """
        await self.take(address)
        begun = trio.current_time()
        try:
            return step()
        finally:
            self.give(trio.current_time() - begun)

    def give(self, seconds: float) -> None:
        """Let the next one have a turn, after one that took `seconds`."""
        self._free_at = trio.current_time() + self._pause_times * seconds
        self._pass_on()

    async def _wait(self, address: str) -> None:
        row = self._waiting.get(address)
        if self._count >= WAITING_MAX or len(row or ()) >= WAITING_OF_ADDRESS_MAX:
            raise TooManyHandshakesError(address)
        if row is None:
            row = self._waiting[address] = deque()
        own = trio.Event()
        row.append(own)
        self._count += 1
        try:
            await own.wait()
        except BaseException:
            if own.is_set():
                self._pass_on()
            else:
                self._leave(address, own)
            raise

    def _leave(self, address: str, own: trio.Event) -> None:
        row = self._waiting[address]
        row.remove(own)
        self._count -= 1
        if not row:
            del self._waiting[address]

    def _pass_on(self) -> None:
        if not self._waiting:
            self._is_taken = False
            return
        address, row = next(iter(self._waiting.items()))
        row.popleft().set()
        self._count -= 1
        if row:
            self._waiting.move_to_end(address)
        else:
            del self._waiting[address]
