"""How long puts waited for the disk and for replicas before they were answered.

A put that waits for nobody is answered in the round in which it came: that is no time here. What
waits is counted by rounds of a connection, whose puts are answered together.

Source: RocketMQ 5.3.3, StoreStatsService.setPutMessageEntireTimeMax, .getPutMessageDistributeTime
and .findPutMessageEntireTimePX, for the names and the steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

from store.machine.histogram import Histogram

STEPS_MS: Final = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)

STEP_NAMES: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)

_FINE_PER_OCTAVE: Final = 8
"""Steps of the finer row: each is 9 % longer than the one before, from a microsecond on."""
_FINE_ENDS_MS: Final = tuple(
    2 ** (step / _FINE_PER_OCTAVE) / 1000 for step in range(40 * _FINE_PER_OCTAVE - 1)
)


class PutTimes:
    """The times of one broker since its store was opened.

    Attributes:
        failed_count: Puts that the store did not take.
        waited_count: Puts that waited.
        max_ms: The longest wait.
    """

    def __init__(self) -> None:
        self.failed_count = 0
        self.waited_count = 0
        self.max_ms = 0.0
        self.replication = Histogram()
        """How long puts waited for replicas, in seconds."""
        self.flush = Histogram()
        """How long puts waited for the disk of this node, in seconds."""
        self.acks: Counter[tuple[str, str]] = Counter()
        """Puts that waited, by what they waited for and how that ended, in words."""
        self._steps = [0] * len(STEP_NAMES)
        self._fine = [0] * (len(_FINE_ENDS_MS) + 1)

    def waited(self, count: int, seconds: float) -> None:
        """Count `count` puts of one round that waited for this long."""
        ms = seconds * 1000
        self.waited_count += count
        self.max_ms = max(self.max_ms, ms)
        self._steps[bisect_left(STEPS_MS, ms)] += count
        self._fine[bisect_left(_FINE_ENDS_MS, ms)] += count

    def counts(self, put_count: int) -> list[int]:
        """How many of all puts took how long, by steps."""
        counts = [*self._steps]
        counts[0] += max(0, put_count - self.waited_count)
        return counts

    def percentile_ms(self, put_count: int, part: float) -> float:
        """The time within which this part of all puts was answered, at most 9 % too long."""
        left = put_count * part - max(0, put_count - self.waited_count)
        if left <= 0:
            return 0.0
        for step, count in enumerate(self._fine):
            left -= count
            if left <= 0:
                return min(self.max_ms, *_FINE_ENDS_MS[step : step + 1])
        return self.max_ms


def distribution_text(counts: Iterable[float]) -> str:
    """How many puts took how long, by steps, as RocketMQ prints it."""
    return "".join(f"{name}:{count} " for name, count in zip(STEP_NAMES, counts, strict=True))
