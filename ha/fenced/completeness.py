"""Has this process seen that its log has everything acknowledged? It cannot be an older copy then.

Kept for the life of a process, over all of its rounds, and never on a disk: what is on a disk is
part of every copy of it. A round that begins under another incarnation, or with less log than the
last one left, knows nothing of it any more.
"""

from __future__ import annotations


class Completeness:
    """Of one node, for as long as its process lives. Offsets in bytes."""

    def __init__(self) -> None:
        self._incarnation = ""
        self._left_at = 0

    def round_begins(self, incarnation: str, log_end: int) -> None:
        """The store was opened again, and its log ends there."""
        if log_end < self._left_at or incarnation != self._incarnation:
            self._incarnation = ""

    def seen(self, incarnation: str) -> None:
        """This replica has had the whole log of a master, or has won an election."""
        self._incarnation = incarnation

    def round_ends(self, log_end: int) -> None:
        """The store is about to be closed; all up to there must be in it when it is opened."""
        self._left_at = log_end

    def holds(self, incarnation: str) -> bool:
        """True if it was seen of this replica."""
        return bool(incarnation) and incarnation == self._incarnation
