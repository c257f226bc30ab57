"""The stream reader of the source `tandem`: what Spark asks, and `StreamPlan` answers."""

import logging
import time
from collections.abc import Iterator, Sequence

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
from tandem.spark.live.offsets import nested, stream_offset
from tandem.spark.live.options import LiveOptions
from tandem.spark.live.reader import partitions_of, read_ranges
from tandem.spark.live.stream_plan import StreamPlan
from tandem.spark.worker_words import end_quietly, in_one_sentence, rows_in_one_sentence

_log = logging.getLogger(__name__)

Json = dict[str, object]


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream. Its driver's side is opened when it is first asked something.

    In a task there is a pickled copy, which reads and is never asked anything else.
    """

    def __init__(self, options: LiveOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._opened: tuple[Cluster, Backfill, StreamPlan] | None = None

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
        self._opened = None

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
        return self._plan.next_end(stream_offset(start), records_max).as_json()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """The ends of all queues, for the progress of the query."""
        return dict(nested(self._plan.latest)) or None

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
        group = self._options.group
        if group is None:
            return
        try:
            self._cluster.commit(group, stream_offset(end).places)
        except ClientError as error:
            _log.warning("the offsets of group %s are not up to date: %s", group, error)

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None
        end_quietly()
