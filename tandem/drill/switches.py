"""How long each step of a failover took, and how long nothing was acknowledged. Pure.

    fault -> detect -> fence -> elect -> open -> first ack

detect     the coordinator has no leader any more
fence      the old master cannot answer any more: its process is gone, it says that it stepped down,
           or its lease is over, which the coordinator knows last
elect      the group's state names the new epoch
open       its master says that it takes sends
first ack  a producer got SEND_OK for a sync send after that
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from tandem.drill.timeline import Fault
from tandem.drill.watched_group import Change


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One change of master. Times in seconds since its fault; None: it was not seen."""

    scenario: str
    epoch: int
    previous_master: str
    master: str
    reason: str
    fault: str
    fault_at_seconds: float
    detect_seconds: float | None
    fence_seconds: float | None
    elect_seconds: float
    open_seconds: float | None
    first_ack_seconds: float | None


class Gap(msgspec.Struct, frozen=True):
    """A stretch of time without a SEND_OK for a sync send."""

    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end_seconds - self.start_seconds


class Band(msgspec.Struct, frozen=True):
    """A stretch of time with one master."""

    master: str
    epoch: int
    start_seconds: float
    end_seconds: float


def longest_gap(acks: Sequence[float], start: float, end: float) -> Gap:
    """Return the longest stretch in [start, end] without an ack; `acks` rise."""
    inside = acks[bisect_left(acks, start) : bisect_left(acks, end)]
    edges = [start, *inside, end]
    gaps = [Gap(a, b) for a, b in pairwise(edges)]
    return max(gaps, key=lambda gap: gap.seconds)


def switches_of(
    history: Sequence[Change],
    faults: Sequence[Fault],
    acks: Sequence[float],
    scenario_at: Sequence[tuple[float, str]],
) -> list[Switch]:
    """Return every change of master but the first election, in order.

    `scenario_at` says when each scenario began.
    """
    elected = [change for change in history if change.kind == "epoch"]
    found = []
    for before, now in pairwise(elected):
        earlier = [fault for fault in faults if fault.at_seconds <= now.at_seconds]
        recent = [fault for fault in earlier if fault.at_seconds > before.at_seconds]
        fault = recent[0] if recent else Fault(now.at_seconds, "nothing that the drill did")
        # Of several faults since the last switch, the last one that may have hurt the master: what
        # is done to it after its end, as to its disk, is not why there is another one.
        ended_at = _first(history, before.at_seconds, "ended", before.node, until=now.at_seconds)
        recent = [f for f in recent if ended_at is None or f.at_seconds <= ended_at] or recent
        if recent:
            fault = next((f for f in reversed(recent) if _concerns(f, before.node)), recent[-1])
        scenario = [name for at, name in scenario_at if at <= now.at_seconds]
        found.append(_switch(history, acks, before, now, fault, scenario[-1] if scenario else ""))
    return found


def _concerns(fault: Fault, node: str) -> bool:
    return node in fault.text.replace(",", " ").split()


def _switch(
    history: Sequence[Change],
    acks: Sequence[float],
    before: Change,
    now: Change,
    fault: Fault,
    scenario: str,
) -> Switch:
    start = fault.at_seconds
    detect = _first(history, start, "leader-gone", before.node, until=now.at_seconds)
    ended = _first(history, start, "ended", before.node, until=now.at_seconds)
    stepped = _first(history, start, "stepped-down", before.node, until=now.at_seconds)
    fences = [at for at in (ended, stepped, detect) if at is not None]
    opened = next((c.at_seconds for c in history if (c.kind, c.epoch) == ("open", now.epoch)), None)
    # Records and nodes are asked in turn: the node's word may be heard before the record is read.
    elected = now.at_seconds if opened is None else min(now.at_seconds, opened)
    if detect is not None:
        detect = min(detect, elected)
    place = bisect_left(acks, elected)
    first_ack = acks[place] if place < len(acks) else None
    if first_ack is not None and opened is not None:
        # The status is asked for every few hundredths of a second: an answer may be quicker.
        opened = min(opened, first_ack)
    return Switch(
        scenario=scenario,
        epoch=now.epoch,
        previous_master=before.node,
        master=now.node,
        reason=now.text,
        fault=fault.text,
        fault_at_seconds=round(start, 3),
        detect_seconds=_since(start, detect),
        fence_seconds=_since(start, min(fences) if fences else None),
        elect_seconds=round(elected - start, 3),
        open_seconds=_since(start, opened),
        first_ack_seconds=_since(start, first_ack),
    )


def _first(
    history: Sequence[Change], since: float, kind: str, node: str, until: float = float("inf")
) -> float | None:
    return next(
        (
            change.at_seconds
            for change in history
            if change.kind == kind and change.node == node and since <= change.at_seconds <= until
        ),
        None,
    )


def _since(start: float, at: float | None) -> float | None:
    return None if at is None else round(at - start, 3)


def bands(history: Sequence[Change], end_seconds: float) -> Iterator[Band]:
    """Yield who was master when: from its first word as master to its last or its end."""
    open_since: dict[str, tuple[float, int]] = {}
    for change in history:
        if change.kind == "open":
            if change.node in open_since:
                at, epoch = open_since.pop(change.node)
                yield Band(change.node, epoch, at, change.at_seconds)
            open_since[change.node] = (change.at_seconds, change.epoch)
        elif change.kind in ("stepped-down", "ended", "leader-gone") and change.node in open_since:
            at, epoch = open_since.pop(change.node)
            yield Band(change.node, epoch, at, change.at_seconds)
    for node, (at, epoch) in open_since.items():
        yield Band(node, epoch, at, end_seconds)
