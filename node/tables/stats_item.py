"""StatsItem: one number that only grows, and what it did in the last minute, hour and day.

    every 10 s   a snapshot for the minute, 7 are kept
    every 10 min a snapshot for the hour,   7 are kept
    every hour   a snapshot for the day,   25 are kept

A window is the difference between its last and its first snapshot. The first one of an item is
preceded by a zero, one interval earlier; so an item that has not lived to its first snapshot reads
as 0, and hour and day are 0 until their own first one.

Source: RocketMQ 5.3.3, StatsItem.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from tandem.wire.stats_requests import BrokerStatsItem

MINUTE_INTERVAL_MS: Final = 10_000
HOUR_INTERVAL_MS: Final = 600_000
DAY_INTERVAL_MS: Final = 3_600_000

_TPS_STEPS: Final = (1, 6, 60)
"""10, 60 and 600 s, in steps of 10 s."""


class _Snapshot(NamedTuple):
    at_ms: int
    times: int
    value: int


class _Window:
    """Snapshots at one interval."""

    def __init__(self, interval_ms: int, kept: int) -> None:
        self._interval_ms = interval_ms
        self._snapshots: deque[_Snapshot] = deque(maxlen=kept)

    def take(self, now_ms: int, times: int, value: int) -> None:
        if not self._snapshots:
            self._snapshots.append(_Snapshot(now_ms - self._interval_ms, 0, 0))
        self._snapshots.append(_Snapshot(now_ms, times, value))

    def read(self) -> BrokerStatsItem:
        """Source: StatsItem.computeStatsData."""
        if not self._snapshots:
            return BrokerStatsItem()
        first, last = self._snapshots[0], self._snapshots[-1]
        value, times = last.value - first.value, last.times - first.times
        span_ms = last.at_ms - first.at_ms
        return BrokerStatsItem(
            avgpt=value / times if times else 0.0,
            sum=value,
            tps=value * 1000 / span_ms if span_ms > 0 else 0.0,
        )


class TpsHistory:
    """A running sum every 10 s, for the three figures of `putTps` and the like.

    RocketMQ looks every second.

    Source: StoreStatsService.
    """

    def __init__(self) -> None:
        self._sums: deque[tuple[int, int]] = deque(maxlen=_TPS_STEPS[-1] + 1)

    def add(self, now_ms: int, value: int) -> None:
        """Remember the sum as it is now."""
        self._sums.append((now_ms, value))

    def tps(self) -> list[float | None]:
        """How much a second in the last 10, 60 and 600 s; None where that is not known yet."""
        return [self._over(steps) for steps in _TPS_STEPS]

    def _over(self, steps: int) -> float | None:
        if len(self._sums) <= steps:
            return None
        (from_ms, first), (to_ms, last) = self._sums[-1 - steps], self._sums[-1]
        return (last - first) * 1000 / (to_ms - from_ms) if to_ms > from_ms else 0.0


class StatsItem:
    """One of them. The counting code adds to `value` and `times`.

    Attributes:
        value: The running sum.
        times: How often something was added, for the average.
        changed_ms: When a snapshot has shown that it grew, or was made.
    """

    __slots__ = ("_day", "_hour", "_minute", "_seen", "changed_ms", "times", "value")

    def __init__(self, now_ms: int) -> None:
        self.value = 0
        self.times = 0
        self.changed_ms = now_ms
        self._seen = 0
        self._minute = _Window(MINUTE_INTERVAL_MS, 7)
        self._hour = _Window(HOUR_INTERVAL_MS, 7)
        self._day = _Window(DAY_INTERVAL_MS, 25)

    def snapshot(self, now_ms: int, *, hour: bool, day: bool) -> None:
        """Take the snapshot of 10 s; that of 10 min if it is `hour`, that of the hour if `day`."""
        if self.times != self._seen:
            self._seen = self.times
            self.changed_ms = now_ms
        self._minute.take(now_ms, self.times, self.value)
        if hour:
            self._hour.take(now_ms, self.times, self.value)
        if day:
            self._day.take(now_ms, self.times, self.value)

    @property
    def minute(self) -> BrokerStatsItem:
        """The last minute."""
        return self._minute.read()

    @property
    def hour(self) -> BrokerStatsItem:
        """The last hour, in steps of 10 minutes."""
        return self._hour.read()

    @property
    def day(self) -> BrokerStatsItem:
        """The last day, in steps of an hour."""
        return self._day.read()
