from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tandem.spark.archive.errors import ArchiveError
from tandem.spark.jobs.settings import StatsSettings
from tandem.spark.jobs.stats_job import run_stats
from tests.support.small_archive import SmallArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_the_figures_are_those_of_the_log(spark: "SparkSession", small: SmallArchive) -> None:
    output = small.root / "stats.parquet"
    settings = StatsSettings(archive=str(small.archive_path), topics=["orders"], output=str(output))
    rows = run_stats(settings, spark)
    end = small.manifest.end_of("broker-a") or 0
    messages = [
        message
        for message in small.log.messages
        if message.topic == "orders" and message.physical_offset < end
    ]
    assert sum(row.messages for row in rows) == len(messages)
    assert sum(row.size_bytes for row in rows) == sum(each.store_size for each in messages)
    assert {(row.topic, row.broker, row.queue_id, row.hour) for row in rows} == {
        ("orders", "broker-a", queue_id, "2023-11-14T22:00Z") for queue_id in (0, 1)
    }
    assert {row.delay_p99_ms for row in rows} == {5}
    assert rows[0].producers == [f"10.1.2.3 {rows[0].messages}"]
    assert rows[0].keys == 5
    assert pq.read_table(output).num_rows == len(rows)


def test_a_topic_that_is_not_in_the_archive_is_told(
    spark: "SparkSession", small: SmallArchive
) -> None:
    settings = StatsSettings(archive=str(small.archive_path), topics=["orders", "ordres"])
    with pytest.raises(ArchiveError, match="no topic ordres"):
        run_stats(settings, spark)
