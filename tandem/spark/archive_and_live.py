"""A batch of the source `tandem` with the option `archive`: archived messages, then live ones.

    span        by queue, the queue offsets [first, end) that the archive has, as its manifest says
    in it       messages come from the archive, whether a broker still has them or not
    outside     they come from the brokers: from `end` on, and before `first` what they still have

So every message comes once. Where the brokers have deleted messages that were never archived, that
is data loss, as it is without an archive. So is a hole of the archive: its place is in the span,
and the brokers are not asked for it. And so is a queue that ends before the archive does: its topic
was deleted and made anew. Without `failOnDataLoss` both are read then, the archive as a whole and
the queue from its first message on.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tandem.client.results import MessageQueue
from tandem.spark.archive.columns import BROKER, FILE_COLUMNS
from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveError, ArchiveFault
from tandem.spark.archive.holes import Hole, holes_of
from tandem.spark.archive.manifest import Manifest, read_manifest
from tandem.spark.archive.read import ArchivePiece, plan_archive, read_piece
from tandem.spark.bodies.columns import with_bodies
from tandem.spark.commitlog.offsets import EARLIEST, LATEST
from tandem.spark.errors import LossCause, OptionError
from tandem.spark.live.bounds import KnownCluster, check_assigned, ending_offsets
from tandem.spark.live.cluster import Cluster
from tandem.spark.live.columns import TYPES
from tandem.spark.live.data_loss import DataLoss, report_loss
from tandem.spark.live.offsets import Offsets, names
from tandem.spark.live.options import ANY_BROKER, WHOSE, Bound, LiveOptions
from tandem.spark.live.ranges import QueueRange
from tandem.spark.live.reader import partitions_of, read_ranges
from tandem.spark.row_filter import has_tags
from tandem.spark.worker_words import in_one_sentence, rows_in_one_sentence
from tandem.wire.compression import CompressionError, decompressed
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    COMPRESSED_FLAG,
    Host,
    MessageExt,
    encode_record,
    is_inner_batch,
    unwrap_inner_batch,
)
from tandem.wire.system_topics import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

_END: Final = 2**63 - 1
_MADE_HERE: Final = ("clusterName", "crcOk")


class ArchivedRange(msgspec.Struct, frozen=True):
    """What a task reads of an archive."""

    piece: ArchivePiece
    clusters: dict[str, str]


class ArchiveAndLiveReader(DataSourceReader):
    """Plans on the driver, reads in the tasks. Travels to them pickled: options and names only."""

    def __init__(self, archive: str, options: LiveOptions, columns: Sequence[str]) -> None:
        self._archive = archive
        self._options = options
        self._names = columns

    @in_one_sentence
    def partitions(self) -> list[InputPartition]:
        """Return what each task reads; Spark asks once per `load`."""
        manifest = read_manifest(Path(self._archive))
        with Cluster(self._options) as cluster:
            archived, live = plan_batch(self._options, manifest, cluster)
        return [*(InputPartition(each) for each in archived), *partitions_of(live, self._options)]

    @rows_in_one_sentence
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of one task."""
        if isinstance(partition.value, ArchivedRange):
            archived: ArchivedRange = partition.value
            yield from with_bodies(
                lambda stored: read_archived(archived, self._options, stored),
                self._names,
                self._options.body_schema,
            )
        elif partition.value is not None:
            yield from read_ranges(partition.value, self._options, self._names)


