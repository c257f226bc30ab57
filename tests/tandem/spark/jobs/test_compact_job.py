from typing import TYPE_CHECKING

import pytest

from tandem.spark.archive.errors import ArchiveError
from tandem.spark.archive.manifest import unit_file
from tandem.spark.jobs.compact_job import run_compact
from tandem.spark.jobs.settings import CompactSettings
from tests.support.small_archive import CrashError, CrashingDisk, SmallArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_of_each_key_the_latest_is_kept(spark: "SparkSession", small: SmallArchive) -> None:
    small.log.put("orders", b"", keys="key-0", queue_id=0)
    small.log.put("orders", b"no key", queue_id=0)
    small.log.put("orders", b"last", keys="key-2", queue_id=1, properties={"TOMBSTONE": "1"})
    small.log.roll()
    small.put(1)
    small.archive()
    settings = CompactSettings(str(small.archive_path), ["orders"], str(small.root / "out"))
    (result,) = run_compact(settings, spark)
    latest: dict[tuple[int, str], bytes] = {}
    end = small.manifest.end_of("broker-a") or 0
    orders = [m for m in small.log.messages if m.topic == "orders" and m.physical_offset < end]
    for message in orders:
        if message.keys:
            gone = not message.body or "TOMBSTONE" in message.properties
            latest[message.queue_id, message.keys] = b"" if gone else message.body
    alive = {key: body for key, body in latest.items() if body}
    table = spark.read.parquet(str(small.root / "out" / "data")).collect()
    assert {(row.queueId, row["keys"]): row.body for row in table} == alive
    assert (result.messages, result.keys, result.without_key) == (len(orders), len(alive), 1)
    assert result.tombstones == 2
    assert result.is_new
    assert not run_compact(settings, spark)[0].is_new


def test_a_topic_is_compacted_anew_when_a_hole_was_filled(
    spark: "SparkSession", small: SmallArchive
) -> None:
    # It is made anew, and counts from 0.
    for key, body in (("one", b"old"), ("one", b"older"), ("one", b"new"), ("two", b"last")):
        if body == b"new":
            small.log.make_anew("orders")
        small.log.put("orders", body, keys=key)
        small.log.roll()
    small.put(1)
    small.archive()
    settings = CompactSettings(str(small.archive_path), ["orders"], str(small.root / "out"))
    unit_file(small.archive_path, "broker-a", small.unit(-2).first).unlink()
    run_compact(settings, spark)
    small.archive()
    (result,) = run_compact(settings, spark)
    assert result.is_new
    (row,) = spark.read.parquet(f"{settings.output}/data").where("keys = 'one'").collect()
    assert row.body == b"new"
    assert not run_compact(settings, spark)[0].is_new


def test_a_topic_that_is_not_there_is_told(spark: "SparkSession", small: SmallArchive) -> None:
    settings = CompactSettings(str(small.archive_path), ["ordres"], str(small.root / "out"))
    with pytest.raises(ArchiveError, match="no topic ordres; there are events, orders"):
        run_compact(settings, spark)


@pytest.mark.long
def test_a_run_that_ends_between_any_two_steps_is_done_again(
    spark: "SparkSession", small: SmallArchive
) -> None:
    wanted = None
    for steps in range(20):
        settings = CompactSettings(
            str(small.archive_path), ["orders"], str(small.root / f"out-{steps}")
        )
        try:
            run_compact(settings, spark, disk=CrashingDisk(steps, after=False))
        except CrashError:
            run_compact(settings, spark)
        else:
            break
        rows = spark.read.parquet(f"{settings.output}/data").select("keys", "queueOffset")
        found = sorted(map(tuple, rows.collect()))
        wanted = wanted or found
        assert found == wanted
    assert steps > 5
