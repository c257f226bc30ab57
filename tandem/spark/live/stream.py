"""The stream reader of the source `tandem`: what Spark asks, and `StreamPlan` answers."""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tandem.client.errors import ClientError
from tandem.spark.live.backfill import Backfill
from tandem.spark.live.cluster import Cluster
from tandem.spark.live.offsets import OLDEST_UNREAD, Offsets, nested, stream_offset
from tandem.spark.live.options import LiveOptions
from tandem.spark.live.reader import partitions_of, read_ranges
from tandem.spark.live.stream_plan import StreamPlan
from tandem.spark.worker_words import end_quietly, in_one_sentence, rows_in_one_sentence

_log = logging.getLogger(__name__)

ASKED_QUEUES_MAX: Final = 32
"""Of how many queues the oldest unread message is looked at: those with the most of them."""

OLDEST_FRESH_SECONDS: Final = 1.0
"""How long an answer to that counts."""

Json = dict[str, object]


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream. Its driver's side is opened when it is first asked something.

    In a task there is a pickled copy, which reads and is never asked anything else.
    """

    def __init__(self, options: LiveOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._begin()

    def _begin(self) -> None:
        self._opened: tuple[Cluster, Backfill, StreamPlan] | None = None
        self._shown: Offsets | None = None
        """What the group's offsets were set to last."""
        self._end: Offsets = {}
        self._oldest: tuple[float, Offsets, int | None] | None = None
        """When the cluster was asked how old the oldest unread message is, for what, and that."""

    @property
    def _cluster(self) -> Cluster:
        return self._open()[0]

    @property
    def _plan(self) -> StreamPlan:
        return self._open()[2]

    def _open(self) -> tuple[Cluster, Backfill, StreamPlan]:
        if self._opened is None:
            cluster = Cluster(self._options)
            sleep = time.sleep  # noqa: TID251 - plain code, no trio here
            source = Backfill(self._options, cluster)
            plan = StreamPlan(self._options, source, clock=time.monotonic, sleep=sleep)
            self._opened = cluster, source, plan
        return self._opened

    def __getstate__(self) -> tuple[LiveOptions, Sequence[str]]:
        return self._options, self._names

    def __setstate__(self, state: tuple[LiveOptions, Sequence[str]]) -> None:
        self._options, self._names = state
        self._begin()

    @in_one_sentence
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Where a new stream begins."""
        return self._plan.initial().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most `maxOffsetsPerTrigger` rows a batch. `minOffsetsPerTrigger` is our own matter."""
        if self._options.records_max is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.records_max)

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End at what is there now."""
        self._plan.fix_end()

    @in_one_sentence
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Where the next batch ends; `start` if there is none."""
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        place = stream_offset(start)
        if not place.is_initial:
            # Spark asks from where its checkpoint says that all is done.
            self._show(place.places)
        end = self._plan.next_end(place, records_max)
        self._end = end.places
        return end.as_json()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """The ends of all queues, for the progress of the query; and how old what is unread is."""
        latest = self._plan.latest
        found: Json = dict(nested(latest))
        oldest = self._oldest_unread()
        if oldest is not None:
            found[OLDEST_UNREAD] = oldest
        return found or None

    def _oldest_unread(self) -> int | None:
        """When the oldest message after this batch was stored; None: unknown, or there is none."""
        latest = self._plan.latest
        behind = {q: end - self._end.get(q, end) for q, end in latest.items()}
        most = sorted((q for q in behind if behind[q] > 0), key=lambda q: (-behind[q], q))
        places = {queue: self._end[queue] for queue in most[:ASKED_QUEUES_MAX]}
        if not places:
            return None
        now = time.monotonic()
        if self._oldest is not None:
            asked_at, asked, known = self._oldest
            if asked == places or now - asked_at < OLDEST_FRESH_SECONDS:
                return known
        try:
            oldest = min(self._cluster.stored_at(places).values(), default=None)
        except ClientError as error:
            _log.warning("how old the oldest unread message is cannot be said now: %s", error)
            oldest = None
        self._oldest = now, places, oldest
        return oldest

    @in_one_sentence
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """What each task of a batch reads."""
        ranges = self._plan.ranges(stream_offset(start), stream_offset(end))
        return partitions_of(self._open()[1].cut(ranges), self._options)

    @rows_in_one_sentence
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of one task."""
        if partition.value is not None:
            yield from read_ranges(partition.value, self._options, self._names)

    def commit(self, end: Json) -> None:
        """Show the group's progress. The truth is in Spark's checkpoint."""
        self._show(stream_offset(end).places)

    def _show(self, places: Offsets) -> None:
        """Set the offsets of the group, once for each place that the stream gets to."""
        group = self._options.group
        if group is None or places == self._shown:
            return
        self._shown = places
        try:
            self._cluster.commit(group, places)
        except ClientError as error:
            _log.warning("the offsets of group %s are not up to date: %s", group, error)

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None
        end_quietly()
