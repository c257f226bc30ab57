"""The records of a log as one Parquet file, with the columns of the Spark source.

Nothing is skipped silently: a place that could not be read becomes a row with nothing but its
offset and `error`, and a body that its CRC does not fit has `crcOk` false. Row groups are bounded,
so memory is; the file has its name only once it is whole.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from tandem.durable_file import move_durably, sync_file
from tandem.log.errors import BadRequestError, MissingPackageError, OutputError, RequestFault
from tandem.log.log_scan import LogDamage, LogWindow, scan_log
from tandem.log.record_filter import RecordFilter
from tandem.log.store_directory import StoreDirectory
from tandem.wire.record_rule import record_fault

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES: Final = 32 << 20
"""Bytes of Arrow columns in a row group: large enough to compress well, small enough to hold."""


class ExportResult(msgspec.Struct, frozen=True):
    """What was written: rows for records, and one more for each of `damages`."""

    path: str
    record_count: int
    size: int
    damages: tuple[LogDamage, ...]


def export_parquet(
    store: StoreDirectory,
    path: str | Path,
    wanted: RecordFilter | None = None,
    *,
    columns: Sequence[str] = (),
    replace: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ExportResult:
    """Write the wanted records to `path`; `columns` empty means all of them.

    Raises:
        BadRequestError: there is no such column, or the file exists and is not to be replaced.
        MissingPackageError: pyarrow is not installed.
        OutputError: the file cannot be written; none of it is left.
        UnreadableFileError: a file of the store cannot be read, or was removed meanwhile.
    """
    names = _checked_columns(columns)
    target = Path(path)
    if target.exists() and not replace:
        text = f"{target} exists; name another file, or replace it with --force"
        raise BadRequestError(text, RequestFault.FILE_EXISTS, str(target))
    exporter = _Exporter(store, wanted or RecordFilter(), names, on_progress)
    with _temporary(target) as temporary:
        exporter.write(temporary)
        size = temporary.stat().st_size
    return ExportResult(str(target), exporter.record_count, size, tuple(exporter.damages))


def _checked_columns(columns: Sequence[str]) -> list[str]:
    known = _record_batches().COLUMNS
    unknown = [name for name in columns if name not in known]
    if unknown:
        text = f"no column {', '.join(unknown)}; there are {', '.join(known)}"
        raise BadRequestError(text, RequestFault.UNKNOWN_COLUMN, unknown[0])
    return list(columns or known)


def _record_batches() -> Any:  # noqa: ANN401 - a module that only some installations can import
    try:
        return importlib.import_module("tandem.spark.record_batches")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise MissingPackageError(
            "export writes Parquet with the Python package pyarrow, which is missing:"
            " pip install pyarrow",
            "pyarrow",
        ) from error


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """Give a name beside `target`; what was written there gets the target's name, or is deleted."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync_file(temporary)
        move_durably(temporary, target)
    except OSError as error:
        raise OutputError(
            f"{target}: {error.strerror or error}; name a file in a directory that can be written"
            " and has room",
            str(target),
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


class _Exporter:
    def __init__(
        self,
        store: StoreDirectory,
        wanted: RecordFilter,
        names: list[str],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._store = store
        self._wanted = wanted
        self._names = names
        self._on_progress = on_progress
        self._total = sum(file.size for file in store.commit_log)
        self.record_count = 0
        self.damages: list[LogDamage] = []

    def write(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - optional
        import pyarrow.parquet as pq  # noqa: PLC0415

        columns = _record_batches().COLUMNS
        schema = pa.schema([(name, columns[name][0]) for name in self._names])
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            held: list[pa.RecordBatch] = []
            for batch in self._batches():
                held.append(batch)
                if sum(part.nbytes for part in held) >= ROW_GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(held, schema))
                    held = []
            if held:
                writer.write_table(pa.Table.from_batches(held, schema))

    def _batches(self) -> "Iterator[pa.RecordBatch]":
        limits = self._wanted.physical_offsets
        done = 0
        for item in scan_log(self._store.commit_log, limits.start, limits.end):
            if isinstance(item, LogDamage):
                self.damages.append(item)
                yield _record_batches().error_batch(
                    self._names, self._store.path, item.offset, str(item)
                )
                continue
            rows = self._wanted.rows(item)
            if len(rows):
                self.record_count += len(rows)
                yield self._batch(item, rows)
            done = item.base_offset + len(item.data) - self._store.log_start
            self._on_progress(min(done, self._total), self._total)
        self._on_progress(self._total, self._total)

    def _batch(
        self, window: LogWindow, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    ) -> "pa.RecordBatch":
        records = window.columns.take(rows)
        part = _record_batches().RecordSlice(window.data, records, self._store.path)
        for row in np.flatnonzero(~part.crc_ok).tolist():
            start = int(records.start[row])
            part.errors[row] = record_fault(window.data, window.base_offset, start)
        return part.batch(self._names)
