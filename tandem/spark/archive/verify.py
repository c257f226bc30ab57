"""Reads what was archived again, and says what is wrong with it: by itself, and against the log.

By itself: the files are there with the bytes they had, the rows are as many as the manifest says,
none is there twice, their CRCs add up, and every body has the CRC that its record says.

Against the log: row by row, every column, in the order of the log. Nothing may be left over on
either side.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.spark.archive.columns import FILE_COLUMNS, FILE_SCHEMA, file_batch
from tandem.spark.archive.derived import DERIVED_SCHEMA, derived
from tandem.spark.archive.log_piece import LogPiece, log_crc, rows_of
from tandem.spark.archive.manifest import DataFilePart, Unit, joined
from tandem.spark.archive.write import RowFacts, by_topic_and_day
from tandem.wire.crc import CRC_MASK, raw_crc32

_BATCH_ROWS = 8192


def unit_faults(archive: Path, unit: Unit) -> list[str]:
    """Return what is wrong with the files of a unit by themselves; none if they are sound."""
    return [f"{file.path}: {fault}" for file in unit.files for fault in _file_faults(archive, file)]


def log_faults(archive: Path, unit: Unit, piece: LogPiece) -> list[str]:
    """Return where a unit is not what the log has.

    Raises:
        LogDamagedError: the log cannot be read any more.
    """
    if (unit.first, unit.end) != (piece.first, piece.end):
        return [f"{unit.name} ends at {unit.end}, the piece of the log at {piece.end}"]
    if log_crc(piece.file, piece.first, piece.end) != unit.log_crc:
        return [f"{piece.file.path} has changed since it was archived"]
    cursors = {file.path: _Cursor(archive / file.path) for file in unit.files}
    paths: dict[tuple[str, str], list[DataFilePart]] = {}
    for file in unit.files:
        paths.setdefault((file.topic, file.date), []).append(file)
    for files in paths.values():
        files.sort(key=lambda file: file.number)
    try:
        return _differences(unit, piece, cursors, paths)
    finally:
        for cursor in cursors.values():
            cursor.close()


def _differences(
    unit: Unit,
    piece: LogPiece,
    cursors: dict[str, "_Cursor"],
    paths: dict[tuple[str, str], list[DataFilePart]],
) -> list[str]:
    for batch in rows_of(piece):
        for key, logged in by_topic_and_day(batch):
            if key[0] in unit.excluded_topics:
                continue
            rows = pa.Table.from_batches([file_batch(logged, unit.group)])
            while len(rows):
                files = paths.get(key, [])
                while files and not cursors[files[0].path].left():
                    files.pop(0)
                if not files:
                    offset = rows.column("physicalOffset")[0]
                    return [f"the record at {offset} of the log is not in the archive"]
                archived = cursors[files[0].path].take(len(rows))
                fault = _first_difference(rows.slice(0, len(archived)), archived)
                if fault:
                    return [f"{files[0].path}: {fault}"]
                rows = rows.slice(len(archived))
    return [
        f"{path}: has {cursor.left()} rows more than the log"
        for path, cursor in cursors.items()
        if cursor.left()
    ]


def _first_difference(logged: pa.Table, archived: pa.Table) -> str:
    if logged.equals(archived):
        return ""
    for row in range(len(logged)):
        one, other = logged.slice(row, 1), archived.slice(row, 1)
        if not one.equals(other):
            names = [name for name in one.column_names if one[name] != other[name]]
            offset = one.column("physicalOffset")[0]
            return f"the row of physical offset {offset} differs from the log in {', '.join(names)}"
    return "differs from the log"


class _Cursor:
    """The rows of a data file, one stretch after the other."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path, page_checksum_verification=True)
        self._batches = self._file.iter_batches(_BATCH_ROWS, columns=list(FILE_COLUMNS))
        self._pending = FILE_SCHEMA.empty_table()
        self._left: int = self._file.metadata.num_rows

    def left(self) -> int:
        return self._left

    def take(self, count: int) -> pa.Table:
        """Return the next rows, at most `count`, at least one if any is left."""
        if not len(self._pending):
            batch = next(self._batches)
            self._pending = pa.Table.from_batches([batch]).replace_schema_metadata(None)
        taken = self._pending.slice(0, count)
        self._pending = self._pending.slice(len(taken))
        self._left -= len(taken)
        return taken

    def close(self) -> None:
        self._file.close()


def _file_faults(archive: Path, part: DataFilePart) -> list[str]:
    place = archive / part.path
    try:
        with place.open("rb") as file:
            # The page cache proves nothing about the disk.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return ["is missing"]
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]
    faults = []
    if size != part.size_bytes:
        faults.append(f"has {size} bytes, not {part.size_bytes}")
    if digest != part.sha256:
        faults.append("is not the file that was archived: its SHA-256 is another one")
    try:
        return faults + list(_row_faults(place, part))
    except (pa.ArrowException, OSError) as error:
        return [*faults, f"cannot be read as Parquet: {error}"]


def _row_faults(place: Path, part: DataFilePart) -> Iterator[str]:
    facts = RowFacts()
    last = -1
    with pq.ParquetFile(place, page_checksum_verification=True) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            facts.add(batch)
            offsets = batch.column("physicalOffset").to_numpy()
            steps = np.diff(offsets, prepend=last)
            for at in np.flatnonzero(steps <= 0)[:1].tolist():
                yield f"physical offset {offsets[at]} is there twice, or out of order"
            last = int(offsets[-1])
            yield from _body_faults(batch)
            yield from _derived_faults(batch, part.topic)
    if facts.rows != part.rows:
        yield f"has {facts.rows} rows, not {part.rows}"
    if facts.crc_sum != part.crc_sum:
        yield f"the CRCs of its records add up to {facts.crc_sum}, not {part.crc_sum}"
    if part.queues not in (facts.queues(), joined(facts.queues())):
        yield "has other queue offsets than the manifest says"


def _derived_faults(batch: pa.RecordBatch, topic: str) -> Iterator[str]:
    """Say which derived column is not what the rows say. Older files have none."""
    if not set(DERIVED_SCHEMA.names) <= set(batch.schema.names):
        return
    for name, column in zip(DERIVED_SCHEMA.names, derived(batch, topic), strict=True):
        if not column.equals(batch.column(name)):
            yield f"the column {name} is not what topic and properties say"


def _body_faults(batch: pa.RecordBatch) -> Iterator[str]:
    bodies = batch.column("body")
    crcs = batch.column("bodyCrc").to_numpy()
    for row, body in enumerate(bodies):
        data = body.as_buffer()
        if data is not None and data.size and raw_crc32(data) & CRC_MASK != crcs[row]:
            offset = batch.column("physicalOffset")[row]
            yield f"the body of the row of physical offset {offset} is not what its CRC says"
            return
