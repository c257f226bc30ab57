"""Which master wrote which part of a log: lists of epochs, and where two logs part.

An entry says: from physical offset `start` on, up to the start of the next entry, the log was
written by the one master of `epoch`. Lists are tuples, and what is here only computes with them;
the file is in `ha.fenced.epoch_file`.

A number has one master as long as the coordinator remembers which were given away. One that was set
back gives a number a second time. So each master draws a random id for its epoch: two entries
with one number and two ids are two epochs, and the logs part where the first of them begins.

Source: RocketMQ 5.3.3, EpochEntry, EpochFileCache.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from ha.errors import EpochConflictError
from tandem.wire.group_state import EPOCH_MAX


class EpochEntry(msgspec.Struct, frozen=True, array_like=True):
    """`start` is the physical offset of the first byte that the master of `epoch` wrote."""

    epoch: int
    start: int
    id: str = ""
    """Random, of that master; empty if it is not known: RocketMQ's file has no place for it."""


EpochEntries: TypeAlias = tuple[EpochEntry, ...]
"""Rising epochs, rising starts."""

BEFORE_ALL_EPOCHS: Final = EpochEntry(0, 0)
"""Stands for what the log held before the group became a fenced one."""


def expect_rising(entries: EpochEntries) -> None:
    """Raise ValueError unless epochs and starts rise, from an epoch above 0 on."""
    before = EpochEntry(0, -1)
    for entry in entries:
        if not before.epoch < entry.epoch <= EPOCH_MAX or entry.start <= before.start:
            raise ValueError(f"entry {_words(entry)} after {_words(before)}")
        before = entry


def trimmed_to_log(entries: EpochEntries, end: int) -> EpochEntries:
    """Drop entries that begin past the end of the log; one that begins just there may stay."""
    return tuple(entry for entry in entries if entry.start <= end)


def entry_at(entries: EpochEntries, offset: int) -> EpochEntry | None:
    """Return the entry that the byte at `offset` belongs to, None below the first entry."""
    return next((entry for entry in reversed(entries) if entry.start <= offset), None)


def end_of_entry(entries: EpochEntries, epoch: int, log_end: int) -> int:
    """Return where the bytes of `epoch` end: where the next entry begins, or the log ends."""
    return min((entry.start for entry in entries if entry.epoch > epoch), default=log_end)


def is_same_epoch(one: EpochEntry, other: EpochEntry) -> bool:
    """Say whether two entries may be of one master. An id that is not known fits every other."""
    return one.epoch == other.epoch and (one.id == other.id or not one.id or not other.id)


def consistent_point(
    own: EpochEntries, own_end: int, theirs: EpochEntries, their_end: int
) -> int | None:
    """Return up to which offset two logs are known to be equal, None if nothing is known.

    An epoch has one writer, so two logs that both have the newest epoch they share are equal up to
    where it ends first. Below an epoch that was given twice, to two masters, what they share
    counts; above it nothing does. Entries past the end of their own log are ignored.

    Raises:
        EpochConflictError: an epoch begins at different places: a list was damaged. Nothing may be
            concluded from such lists.

    Source: EpochFileCache.findConsistentPoint, which also wants the starts equal, but goes on to
    older entries where they are not.
    """
    own, theirs = trimmed_to_log(own, own_end), trimmed_to_log(theirs, their_end)
    by_number = {entry.epoch: entry for entry in theirs}
    newest: int | None = None
    for entry in own:
        other = by_number.get(entry.epoch)
        if other is None:
            continue
        if not is_same_epoch(entry, other):
            break
        if other.start != entry.start:
            raise EpochConflictError(
                epoch=entry.epoch, own_start=entry.start, their_start=other.start
            )
        newest = entry.epoch
    if newest is not None:
        return min(end_of_entry(own, newest, own_end), end_of_entry(theirs, newest, their_end))
    if own and theirs and own[0].start == theirs[0].start == 0:
        # Both lists name the writer of every byte from the first on, and it was never the same: the
        # first master's log had reached no other node when one with an empty log took its place.
        return 0
    return None


def adopted(own: EpochEntries, theirs: EpochEntries, end: int) -> EpochEntries:
    """Return the list of a log that is equal to the other one up to `end`, and ends there.

    It is theirs, also the idle epochs among them, and what only we still know of older ones.
    """
    older = own
    if theirs:
        first = theirs[0]
        older = tuple(e for e in own if e.epoch < first.epoch and e.start < first.start)
    return trimmed_to_log(older + theirs, end)


def _words(entry: EpochEntry) -> str:
    return f"{entry.epoch}-{entry.start}"
