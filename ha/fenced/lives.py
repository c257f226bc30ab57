"""Is this directory the one that ran last under this name, or an older copy of it?

A directory that was put back from a backup has forgotten what the node acknowledged since, and its
own files cannot say so: they are all equally old. So each process of a node that registers begins a
new *life*, with a number and a random token that are both in its directory and in the
coordinator, in a record without a lease; and that record says, every few seconds, how far the
node has confirmed.

    coordinator            directory        verdict
    none, and no life      any              first life
    one of our tokens      log reaches      the same directory
    one of our tokens      log too short    an older copy, of the same life
    a sync failed          of that          what was only written may be lost
    another token          life not higher  an older copy, or the node's disk was replaced
    another, or none       life is higher   the *coordinator* is the older one

An older copy goes on under a new incarnation: nothing it acknowledged counts until it has caught
up. So does a directory of which a sync failed in a life before: it should know that itself, but a
disk that fails may not have taken the note, and the record says it too. An older coordinator is
believed nothing until an operator has recovered the group.

The directory is written before the record and again after it, so between the two it knows several
tokens: the last one that is certain, and those that may have been written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tandem.wire.group_state import LifeRecord

TOKENS_MAX: Final = 32
"""How many registrations without a known outcome are remembered; more cost the incarnation."""


class Verdict(msgspec.Struct, frozen=True):
    """Why one of the two does not have what it had, in words; both None if each has."""

    old_directory: str | None = None
    old_coordinator: str | None = None


def judge(
    record: LifeRecord | None,
    *,
    life: int,
    tokens: Sequence[str],
    incarnation: str,
    log_end: int,
    loss_accepted: int,
    own_token: str = "",
) -> Verdict:
    """Compare what the coordinator remembers of this node with what its directory says.

    Args:
        record: What the coordinator remembers; None for nothing.
        life: Number of the last life that this directory knows to be registered; 0 for none.
        tokens: Of that life, and of those that may have been registered since.
        incarnation: Of this directory.
        log_end: In bytes.
        loss_accepted: Epoch up to which an operator has accepted losses, see `GroupState`.
        own_token: Of the life that asks: what failed in it is there as long as it lives.
    """
    if record is None:
        if not life:
            return Verdict()
        return Verdict(old_coordinator=f"it does not know this node, which has had {life} lives")
    if record.token not in tokens:
        if record.life < life:
            return Verdict(
                old_coordinator=f"it knows life {record.life} of this node, which has had {life}"
            )
        return Verdict(
            old_directory=f"the coordinator knows life {record.life} of {record.node}, this"
            f" directory only life {life}: it is an older copy, or a new disk"
        )
    return Verdict(
        old_directory=_why_not_whole(record, incarnation, log_end, loss_accepted, own_token)
    )


def _why_not_whole(
    record: LifeRecord, incarnation: str, log_end: int, loss_accepted: int, own_token: str
) -> str | None:
    """Why the directory that ran last may lack what it acknowledged; None if it does not."""
    if record.incarnation != incarnation:
        return None
    if record.failed == incarnation and record.token != own_token:
        return (
            f"a sync failed in life {record.life} of {record.node}, and what was acknowledged was"
            " not flushed (ack_level: written)"
        )
    if log_end < record.confirm and record.epoch > loss_accepted:
        return (
            f"the log ends at {log_end}, but {record.node} has confirmed everything below"
            f" {record.confirm}: it is an older copy, or has lost its end"
        )
    return None