def plan_batch(
    options: LiveOptions, manifest: Manifest, cluster: KnownCluster
) -> tuple[list[ArchivedRange], list[QueueRange]]:
    """Return what a batch reads of the archive, and what of the brokers.

    Raises:
        SparkSourceError: the cluster does not say; an option does not fit what there is.
        DataLossError: messages between the archive and the oldest live ones are gone, or messages
            between others of the archive.
    """
    spans = _spans(options, manifest)
    known_topics = {queue.topic for queue in spans}
    named = options.topics or options.assigned or ()
    # A topic that was deleted at the brokers may still be in the archive.
    live = cluster.queues(unknown_is_error=bool(set(named) - known_topics))
    queues = sorted({*spans, *live})
    check_assigned(options, queues)
    starts = _starts(options, queues)
    ends = _ends(options, queues, live, cluster)
    # What is archived ends where offsets say so, and not where brokers do.
    last = options.ending.offsets if options.ending and options.ending.kind == "offsets" else {}
    archived = {
        (queue.topic, queue.broker_name, queue.queue_id): (
            starts[queue],
            _END if last.get(queue, LATEST) == LATEST else last[queue],
        )
        for queue in spans
    }
    start_ms, end_ms = _time_ms(options.starting), _time_ms(options.ending)
    pieces = plan_archive(manifest, ranges=archived, start_ms=start_ms, end_ms=end_ms)
    for hole in holes_of(manifest, {topic for topic, _, _ in archived}):
        if start_ms is not None and hole.until_ms < start_ms:
            continue
        if end_ms is not None and hole.since_ms >= end_ms:
            continue
        _report_hole(hole, archived, fail=options.fail_on_data_loss)
    over = set[MessageQueue]() if end_ms is None else _over(manifest, spans, end_ms)
    wanted = _live_wanted(options, starts, ends, spans, live, cluster, over)
    clusters = {queue.broker_name: name for queue, name in live.items()}
    ranges = [
        QueueRange(queue, start, end, live[queue]) for queue, start, end in wanted if start < end
    ]
    return [ArchivedRange(piece, clusters) for piece in pieces], ranges


def _report_hole(
    hole: Hole, wanted: Mapping[tuple[str, str, int], tuple[int, int]], *, fail: bool
) -> None:
    first, end = wanted.get((hole.topic, hole.group, hole.queue_id), (0, 0))
    first, end = max(first, hole.first), min(end, hole.end)
    if first < end:
        queue = MessageQueue(hole.topic, hole.group, hole.queue_id)
        report_loss(DataLoss(queue, first, end, hole.reason, LossCause.DELETED), fail=fail)


def _spans(options: LiveOptions, manifest: Manifest) -> dict[MessageQueue, tuple[int, int]]:
    wanted = _topic_test(options)
    return {
        MessageQueue(topic, broker, queue_id): span
        for topic, brokers in manifest.spans().items()
        if wanted(topic)
        for broker, queues in brokers.items()
        for queue_id, span in queues.items()
        if _is_assigned(options, topic, broker, queue_id)
    }


def _over(manifest: Manifest, queues: Collection[MessageQueue], end_ms: int) -> set[MessageQueue]:
    """Return the queues of which everything after the archive was stored at a time or later."""
    times: dict[tuple[str, str], int] = {}
    for unit in manifest.units:
        for file in unit.files:
            times[file.topic, unit.group] = file.last_store_ms
    return {queue for queue in queues if times[queue.topic, queue.broker_name] >= end_ms}


def _topic_test(options: LiveOptions) -> Callable[[str], bool]:
    if options.pattern is None:
        named = options.topics or options.assigned or ()
        return lambda topic: topic in named
    pattern = re.compile(options.pattern)

    def fits(topic: str) -> bool:
        of_system = topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)
        if of_system and not options.with_system_topics:
            return False
        return pattern.fullmatch(topic) is not None

    return fits


def _is_assigned(options: LiveOptions, topic: str, broker: str, queue_id: int) -> bool:
    if options.assigned is None:
        return options.queues is None or queue_id in options.queues
    of_topic = options.assigned[topic]
    return any(queue_id in of_topic.get(name, ()) for name in (ANY_BROKER, broker))


def _starts(options: LiveOptions, queues: Sequence[MessageQueue]) -> Offsets:
    """Return the first queue offset that is wanted, as far as offsets say."""
    bound = options.starting or Bound("earliest")
    if bound.kind != "offsets":
        return dict.fromkeys(queues, 0)
    _check_names(bound.offsets, queues, "startingOffsets")
    if LATEST in bound.offsets.values():
        text = f"{WHOSE}: startingOffsets -1 (latest) would read nothing in a batch"
        raise OptionError(text, ["startingOffsets"])
    return {queue: max(bound.offsets[queue], 0) for queue in queues}


