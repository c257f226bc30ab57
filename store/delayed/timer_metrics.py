"""TimerMetrics: how many timers wait for each real topic, for who asks; in memory alone.

A timer counts from when it enters a slot until that slot gives it away, and one that is rolled
counts again when it enters the next slot. One that cancels another counts as -1 for its topic as
long, so what is recalled does not count any more; and what it cancels, or that it found nothing,
is even again when their slot is empty.

In a classic group a unit of the timer log has only the hash of its topic. So topics are kept by a
key, which is the hash there. After a start their names are read from one record each.

Source: RocketMQ 5.3.3, TimerMetrics; TimerMessageStore.addMetric, doEnqueue.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TypeAlias

import msgspec
import numpy as np

from store.delayed.timer_log import RecoveredUnits
from tandem.wire.remoting_command import Int64
from tandem.wire.request_headers import DataVersion

TopicKey: TypeAlias = int | str
"""What stands for a topic: its name, or its hash."""


class Metric(msgspec.Struct, frozen=True, rename="camel"):
    """What waits for one topic. Source: TimerMetrics.Metric."""

    count: Int64
    time_stamp: Int64
    """Milliseconds since 1970 of the last change."""


class TimerMetricsSerializeWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """What GET_TIMER_METRICS answers. Source: the class of that name."""

    data_version: DataVersion = DataVersion()
    timing_count: dict[str, Metric] = {}


class _Topic(msgspec.Struct):
    """One topic; the name is empty until it is known."""

    name: str
    timers: int = 0
    cancelling: int = 0
    changed_ms: int = 0

    @property
    def count(self) -> int:
        return self.timers - self.cancelling


class TimerMetrics:
    """The counts of one mastership. Memory: the topics that something waits for."""

    def __init__(self, wall_clock_ms: Callable[[], int]) -> None:
        self._wall_clock_ms = wall_clock_ms
        self._topics: dict[TopicKey, _Topic] = {}
        self._nameless: dict[int, int] = {}
        """Of topics that had timers at the start: where the last unit is, by hash."""
        self._changed_ms = wall_clock_ms()
        self._changes = 0

    def build(self, units: RecoveredUnits, from_ms: int) -> None:
        """Count the units that are due at `from_ms`, the time of a slot, or later."""
        kept = units.due_ms >= from_ms
        hashes, which, counts = np.unique(
            units.topic_hashes[kept], return_inverse=True, return_counts=True
        )
        last = np.zeros(len(hashes), np.int64)
        np.maximum.at(last, which, units.positions[kept])
        cancelling = np.bincount(which, units.is_delete[kept], len(hashes)).astype(np.int64)
        columns = (hashes, counts - cancelling, cancelling, last)
        for key, timers, cancels, position in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            self._topics[key] = _Topic("", timers, cancels, self._changed_ms)
            self._nameless[key] = position

    def nameless(self, count_max: int) -> list[tuple[int, int]]:
        """Return the hash of some topics, and where a unit is whose record says the name."""
        return list(islice(self._nameless.items(), count_max))

    def give_name(self, key: int, name: str) -> None:
        """Note the name of a topic; an empty one is not known, and not asked for again."""
        self._nameless.pop(key, None)
        topic = self._topics.get(key)
        if topic is not None and name:
            topic.name = name
            self._note_change()

    def enter(self, key: TopicKey, name: str, *, cancels: bool) -> None:
        """Count a timer that begins to wait."""
        self._note_change()
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = _Topic(name)
        self._change(topic, 1, cancels=cancels)
        topic.name = name

    def leave(self, key: TopicKey, *, cancels: bool) -> None:
        """Count one that waits no more."""
        topic = self._topics.get(key)
        if topic is None:
            return
        self._note_change()
        self._change(topic, -1, cancels=cancels)
        if not topic.timers and not topic.cancelling:
            del self._topics[key]

    def _change(self, topic: _Topic, by: int, *, cancels: bool) -> None:
        topic.changed_ms = self._changed_ms
        if cancels:
            topic.cancelling += by
        else:
            topic.timers += by

    def _note_change(self) -> None:
        self._changed_ms = self._wall_clock_ms()
        self._changes += 1

    def clear(self) -> None:
        """Note that nothing waits: of a timer whose record is gone, nobody may know the topic."""
        if self._topics:
            self._topics.clear()
            self._nameless.clear()
            self._note_change()

    @property
    def shown(self) -> TimerMetricsSerializeWrapper:
        """Topics that something waits for. The version is another one after each change."""
        topics = self._topics.values()
        return TimerMetricsSerializeWrapper(
            DataVersion(0, self._changed_ms, self._changes),
            {
                topic.name: Metric(topic.count, topic.changed_ms)
                for topic in topics
                if topic.name and topic.count > 0
            },
        )
