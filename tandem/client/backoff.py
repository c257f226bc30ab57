"""Which addresses failed lately, and how long to leave them alone. Pure; the caller says when.

Two ways to fail, and they need different care. An address that *refuses or hangs up* costs nothing
to ask, so the next dial only waits a moment. One that is *silent*, such as a frozen process whose
connections stay open, costs whole time limits: it is asked last, or with little patience.
"""

from typing import Final

PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 0.5
"""Between two tries of one request, two dials of one address, two questions about one route."""

QUICK_TRIES: Final = 20
"""How many come at the shortest pause, a second in all: a killed master is replaced in a tenth of
that, and a client that looks less often is without a master for longer than its group.
It floods nobody. A request in flight that is refused comes back 20 times a second; one that is
answered makes room for hundreds."""

SILENT_SECONDS: Final = 10.0
"""How long an address that did not answer in time counts as silent. Chosen, not measured."""


def retry_pause_seconds(retries_count: int) -> float:
    """Return the pause before the next try, after `retries_count` paused tries in a row."""
    slow_tries = min(max(0, retries_count - QUICK_TRIES + 1), 10)
    return min(PAUSE_SECONDS_MIN * 2.0**slow_tries, PAUSE_SECONDS_MAX)


class Backoff:
    """Failures per address. The pause grows with the failures in a row.

    Only an answer counts as success: a listener that accepts and hangs up must not be dialled in a
    tight loop.
    """

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}
        self._silent_until: dict[str, float] = {}

    def failed(self, address: str, now: float) -> None:
        """A connection could not be opened, or ended without a single answer."""
        count = self._failures.get(address, (0, 0.0))[0]
        self._failures[address] = (count + 1, now + retry_pause_seconds(count))

    def succeeded(self, address: str) -> None:
        """An answer came from `address`."""
        self._failures.pop(address, None)

    def seconds_left(self, address: str, now: float) -> float:
        """Return how long `address` should be left alone; 0.0 if not at all."""
        failure = self._failures.get(address)
        return max(0.0, failure[1] - now) if failure else 0.0

    def fell_silent(self, address: str, now: float) -> None:
        """`address` did not answer a request in time."""
        self._silent_until[address] = now + SILENT_SECONDS

    def spoke(self, address: str) -> None:
        """`address` answered a request."""
        self._silent_until.pop(address, None)

    def is_silent(self, address: str, now: float) -> bool:
        """True if `address` did not answer lately."""
        return self._silent_until.get(address, now) > now

    def is_to_be_avoided(self, address: str, now: float) -> bool:
        """True if another address should be asked first."""
        return self.is_silent(address, now) or self.seconds_left(address, now) > 0
