import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tandem.log import export
from tandem.log.errors import BadRequestError, MissingPackageError, OutputError, RequestFault
from tandem.log.export import export_parquet
from tandem.log.record_filter import RecordFilter
from tandem.log.store_directory import open_store_directory
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, log_file, our_store, overwrite


@pytest.mark.parametrize("name", NAMES)
def test_every_record_of_rocketmq_becomes_a_row(tmp_path: Path, name: str) -> None:
    counts = {"basic": 3, "batch": 2, "crc": 4, "ext": 6, "idx": 7, "sch": 5, "tran": 6, "v6": 3}
    result = export_parquet(open_store_directory(GOLDEN / name), tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.num_rows == result.record_count == counts[name]
    assert table["crcOk"].to_pylist() == [True] * counts[name]
    assert result.size == (tmp_path / "out.parquet").stat().st_size


def test_the_columns_are_those_of_the_spark_source(tmp_path: Path) -> None:
    export_parquet(open_store_directory(GOLDEN / "basic"), tmp_path / "out.parquet")
    (first, *_) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert first["topic"] == "TopicA"
    assert first["body"] == b"hello0"
    assert dict(first["properties"])["UNIQ_KEY"] == "U0"
    assert first["storeTimestamp"].isoformat() == "2026-11-20T23:54:17.974000+00:00"


def test_records_and_columns_can_be_chosen(tmp_path: Path) -> None:
    store = open_store_directory(GOLDEN / "tran")
    wanted = RecordFilter(topics=frozenset({"T"}))
    export_parquet(store, tmp_path / "out.parquet", wanted, columns=["topic", "queueOffset"])
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["topic", "queueOffset"]
    assert table["topic"].to_pylist() == ["T"] * 4
    with pytest.raises(BadRequestError) as caught:
        export_parquet(store, tmp_path / "other.parquet", columns=["colour"])
    assert (caught.value.fault, caught.value.subject) == (RequestFault.UNKNOWN_COLUMN, "colour")


def test_row_groups_are_bounded_and_progress_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "ROW_GROUP_BYTES", 4000)
    seen: list[tuple[int, int]] = []
    store = open_store_directory(our_store(tmp_path))
    export_parquet(store, tmp_path / "out.parquet", on_progress=lambda *done: seen.append(done))
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups > 1
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0


def test_what_cannot_be_read_becomes_a_row_that_says_so(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 4, b"XXXX")
    overwrite(log_file(root), 136 + 88, b"X")
    result = export_parquet(open_store_directory(root), tmp_path / "out.parquet")
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert (result.record_count, len(result.damages)) == (2, 1)
    assert rows[0]["topic"] is None
    assert "corrupt" in rows[0]["error"]
    assert (rows[1]["crcOk"], rows[2]["crcOk"]) == (False, True)
    assert "body CRC" in rows[1]["error"]


def test_a_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    store = open_store_directory(GOLDEN / "basic")
    (tmp_path / "out.parquet").write_bytes(b"precious")
    with pytest.raises(BadRequestError) as caught:
        export_parquet(store, tmp_path / "out.parquet")
    assert caught.value.fault is RequestFault.FILE_EXISTS
    export_parquet(store, tmp_path / "out.parquet", replace=True)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 3


def test_nothing_is_left_where_nothing_could_be_written(tmp_path: Path) -> None:
    store = open_store_directory(GOLDEN / "basic")
    with pytest.raises(OutputError, match="name a file in a directory that can be written"):
        export_parquet(store, tmp_path / "missing" / "out.parquet")  # what to do

    def fail(done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError) as caught:
        export_parquet(store, tmp_path / "out.parquet", on_progress=fail)
    assert caught.value.path == str(tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_the_command_that_brings_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "tandem.spark.record_batches", raising=False)
    with pytest.raises(MissingPackageError, match="pip install pyarrow") as caught:
        export_parquet(open_store_directory(GOLDEN / "basic"), tmp_path / "out.parquet")
    assert caught.value.package == "pyarrow"
