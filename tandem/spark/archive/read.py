"""Reads ranges of an archive as Arrow batches, without Spark.

    pieces = plan_archive(read_manifest(archive), topics=frozenset({"orders"}))
    for piece in pieces: for batch in read_piece(piece, ["queueOffset", "body"]): ...

Rows come in the order of the log within a file. Which files and row groups are opened is decided
by the manifest and by the statistics in their footers.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.spark.archive.columns import ALL_COLUMNS, BROKER, FILE_COLUMNS
from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveFault
from tandem.spark.archive.manifest import DataFilePart, Manifest, joined
from tandem.wire.record_scan import Bools

QueueKey: TypeAlias = tuple[str, str, int]
"""Topic, broker, queue id."""

_BATCH_ROWS: Final = 8192
_TIME_US_PER_MS: Final = 1000


class ArchivePiece(msgspec.Struct, frozen=True):
    """One data file, and which of its rows are wanted. None means "all".

    `offsets` has for queue ids the queue offsets [first, end) that are wanted; a queue that is not
    in it is not wanted. Times are store times in ms, the end excluded.
    """

    path: str
    topic: str
    rows: int
    size_bytes: int
    offsets: dict[int, tuple[int, int]] | None = None
    start_ms: int | None = None
    end_ms: int | None = None


def plan_archive(
    manifest: Manifest,
    *,
    topics: frozenset[str] | None = None,
    topic_pattern: str | None = None,
    queues: frozenset[int] | None = None,
    ranges: Mapping[QueueKey, tuple[int, int]] | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
) -> list[ArchivePiece]:
    """Return the data files with rows that are wanted. `ranges` names every queue that is."""
    wanted = _topic_test(topics, topic_pattern)
    pieces = []
    for unit in manifest.units:
        for file in unit.files:
            if not wanted(file.topic) or not _overlaps(file, start_ms, end_ms):
                continue
            offsets = _offsets(file, unit.group, queues, ranges)
            if offsets is not None and not offsets:
                continue
            path = str(manifest.archive / file.path)
            pieces.append(
                ArchivePiece(
                    path, file.topic, file.rows, file.size_bytes, offsets, start_ms, end_ms
                )
            )
    return pieces


def read_piece(piece: ArchivePiece, names: Sequence[str] = ALL_COLUMNS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece that are wanted, with the columns called `names`.

    Raises:
        ArchiveDamagedError: the file is not there, or cannot be read.
    """
    needed = {"queueId", "queueOffset"} if piece.offsets is not None else set[str]()
    if piece.start_ms is not None or piece.end_ms is not None:
        needed.add("storeTimestamp")
    columns = [name for name in FILE_COLUMNS if name in needed.union(names)]
    # Rows have to be counted, whatever is asked for.
    columns = columns or [BROKER]
    try:
        with pq.ParquetFile(piece.path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                chosen = _chosen(piece, batch)
                rows = batch if chosen is None else batch.filter(pa.array(chosen))
                if len(rows):
                    yield _with_topic(rows, piece.topic, names)
    except FileNotFoundError as error:
        raise ArchiveDamagedError(
            f"{piece.path} is in the manifest, and is not there: restore it;"
            " `tandem pipeline archive --verify` looks at all files",
            ArchiveFault.MISSING,
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise ArchiveDamagedError(
            f"{piece.path} cannot be read: {error}; restore it from a copy;"
            " `tandem pipeline archive --verify` looks at all files",
            ArchiveFault.UNREADABLE,
        ) from error


def _topic_test(topics: frozenset[str] | None, pattern: str | None) -> Callable[[str], bool]:
    if pattern is not None:
        compiled = re.compile(pattern)
        return lambda topic: compiled.fullmatch(topic) is not None
    return lambda topic: topics is None or topic in topics


def _overlaps(file: DataFilePart, start_ms: int | None, end_ms: int | None) -> bool:
    if start_ms is not None and file.last_store_ms < start_ms:
        return False
    return end_ms is None or file.first_store_ms < end_ms


def _offsets(
    file: DataFilePart,
    broker: str,
    queues: frozenset[int] | None,
    ranges: Mapping[QueueKey, tuple[int, int]] | None,
) -> dict[int, tuple[int, int]] | None:
    """Return the offsets to choose by; None if every row of the file is wanted."""
    if queues is None and ranges is None:
        return None
    found = {}
    known = joined(file.queues)
    for queue in known:
        first, end = queue.first, queue.end
        if queues is not None and queue.queue_id not in queues:
            continue
        if ranges is not None:
            wanted = ranges.get((file.topic, broker, queue.queue_id), (0, 0))
            first, end = max(first, wanted[0]), min(end, wanted[1])
        if first < end:
            found[queue.queue_id] = (first, end)
    is_all = all(found.get(queue.queue_id) == (queue.first, queue.end) for queue in known)
    is_every_row = sum(queue.rows for queue in file.queues) == file.rows
    return None if is_all and is_every_row else found


def _chosen(piece: ArchivePiece, batch: pa.RecordBatch) -> Bools | None:
    chosen: Bools | None = None
    if piece.offsets is not None:
        chosen = np.zeros(len(batch), np.bool_)
        ids = batch.column("queueId").to_numpy()
        offsets = batch.column("queueOffset").to_numpy()
        for queue_id, (first, end) in piece.offsets.items():
            chosen |= (ids == queue_id) & (offsets >= first) & (offsets < end)
    if piece.start_ms is not None or piece.end_ms is not None:
        times = batch.column("storeTimestamp").cast(pa.int64()).to_numpy()
        chosen = np.ones(len(batch), np.bool_) if chosen is None else chosen
        if piece.start_ms is not None:
            chosen &= times >= piece.start_ms * _TIME_US_PER_MS
        if piece.end_ms is not None:
            chosen &= times < piece.end_ms * _TIME_US_PER_MS
    return chosen


def _with_topic(rows: pa.RecordBatch, topic: str, names: Sequence[str]) -> pa.RecordBatch:
    arrays = [
        pa.repeat(pa.scalar(topic, pa.string()), len(rows))
        if name == "topic"
        else rows.column(name)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, list(names))
