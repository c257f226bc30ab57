"""`tandem pipeline stats`: what is in topics, by queue and hour of store time.

Counts, bytes and sizes are exact but for the percentiles; keys and tags are counted by Spark's
HyperLogLog, which is wrong by a few percent.
"""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tandem.spark.archive.columns import BROKER
from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.manifest import read_manifest
from tandem.spark.jobs.reports import OnProgress, log_metrics, silent
from tandem.spark.jobs.settings import StatsSettings
from tandem.spark.jobs.tables import table_of
from tandem.spark.jobs.windows import check_times, time_ms

TOP_PRODUCERS = 3

_BY = ("topic", BROKER, "queueId", "hour")


class QueueHour(msgspec.Struct, frozen=True):
    """One queue in one hour. Sizes are those of records, in bytes; delays from born to stored.

    `producers` has the hosts that sent the most, with how many.
    """

    topic: str
    broker: str
    queue_id: int
    hour: str
    messages: int
    size_bytes: int
    size_p50: int
    size_p99: int
    size_max: int
    keys: int
    tags: int
    delay_p50_ms: int
    delay_p99_ms: int
    producers: list[str]


def run_stats(
    settings: StatsSettings, spark: SparkSession, *, on_progress: OnProgress = silent
) -> list[QueueHour]:
    """Return the figures, sorted; write them as Parquet to `output` if it is given.

    Raises:
        ClusterConfigError: a time is none.
        SparkSourceError: what is read is not as it should be.
    """
    start_ms, end_ms = times_of(settings)
    on_progress("reading")
    topics = frozenset(settings.topics) if settings.topics else None
    if settings.archive:
        read_manifest(Path(settings.archive)).check_topics(settings.topics)
    table = table_of(spark, settings.archive, settings.stores, topics, start_ms, end_ms)
    figures = _figures(table)
    rows = [QueueHour(**row.asDict()) for row in figures.collect()]
    log_metrics("stats", "counted", rows=len(rows), messages=sum(row.messages for row in rows))
    if settings.output:
        on_progress("writing")
        _write(rows, Path(settings.output))
    return rows


def times_of(settings: StatsSettings) -> tuple[int | None, int | None]:
    """Return between which times it is counted, in milliseconds since 1970.

    Raises:
        ClusterConfigError: one is none, or they are the wrong way round.
    """
    start_ms = time_ms(settings.starting_timestamp, "starting_timestamp")
    end_ms = time_ms(settings.ending_timestamp, "ending_timestamp")
    check_times(start_ms, end_ms)
    return start_ms, end_ms


def _figures(table: DataFrame) -> DataFrame:
    delay = f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp")
    rows = table.select(
        "topic",
        BROKER,
        "queueId",
        f.date_format(f.date_trunc("hour", "storeTimestamp"), "yyyy-MM-dd'T'HH:00'Z'").alias(
            "hour"
        ),
        "storeSize",
        "keys",
        "tags",
        delay.alias("delay"),
        f.regexp_replace("bornHost", ":[0-9]+$", "").alias("host"),
    )
    by_host = rows.groupBy(*_BY, "host").count()
    best = f.slice(
        f.sort_array(f.collect_list(f.struct("count", "host")), asc=False), 1, TOP_PRODUCERS
    )
    producers = by_host.groupBy(*_BY).agg(
        f.transform(
            best, lambda each: f.concat(each["host"], f.lit(" "), each["count"].cast("string"))
        ).alias("producers")
    )
    figures = rows.groupBy(*_BY).agg(
        f.count("*").alias("messages"),
        f.sum("storeSize").alias("size_bytes"),
        _percentile("storeSize", 0.5).alias("size_p50"),
        _percentile("storeSize", 0.99).alias("size_p99"),
        f.max("storeSize").alias("size_max"),
        f.approx_count_distinct("keys").alias("keys"),
        f.approx_count_distinct("tags").alias("tags"),
        _percentile("delay", 0.5).alias("delay_p50_ms"),
        _percentile("delay", 0.99).alias("delay_p99_ms"),
    )
    return (
        figures.join(producers, list(_BY))
        .orderBy(*_BY)
        .withColumnsRenamed({BROKER: "broker", "queueId": "queue_id"})
        .select(*QueueHour.__struct_fields__)
    )


def _percentile(column: str, share: float) -> Column:
    return f.percentile_approx(column, share)


def _write(rows: list[QueueHour], output: Path) -> None:
    """Write a Parquet file that is there as a whole or not at all."""
    data = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows]), data)
    LocalDisk().write(output, data.getvalue().to_pybytes())
