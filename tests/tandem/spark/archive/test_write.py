from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tandem.spark.archive import write
from tandem.spark.archive.columns import WRITTEN_SCHEMA
from tandem.spark.archive.log_piece import pieces_to_archive, rows_of
from tandem.spark.archive.manifest import QueueRange
from tandem.spark.archive.write import (
    by_topic_and_day,
    day_text,
    leftovers,
    write_partition,
    write_rows,
)
from tests.support.small_archive import SmallArchive

DAY_MS = 86_400_000


def staged(small: SmallArchive, folder: Path, leave_out: frozenset[str] = frozenset()):  # type: ignore[no-untyped-def] # noqa: ANN201
    pieces = pieces_to_archive("b", str(small.store), [], take_open_file=True)
    batches = (batch for piece in pieces for batch in rows_of(piece))
    return write_rows(batches, "unit", "b", folder, leave_out=leave_out)


def test_each_topic_and_day_has_its_file(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, messages=0)
    for number in range(40):
        stamp = 1_700_000_000_000 + number // 20 * DAY_MS
        small.log.put(f"T{number % 2}", store_timestamp_ms=stamp)
    small.log.write(small.store)
    result = staged(small, tmp_path / "out")
    assert [(file.topic, file.date, file.rows) for file in result.files] == [
        ("T0", "2023-11-14", 10),
        ("T0", "2023-11-15", 10),
        ("T1", "2023-11-14", 10),
        ("T1", "2023-11-15", 10),
    ]
    assert result.rows == 40
    assert result.files[1].queues == (QueueRange(0, 10, 20, 10),)
    assert result.files[1].first_store_ms == 1_700_000_000_000 + DAY_MS
    assert result.crc_sum == sum(message.body_crc for message in small.log.messages)


def test_rows_are_as_in_the_log(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    result = staged(small, tmp_path / "out")
    messages = {message.physical_offset: message for message in small.log.messages}
    for part in result.files:
        table = pq.ParquetFile(tmp_path / "out" / part.path).read()
        assert table.schema.remove_metadata() == WRITTEN_SCHEMA
        assert table.schema.metadata[b"tandem.topic"].decode() == part.topic
        for row in table.to_pylist():
            message = messages.pop(row["physicalOffset"])
            assert (message.topic, message.body) == (part.topic, row["body"])
            assert dict(row["properties"]) == message.properties
            assert row["brokerName"] == "b"
    assert not messages


def test_topics_can_be_left_out(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    result = staged(small, tmp_path / "out", frozenset({"events"}))
    assert {file.topic for file in result.files} == {"orders"}
    assert result.left_out == len(small.log.messages) - result.rows > 0


def test_the_same_rows_make_the_same_files(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    one = staged(small, tmp_path / "one")
    assert staged(small, tmp_path / "two").files == one.files


def test_many_topics_do_not_keep_many_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "OPEN_FILES_MAX", 1)
    monkeypatch.setattr(write, "BUFFERED_BYTES_MAX", 1)
    result = staged(SmallArchive(tmp_path), tmp_path / "out")
    assert result.rows == 360
    assert len({file.path for file in result.files}) == len(result.files) > 4


def test_a_transaction_record_has_no_place_in_a_queue(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, messages=0)
    small.log.put("T")
    small.log.put("T", sys_flag=0x4, queue_offset=0)
    small.log.put("T", sys_flag=0x8, queue_offset=1)
    small.log.write(small.store)
    (part,) = staged(small, tmp_path / "out").files
    assert part.rows == 3
    assert part.queues == (QueueRange(0, 0, 2, 2),)


def test_a_partition_is_written_from_rows_of_an_archive(
    small: SmallArchive, tmp_path: Path
) -> None:
    part = small.unit().files[0]
    batches = list(pq.ParquetFile(small.data_file()).iter_batches())
    again = write_partition(iter(batches), part, tmp_path / "copy")
    assert again == part
    assert write_partition(iter(()), part, tmp_path / "none") is None


def test_days_are_dates_of_utc() -> None:
    assert day_text(0) == "1970-01-01"
    assert day_text(-1) == "1969-12-31"
    assert day_text(10**9) == "9999-12-31"
    assert day_text(-(10**9)) == "0001-01-01"


def test_an_empty_batch_has_no_topics(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    (piece, *_) = pieces_to_archive("b", str(small.store), [])
    batch = next(rows_of(piece))
    assert list(by_topic_and_day(batch.slice(0, 0))) == []


def test_files_that_nobody_knows_are_found(small: SmallArchive) -> None:
    known = {file.path: None for unit in small.manifest.units for file in unit.files}
    assert leftovers(small.archive_path, known) == []
    gone = known.popitem()[0]
    assert leftovers(small.archive_path, known) == [gone]
