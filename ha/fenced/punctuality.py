"""Is this machine fast enough for its lease? Which keep-alives were late because we were not run.

    a task wants to go on at 3.0 and does at 5.2      nothing of this process was run for 2.2 s
    a keep-alive is 2.1 s late, and that is in it     the machine is too slow, not the coordinator

A keep-alive that is late for want of an answer is none of this. It is an engine without a clock of
its own; times are trio's, in seconds. It outlives rounds: it is about the process.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from ha.fenced.config import FencedConfig
from ha.fenced.lease import MARGIN_SECONDS, USABLE_SHARE

NOTED_SECONDS: Final = 0.25
"""Shorter standstills are what every machine has."""

REMEMBERED_SECONDS: Final = 600.0

GAPS_MAX: Final = 1_000

START_SECONDS: Final = 10.0
"""After this it is said once whether the times that are set can hold."""

ELECTION_SECONDS: Final = 0.3
"""By this much the longest log goes first in an election: see `election.RANK_SECONDS_MAX`."""

REMEDY: Final = (
    "give this machine less to do or more of a processor, or raise coordinator.lease_ttl_ms"
)


class Gap(msgspec.Struct):
    """Nothing of this process was run from `start` to `end`."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long."""
        return self.end - self.start


class Lateness(msgspec.Struct, frozen=True):
    """How a process was run. Times in seconds; `words` is empty if it was run well enough."""

    longest_seconds: float = 0.0
    """The longest time in the last ten minutes in which it was not run."""
    late_keep_alives: int = 0
    """How many were late for that, since it began."""
    words: str = ""


class Punctuality:
    """What one process knows of how it is run."""

    def __init__(self) -> None:
        self.late_keep_alives = 0
        self._gaps: deque[Gap] = deque(maxlen=GAPS_MAX)
        self._began_at: float | None = None
        self._due: float | None = None
        self._last_ask: float | None = None
        self._last_late: Gap | None = None

    def sleeps_until(self, due: float) -> None:
        """A task is to go on at `due`. After a standstill another one may go on before it."""
        self._due = due

    def slept(self, due: float, now: float) -> None:
        """A task that was to go on at `due` does so at `now`."""
        if due == self._due:
            self._due = None
        self._note(due, now)

    def _note(self, due: float, now: float) -> None:
        if self._began_at is None:
            self._began_at = due
        if now - due < NOTED_SECONDS:
            return
        # Several tasks see the same standstill.
        while self._gaps and self._gaps[-1].end >= due:
            due = min(due, self._gaps.pop().start)
        self._gaps.append(Gap(due, now))

    def registered(self) -> None:
        """A lease was granted: the next keep-alive is the first one."""
        self._last_ask = None

    def asks(self, config: FencedConfig, now: float) -> str | None:
        """A keep-alive is about to be sent; return what to log if it is late and why, else None."""
        before, self._last_ask = self._last_ask, now
        if before is None:
            return None
        interval = config.keepalive_interval_ms / 1000
        late = now - before - interval
        stood = sum(max(0.0, min(gap.end, now) - max(gap.start, before)) for gap in self._gaps)
        if late < max(interval, NOTED_SECONDS) or stood < late / 2:
            return None
        self.late_keep_alives += 1
        self._last_late = Gap(now - late, now)
        return (
            f"a keep-alive is {late:.1f} s late, because this process was not run for {stood:.1f} s"
            f" (late for that since it began: {self.late_keep_alives}); a lease of"
            f" {config.lease_ttl_ms} ms is lost after {_usable(config):.1f} s: {REMEDY}"
        )

    def lateness(self, config: FencedConfig, now: float) -> Lateness:
        """Return how it was run of late."""
        longest = self._longest(now)
        has_late = self._last_late is not None and now - self._last_late.end < REMEMBERED_SECONDS
        words = ""
        if has_late or longest >= _usable(config):
            words = (
                f"this process was not run for up to {longest:.1f} s at a time in the last"
                f" {REMEMBERED_SECONDS / 60:.0f} minutes, and {self.late_keep_alives} keep-alives"
                f" were late for that since it began: the machine is too slow for a lease of"
                f" {config.lease_ttl_ms} ms; {REMEDY}"
            )
        return Lateness(longest, self.late_keep_alives, words)

    def why_lease_ended(self, now: float, lease_ttl_ms: int) -> str | None:
        """Return what this process had to do with the end of its lease; None if nothing."""
        if self._due is not None:
            self._note(self._due, now)
        window = lease_ttl_ms / 1000
        stood = [gap.seconds for gap in self._gaps if now - gap.end < window]
        if sum(stood) < window / 2:
            return None
        return f"this process was not run for {sum(stood):.1f} s before that: {REMEDY}"

    def at_start(self, config: FencedConfig, now: float) -> str | None:
        """Return what cannot hold on this machine, as far as the first seconds show; then None.

        To be asked again and again: it answers once, after `START_SECONDS`.
        """
        if self._began_at is None or now - self._began_at < START_SECONDS:
            return None
        self._began_at = float("inf")
        longest = self._longest(now)
        interval = config.keepalive_interval_ms / 1000
        troubles = []
        if interval + 2 * longest >= _usable(config):
            troubles.append(f"the lease of {config.lease_ttl_ms} ms cannot be kept")
        if longest >= interval:
            troubles.append(f"keep-alives, one in {interval:g} s, are late")
        if longest >= ELECTION_SECONDS:
            troubles.append(
                f"elections, which take {ELECTION_SECONDS:g} s, may not choose the longest log"
            )
        if not troubles:
            return None
        return (
            f"in its first {START_SECONDS:.0f} s this process was not run for up to {longest:.1f} s"
            f" at a time: {'; '.join(troubles)}. {REMEDY[0].upper()}{REMEDY[1:]}"
        )

    def _longest(self, now: float) -> float:
        recent = [gap.seconds for gap in self._gaps if now - gap.end < REMEMBERED_SECONDS]
        return max(recent, default=0.0)


def _usable(config: FencedConfig) -> float:
    """Return for how many seconds after a keep-alive a lease is good."""
    return USABLE_SHARE * config.lease_ttl_ms / 1000 - MARGIN_SECONDS
