"""Writes the rows of a piece of log into Parquet files, by topic and date of store time.

The files are in a folder of their own until they are published. One piece of log always gives the
same files, with the same names.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandem.durable_file import make_directory
from tandem.spark.archive.columns import DICTIONARY_COLUMNS, WRITTEN_SCHEMA, file_batch
from tandem.spark.archive.derived import with_derived
from tandem.spark.archive.manifest import DataFilePart, QueueRange, partition_folder
from tandem.wire.message import INNER_BATCH_FLAG, is_inner_batch
from tandem.wire.message_properties import PROPERTY_INNER_NUM

ROW_GROUP_BYTES: Final = 32 << 20
"""Of Arrow data: about what a reader of the file decodes at a time."""

BUFFERED_BYTES_MAX: Final = 256 << 20
OPEN_FILES_MAX: Final = 256

_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)
_TRANSACTION_FLAGS: Final = 0xC
_COMMITTED: Final = 0x8
_PLAIN: Final = 0


class StagedPiece(msgspec.Struct, frozen=True):
    """What a piece of log has become: the files in `folder`, under the paths they will have."""

    folder: str
    files: tuple[DataFilePart, ...]
    left_out: int

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def crc_sum(self) -> int:
        """The sum of the BODYCRC of all rows."""
        return sum(file.crc_sum for file in self.files)


def write_rows(
    batches: Iterable[pa.RecordBatch],
    name: str,
    broker: str,
    folder: Path,
    *,
    leave_out: frozenset[str] = frozenset(),
) -> StagedPiece:
    """Write records, which have all columns of the log, under `folder`; `name` is the unit's."""
    writer = _Writer(name, folder)
    left_out = 0
    for batch in batches:
        for (topic, day), rows in by_topic_and_day(batch):
            if topic in leave_out:
                left_out += len(rows)
            else:
                writer.add(topic, day, file_batch(rows, broker))
    return StagedPiece(str(folder), writer.close(), left_out)


def write_partition(
    batches: Iterable[pa.RecordBatch], part: DataFilePart, folder: Path
) -> DataFilePart | None:
    """Write rows as an archive has them to the path of `part`; None if there is none."""
    file = _File(part.topic, part.date, part.path, folder)
    for batch in batches:
        if len(batch):
            file.add(batch)
    return file.close() if file.rows else None


