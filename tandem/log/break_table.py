"""Which units lead into places without a sound record, and how many into each."""

from collections.abc import Sequence

import numpy as np

from tandem.log.log_scan import LogBreak
from tandem.wire.record_scan import Bools, Int64s


class BreakTable:
    """The breaks of one piece of a log, in order, and those records whose CRC is wrong.

    `counts` says how many of the offsets asked about are in each break, by its offset.
    """

    def __init__(self, breaks: Sequence[LogBreak], damaged: Int64s) -> None:
        self._starts = np.array([place.offset for place in breaks], np.int64)
        self._ends = np.array([place.file.offset + place.end for place in breaks], np.int64)
        self._damaged = damaged
        self.counts: dict[int, int] = {}

    def contain(self, offsets: Int64s) -> Bools:
        """Say which offsets are in a break, and count them.

        What a unit leads to there has been destroyed, which is reported once, of the break. A
        record whose CRC is wrong can still be compared: it is counted, and not contained.
        """
        self._count(offsets[np.isin(offsets, self._damaged)])
        if not len(self._starts):
            return np.zeros(len(offsets), np.bool_)
        at = np.maximum(np.searchsorted(self._starts, offsets, "right") - 1, 0)
        inside: Bools = (offsets >= self._starts[at]) & (offsets < self._ends[at])
        self._count(self._starts[at[inside]])
        return inside

    def _count(self, places: Int64s) -> None:
        found, counts = np.unique(places, return_counts=True)
        for place, count in zip(found.tolist(), counts.tolist(), strict=True):
            self.counts[place] = self.counts.get(place, 0) + count
