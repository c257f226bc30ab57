"""ConfirmBound: what may be seen of the log of a fenced group.

    commit log   |==============================|--------|
                                                ^ offset ^ end of the log

Below `offset` every replica that counts has the log, so nothing there can be taken back by a change
of master. Later records are in the log and in the queues, but no reader sees them: a record can
be read when it ends at or below `offset`.

Arrivals are reported when messages can be read, not when they arrive. Until then they are kept
here, in the order of the log: at most one for each record that is not confirmed, so no more than
the group lets be under way (puts are refused when replicas do not follow).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from store.results import Arrival


class ConfirmBound:
    """The bound of one store."""

    def __init__(self) -> None:
        self.offset = 0
        self._waiting: list[Arrival] = []

    def raise_to(self, offset: int) -> list[Arrival]:
        """Let everything below `offset` be read; return what of it had to wait. Never goes back."""
        self.offset = max(self.offset, offset)
        readable = []
        while self._waiting and self._waiting[0][0] <= self.offset:
            readable.append(heappop(self._waiting))
        return readable

    def arrived(self, entered: Iterable[Arrival]) -> list[Arrival]:
        """Take note of what has entered its queue; return what of it can be read already.

        Of several records that enter at once, as on a slave, only the last one counts: they are
        reported together.
        """
        readable = []
        for arrival in entered:
            if arrival[0] <= self.offset:
                readable.append(arrival)
            else:
                heappush(self._waiting, arrival)
        return readable
