from pathlib import Path

import pyarrow as pa

from tandem.spark.audit.record_rows import RECORDS, LogRows, rows_of_split, scan_options
from tandem.spark.commitlog.plan import plan_splits
from tests.support.log_builder import LogBuilder


def rows_in(store: Path, split_bytes: int | None = None) -> list[LogRows]:
    options = scan_options(str(store), split_bytes)
    splits = plan_splits(options)
    return [rows for split in splits for rows in rows_of_split(split, options, "ours")]


def a_log() -> LogBuilder:
    log = LogBuilder()
    for number in range(60):
        log.put(topic="ours", body=b"x" * 100, keys=f"k{number}" if number else "")
        log.put(topic="theirs", body=b"y" * 100, keys="k1")
    return log


def test_the_records_of_the_topic_come_in_the_order_of_the_log(tmp_path: Path) -> None:
    log = a_log()
    (rows,) = rows_in(log.write(tmp_path))
    ours = [message for message in log.messages if message.topic == "ours"]
    assert rows.records.schema == RECORDS
    assert rows.damaged.num_rows == 0
    assert rows.records["physical_offset"].to_pylist() == [m.physical_offset for m in ours]
    assert rows.records["keys"].to_pylist()[:2] == [None, "k1"]


def test_small_splits_hold_the_same(tmp_path: Path) -> None:
    store = a_log().write(tmp_path)
    (whole,) = rows_in(store)
    parts = rows_in(store, 4096)
    assert len(parts) > 3
    assert pa.concat_tables([rows.records for rows in parts]) == whole.records


def test_damage_is_said_for_every_topic_and_a_hole_has_no_queue(tmp_path: Path) -> None:
    log = a_log()
    garbled, gone = log.messages[51].physical_offset, log.messages[80].physical_offset
    log.log[garbled + 100] ^= 1
    log.log[gone + 5] ^= 1
    rows = rows_in(log.write(tmp_path))
    damaged = pa.concat_tables([part.damaged for part in rows]).to_pylist()
    assert [(row["queue_id"], row["physical_offset"]) for row in damaged] == [
        (0, garbled),
        (None, gone),
    ]
    assert all(row["error"].startswith("corrupt: ") for row in damaged)
