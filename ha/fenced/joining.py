"""How a follower's log can become a part of its master's: decided from the WELCOME, without I/O.

equal up to our end                    AttachLog, unless the bytes before that differ
a tail that the master has not         NeedsTruncation
the master lacks what we confirmed,
and has confirmed nothing since    Objection: it has to give up its place
and has confirmed something else   Diverged: an operator has to look
nothing known to be in common          NeedsFullCopy
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ha.errors import HandshakeError, LinkFault
from ha.fenced.epochs import EpochEntries, adopted
from ha.fenced.protocol import Objection, Welcome, check_from


class OwnLog(msgspec.Struct, frozen=True, kw_only=True):
    """Our log when a connection begins. Offsets in bytes."""

    start: int = 0
    end: int
    """0 for a log without a byte."""
    confirm: int
    bad_until: int = 0
    """Where the last part of it ends that is known to be bad: only what is after it is compared."""
    may_object: bool = True
    """False if an operator has accepted that what this log has confirmed may be lost."""
    entries: EpochEntries
    promised: int


class AttachLog(msgspec.Struct, frozen=True):
    """Make `entries` our list of epochs, durably; then `attach` with a checksum of our bytes."""

    entries: EpochEntries
    offset: int
    check_from: int


class NeedsTruncation(msgspec.Struct, frozen=True, kw_only=True):
    """Our log has a tail that the master's has not. Cut it at `cut`, then follow."""

    cut: int
    end: int
    """Of our log: what is between the two is to be kept aside."""
    entries: EpochEntries
    """The list of epochs that belongs to the log when it has been cut."""
    master: str
    epoch: int


class NeedsFullCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Our log and the master's cannot be joined: give ours up and copy all of the master's."""

    reason: str


class Diverged(msgspec.Struct, frozen=True, kw_only=True):
    """What must never happen: an operator has to look. Nothing may be cut, copied or served."""

    reason: str


FollowerOutcome: TypeAlias = NeedsTruncation | NeedsFullCopy | Diverged


def join(  # noqa: PLR0911 - one return for each way in which two logs can relate
    own: OwnLog, welcome: Welcome, file_size_bytes: int, cut: int | None
) -> AttachLog | Objection | FollowerOutcome:
    """Return how our log can become a part of the master's; the two are equal below `cut`.

    Raises:
        HandshakeError: our log is empty, and the master's begins within a file.
    """
    if not own.end:
        if welcome.log_start % file_size_bytes:
            raise HandshakeError(
                f"its log begins at {welcome.log_start}, within a file", LinkFault.PLACE
            )
        start = welcome.log_start
        return AttachLog(adopted((), welcome.epochs, start), start, start)
    if (cut or 0) < own.confirm and welcome.confirm <= (cut or 0) and own.may_object:
        return Objection(parting=cut or 0, confirm=own.confirm)
    if cut is None:
        return NeedsFullCopy(
            reason=f"our log up to {own.end} has no epoch in common with that of {welcome.node}"
        )
    if cut < own.confirm:
        return Diverged(reason=lacking(own, welcome, cut) + ". It must not be cut")
    if cut < welcome.log_start:
        return NeedsFullCopy(
            reason=f"our log is equal to that of {welcome.node} up to {cut}, but the latter begins"
            f" at {welcome.log_start}"
        )
    entries = adopted(own.entries, welcome.epochs, cut)
    if cut < own.end:
        return NeedsTruncation(
            cut=cut, end=own.end, entries=entries, master=welcome.node, epoch=welcome.epoch
        )
    compared_from = max(own.start, min(own.bad_until, cut))
    return AttachLog(entries, cut, check_from(cut, compared_from, welcome.log_start))


def lacking(own: OwnLog, welcome: Welcome, cut: int) -> str:
    """Return what the master lacks, in words."""
    return (
        f"our log and that of {welcome.node} (epoch {welcome.epoch}) part at {cut}, but everything"
        f" below {own.confirm} was confirmed: {welcome.node} lacks some of it"
    )
