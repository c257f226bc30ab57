"""Of which masters a part of a log is: what makes it equal to that of another node. No I/O.

An epoch has one master, and each master draws a random id for it. So two nodes that have a part of
the log from the same masters, by number and id, with every change of master at the same place, have
the same bytes there: whether they are confirmed or not. Where an id is not known, the numbers may
be equal and the masters not; then only what is confirmed is equal for certain.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from ha.fenced.epochs import EpochEntries, EpochEntry, entry_at, is_same_epoch
from tandem.wire.peer_log import EPOCHS_MAX, EpochPart

_DIGEST_BYTES: Final = 16


def epochs_within(entries: EpochEntries, start: int, end: int) -> tuple[EpochPart, ...]:
    """Return the epoch of the byte at `start`, and those that begin after it and below `end`."""
    first = entry_at(entries, start)
    rest: list[EpochEntry] = [e for e in entries if start < e.start < end]
    found = [first, *rest] if first is not None else rest
    return tuple(EpochPart(e.epoch, e.start, e.id) for e in found[:EPOCHS_MAX])


def narrowed(epochs: Sequence[EpochPart], start: int, end: int) -> tuple[EpochPart, ...]:
    """Return those of a smaller part, from `start` to `end`."""
    first = max(0, bisect_right(epochs, start, key=lambda each: each.start) - 1)
    return tuple(each for each in epochs[first:] if each.start < end)


def are_of_one_history(own: Sequence[EpochPart], theirs: Sequence[EpochPart]) -> bool:
    """True if two nodes may have one part of the log from the same masters.

    Both lists begin with the epoch of the first byte; see `PeerLogPart.epochs`. An id that is not
    known fits every other: what is confirmed must be equal then.
    """
    if len(own) != len(theirs):
        return False
    for index, (one, other) in enumerate(zip(own, theirs, strict=True)):
        same = is_same_epoch(
            EpochEntry(one.epoch, one.start, one.id),
            EpochEntry(other.epoch, other.start, other.id),
        )
        # Where the first one began may be cut off with the files before this part.
        if not same or (index and one.start != other.start):
            return False
    return True


def shared_end(own: Sequence[EpochPart], theirs: Sequence[EpochPart], start: int, end: int) -> int:
    """Return up to where two nodes may have the part from `start` to `end` from the same masters.

    `end` if they may have all of it, `start` if none. A log that has to be cut back yet is equal to
    the others up to where its last master was alone.
    """
    ours, others = narrowed(own, start, end), narrowed(theirs, start, end)
    for index in range(1 + max(len(ours), len(others))):
        if not are_of_one_history(ours[:index], others[:index]):
            begins = [each[index - 1].start for each in (ours, others) if index <= len(each)]
            return max(start, min(begins))
    return end


def history_of(epochs: Sequence[EpochPart], start: int, end: int) -> str:
    """Return what is equal for two nodes only if this part of their logs is, confirmed or not.

    `epochs` are those of this part or a larger one. "" if the master of a byte is not known.
    """
    own = narrowed(epochs, start, end)
    if not own or own[0].start > start or not all(each.id for each in own):
        return ""
    if len(epochs) >= EPOCHS_MAX:  # there may be more that were left out
        return ""
    words = [f"{own[0].epoch}-{own[0].id}", *(f"{e.epoch}-{e.start}-{e.id}" for e in own[1:])]
    return hashlib.blake2b(" ".join(words).encode(), digest_size=_DIGEST_BYTES).hexdigest()
