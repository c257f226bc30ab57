"""Which bytes are right where replicas say different things of one block of the log: no I/O.

The logs of a group are equal byte for byte, so one of two fingerprints that differ is of bytes that
had changed before it was made. Records alone do not decide it: most of what is beside the bodies
has no checksum of RocketMQ's. Where votes do not decide, see `ComparingService`.

    all say the same                                       that is right
    more than half of the in-sync set says the same        that is right; others that answer are
                                                           counted as if they were of the set
    those taken from memory, right after the write, agree  they are right: it was acknowledged so;
                                                           alone against more, memory had changed;
                                                           so nodes that are away are waited for
    else                                                   nobody knows; an operator decides
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec

from tandem.wire.fingerprint import BLOCK_BYTES


class Vote(msgspec.Struct, frozen=True):
    """What one node says of a block."""

    node: str
    crc: int
    is_written: bool
    """It is that of memory, right after the write, and not read from a disk later."""
    is_member: bool = True
    """The node is in the in-sync set."""


def right_crc(votes: Collection[Vote], members: int, *, memory_decides: bool) -> int | None:
    """Return the checksum of the right bytes, None if that cannot be known from these votes.

    `members` is how many nodes the in-sync set has. `memory_decides` is false while a node that
    has not voted may still do so: memory, too, may have changed before the fingerprint was taken.
    """
    if len({vote.crc for vote in votes}) == 1:
        return next(iter(votes)).crc
    voters = members + sum(not vote.is_member for vote in votes)
    counts = Counter(vote.crc for vote in votes)
    for crc, count in counts.items():
        if 2 * count > voters:
            return crc
    written = {vote.crc for vote in votes if vote.is_written}
    return written.pop() if memory_decides and len(written) == 1 else None


class FileVote(msgspec.Struct, frozen=True):
    """What one node says of all blocks of a file."""

    node: str
    crcs: bytes
    """4 bytes a block."""
    written_from: int
    """Blocks that begin here or later were taken from memory, right after the write."""
    is_member: bool = True

    def of(self, block: int, start: int) -> Vote:
        """Return what it says of one block, which begins at `start`."""
        crc = int.from_bytes(self.crcs[4 * block : 4 * block + 4], "big")
        return Vote(self.node, crc, start >= self.written_from, self.is_member)


def have_enough_voted(votes: Collection[Vote | FileVote], members: int) -> bool:
    """Whether more than half of all who have a vote have voted: one alone may be wrong."""
    voters = members + sum(not vote.is_member for vote in votes)
    return 2 * len(votes) > voters


class Dispute(msgspec.Struct, frozen=True):
    """A block of which nodes say different things."""

    block: int
    start: int
    end: int
    right: int | None
    """The checksum of the right bytes; None if that cannot be known."""
    words: str
    """Who says what."""


def disputes(
    file: tuple[int, int],
    votes: Sequence[FileVote],
    members: int,
    *,
    memory_decides: bool,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Dispute]:
    """Yield the blocks that differ, of a file with these bounds, with who is right."""
    if len({vote.crcs for vote in votes}) < 2:
        return
    start, end = file
    for block, at in enumerate(range(start, end, block_bytes)):
        if len({vote.crcs[4 * block : 4 * block + 4] for vote in votes}) > 1:
            said = [vote.of(block, at) for vote in votes]
            right = right_crc(said, members, memory_decides=memory_decides)
            yield Dispute(block, at, min(at + block_bytes, end), right, votes_in_words(said))


def votes_in_words(votes: Sequence[Vote]) -> str:
    """Return who says what."""
    return ", ".join(
        f"{vote.node} {vote.crc:08x} ({'as written' if vote.is_written else 'read later'})"
        for vote in sorted(votes, key=lambda vote: vote.node)
    )