def by_topic_and_day(
    batch: pa.RecordBatch,
) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """Yield the rows of each topic and UTC date of a batch, each in the order of the log."""
    if not len(batch):
        return
    topics = batch.column("topic").dictionary_encode()
    days = batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // _DAY_US
    first_day = int(days.min())
    width = int(days.max()) - first_day + 1
    keys: NDArray[np.int64] = topics.indices.to_numpy().astype(np.int64) * width + days - first_day
    for key in np.unique(keys).tolist():
        topic = topics.dictionary[key // width].as_py()
        chosen = keys == key
        rows = batch if chosen.all() else batch.filter(pa.array(chosen))
        yield (topic, day_text(first_day + key % width)), rows


def day_text(day: int) -> str:
    """Return the date of a day since 1970; what a calendar has no date for is its nearest one."""
    first, last = date.min, date.max
    number = min(max(day, (first - _EPOCH).days), (last - _EPOCH).days)
    return (_EPOCH + timedelta(days=number)).isoformat()


class _Writer:
    """The files of one unit."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        self._open: dict[tuple[str, str], _File] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._done: list[DataFilePart] = []

    def add(self, topic: str, day: str, rows: pa.RecordBatch) -> None:
        key = (topic, day)
        file = self._open.pop(key, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._done.append(self._open.pop(next(iter(self._open))).close())
            number = self._counts.get(key, 0)
            self._counts[key] = number + 1
            path = f"{partition_folder(topic, day)}/{self._name}-{number}.parquet"
            file = _File(topic, day, path, self._folder)
        self._open[key] = file  # the last one that was written to
        file.add(rows)
        while sum(each.buffered_bytes for each in self._open.values()) > BUFFERED_BYTES_MAX:
            max(self._open.values(), key=lambda each: each.buffered_bytes).flush()

    def close(self) -> tuple[DataFilePart, ...]:
        self._done += [file.close() for file in self._open.values()]
        return tuple(sorted(self._done, key=lambda part: part.path))


class _File:
    """One Parquet file that is being written."""

    def __init__(self, topic: str, day: str, path: str, folder: Path) -> None:
        self._topic = topic
        self._date = day
        self._path = path
        self._place = folder / path
        make_directory(self._place.parent)
        metadata = {"tandem.topic": topic, "tandem.date": day}
        self._writer = pq.ParquetWriter(
            self._place,
            WRITTEN_SCHEMA.with_metadata(metadata),
            compression="zstd",
            use_dictionary=DICTIONARY_COLUMNS,
            write_page_checksum=True,
        )
        self._batches: list[pa.RecordBatch] = []
        self._facts = RowFacts()
        self.buffered_bytes = 0

    @property
    def rows(self) -> int:
        return self._facts.rows

    def add(self, rows: pa.RecordBatch) -> None:
        self._batches.append(with_derived(rows, self._topic))
        self.buffered_bytes += rows.nbytes
        self._facts.add(rows)
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches).replace_schema_metadata(
                {"tandem.topic": self._topic, "tandem.date": self._date}
            )
            self._writer.write_table(table, row_group_size=len(table))
        self._batches.clear()
        self.buffered_bytes = 0

    def close(self) -> DataFilePart:
        self.flush()
        self._writer.close()
        with self._place.open("rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.seek(0, os.SEEK_END)
        return self._facts.part(self._topic, self._date, self._path, size, digest)


class RowFacts:
    """What the manifest says about the rows of a file, added up batch by batch."""

    def __init__(self) -> None:
        self.rows = 0
        self.crc_sum = 0
        self._first_us = 2**63 - 1
        self._last_us = -(2**63)
        self._queues: dict[int, list[list[int]]] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Count rows."""
        self.rows += len(rows)
        self.crc_sum += pc.sum(rows.column("bodyCrc").cast(pa.int64())).as_py() or 0
        times = rows.column("storeTimestamp").cast(pa.int64()).to_numpy()
        self._first_us = min(self._first_us, int(times.min()))
        self._last_us = max(self._last_us, int(times.max()))
        kinds = rows.column("sysFlag").to_numpy() & _TRANSACTION_FLAGS
        # Others have no place in a queue: their queue offset is 0.
        in_queue = (kinds == _PLAIN) | (kinds == _COMMITTED)
        ids = rows.column("queueId").to_numpy()[in_queue]
        offsets = rows.column("queueOffset").to_numpy()[in_queue]
        ends = offsets + _message_counts(rows)[in_queue]
        for queue_id in np.unique(ids).tolist():
            chosen = ids == queue_id
            self._add_queue(self._queues.setdefault(queue_id, []), offsets[chosen], ends[chosen])

    @staticmethod
    def _add_queue(
        ranges: list[list[int]], offsets: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Count rows of one queue. Where offsets go back, the queue was made anew."""
        anew = np.flatnonzero(offsets[1:] < ends[:-1]) + 1
        for at, until in pairwise([0, *anew.tolist(), len(offsets)]):
            first, end = int(offsets[at]), int(ends[until - 1])
            if ranges and first >= ranges[-1][1]:
                ranges[-1][1] = end
                ranges[-1][2] += until - at
            else:
                ranges.append([first, end, until - at])

    def part(self, topic: str, day: str, path: str, size: int, digest: str) -> DataFilePart:
        """Return what the manifest says."""
        return DataFilePart(
            path=path,
            topic=topic,
            date=day,
            rows=self.rows,
            size_bytes=size,
            sha256=digest,
            crc_sum=self.crc_sum,
            first_store_ms=self._first_us // 1000,
            last_store_ms=self._last_us // 1000,
            queues=self.queues(),
        )

    def queues(self) -> tuple[QueueRange, ...]:
        """Return the queue offsets of each queue."""
        return tuple(
            QueueRange(queue_id, *each)
            for queue_id in sorted(self._queues)
            for each in self._queues[queue_id]
        )


def _message_counts(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """Return how many queue offsets each record takes: a batch in one record has several."""
    flags = rows.column("sysFlag").to_numpy()
    counts = np.ones(len(rows), np.int64)
    for row in np.flatnonzero(flags & INNER_BATCH_FLAG).tolist():
        if not is_inner_batch(int(flags[row])):
            continue
        properties = dict(rows.column("properties")[row].as_py())
        number = properties.get(PROPERTY_INNER_NUM, "1")
        if number.isdecimal() and len(number) < 10:
            counts[row] = max(int(number), 1)
    return counts


def leftovers(archive: Path, known: Mapping[str, object]) -> list[str]:
    """Return data files, as paths from the archive, that are not in `known`."""
    found = (path.relative_to(archive).as_posix() for path in archive.glob("data/*/*/*.parquet"))
    return sorted(path for path in found if path not in known)