def _ends(
    options: LiveOptions,
    queues: Sequence[MessageQueue],
    live: Mapping[MessageQueue, str],
    cluster: KnownCluster,
) -> Offsets:
    """Return where each queue ends that offsets are given for, or that a broker has."""
    bound = options.ending or Bound("latest")
    if bound.kind != "offsets":
        return ending_offsets(bound, live, cluster)
    _check_names(bound.offsets, queues, "endingOffsets")
    latest = cluster.max_offsets(live)
    return {
        queue: latest.get(queue, _END)
        if bound.offsets[queue] == LATEST
        else min(bound.offsets[queue], latest.get(queue, _END))
        for queue in queues
    }


def _live_wanted(
    options: LiveOptions,
    starts: Offsets,
    ends: Offsets,
    spans: Mapping[MessageQueue, tuple[int, int]],
    live: Mapping[MessageQueue, str],
    cluster: KnownCluster,
    over: Collection[MessageQueue],
) -> Iterator[tuple[MessageQueue, int, int]]:
    """Yield what is read at the brokers, by queue: before what is archived, and after it.

    Nothing after the archive is wanted of the queues in `over`.

    Raises:
        DataLossError: a broker begins later or ends earlier, and the options say so.
    """
    fail = options.fail_on_data_loss
    by_time: Offsets = {}
    if options.starting is not None and options.starting.kind == "time":
        by_time = cluster.offsets_at(live, options.starting.time_ms)
    latest = cluster.max_offsets(live)
    for queue, lowest in cluster.min_offsets(live).items():
        first, boundary = spans.get(queue, (0, 0))
        if latest[queue] < boundary:
            reason = "the queue ends before the archive does: was the topic deleted and made anew?"
            report_loss(DataLoss(queue, latest[queue], boundary, reason, LossCause.CUT), fail=fail)
            first = boundary = 0
        # If the oldest message is late enough, those before it may have been.
        start = max(starts[queue], at) if (at := by_time.get(queue, 0)) > lowest else starts[queue]
        yield queue, max(start, lowest), min(first, ends[queue])
        start = max(start, boundary)
        if 0 < start < min(lowest, ends[queue]) and queue not in over:
            reason = "the oldest message at the broker is younger than the archive's end"
            report_loss(DataLoss(queue, start, lowest, reason, LossCause.DELETED), fail=fail)
        yield queue, max(start, lowest), ends[queue]


def _check_names(offsets: Offsets, queues: Sequence[MessageQueue], option: str) -> None:
    missing = [queue for queue in queues if queue not in offsets]
    unknown = sorted(set(offsets) - set(queues))
    if unknown:
        raise OptionError(
            f"{WHOSE}: {option} names {names(unknown)}, which are neither in the archive nor at the"
            " brokers, or are not subscribed to",
            [option],
        )
    if missing:
        raise OptionError(
            f"{WHOSE}: {option} names no offset of {names(missing)}: give every queue one,"
            f" {EARLIEST} for its earliest message, {LATEST} for its end",
            [option],
        )


def _time_ms(bound: Bound | None) -> int | None:
    return bound.time_ms if bound is not None and bound.kind == "time" else None


