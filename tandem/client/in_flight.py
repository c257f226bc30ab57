"""How much a producer may have under way at once: later sends wait, first come first served.

The bodies of all messages under way are counted, whatever they wait for: company, a connection, an
answer, the next try. With nothing under way a message is let in whatever its size.

Source: RocketMQ 5.3.3, DefaultMQProducer.backPressureForAsyncSendSize.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

MAX_IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024


class InFlight:
    """Counts bytes under way, and keeps the line of waiting sends."""

    __slots__ = ("_bytes_max", "_line", "bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._line: deque[tuple[int, Callable[[Any], None]]] = deque()
        self.bytes = 0

    def enter(self, size: int) -> bool:
        """Count `size` bytes if there is room and nobody waits; else wait in line."""
        if self._line or (self.bytes and self.bytes + size > self._bytes_max):
            return False
        self.bytes += size
        return True

    def wait_in_line(self, size: int, wake: Callable[[Any], None]) -> None:
        """Call `wake` when these bytes have been counted."""
        self._line.append((size, wake))

    def withdraw(self, size: int, wake: Callable[[Any], None]) -> None:
        """Step out of the line, or back if it was over already; others may get in now."""
        before = len(self._line)
        self._line = deque(each for each in self._line if each[1] != wake)
        self.leave(size if len(self._line) == before else 0)

    def leave(self, size: int) -> None:
        """These bytes are not under way any more."""
        self.bytes -= size
        if self._line:
            self._let_in()

    def _let_in(self) -> None:
        while self._line and (not self.bytes or self.bytes + self._line[0][0] <= self._bytes_max):
            size, wake = self._line.popleft()
            self.bytes += size
            wake(None)
