"""What jobs read through Spark, and what everybody reads: the counts of the log."""

from typing import TYPE_CHECKING

import pytest

from tandem.spark.jobs.tables import archive_table, stores_table
from tests.support.small_archive import SmallArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_an_archive_is_a_table(spark: "SparkSession", small: SmallArchive) -> None:
    end = small.manifest.end_of("broker-a") or 0
    small.put(20)
    small.log.put("77", b"digits")
    stamp = small.log.messages[-1].store_timestamp_ms
    small.put(200)
    small.archive()
    # What no unit names does not exist.
    stray = small.archive_path / "data/topic=orders/date=2020-01-01/stray.parquet"
    stray.parent.mkdir()
    stray.write_bytes(small.data_file().read_bytes())
    table = archive_table(spark, str(small.archive_path))
    assert table.count() == sum(unit.rows for unit in small.manifest.units)
    (row,) = archive_table(spark, str(small.archive_path), None, stamp, stamp + 1).collect()
    assert (row.topic, row.body, row.brokerName) == ("77", b"digits", "broker-a")
    old = stores_table(spark, {"broker-a": str(small.store)}, frozenset({"orders"}))
    assert old.where(f"physicalOffset < {end}").count() == sum(
        message.topic == "orders" and message.physical_offset < end
        for message in small.log.messages
    )


def test_nothing_is_an_empty_table(spark: "SparkSession", small: SmallArchive) -> None:
    assert archive_table(spark, str(small.archive_path), frozenset({"x"})).schema.names
