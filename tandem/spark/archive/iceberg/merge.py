"""Makes few large data files of many small ones, within a topic and a day, as one snapshot each.

The files that were merged stay where they are: the manifest names them, and so do older snapshots.
Merged files are under `table/data`, and are the table's alone. Which files are merged is decided by
sizes and names, so a second run has nothing to do:

    full-….parquet    of small files that together have the size that is wanted; never taken again
    part-….parquet    of the rest of a day; taken again when more small files are there
"""

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask

from tandem.durable_file import sync_directory
from tandem.spark.archive.columns import FILE_SCHEMA, WRITTEN_SCHEMA
from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveFault
from tandem.spark.archive.iceberg.data_files import data_files, path_of
from tandem.spark.archive.iceberg.table import ArchiveTable
from tandem.spark.archive.manifest import DataFilePart, partition_folder
from tandem.spark.archive.table_note import TABLE_FOLDER
from tandem.spark.archive.write import day_text, write_partition

SMALL_BYTES: Final = 64 << 20
"""A file below that is small."""

WANTED_BYTES: Final = 256 << 20

_BATCH_ROWS: Final = 8192
_FULL: Final = "full-"
_PART: Final = "part-"
_NUMBERS: Final = re.compile(r"(\d+)")


class Merged(msgspec.Struct, frozen=True):
    """What became of the small files of a topic and a day."""

    topic: str
    date: str
    files_before: int
    files_after: int
    rows: int


class _Bin(msgspec.Struct, frozen=True):
    """Files that become one."""

    files: tuple[DataFile, ...]
    is_full: bool

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.files)


def merge(
    archive: Path,
    table: ArchiveTable,
    *,
    small_bytes: int = SMALL_BYTES,
    wanted_bytes: int = WANTED_BYTES,
) -> Iterator[Merged]:
    """Merge small files, a topic and a day after the other; yield what was done.

    Raises:
        ArchiveDamagedError: a file is not there, or has other rows than the table says.
        ArchiveTableError: the catalogue refuses.
    """
    place = archive.resolve()
    for (topic, day), tasks in sorted(_by_partition(table).items()):
        bins = list(_bins(tasks, small_bytes, wanted_bytes))
        if not bins:
            continue
        date = day_text(day)
        parts = [_merged(place, topic, date, each) for each in bins]
        old = [file for each in bins for file in each.files]
        new = data_files(place, parts, table.iceberg.metadata)
        table.replace(old, new)
        yield Merged(topic, date, len(old), len(new), sum(each.rows for each in bins))


def _by_partition(table: ArchiveTable) -> dict[tuple[str, int], list[FileScanTask]]:
    found: dict[tuple[str, int], list[FileScanTask]] = {}
    spec = table.iceberg.metadata.default_spec_id
    for task in table.iceberg.scan().plan_files():
        if task.file.spec_id == spec:
            topic, day = task.file.partition[0], task.file.partition[1]
            found.setdefault((topic, day), []).append(task)
    return found


def _bins(tasks: Sequence[FileScanTask], small_bytes: int, wanted_bytes: int) -> Iterator[_Bin]:
    """Yield what is worth merging. Files with deleted rows, or with columns of others, are not."""
    small = [
        task.file
        for task in tasks
        if task.file.file_size_in_bytes < small_bytes
        and not task.delete_files
        and not path_of(task.file.file_path).name.startswith(_FULL)
    ]
    small.sort(key=lambda file: _log_order(file.file_path))
    chosen: list[DataFile] = []
    for file in small:
        if not _is_ours(file):
            continue
        chosen.append(file)
        if sum(each.file_size_in_bytes for each in chosen) >= wanted_bytes:
            yield _Bin(tuple(chosen), is_full=True)
            chosen = []
    if len(chosen) > 1:
        yield _Bin(tuple(chosen), is_full=False)


def _log_order(location: str) -> tuple[str | int, ...]:
    """Sort names of files as the log has their rows: `broker-a-000…-10` after `broker-a-000…-9`."""
    name = path_of(location).name.removeprefix(_PART)
    return tuple(int(word) if word.isdecimal() else word for word in _NUMBERS.split(name))


def _is_ours(file: DataFile) -> bool:
    with _opened(file) as parquet:
        return set(parquet.schema_arrow.names) <= set(WRITTEN_SCHEMA.names)


def _opened(file: DataFile) -> pq.ParquetFile:
    place = path_of(file.file_path)
    try:
        return pq.ParquetFile(place, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveDamagedError(
            f"{place} cannot be read: {error}; restore it from a copy;"
            " `tandem pipeline archive --verify` looks at all files",
            ArchiveFault.UNREADABLE,
        ) from error


def _merged(archive: Path, topic: str, date: str, chosen: _Bin) -> DataFilePart:
    """Write the rows of files into one, synced, under a name that nothing else has."""
    first = path_of(chosen.files[0].file_path).name.removeprefix(_PART).removesuffix(".parquet")
    first = re.sub(r"_[0-9a-f]{32}$", "", first)
    kind = _FULL if chosen.is_full else _PART
    folder = f"{TABLE_FOLDER}/{partition_folder(topic, date)}"
    path = f"{folder}/{kind}{first}_{uuid.uuid4().hex}.parquet"
    wanted = DataFilePart(path, topic, date, 0, 0, "", 0, 0, 0, ())
    part = write_partition(_rows(chosen.files), wanted, archive)
    if part is None or part.rows != chosen.rows:
        rows = 0 if part is None else part.rows
        raise ArchiveDamagedError(
            f"files of {topic}, {date}, have {rows} rows, and the table says {chosen.rows};"
            " `tandem pipeline archive --verify` looks at all files",
            ArchiveFault.CONTRADICTION,
        )
    sync_directory((archive / path).parent)
    return part


def _rows(files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with _opened(file) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS):
                yield _complete(batch)


def _complete(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with all columns, those that an older file lacks as null."""
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in FILE_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=FILE_SCHEMA)
