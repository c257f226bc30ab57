from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.spark.audit.findings_table import (
    SCHEMA,
    PartWriter,
    count_rows,
    new_parts,
    publish,
    rows_of,
    table_of,
)
from tandem.spark.audit.rules import Finding
from tandem.spark.errors import AuditTableError


def some(*names: str, mode: str | None = "sync") -> pa.Table:
    return table_of(Finding(finding=name, node="a", mode=mode) for name in names)


def test_what_is_not_named_is_null_and_a_text_is_for_every_row() -> None:
    rows = rows_of({"finding": "phantom", "queue_id": pa.array([1, 2])}, 2)
    assert rows.schema == SCHEMA
    assert rows["finding"].to_pylist() == ["phantom", "phantom"]
    assert rows["queue_id"].to_pylist() == [1, 2]
    assert rows["detail"].to_pylist() == [None, None]


def test_findings_are_counted_by_mode() -> None:
    rows = pa.concat_tables([some("stored", "stored"), some("corrupt", mode=None)])
    assert count_rows(rows) == {("stored", "sync"): 2, ("corrupt", None): 1}


def test_parts_become_the_table_all_at_once_and_replace_what_was_there(tmp_path: Path) -> None:
    table = tmp_path / "audit"
    (table / "_parts-of-an-audit-that-was-killed").mkdir(parents=True)
    (table / "old.parquet").write_bytes(b"of an audit before")
    parts = new_parts(str(tmp_path))
    writer = PartWriter(parts)
    writer.write(some("stored"))
    writer.write(some())
    writer.write(some("phantom"))
    again = PartWriter(parts)
    again.write(some("stored", "of a task that was tried again"))
    again.close()
    names, counts = writer.close()
    assert counts == {("stored", "sync"): 1, ("phantom", "sync"): 1}
    assert (table / "old.parquet").exists()

    publish(parts, names)

    assert [path.name for path in table.iterdir()] == ["part-0.parquet"]
    assert pq.read_table(table)["finding"].to_pylist() == ["stored", "phantom"]


def test_a_table_without_rows_is_a_table(tmp_path: Path) -> None:
    writer = PartWriter(parts := new_parts(str(tmp_path)))
    assert writer.close() == ((), {})
    publish(parts, ())
    assert pq.read_table(tmp_path / "audit").schema == SCHEMA


def test_a_part_on_another_machine_is_an_error_that_says_so(tmp_path: Path) -> None:
    parts = new_parts(str(tmp_path))
    (tmp_path / "audit" / "old.parquet").write_bytes(b"of an audit before")
    with pytest.raises(AuditTableError, match="a directory that driver and workers share"):
        publish(parts, ["part-elsewhere.parquet"])
    assert (tmp_path / "audit" / "old.parquet").exists()
