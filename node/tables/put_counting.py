"""PutCounting: tells the statistics what has come into the queues, every 10 s and when asked.

A put is not counted when it happens, which would be paid for by every message; see
`store.messages.queue_growth`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from node.tables.broker_stats import BrokerStats
from node.tables.stats_item import MINUTE_INTERVAL_MS
from store import MessageStore
from store.messages.queue_growth import QueueGrowth

STEPS_IN_A_TURN: Final = 256
"""Queues or items that are looked at before other tasks have their turn: well under 1 ms."""

REFRESH_SECONDS: Final = 1.0
"""Between two looks because somebody asks. A request before that gets the same answer again."""

REFRESHED_QUEUES_MAX: Final = 2_048
"""With more queues that have changed, what has come since the last regular look is not reported."""


class PutCounting:
    """Counts the puts of one store."""

    def __init__(
        self, store: MessageStore, stats: BrokerStats, wall_clock_ms: Callable[[], int]
    ) -> None:
        """Begin to count: what is in the queues now has not come."""
        self._growth = QueueGrowth(store.queues, store.reads.max_offset_in_queue)
        self._stats = stats
        self._wall_clock_ms = wall_clock_ms
        self._looked_at = -REFRESH_SECONDS

    def refresh(self) -> None:
        """Count what has come by now, unless that would cost others something."""
        now = trio.current_time()
        if now - self._looked_at < REFRESH_SECONDS:
            return
        self._looked_at = now
        if self._growth.changed_count <= REFRESHED_QUEUES_MAX:
            for growth in self._growth.look():
                if growth is not None:
                    self._stats.came(*growth)

    async def run(self) -> None:
        """Count every 10 s, and have snapshots taken, until cancelled."""
        due = trio.current_time()
        while True:
            await self._look()
            for step, _ in enumerate(self._stats.snapshots(self._wall_clock_ms())):
                if step % STEPS_IN_A_TURN == STEPS_IN_A_TURN - 1:
                    await trio.lowlevel.checkpoint()
            due += MINUTE_INTERVAL_MS / 1000
            await trio.sleep_until(due)

    async def _look(self) -> None:
        for step, growth in enumerate(self._growth.look()):
            if growth is not None:
                self._stats.came(*growth)
            if step % STEPS_IN_A_TURN == STEPS_IN_A_TURN - 1:
                await trio.lowlevel.checkpoint()
