"""A histogram with buckets that are there from the start: to count is to add to one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper ends of buckets for times, from a tenth of a millisecond to ten seconds."""


class Histogram:
    """How often a value was in which bucket, and the sum of all values.

    Attributes:
        sum: Of all values.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """`bounds` are the upper ends of the buckets; there is one more for what is greater."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def count(self, value: float, times: int = 1) -> None:
        """Take in a value that was seen so often."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, int]]:
        """Upper end, as text, and count of each bucket with all those below it."""
        ends = [*map(str, self._bounds), "+Inf"]
        return list(zip(ends, accumulate(self._counts), strict=True))
