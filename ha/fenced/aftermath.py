"""What has to be done when following a master has come to an end that no new connection can mend.

This only decides; `Participation` does it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ha.fenced.joining import FollowerOutcome, NeedsFullCopy, NeedsTruncation


class CutLog(msgspec.Struct, frozen=True):
    """The end of the log was never confirmed, and the master's log goes on without it."""

    order: NeedsTruncation


class CopyAnew(msgspec.Struct, frozen=True):
    """The log is of no use to the group: set it aside, and copy the master's."""

    reason: str


class AskOperator(msgspec.Struct, frozen=True):
    """The log contradicts what was promised, or may be needed: nothing is changed."""

    reason: str


Aftermath: TypeAlias = CutLog | CopyAnew | AskOperator


def aftermath_of(
    outcome: FollowerOutcome, *, confirm_offset: int, may_be_member: bool
) -> Aftermath:
    """Return what an outcome asks for.

    Args:
        outcome: Why following has ended.
        confirm_offset: Everything below it is confirmed, as far as this replica knows.
        may_be_member: Whether this replica, under its present incarnation, may be in the in-sync
            set: then its log may be needed.
    """
    match outcome:
        case NeedsTruncation() if outcome.cut >= confirm_offset:
            return CutLog(outcome)
        case NeedsTruncation():
            return AskOperator(
                f"{outcome.master} (epoch {outcome.epoch}) has this log up to {outcome.cut} only,"
                f" but everything below {confirm_offset} was confirmed"
            )
        case NeedsFullCopy(reason=reason) if not may_be_member:
            return CopyAnew(reason)
        case NeedsFullCopy(reason=reason):
            return AskOperator(
                f"{reason}; but this node is in the in-sync set, and its log may be needed."
                " `tandem ha rejoin` gives it up"
            )
        case _:
            return AskOperator(outcome.reason)
