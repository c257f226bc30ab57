"""What happened when: everything the live view and the report draw.

Pure: callers pass `now`, in seconds since the drill started. Sends and reads are counted in buckets
of 250 ms by the time of their answer; phases count their own sends by the time they were sent, so
that a send which a fault caught in flight belongs to the state it was sent into.
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from tandem.drill.outcomes import SEND_OK, SendMode

BUCKET_SECONDS: Final = 0.25

_LONE_NUMBER: Final = re.compile(r"(?<![\d.:])\d+(?![\d.:])")
"""A number that is no part of an address: an offset, a distance, a time."""


class Fault(msgspec.Struct, frozen=True):
    """Something done to the cluster on purpose: to hurt it, or to help it up again."""

    at_seconds: float
    text: str
    hurts: bool = True


class LagPoint(msgspec.Struct, frozen=True):
    """How far one node was behind; nan when the master did not say.

    While it is not connected, this counts from its last acknowledgement.
    """

    at_seconds: float
    lag_bytes: float
    connected: bool


class Bucket:
    """A quarter of a second of answers."""

    def __init__(self) -> None:
        self.sends: Counter[tuple[SendMode, str]] = Counter()
        self.latencies_ms: dict[SendMode, array[float]] = {"sync": array("f"), "async": array("f")}
        self.messages_read = 0


class Reason:
    """One kind of answer and why: how often, and the text and the send it was first seen with.

    Texts that differ only in an offset or a distance are one reason.
    """

    def __init__(self, status: str, text: str, example: str) -> None:
        self.status = status
        self.text = text
        self.example = example
        self.count = 0


class Phase:
    """One named stretch of a scenario and what was counted in it. Ended when `ended_at` is set."""

    def __init__(self, scenario: str, name: str, started_at: float) -> None:
        self.scenario = scenario
        self.name = name
        self.started_at = started_at
        self.ended_at: float | None = None
        self.in_flight = 0
        self.sends: Counter[tuple[SendMode, str]] = Counter()
        self.without_reason = 0
        self.messages_read = 0
        self.reads_failed = 0

    def is_current(self, scenario: str, name: str) -> bool:
        """Whether this phase, still being played, is the one of these names."""
        return (self.scenario, self.name, self.ended_at) == (scenario, name, None)

    def count(self, mode: SendMode, *statuses: str) -> int:
        """Answered sends of a mode with one of these statuses; any status when none is named."""
        return sum(
            count
            for (of_mode, status), count in self.sends.items()
            if of_mode == mode and (not statuses or status in statuses)
        )


class Timeline:
    """Collects a drill. The current phase is the last of `phases`."""

    def __init__(self) -> None:
        self.buckets: list[Bucket] = []
        self.phases: list[Phase] = []
        self.faults: list[Fault] = []
        self.lag: dict[str, list[LagPoint]] = {}
        self.reasons: dict[tuple[str, str], Reason] = {}
        self.sync_acks: array[float] = array("d")
        """When sync sends were answered SEND_OK, in seconds, rising."""

    @property
    def phase(self) -> Phase:
        """The phase that is being played."""
        return self.phases[-1]

    def bucket(self, now: float) -> Bucket:
        """The bucket of a time; makes those in between."""
        index = int(now / BUCKET_SECONDS)
        while len(self.buckets) <= index:
            self.buckets.append(Bucket())
        return self.buckets[index]

    def start_phase(self, now: float, scenario: str, name: str) -> Phase:
        """End the current phase and begin the next."""
        self.end_phase(now)
        self.phases.append(Phase(scenario, name, now))
        return self.phases[-1]

    def end_phase(self, now: float) -> None:
        """End the current phase, if one is being played."""
        if self.phases and self.phases[-1].ended_at is None:
            self.phases[-1].ended_at = now

    def fault(self, now: float, text: str, *, hurts: bool = True) -> None:
        """Mark something done to the cluster."""
        self.faults.append(Fault(now, text, hurts))

    def sent(self) -> Phase:
        """Count a send as under way; give the phase it belongs to."""
        self.phase.in_flight += 1
        return self.phase

    def answered(
        self,
        now: float,
        phase: Phase,
        mode: SendMode,
        status: str,
        *,
        reason: str,
        send_id: str,
        latency_ms: float,
    ) -> None:
        """Count the outcome of a send that `sent` announced for `phase`."""
        phase.in_flight -= 1
        phase.sends[mode, status] += 1
        phase.without_reason += status != SEND_OK and not reason
        bucket = self.bucket(now)
        bucket.sends[mode, status] += 1
        bucket.latencies_ms[mode].append(latency_ms)
        if mode == "sync" and status == SEND_OK:
            self.sync_acks.append(now)
        if reason:
            key = (status, _LONE_NUMBER.sub("#", reason))
            known = self.reasons.get(key)
            if known is None:
                known = self.reasons[key] = Reason(status, reason, send_id)
            known.count += 1

    def read(self, now: float, messages: int) -> None:
        """Count messages that a consumer got."""
        self.bucket(now).messages_read += messages
        self.phase.messages_read += messages

    def read_failed(self) -> None:
        """Count a pull that no node answered."""
        self.phase.reads_failed += 1

    def lagged(self, now: float, node: str, lag_bytes: float, *, connected: bool) -> None:
        """Note how far a node is behind; nan if nobody knows."""
        self.lag.setdefault(node, []).append(LagPoint(now, lag_bytes, connected))

    def sends_lately(self, now: float, seconds: float = 1.0) -> Counter[tuple[SendMode, str]]:
        """Answers of the last whole buckets that make up `seconds`."""
        end = int(now / BUCKET_SECONDS)
        start = max(0, end - round(seconds / BUCKET_SECONDS))
        total: Counter[tuple[SendMode, str]] = Counter()
        for bucket in self.buckets[start:end]:
            total.update(bucket.sends)
        return total


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a `share` of the values do not exceed (nearest rank); nan if none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
