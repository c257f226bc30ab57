"""How far a stream is behind its source, out of the progress that Spark reports.

    watched = watch_streams(spark)                  # a listener, for all queries of the session
    ...
    watched.of(query.id)                            # the sources of a query, at its last progress
    source_metrics(query.lastProgress)              # the same of one progress, without a listener

Spark's Kafka source puts such numbers into `metrics` of each source. Spark 4.3 asks no Python
source for them, but for offsets: where a batch began and ended, and where the source ends
(`reportLatestOffset`). The numbers follow from those.

Source: Spark 4.3, KafkaMicroBatchStream.metrics.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tandem.spark.live.offsets import OLDEST_UNREAD, STARTED_AT
from tandem.wire.untrusted import UnreadableError, convert, decode_json

_BESIDE: Final = (STARTED_AT, OLDEST_UNREAD)
_OF_TOPICS: Final = dict[str, dict[str, dict[str, int]]]
_OF_STORES: Final = dict[str, dict[str, int]]


class SourceMetrics(msgspec.Struct, frozen=True):
    """How far one source of a stream is behind, after a batch.

    `behind` has the messages, or the bytes of a log, that are there and not read, by queue
    ("Orders broker-a 0") or by store. `rows` is how many rows that is about, by how many rows the
    batch had of how much it read; None if it read nothing. `lag_ms` is how long the oldest message
    that is not read has been stored; 0 if all are read, None if the source does not say.
    """

    behind: dict[str, int]
    rows: int | None
    lag_ms: int | None

    @property
    def total(self) -> int:
        """Over all queues or stores."""
        return sum(self.behind.values())

    def as_kafka(self) -> dict[str, str]:
        """The same under the names that Spark's Kafka source has, and what that one lacks."""
        each = list(self.behind.values()) or [0]
        found = {
            "minOffsetsBehindLatest": str(min(each)),
            "maxOffsetsBehindLatest": str(max(each)),
            "avgOffsetsBehindLatest": str(sum(each) / len(each)),
        }
        if self.rows is not None:
            found["estimatedTotalRowsBehindLatest"] = str(self.rows)
        if self.lag_ms is not None:
            found["lagMs"] = str(self.lag_ms)
        return found


def source_metrics(progress: Mapping[str, Any]) -> list[SourceMetrics | None]:
    """Return the metrics of each source of a progress; None for one that is not ours.

    `progress` is what `query.lastProgress` or a listener has.
    """
    at = dt.datetime.fromisoformat(str(progress["timestamp"]))
    now_ms = int(at.timestamp() * 1000) + int(progress.get("batchDuration") or 0)
    return [_metrics(each, now_ms) for each in progress["sources"]]


def _metrics(source: Mapping[str, Any], now_ms: int) -> SourceMetrics | None:
    places = [_places(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")]
    start, end, latest = places
    if end is None or latest is None:
        return None
    behind = {name: max(0, place - end.get(name, place)) for name, place in latest.items()}
    read = sum(end[name] - (start or {}).get(name, end[name]) for name in end)
    total = sum(behind.values())
    rows: int | None = 0
    if total:
        rows = round(total * int(source["numInputRows"]) / read) if read > 0 else None
    return SourceMetrics(behind, rows, _lag_ms(source, total, now_ms))


def _lag_ms(source: Mapping[str, Any], total: int, now_ms: int) -> int | None:
    if not total:
        return 0
    oldest = _decoded(source.get("latestOffset"), dict[str, Any])
    stored = None if oldest is None else oldest.get(OLDEST_UNREAD)
    return max(0, now_ms - stored) if isinstance(stored, int) else None


def _places(offset: object) -> dict[str, int] | None:
    """Return the number of each queue or store of an offset; None if it is another source's."""
    value = _decoded(offset, dict[str, Any])
    if value is None:
        return None
    topics = {name: each for name, each in value.items() if name not in _BESIDE}
    try:
        return dict(_numbers(topics))
    except UnreadableError:
        return None


def _numbers(value: dict[str, Any]) -> Iterator[tuple[str, int]]:
    if all("offset" in each for each in value.values() if isinstance(each, dict)) and value:
        for store, mark in convert(value, _OF_STORES).items():
            yield store, mark["offset"]
        return
    for topic, brokers in convert(value, _OF_TOPICS).items():
        for broker, queues in brokers.items():
            for queue_id, number in queues.items():
                yield f"{topic} {broker} {queue_id}", number


def _decoded(offset: object, kind: type[dict[str, Any]]) -> dict[str, Any] | None:
    if isinstance(offset, dict):
        return offset
    if not isinstance(offset, str):
        return None
    try:
        return decode_json(offset, kind)
    except UnreadableError:
        return None


class StreamMetrics(StreamingQueryListener):
    """Keeps the metrics of the last progress of each query. See `watch_streams`."""

    def __init__(self) -> None:
        self._last: dict[str, Sequence[SourceMetrics | None]] = {}

    def of(self, query_id: object) -> Sequence[SourceMetrics | None]:
        """The sources of a query, None for one that is not ours; nothing before its first batch."""
        return self._last.get(str(query_id), ())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's
        """Take what a batch has ended with."""
        self._last[str(event.progress.id)] = source_metrics(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's
        """What the last batch has ended with is still so."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's
        """What is known stays: somebody may ask after the end."""


def watch_streams(spark: SparkSession) -> StreamMetrics:
    """Let a listener keep the metrics of all streaming queries of a session."""
    watched = StreamMetrics()
    spark.streams.addListener(watched)
    return watched
