"""Figures of what puts wait for: replicas, disks, and how that ended."""

from __future__ import annotations

from collections.abc import Iterator

from node.figures.figure import Figure, Labels
from node.figures.histogram_figures import histogram_figures
from node.figures.sources import Sources


def wait_figures(sources: Sources) -> Iterator[Figure]:
    """Yield them, since the store was opened."""
    times = sources.put_times
    yield from histogram_figures("tandem_replication_seconds", times.replication)
    yield from histogram_figures("tandem_flush_wait_seconds", times.flush)
    yield from histogram_figures(
        "tandem_disk_sync_seconds", sources.store.flush_service.sync_seconds
    )
    for (contract, outcome), count in sorted(times.acks.items()):
        yield Figure("tandem_acks_total", Labels(contract=contract, outcome=outcome), count)
