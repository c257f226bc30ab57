"""Leases that masters lost although nothing had been done to them: the machine was too slow. Pure.

A node renews its lease several times before it ends. One whose lease ends while its process runs,
its network is whole and its disk has room did not get to run, or its coordinator did not. Whether
the machine is to blame the drill knows from itself: how late its own tasks were woken.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tandem.drill.timeline import Fault
from tandem.drill.watched_group import Change
from tandem.wire.switch_cause import SwitchCause

LATE_SECONDS_MIN: Final = 0.25
"""A task of the drill that is woken this late is noted: five times what it sleeps between looks."""

LATE_SHARE_OF_LEASE: Final = 0.1
"""A lease is renewed several times before it ends: who is late by less than this has lost none."""

MARGIN_SECONDS: Final = 0.5
"""A fault is noted this long before or after what it does is seen, at most."""

HEALED_BY: Final = {
    "cut": "heal the network",
    "delay": "heal the network",
    "limit": "heal the network",
    "freeze": "resume",
    "fill": "free",
    "let": "let syncs",
    "set": "set the clock",
}
"""Faults that last, by the first word of what is said of them, and what ends them."""

ENDS_AT_ONCE: Final = ("cut the last", "cut the power", "let the disk")
"""What begins with such a word and ends no lease later on."""


class Late(msgspec.Struct, frozen=True):
    """A task of the drill was woken that much too late."""

    at_seconds: float
    seconds: float


class LostLease(msgspec.Struct, frozen=True, kw_only=True):
    """A master's lease that ended without a fault. `late_seconds`: how late the drill was."""

    at_seconds: float
    node: str
    epoch: int
    late_seconds: float
    lease_seconds: float

    @property
    def machine_was_slow(self) -> bool:
        """Whether the drill itself did not get to run either."""
        return is_slow(self.late_seconds, self.lease_seconds)

    def in_words(self) -> str:
        """Return what happened, and what it means."""
        lost = (
            f"{self.node} lost its lease at {self.at_seconds:.1f} s (epoch {self.epoch}), and"
            " nothing had been done to it"
        )
        if self.machine_was_slow:
            return (
                f"{lost}. The drill itself was woken up to {self.late_seconds:.1f} s late then: the"
                " machine was too slow"
            )
        return f"{lost}. The drill itself was woken in time: the machine was not too slow"


def is_slow(late_seconds: float, lease_seconds: float) -> bool:
    """Whether a drill that was woken this late says that its machine was too slow."""
    return late_seconds >= max(LATE_SECONDS_MIN, LATE_SHARE_OF_LEASE * lease_seconds)


def lost_leases(
    history: Sequence[Change],
    faults: Sequence[Fault],
    lateness: Sequence[Late],
    lease_seconds: float,
) -> list[LostLease]:
    """Return the leases that ended although nothing had been done that may end one, in order."""
    return [
        LostLease(
            at_seconds=round(gone.at_seconds, 3),
            node=gone.node,
            epoch=gone.epoch,
            late_seconds=round(_latest(lateness, gone.at_seconds, lease_seconds), 3),
            lease_seconds=lease_seconds,
        )
        for began_at, gone in _ended(history)
        if not _may_be_planned(faults, began_at, gone.at_seconds)
    ]


def _ended(history: Sequence[Change]) -> Iterator[tuple[float, Change]]:
    """Yield when each mastership began, and the end of its lease, if it was not given back.

    Its successor's record says why it ended, by the word of the master itself if it left one. That
    there was no leader in between is not always seen.
    """
    elected = [change for change in history if change.kind == "epoch"]
    for began, following in pairwise([*elected, None]):
        assert began is not None, "only the last one has nobody after it"
        until = float("inf") if following is None else following.at_seconds
        of_node = [
            change
            for change in history
            if change.node == began.node and began.at_seconds <= change.at_seconds <= until
        ]
        gone = [change.at_seconds for change in of_node if change.kind == "leader-gone"]
        if any(change.kind == "ended" for change in of_node):
            continue
        if following is not None and following.cause == SwitchCause.LEASE_ENDED:
            at_seconds = gone[-1] if gone else following.at_seconds
        elif following is None and gone:
            at_seconds = gone[-1]
        else:
            continue
        yield (
            began.at_seconds,
            Change(at_seconds, "leader-gone", began.node, began.epoch),
        )


def _may_be_planned(faults: Sequence[Fault], began_at: float, gone_at: float) -> bool:
    earlier = [fault for fault in faults if fault.at_seconds <= gone_at + MARGIN_SECONDS]
    hurting = [fault for fault in earlier if fault.hurts]
    if any(fault.at_seconds >= began_at - MARGIN_SECONDS for fault in hurting):
        return True
    return any(_lasts(fault, earlier) for fault in hurting)


def _lasts(fault: Fault, faults: Iterable[Fault]) -> bool:
    healed_by = HEALED_BY.get(fault.text.partition(" ")[0])
    if healed_by is None or fault.text.startswith(ENDS_AT_ONCE):
        return False
    return not any(
        each.at_seconds >= fault.at_seconds and not each.hurts and each.text.startswith(healed_by)
        for each in faults
    )


def _latest(lateness: Iterable[Late], gone_at: float, lease_seconds: float) -> float:
    """How late the drill was at most, while the lease should have been renewed.

    What came after its end did not end it.
    """
    since, until = gone_at - 2 * lease_seconds, gone_at + MARGIN_SECONDS
    during = [each for each in lateness if since <= each.at_seconds <= until]
    return max((each.seconds for each in during), default=0.0)
