"""Until when a master may answer: arithmetic over a clock that also runs while we do not.

    keep-alive sent ---------- coordinator renews ---------- answer here
          |<-------------------- 0.95 x time to live - 0.2 s ------>| deadline
                                     |<---------- time to live ---------->| coordinator forgets us

The lease runs at least from the moment the coordinator renews it, which is after we sent; so from
the sending on it is ours, whatever the network does with the answer. The margin is for two clocks
that do not run at the same speed, and for the step between looking and answering.

Times are seconds of CLOCK_BOOTTIME: it goes on while a machine is suspended. This is an engine
without a clock of its own.
"""

from __future__ import annotations

from typing import Final

from ha.errors import LocalHAError

USABLE_SHARE: Final = 0.95
MARGIN_SECONDS: Final = 0.2


class LeaseDeadline:
    """The lease of one session: until when it holds, as far as this node may rely on it."""

    def __init__(self, ttl_seconds: float, asked_at: float) -> None:
        """`ttl_seconds` as granted; `asked_at` is when the grant was asked for, not answered."""
        self._ttl_granted = ttl_seconds
        self._asked_at = asked_at
        self.deadline = _usable_until(ttl_seconds, asked_at)
        """First moment at which nothing may be answered any more."""

    def renewed(self, ttl_seconds: float, asked_at: float) -> None:
        """A keep-alive that was sent at `asked_at` was answered with `ttl_seconds`.

        Raises:
            LocalHAError: keep-alives are sent one after the other; this one is older than the last.
        """
        if asked_at < self._asked_at:
            raise LocalHAError("an older keep-alive was answered after a newer one")
        self._asked_at = asked_at
        self.deadline = _usable_until(min(ttl_seconds, self._ttl_granted), asked_at)

    def holds(self, now: float) -> bool:
        """True while answers may be given."""
        return now < self.deadline

    def left_seconds(self, now: float) -> float:
        """Return how long it holds without another keep-alive; 0 if it does not."""
        return max(0.0, self.deadline - now)


def _usable_until(ttl_seconds: float, asked_at: float) -> float:
    return asked_at + USABLE_SHARE * ttl_seconds - MARGIN_SECONDS
