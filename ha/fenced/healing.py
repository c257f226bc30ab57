"""How a bad part of the log is healed from peers: what to ask for, and whom to believe. No I/O.

    bad ranges --> is_past?  a file that is gone, and that all have deleted, is given up
        --> pieces --> judge --+-- Whole  our bytes are right: the doubt is over
                               +-- Fetch  get the right bytes from one of these
                               `-- Stuck  no answering node can help, or none knows

A piece is a block where the file has a fingerprint; else the bad range itself, since there only
whole records can be checked. No other node has to have unconfirmed bytes. One that has it from
the same masters (see `history`) has the same bytes; with others there is nothing to go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from ha.fenced.comparison import Vote, have_enough_voted, right_crc, votes_in_words
from ha.fenced.history import are_of_one_history, history_of, narrowed
from tandem.wire.fingerprint import BLOCK_BYTES
from tandem.wire.peer_log import EpochPart, FileFingerprint, PeerLogPart

RANGE_BYTES_MAX: Final = 64 << 20
"""Of what is fetched as one where there are no fingerprints: it is in memory for a moment."""


class LogShape(msgspec.Struct, frozen=True):
    """Our log: its files, and how far it is confirmed."""

    start: int
    end: int
    confirm: int
    file_size: int

    def file_of(self, offset: int) -> tuple[int, int]:
        """Return where the file begins and ends that has this offset."""
        start = offset - offset % self.file_size
        return start, start + self.file_size


class Piece(msgspec.Struct, frozen=True):
    """What is settled in one go: by physical offset, of one file."""

    start: int
    end: int


class Own(msgspec.Struct, frozen=True):
    """What we have of a piece."""

    node: str
    crc: int
    """Of the bytes as they are."""
    fingerprint: int | None
    """What they should be; None if there is no fingerprint."""
    is_written: bool
    is_member: bool
    epochs: tuple[EpochPart, ...]
    """Of the file."""


class Answer(msgspec.Struct, frozen=True):
    """What a peer says of the file."""

    part: PeerLogPart
    is_member: bool


class Whole(msgspec.Struct, frozen=True):
    """Our bytes are right."""


class Fetch(msgspec.Struct, frozen=True):
    """One of these nodes has the right bytes, of this checksum; None: it is not known."""

    crc: int | None
    nodes: tuple[str, ...]


class Stuck(msgspec.Struct, frozen=True):
    """It cannot be healed now. `is_undecided`: time alone will not help."""

    why: str
    is_undecided: bool = False


Judgment: TypeAlias = Whole | Fetch | Stuck


def files(bad: Iterable[tuple[int, int]], log: LogShape) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each file with a bad range, in order, each once."""
    reached = log.start
    for begin, stop in bad:
        at = max(begin, reached)
        while at < min(stop, log.end):
            yield log.file_of(at)
            at = reached = log.file_of(at)[1]


def pieces(
    bad: Iterable[tuple[int, int]], file: tuple[int, int], log: LogShape, *, by_blocks: bool
) -> Iterator[Piece]:
    """Yield what there is to settle of the bad ranges in one file, in order, each once.

    `by_blocks` where there is a fingerprint; else all of a range, up to a limit.
    """
    file_start, file_end = file
    reached = max(file_start, log.start)
    for begin, stop in bad:
        at, end = max(begin, reached), min(stop, log.end, file_end)
        while at < end:
            first, last = at, min(end, at + RANGE_BYTES_MAX)
            if by_blocks:
                first = at - (at - file_start) % BLOCK_BYTES
                last = min(first + BLOCK_BYTES, file_end)
            yield Piece(first, last)
            at = reached = last


def is_past(
    file: tuple[int, int], bad: Iterable[tuple[int, int]], answers: Sequence[Answer], log: LogShape
) -> bool:
    """True if nothing of a file is left, and all who answer have deleted it as too old.

    Nobody can give it back then, and nobody misses it: the log of the group begins after it. Of a
    file of which something is left, that is kept for as long as our own retention says.
    """
    start, end = file
    is_lost = any(begin <= start and end <= stop for begin, stop in bad)
    is_needed = log.confirm < end or log.end <= end
    return is_lost and not is_needed and all(end <= a.part.log_start for a in answers)


