"""The batch reader of the source `tandem`, and what a task does, for batches and streams alike."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tandem.client.plain_socket import SocketOpener
from tandem.spark.bodies.columns import with_bodies
from tandem.spark.live.backfill import Backfill, file_pieces
from tandem.spark.live.bounds import (
    KnownCluster,
    check_assigned,
    ending_offsets,
    starting_offsets,
)
from tandem.spark.live.chunks import Chunk, arrow_batch, chunks, records_of
from tandem.spark.live.cluster import Cluster, client_core, group_of
from tandem.spark.live.gathered import gathered, records_together
from tandem.spark.live.kept import Connections, Kept
from tandem.spark.live.link import wide_socket
from tandem.spark.live.options import Bound, LiveOptions
from tandem.spark.live.plain_records import plain_records
from tandem.spark.live.pull_window import Piece
from tandem.spark.live.puller import RangePuller
from tandem.spark.live.ranges import QueueRange, cut_ranges
from tandem.spark.record_batches import RecordSlice
from tandem.spark.worker_words import in_one_sentence, is_worker, rows_in_one_sentence
from tandem.wire.store_layout import OFFSET_MAX

OF_BODIES: Final = frozenset({"body", "crcOk"})
"""Columns that say something about bodies: for none of them, no CRC is worth its time."""


_KEPT: Final = Kept()


class LiveReader(DataSourceReader):
    """Plans on the driver, reads in the tasks. Travels to them pickled: options and names only."""

    def __init__(self, options: LiveOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = names

    @in_one_sentence
    def partitions(self) -> list[InputPartition]:
        """Return what each task reads; Spark asks once per `load`."""
        with Cluster(self._options) as cluster:
            source = Backfill(self._options, cluster)
            ranges = source.cut(plan_batch(self._options, source))
        return partitions_of(ranges, self._options)

    @rows_in_one_sentence
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of one task."""
        # Spark makes up a partition without a value where there is none.
        if partition.value is not None:
            yield from read_ranges(partition.value, self._options, self._names)


def plan_batch(options: LiveOptions, cluster: KnownCluster) -> list[QueueRange]:
    """Return what a batch reads.

    Raises:
        SparkSourceError: the cluster does not say; an option does not fit what there is.
        DataLossError: messages that an offset names are gone.
    """
    queues = cluster.queues(unknown_is_error=True)
    check_assigned(options, queues)
    starts = starting_offsets(options.starting or Bound("earliest"), queues, cluster, options)
    ends = ending_offsets(options.ending or Bound("latest"), queues, cluster)
    return [
        QueueRange(queue, starts[queue], ends[queue], cluster_name)
        for queue, cluster_name in sorted(queues.items())
    ]


def partitions_of(ranges: list[QueueRange], options: LiveOptions) -> list[InputPartition]:
    """Return the ranges as what Spark hands to its tasks."""
    return [
        InputPartition(each)
        for each in cut_ranges(
            ranges,
            min_partitions=options.min_partitions,
            max_records=options.partition_records_max,
        )
    ]


def read_ranges(
    ranges: object, options: LiveOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges of one broker name, or of one store, as Arrow batches, in order.

    The columns of the option `bodySchema` are made here.

    Raises:
        SparkSourceError: they cannot be had.
    """
    of_task = cast("list[QueueRange]", ranges)
    yield from with_bodies(
        lambda stored: _read(of_task, options, stored), names, options.body_schema
    )


def _read(
    of_task: list[QueueRange], options: LiveOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    pieces = file_pieces(of_task) if of_task[0].store else pulled(of_task, options)
    yield from batches_of(gathered(chunks(pieces), of_task), of_task, options, names)


def batches_of(
    groups: Iterable[Sequence[Chunk]],
    of_task: Sequence[QueueRange],
    options: LiveOptions,
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of chunks, those of a group together where they are as usual.

    Raises:
        SparkSourceError: they are not those that were asked for; a body cannot be decompressed.
    """
    check_crc = options.check_crc and not OF_BODIES.isdisjoint(names)
    for group in groups:
        together = records_together(group, of_task, check_crc=check_crc)
        if together is None:
            for chunk in group:
                yield from _one_chunk(chunk, of_task[chunk.place], options, names)
            continue
        topics = {of_task[chunk.place].queue.topic for chunk in group}
        place = of_task[group[0].place]
        for part in _plain(options.rows.taken(together), (0, OFFSET_MAX), options):
            if len(part):
                yield arrow_batch(part, place, names, one_topic=len(topics) == 1)


def _one_chunk(
    chunk: Chunk, queue_range: QueueRange, options: LiveOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    rows = options.rows
    check_crc = options.check_crc and not OF_BODIES.isdisjoint(names)
    records = records_of(chunk, queue_range, check_crc=check_crc, split=options.decompress)
    # What is not wanted is not decompressed either.
    records = rows.taken(records, batches_pass=options.decompress)
    for part in _plain(records, (chunk.start, chunk.end), options):
        wanted = rows.taken(part)
        if len(wanted):
            yield arrow_batch(wanted, queue_range, names)


def _plain(
    records: RecordSlice, within: tuple[int, int], options: LiveOptions
) -> Iterator[RecordSlice]:
    if not options.decompress:
        yield records
        return
    keeps_broken = options.body_schema is not None  # `bodyError` says it
    yield from plain_records(records, *within, keeps_broken=keeps_broken)


def pulled(
    of_task: Sequence[QueueRange],
    options: LiveOptions,
    kept: Kept | None = None,
    opener: SocketOpener = wide_socket,
) -> Iterator[list[Piece]]:
    """Yield the records of ranges at brokers of one name; in a worker by what is `kept` there.

    Raises:
        SparkSourceError: see `RangePuller.pieces`.
    """
    if kept is None and is_worker():
        kept = _KEPT
    taken = kept.take(options.access) if kept is not None else None
    connections = taken or Connections(client_core(options), opener)
    is_over = False
    try:
        yield from RangePuller(
            connections.core,
            group_of(options),
            of_task,
            from_slave=options.read_from == "slave",
            fail_on_data_loss=options.fail_on_data_loss,
            retry_seconds=options.retry_ms / 1000,
            opener=opener,
            connections=connections,
        ).pieces()
        is_over = True
    finally:
        if is_over and kept is not None:
            connections.forget_routes(but={each.queue.topic for each in of_task})
            kept.leave(options.access, connections)
        else:
            connections.close()
