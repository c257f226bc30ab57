from pathlib import Path

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.parts import read_part
from tandem.spark.commitlog.split import LostRange
from tandem.spark.commitlog.table import plan_table
from tandem.spark.errors import LossCause
from tests.support.log_builder import LogBuilder

NAMES = ("physicalOffset", "error")


def test_every_kind_of_part_is_read(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=8192)
    for number in range(100):
        log.put(body=bytes(100), topic=f"Topic{number % 10}")
    log.write(tmp_path)
    log.put(topic="Topic3")
    log.write(tmp_path, consume_queues=False)  # the queues lag
    options = ScanOptions(
        paths=(str(tmp_path),),
        topics=frozenset({"Topic3"}),
        consume_queues="always",
        on_error="row",
    )
    parts = plan_table(options)
    kinds = {type(part).__name__ for part in parts}
    assert kinds == {"LogSplit", "QueueSplit"}
    rows = [
        row["physicalOffset"]
        for part in parts
        for batch in read_part(part, options, NAMES)
        for row in batch.to_pylist()
    ]
    assert rows == [m.physical_offset for m in log.messages if m.topic == "Topic3"]
    (lost,) = read_part(LostRange("s", 7, "gone", "", LossCause.DELETED), options, NAMES)
    assert lost.to_pylist() == [{"physicalOffset": 7, "error": "lost: gone"}]
    assert list(read_part(None, options, NAMES)) == []


def test_columns_of_bodies_are_made_of_what_is_read_and_damage_has_none(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=8192)
    for body in (b'{"order": 7}', b"seven"):
        log.put(topic="orders", body=body)
    at = log.put(topic="orders", body=b'{"order": 8}').physical_offset
    log.put(topic="orders", body=b'{"order": 9}')
    log.log[at + 4] ^= 0xFF  # the magic
    log.write(tmp_path)
    options = ScanOptions(
        paths=(str(tmp_path),), on_error="row", consume_queues="never", body_schema="order long"
    )
    names = ("value", "physicalOffset", "bodyError", "error")
    rows = [
        row
        for part in plan_table(options)
        for batch in read_part(part, options, names)
        for row in batch.to_pylist()
    ]
    assert [row["value"] for row in rows] == [{"order": 7}, None, None, {"order": 9}]
    assert [row["bodyError"] is None for row in rows] == [True, False, True, True]
    assert [row["error"] is None for row in rows] == [True, True, False, True]
