"""The table of findings as Arrow and Parquet, written in parts that appear all at once.

    out/audit/_parts-6f…/part-….parquet     what tasks write, each under a name of its own
    out/audit/part-0.parquet                what counts: moved there by `publish`, which removes
                                            the table of an audit before

A task that is tried again writes another part; only those that its last try names are published.
"""

import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.spark.audit import rules
from tandem.spark.audit.rules import Finding
from tandem.spark.errors import AuditTableError

SCHEMA: Final = pa.schema(
    [
        ("finding", pa.string()),
        ("node", pa.string()),
        ("send_id", pa.string()),
        ("scenario", pa.string()),
        ("phase", pa.string()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
        ("mode", pa.string()),
        ("status", pa.string()),
        ("copies", pa.int64()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("detail", pa.string()),
    ]
)

assert tuple(SCHEMA.names) == Finding.__struct_fields__

Counts = dict[tuple[str, str | None], int]
"""How many rows there are by finding and mode."""


def rows_of(columns: Mapping[str, pa.Array | pa.ChunkedArray | str], count: int) -> pa.Table:
    """Return `count` findings; a text counts for every row, what is not named is null."""
    arrays = []
    for field in SCHEMA:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(values, str):
            arrays.append(pa.repeat(pa.scalar(values, field.type), count))
        else:
            arrays.append(values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def table_of(findings: Iterable[Finding]) -> pa.Table:
    """Return findings as a table."""
    return pa.Table.from_pylist([msgspec.structs.asdict(found) for found in findings], SCHEMA)


def count_rows(rows: pa.Table) -> Counts:
    """Count findings by finding and mode."""
    counted = (
        rows.select(["finding", "mode"])
        .group_by(["finding", "mode"])
        .aggregate([([], "count_all")])
    )
    return {(row["finding"], row["mode"]): row["count_all"] for row in counted.to_pylist()}


def new_parts(out_dir: str) -> str:
    """Return a directory, which is there now, for the parts of the table below `out_dir`."""
    folder = Path(out_dir, rules.TABLE_NAME, f"_parts-{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    return str(folder)


class PartWriter:
    """Writes the findings of one task into one part, and counts them. Without any, no part."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder, f"part-{uuid.uuid4().hex}.parquet")
        self._writer: pq.ParquetWriter | None = None
        self._counts: Counter[tuple[str, str | None]] = Counter()

    def write(self, rows: pa.Table) -> None:
        """Add findings."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, SCHEMA)
        self._writer.write_table(rows)
        self._counts.update(count_rows(rows))

    def close(self) -> tuple[tuple[str, ...], Counts]:
        """End the part; return its name, if there is one, and what it holds."""
        if self._writer is None:
            return (), {}
        self._writer.close()
        return (self._path.name,), dict(self._counts)


def publish(parts: str, names: Iterable[str]) -> None:
    """Make the parts with these names the table, instead of what is there.

    Raises:
        AuditTableError: a part is not where its task wrote it.
    """
    source = Path(parts)
    table = source.parent
    wanted = list(dict.fromkeys(names))
    missing = [name for name in wanted if not (source / name).is_file()]
    if missing:
        raise AuditTableError(
            f"{source / missing[0]} is not here: a worker wrote it on another machine;"
            " give a directory that driver and workers share"
        )
    if not wanted:  # a table without rows is a table
        name = "part-none.parquet"
        pq.write_table(SCHEMA.empty_table(), source / name)
        wanted = [name]
    for old in table.iterdir():
        if old != source:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for number, name in enumerate(wanted):
        (source / name).rename(table / f"part-{number}.parquet")
    shutil.rmtree(source)
