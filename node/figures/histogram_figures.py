"""A histogram as figures."""

from __future__ import annotations

from collections.abc import Iterator

from node.figures.figure import Figure, Labels
from store.machine.histogram import Histogram


def histogram_figures(name: str, histogram: Histogram, **labels: str) -> Iterator[Figure]:
    """Yield it as Prometheus has it: each bucket with those below it, then sum and count."""
    count = 0
    for end, count in histogram.buckets():
        yield Figure(f"{name}_bucket", Labels(**labels, le=end), count)
    yield Figure(f"{name}_sum", Labels(**labels), histogram.sum)
    yield Figure(f"{name}_count", Labels(**labels), count)
