"""What `tandem log stat` counts: messages, bytes, rates and sizes by topic and queue.

One walk over the log, a few numbers a queue. The percentiles of record sizes come from buckets that
grow by a hundredth and a half, so they are at most that much too large; the maximum is exact.
"""

import math
from typing import Final

import msgspec
import numpy as np

from tandem.log.log_scan import LogDamage, LogWindow, scan_log
from tandem.log.record_filter import RecordFilter
from tandem.log.store_directory import StoreDirectory
from tandem.wire.column_values import distinct_values
from tandem.wire.record_scan import Int64s, RecordColumns

_BUCKETS_A_DOUBLING: Final = 46
_BUCKET_COUNT: Final = 32 * _BUCKETS_A_DOUBLING


class QueueStat(msgspec.Struct, frozen=True):
    """Numbers of one queue, or of a whole topic (`queue_id` -1). Sizes are of whole records.

    Rates are over the time from the first to the last message; 0 if that is no time.
    """

    topic: str
    queue_id: int
    message_count: int
    total_bytes: int
    body_bytes: int
    share: float
    first_store_timestamp_ms: int
    last_store_timestamp_ms: int
    messages_per_second: float
    bytes_per_second: float
    size_p50_bytes: int
    size_p99_bytes: int
    size_max_bytes: int


class StoreStat(msgspec.Struct, frozen=True):
    """Numbers of a log; `total` is all of it, `damages` the places that were gone over."""

    total: QueueStat
    topics: tuple[QueueStat, ...]
    queues: tuple[QueueStat, ...]
    damages: tuple[LogDamage, ...]


class _Tally:
    """Running numbers of one queue."""

    def __init__(self) -> None:
        self.count = self.total = self.body = self.size_max = 0
        self.first_ms = 2**63 - 1
        self.last_ms = -(2**63)
        self.buckets: Int64s = np.zeros(_BUCKET_COUNT, np.int64)

    def add(self, columns: RecordColumns) -> None:
        sizes = columns.size
        self.count += len(sizes)
        self.total += int(sizes.sum())
        self.body += int(columns.body_size.sum())
        self.size_max = max(self.size_max, int(sizes.max()))
        self.first_ms = min(self.first_ms, int(columns.store_timestamp_ms.min()))
        self.last_ms = max(self.last_ms, int(columns.store_timestamp_ms.max()))
        numbers = (np.log2(sizes) * _BUCKETS_A_DOUBLING).astype(np.int64)
        self.buckets += np.bincount(numbers, minlength=_BUCKET_COUNT)

    def merge(self, other: "_Tally") -> None:
        self.count += other.count
        self.total += other.total
        self.body += other.body
        self.size_max = max(self.size_max, other.size_max)
        self.first_ms = min(self.first_ms, other.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)
        self.buckets += other.buckets

    def size_at(self, share: float) -> int:
        """The size that a share of the records does not exceed."""
        wanted = math.ceil(self.count * share)
        number = int(np.searchsorted(np.cumsum(self.buckets), wanted))
        return min(self.size_max, math.ceil(2 ** ((number + 1) / _BUCKETS_A_DOUBLING)))

    def stat(self, topic: str, queue_id: int, log_bytes: int) -> QueueStat:
        if not self.count:
            return QueueStat(topic, queue_id, 0, 0, 0, 0.0, 0, 0, 0.0, 0.0, 0, 0, 0)
        seconds = (self.last_ms - self.first_ms) / 1000
        return QueueStat(
            topic=topic,
            queue_id=queue_id,
            message_count=self.count,
            total_bytes=self.total,
            body_bytes=self.body,
            share=self.total / log_bytes,
            first_store_timestamp_ms=self.first_ms,
            last_store_timestamp_ms=self.last_ms,
            messages_per_second=self.count / seconds if seconds > 0 else 0.0,
            bytes_per_second=self.total / seconds if seconds > 0 else 0.0,
            size_p50_bytes=self.size_at(0.5),
            size_p99_bytes=self.size_at(0.99),
            size_max_bytes=self.size_max,
        )


def store_stat(store: StoreDirectory, wanted: RecordFilter | None = None) -> StoreStat:
    """Count the wanted records of a store; all of them by default.

    Raises:
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
    """
    limits = (wanted or RecordFilter()).physical_offsets
    tallies: dict[tuple[str, int], _Tally] = {}
    damages: list[LogDamage] = []
    for item in scan_log(store.commit_log, limits.start, limits.end):
        if isinstance(item, LogDamage):
            damages.append(item)
        else:
            _count(item, wanted, tallies)
    total = _Tally()
    topics: dict[str, _Tally] = {}
    for (topic, _), tally in tallies.items():
        topics.setdefault(topic, _Tally()).merge(tally)
        total.merge(tally)
    return StoreStat(
        total=total.stat("", -1, total.total),
        topics=tuple(topics[topic].stat(topic, -1, total.total) for topic in sorted(topics)),
        queues=tuple(tallies[key].stat(*key, total.total) for key in sorted(tallies)),
        damages=tuple(damages),
    )


def _count(
    window: LogWindow, wanted: RecordFilter | None, tallies: dict[tuple[str, int], _Tally]
) -> None:
    columns = window.columns
    if wanted is not None:
        columns = columns.take(wanted.rows(window))
    topics, numbers = distinct_values(window.data, columns.topic_start, columns.topic_size)
    for rows in _equal_rows(numbers, columns.queue_id):
        group = columns.take(rows)
        topic = topics[int(numbers[rows[0]])].decode("utf-8", "replace")
        tallies.setdefault((topic, int(group.queue_id[0])), _Tally()).add(group)


def _equal_rows(first: Int64s, second: Int64s) -> list[Int64s]:
    """Return the rows of each different pair of values."""
    order = np.lexsort((second, first))
    changes = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    return [rows for rows in np.split(order, np.flatnonzero(changes) + 1) if len(rows)]