def read_archived(
    archived: ArchivedRange, options: LiveOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield archived messages as the brokers would give them: plain, with the same columns.

    Raises:
        ArchiveError: a file cannot be read, or a body is not what its CRC says.
    """
    for batch in read_piece(archived.piece, ["topic", *FILE_COLUMNS]):
        if options.check_crc:
            _check_bodies(batch)
        for part in _plain(batch) if options.decompress else [batch]:
            wanted = part
            if options.tags is not None:
                wanted = part.filter(pa.array(has_tags(part.column("tags"), options.tags)))
            yield _with_columns(wanted, archived.clusters, options, columns)


def _plain(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows with their bodies decompressed, and batches taken apart."""
    flags = batch.column("sysFlag").to_numpy()
    special = [
        flag for flag in np.unique(flags).tolist() if flag & COMPRESSED_FLAG or is_inner_batch(flag)
    ]
    done = 0
    for row in np.flatnonzero(np.isin(flags, special)).tolist():
        if row > done:
            yield batch.slice(done, row - done)
        values = batch.slice(row, 1).to_pylist()[0]
        rows = [values | _changed(single) for single in _singles(values)]
        yield pa.RecordBatch.from_pylist(rows, batch.schema)
        done = row + 1
    if done < len(batch):
        yield batch.slice(done)


def _singles(row: Mapping[str, object]) -> list[MessageExt]:
    message = _message(row)
    try:
        plain = decompressed(message)
    except CompressionError as error:
        raise ArchiveError(
            f"offset {message.queue_offset} of queue {message.queue_id} of topic"
            f" {message.topic!r}: {error}. With decompress=false bodies come as they are stored"
        ) from error
    try:
        return unwrap_inner_batch(plain)
    except MalformedMessageError:
        return [plain]


def _message(row: Mapping[str, object]) -> MessageExt:
    """Return a row as the message it was, as far as taking it apart needs it."""
    fields: dict[str, object] = {
        "topic": row["topic"],
        "body": row["body"],
        "properties": dict(row["properties"]),  # type: ignore[call-overload]
        "queue_id": row["queueId"],
        "queue_offset": row["queueOffset"],
        "physical_offset": row["physicalOffset"],
        "store_size": row["storeSize"],
        "flag": row["flag"],
        "sys_flag": row["sysFlag"],
        "born_timestamp_ms": 0,
        "born_host": _NOWHERE,
        "store_timestamp_ms": 0,
        "store_host": _NOWHERE,
        "reconsume_times": row["reconsumeTimes"],
        "prepared_transaction_offset": row["preparedTransactionOffset"],
        "body_crc": row["bodyCrc"],
    }
    return MessageExt(**fields)  # type: ignore[arg-type]


_NOWHERE: Final = Host("0.0.0.0", 0)


def _changed(message: MessageExt) -> dict[str, object]:
    """Return what taking apart may have changed."""
    return {
        "body": message.body,
        "properties": list(message.properties.items()),
        "keys": message.properties.get("KEYS"),
        "tags": message.properties.get("TAGS"),
        "queueOffset": message.queue_offset,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCrc": raw_crc32(message.body) & CRC_MASK,
        "storeSize": len(encode_record(message)),
    }


def _check_bodies(batch: pa.RecordBatch) -> None:
    crcs = batch.column("bodyCrc").to_numpy()
    for row, body in enumerate(batch.column("body")):
        data = body.as_buffer()
        if data is not None and data.size and raw_crc32(data) & CRC_MASK != crcs[row]:
            place = batch.column("queueOffset")[row], batch.column("topic")[row]
            raise ArchiveDamagedError(
                f"the body of queue offset {place[0]} of topic {place[1]} in the archive is not"
                " what its CRC says; `tandem pipeline archive --verify` looks at all files",
                ArchiveFault.CRC,
            )


def _with_columns(
    rows: pa.RecordBatch,
    clusters: Mapping[str, str],
    options: LiveOptions,
    columns: Sequence[str],
) -> pa.RecordBatch:
    made: dict[str, pa.Array] = {}
    if "clusterName" in columns:
        brokers = rows.column(BROKER).to_pylist()
        made["clusterName"] = pa.array([clusters.get(name) for name in brokers], pa.string())
    if "crcOk" in columns:
        checked = pa.scalar(True if options.check_crc else None, pa.bool_())
        made["crcOk"] = pa.repeat(checked, len(rows))
    arrays = [made[name] if name in made else rows.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


assert set(TYPES) <= {"topic", *FILE_COLUMNS, *_MADE_HERE}