def judge(
    own: Own, answers: Sequence[Answer], piece: Piece, members: int, *, memory_decides: bool
) -> Judgment:
    """Return what is to be done about a piece. `members` is the size of the in-sync set.

    For `memory_decides` see `right_crc`.
    """
    epochs = narrowed(own.epochs, piece.start, piece.end)
    related = [
        a
        for a in answers
        if are_of_one_history(epochs, narrowed(a.part.epochs, piece.start, piece.end))
    ]
    votes = []
    if own.fingerprint is not None:
        votes.append(Vote(own.node, own.fingerprint, own.is_written, own.is_member))
    said = {a.part.node: crc_of(a.part.fingerprint, piece) for a in related}
    votes += [
        Vote(a.part.node, crc, _is_written(a.part.fingerprint, piece), a.is_member)
        for a in related
        if (crc := said[a.part.node]) is not None
    ]
    right: int | None = None
    if votes:
        right = right_crc(votes, members, memory_decides=memory_decides)
        # Without a fingerprint of our own those few are all there is to go by.
        is_thin = own.fingerprint is None and not have_enough_voted(votes, members)
        if right is None or (is_thin and not memory_decides):
            what = "replicas differ" if right is None else "most nodes are away"
            return Stuck(
                f"{what}, and it is not known who is right: {votes_in_words(votes)}",
                is_undecided=True,
            )
        if own.crc == right:
            return Whole()
    givers = [
        a.part.node
        for a in related
        if can_give(a.part, piece, epochs) and said[a.part.node] in (None, right)
    ]
    # Nodes with a fingerprint of it first: of them it is known.
    givers.sort(key=lambda node: said[node] is None)
    if givers:
        return Fetch(right, tuple(givers))
    return Stuck(_why_nobody(answers, related, piece, epochs))


def can_give(part: PeerLogPart, piece: Piece, epochs: Sequence[EpochPart]) -> bool:
    """True if a node has a piece that is of these epochs in our log, and is not known to be bad.

    If it is not confirmed, it must surely be of the same masters.
    """
    return (
        part.log_start <= piece.start
        and piece.end <= _reach(part, piece, epochs)
        and not any(start < piece.end and piece.start < end for start, end in part.bad)
    )


def _reach(part: PeerLogPart, piece: Piece, epochs: Sequence[EpochPart]) -> int:
    """Return up to where a node gives what is in a piece of our log."""
    history = history_of(epochs, piece.start, piece.end)
    if history and history == history_of(part.epochs, piece.start, piece.end):
        return max(part.log_end, part.confirm)
    return part.confirm


def crc_of(found: FileFingerprint | None, piece: Piece) -> int | None:
    """Return what a fingerprint says of a piece; None if it is not of just this block."""
    if found is None or not found.start <= piece.start < piece.end <= found.start + found.size:
        return None
    number, within = divmod(piece.start - found.start, BLOCK_BYTES)
    is_block = piece.end == min(piece.start + BLOCK_BYTES, found.start + found.size)
    if within or not is_block or len(found.crcs) < 4 * number + 4:
        return None
    return int.from_bytes(found.crcs[4 * number : 4 * number + 4], "big")


def _is_written(found: FileFingerprint | None, piece: Piece) -> bool:
    return found is not None and piece.start >= found.written_from


def _why_nobody(
    answers: Sequence[Answer],
    related: Sequence[Answer],
    piece: Piece,
    epochs: Sequence[EpochPart],
) -> str:
    if not answers:
        return "no other node answers"
    reasons = []
    for answer in answers:
        part = answer.part
        if answer not in related:
            reasons.append(f"{part.node} has it from other masters")
        elif part.log_start > piece.start:
            reasons.append(f"the log of {part.node} begins at {part.log_start}")
        elif (reach := _reach(part, piece, epochs)) < piece.end:
            what = "has confirmed only" if reach == part.confirm else "has a log that ends at"
            reasons.append(f"{part.node} {what} {reach}")
        elif not can_give(part, piece, epochs):
            reasons.append(f"it is damaged at {part.node}, too")
        else:
            reasons.append(f"{part.node} has other bytes")
    return "; ".join(reasons)
