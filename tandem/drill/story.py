"""What a drill amounts to: how long nothing was acknowledged, after what, and why. Pure.

Every figure comes from the ledger (when sends were answered SEND_OK) and from what the coordinator
and the nodes said (the steps of a switch); nothing is assumed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tandem.drill.outcomes import FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE
from tandem.drill.scenario import ScenarioRun
from tandem.drill.switches import Band, Switch, bands
from tandem.drill.timeline import BUCKET_SECONDS, Fault, LagPoint, Timeline
from tandem.drill.watched_group import Change

LEASE_SHARE_MIN: Final = 0.6
"""A switch that took this share of the lease to be noticed waited for the lease to run out: it was
last renewed a while before the fault."""

FAULT_MARGIN_SECONDS: Final = 0.5
"""The last answers before a fault come this long before it is noted, at most."""

SHOWN_SECONDS_MIN: Final = 0.005
LABEL_MAX: Final = 48
"""Characters."""

_STORED_ONLY: Final = (SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, FLUSH_DISK_TIMEOUT)


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """The longest time without SEND_OK for a sync send in one run of a scenario.

    `cause` is a word or two for a picture, `because` a phrase; `fault` is what it follows.
    """

    scenario: str
    start_seconds: float
    seconds: float
    fault: str
    cause: str
    because: str

    @property
    def end_seconds(self) -> float:
        """When a sync send was acknowledged again."""
        return self.start_seconds + self.seconds


def outages(
    runs: Iterable[ScenarioRun],
    timeline: Timeline,
    switches: Sequence[Switch],
    lease_ttl_ms: int,
) -> list[Outage]:
    """Return the longest outage of each run that hurt something, in order."""
    found = []
    for run in runs:
        if run.unavailable_seconds is None or run.unavailable_from_seconds is None:
            continue
        start, end = (
            run.unavailable_from_seconds,
            run.unavailable_from_seconds + run.unavailable_seconds,
        )
        switch = _switch_within(switches, start, end)
        if switch is None:
            fault = _fault_of(timeline.faults, start, end)
            cause = because = _answers_within(timeline, start, end)
        else:
            fault = with_role(Fault(start, switch.fault), switch.previous_master)
            cause, because = _steps(switch, lease_ttl_ms / 1000)
        found.append(
            Outage(
                scenario=run.name,
                start_seconds=start,
                seconds=run.unavailable_seconds,
                fault=fault,
                cause=cause,
                because=because,
            )
        )
    return found


def longest(found: Sequence[Outage]) -> Outage | None:
    """Return the longest of them, if there is any."""
    return max(found, key=lambda outage: outage.seconds, default=None)


def masters(timeline: Timeline, history: Sequence[Change], end: float, first: str) -> list[Band]:
    """Return who was master when, as far as it was seen.

    Of a classic group, without a history, it is `first`, whenever it answered; its epoch is 0.
    """
    if history:
        return list(bands(history, end))
    points = next(iter(timeline.lag.values()), [])
    return [Band(first, 0, start, stop) for start, stop in _answering(points)]


def labels(faults: Iterable[Fault], of_masters: Sequence[Band]) -> list[Fault]:
    """Return the faults with the word "master" where they concern the master of that time.

    What an order of an operator answered may be long: it is cut.
    """
    return [
        msgspec.structs.replace(fault, text=_short(with_role(fault, _master_at(of_masters, fault))))
        for fault in faults
    ]


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= LABEL_MAX else f"{line[: LABEL_MAX - 1]}…"


def with_role(fault: Fault, master: str) -> str:
    """Return the words of a fault; the master's name gets its role."""
    words = fault.text.split(" ")
    names = [word.rstrip(",") for word in words]
    if not master or "master" in names or master not in names:
        return fault.text
    place = names.index(master)
    words[place] = words[place].replace(master, f"master {master}")
    return " ".join(words)


def _master_at(of_masters: Sequence[Band], fault: Fault) -> str:
    before = [band for band in of_masters if band.start_seconds <= fault.at_seconds]
    # The cause of its end may be noted a moment before the fault is.
    lately = [b for b in before if b.end_seconds >= fault.at_seconds - FAULT_MARGIN_SECONDS]
    return lately[-1].master if lately else ""


def _answering(points: Sequence[LagPoint]) -> Iterator[tuple[float, float]]:
    """Yield the stretches in which the master said how far a node was."""
    start: float | None = None
    for point in points:
        if math.isnan(point.lag_bytes):
            if start is not None:
                yield start, point.at_seconds
            start = None
        elif start is None:
            start = point.at_seconds
    if start is not None:
        yield start, points[-1].at_seconds


def _switch_within(switches: Sequence[Switch], start: float, end: float) -> Switch | None:
    """The switch that ended an outage: its master was elected in that time."""
    within = [
        switch
        for switch in switches
        if start <= switch.fault_at_seconds + switch.elect_seconds <= end
    ]
    return within[-1] if within else None


def _fault_of(faults: Sequence[Fault], start: float, end: float) -> str:
    """What was done when it began, or last before that."""
    hurting = [f for f in faults if f.hurts]
    near = [f for f in hurting if abs(f.at_seconds - start) <= FAULT_MARGIN_SECONDS]
    before = [f for f in hurting if f.at_seconds <= end]
    return near[0].text if near else before[-1].text if before else ""


def _answers_within(timeline: Timeline, start: float, end: float) -> str:
    """Why there was no SEND_OK, by what sync sends were answered meanwhile."""
    total: Counter[str] = Counter()
    for bucket in timeline.buckets[int(start / BUCKET_SECONDS) : int(end / BUCKET_SECONDS) + 1]:
        for (mode, status), count in bucket.sends.items():
            total[status] += count if mode == "sync" else 0
    total.pop("SEND_OK", None)
    if not total:
        # Those before and after it share the buckets at its ends.
        within = timeline.buckets[math.ceil(start / BUCKET_SECONDS) : int(end / BUCKET_SECONDS)]
        return "no answer to sync sends" if any(each.sends for each in within) else "no answer"
    status = max(total, key=lambda status: total[status])
    return "too few replicas" if status in _STORED_ONLY else "no master"


def _steps(switch: Switch, lease_seconds: float) -> tuple[str, str]:
    """The longest step of a switch in a word or two, and all of them in a phrase."""
    detect = switch.detect_seconds or 0.0
    opened = switch.elect_seconds if switch.open_seconds is None else switch.open_seconds
    acked = opened if switch.first_ack_seconds is None else switch.first_ack_seconds
    by_lease = detect >= LEASE_SHARE_MIN * lease_seconds
    noticed = f"until the lease of {lease_seconds:g} s was over" if by_lease else "to notice it"
    steps = [
        (detect, f"lease {lease_seconds:g} s" if by_lease else "noticing", noticed),
        (switch.elect_seconds - detect, "election", "to elect a master"),
        (opened - switch.elect_seconds, "opening", "to open it"),
        (acked - opened, "first send", "to the first SEND_OK"),
    ]
    cause = max(steps, key=lambda step: step[0])[1]
    said = [f"{seconds:.2f} s {what}" for seconds, _, what in steps if seconds >= SHOWN_SECONDS_MIN]
    return cause, ", ".join(said)
