"""Which figures of one pass are shown: those of wanted families, as many of each as there is room.

Topics and groups are made by clients. Of a family that has more series than the bound, the rest is
left out, and one series says how many those were:

    tandem_series_left_out{family="rocketmq_consumer_lag_messages"} 17
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from node.figures.families import FAMILIES
from node.figures.figure import Figure, Labels

LEFT_OUT: Final = "tandem_series_left_out"

_EXPORTERS: Final = frozenset(name for name, family in FAMILIES.items() if family.is_exporters)


class Selection:
    """One pass over the figures."""

    def __init__(self, *, series_max: int, with_exporter_names: bool) -> None:
        """`series_max`: of a family. See `MetricsSettings` for both."""
        self._series_max = series_max
        self._unwanted = frozenset[str]() if with_exporter_names else _EXPORTERS
        self._counts: dict[str, int] = {}

    def room(self, family: str, count: int) -> int:
        """Return how many of the next series of a family are shown; the others are left out."""
        if family in self._unwanted:
            return 0
        seen = self._counts.get(family, 0)
        self._counts[family] = seen + count
        return min(count, max(0, self._series_max - seen))

    def left_out(self) -> Iterator[Figure]:
        """Yield how many were left out of which family."""
        for name, count in self._counts.items():
            if count > self._series_max:
                yield Figure(LEFT_OUT, Labels(family=name), count - self._series_max)
