"""Which addresses failed lately, and how long to leave them alone. Pure; the caller says when."""

from typing import Final

BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 2.0
"""Chosen so that a broker that restarts is found within about two seconds."""


class Backoff:
    """Failures per address. The pause doubles with each failure in a row.

    Only an answer counts as success: a listener that accepts and hangs up must not be dialled in a
    tight loop.
    """

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}

    def failed(self, address: str, now: float) -> None:
        """A connection could not be opened, or ended without a single answer."""
        count = self._failures.get(address, (0, 0.0))[0]
        pause = min(BACKOFF_SECONDS_MIN * 2**count, BACKOFF_SECONDS_MAX)
        self._failures[address] = (min(count + 1, 16), now + pause)

    def succeeded(self, address: str) -> None:
        """An answer came from `address`."""
        self._failures.pop(address, None)

    def seconds_left(self, address: str, now: float) -> float:
        """Return how long `address` should be left alone; 0.0 if not at all."""
        failure = self._failures.get(address)
        return max(0.0, failure[1] - now) if failure else 0.0
