"""What is known of a node by whoever asks from outside: it outlives the rounds of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from node.figures.group_lag import GroupLags
from node.figures.sources import Sources


class NodeReport:
    """One node, from its start to its end. The broker of each round says when it serves.

    Attributes:
        sources: Where figures of the broker come from; None while its store is closed.
        since_ms: When that was opened, in ms since 1970; None while it is closed.
        rounds_count: How often a store was opened.
        elections_count: How often this node became the master.
        lags: What is remembered of how far groups are behind.
        is_stopping: Whether this node has been asked to stop.
    """

    def __init__(self) -> None:
        self.sources: Sources | None = None
        self.since_ms: int | None = None
        self.rounds_count = 0
        self.elections_count = 0
        self.lags = GroupLags()
        self.is_stopping = False

    @contextmanager
    def serving(self, sources: Sources) -> Iterator[None]:
        """Have these be the sources as long as the block lasts."""
        self.rounds_count += 1
        self.lags = GroupLags()
        self.sources = sources
        self.since_ms = sources.wall_clock_ms()
        try:
            yield
        finally:
            self.sources = self.since_ms = None
