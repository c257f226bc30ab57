"""A pipeline from producers to a query: a stream, an archive, and one table across both.

    python examples/pipeline.py [DIRECTORY [COUNT]]

1. A cluster of one fenced group starts: three nodes, with addresses and a directory of their own.
2. A producer sends orders, and a stream of Spark writes them into Parquet, a folder a region.
   Half-way the master is killed.
3. An archive job copies the closed files of the log into Parquet, as an Iceberg table. Its driver
   is killed while it works, and another one goes on.
4. DuckDB counts the table, and the brokers have as many orders at the same offsets.
5. More orders are sent, and one query reads archive and brokers together.

The counts are equal at the end, and the exit status says so. It needs
pip install 'tandem-mq[spark,iceberg,testing]' duckdb, and Java 17 or newer.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, get_json_object
from pyspark.sql.streaming.query import StreamingQuery

import tandem
from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.iceberg.table import archive_table
from tandem.spark.jobs.archive_job import run_archive
from tandem.spark.jobs.runner import SparkRunner
from tandem.spark.jobs.settings import ArchiveSettings
from tandem.spark.session import local_session
from tandem.testing import RunningCluster, running_fenced_cluster

TOPIC = "orders"
TABLE = "logs.messages"
REGIONS = ("north", "east", "south", "west")
COUNT_DEFAULT = 20_000
ROWS = "order long, region string, storeTimestamp timestamp"
BATCH = 50
WAIT_SECONDS = 600


def main(directory: Path, count: int) -> int:
    """Run it; return the exit status: 0 if the counts are equal."""
    (directory / "cluster").mkdir(parents=True)
    print("starting a cluster and Spark")
    with running_fenced_cluster(directory / "cluster") as cluster, local_session() as spark:
        with tandem.BlockingAdmin(cluster.name_servers) as admin:
            admin.create_topic(TOPIC, queue_nums=4)

        query = stream_into_parquet(spark, cluster, directory / "stream")
        send(cluster, range(count // 2))
        killed = cluster.kill_master()
        print(f"killed the master, {killed}, while the stream runs")
        send(cluster, range(count // 2, count))
        streamed = rows_of_stream(spark, cluster, query, directory / "stream", count)
        cluster.start(killed)
        cluster.wait_in_sync()

        archived = archive(spark, cluster, directory / "archive")
        in_table = ends_of_table(directory / "archive")
        at_brokers = at_the_brokers(spark, cluster, in_table)
        more = count // 10
        send(cluster, range(count, count + more))
        both = across(spark, cluster, directory / "archive")

        in_stream, in_both = orders_of(streamed), orders_of(both)
        print(f"{count:>9,} orders acknowledged, {in_stream:,} written by the stream:")
        streamed.groupBy("region").count().orderBy("region").show()
        counted = sum(number for number, _ in in_table.values())
        print(f"{archived:>9,} messages archived and verified")
        print(f"{counted:>9,} orders in the table by DuckDB, {at_brokers:,} at the brokers,")
        print(f"{more:>9,} orders sent after that,")
        print(f"{in_both:>9,} of {count + more:,} orders in one query across archive and brokers")
    is_equal = in_stream == count and counted == at_brokers > 0 and in_both == count + more
    print("all counts are equal" if is_equal else "COUNTS DIFFER")
    return 0 if is_equal else 1


def send(cluster: RunningCluster, numbers: range) -> None:
    """Send one order for each number; all are acknowledged as replicated."""
    with tandem.BlockingProducer(
        cluster.name_servers, group="shop", ack=tandem.Ack.REPLICATED, resend_until_ok=True
    ) as producer:
        for start in range(numbers.start, numbers.stop, BATCH):
            orders = [
                {"order": number, "region": REGIONS[number % len(REGIONS)]}
                for number in range(start, min(start + BATCH, numbers.stop))
            ]
            batch = [
                tandem.Message(TOPIC, json.dumps(order).encode(), keys=str(order["order"]))
                for order in orders
            ]
            result = producer.send_batch(batch)
            assert result.status is tandem.SendStatus.SEND_OK


def stream_into_parquet(
    spark: SparkSession, cluster: RunningCluster, directory: Path
) -> StreamingQuery:
    """Start the stream. Its checkpoint would let it go on after a crash."""
    orders = (
        spark.readStream.format("tandem")
        .option("nameServers", ";".join(cluster.name_servers))
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("json", col("body").cast("string"))
        .select(
            get_json_object("json", "$.order").cast("long").alias("order"),
            get_json_object("json", "$.region").alias("region"),
            "storeTimestamp",
        )
    )
    return (
        orders.writeStream.format("parquet")
        .partitionBy("region")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start(str(directory / "rows"))
    )


def rows_of_stream(
    spark: SparkSession, cluster: RunningCluster, query: StreamingQuery, directory: Path, count: int
) -> DataFrame:
    """Wait until the stream has written `count` orders, and stop it.

    A stream that has failed is started again and goes on where its checkpoint says, as what
    supervises a job in production has it: on a busy machine Spark gives up a worker that is slow.
    """
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if (error := query.exception()) is not None:
            print("the stream has failed and is started again:", str(error).partition("\n")[0])
            query = stream_again(spark, cluster, directory, end)
        has_begun = any((directory / "rows").glob("_spark_metadata/*"))
        if has_begun and orders_of(written(spark, directory)) >= count:
            break
        time.sleep(1)
    query.stop()
    return written(spark, directory)


def stream_again(
    spark: SparkSession, cluster: RunningCluster, directory: Path, end: float
) -> StreamingQuery:
    """Start the stream; that needs workers of its own, which may be given up as well."""
    while True:
        try:
            return stream_into_parquet(spark, cluster, directory)
        except Exception as error:
            if time.monotonic() >= end:
                raise
            print("it could not be started:", str(error).partition("\n")[0])
            time.sleep(1)


def written(spark: SparkSession, directory: Path) -> DataFrame:
    """What the stream has written so far; with a schema, for that may be nothing yet."""
    return spark.read.schema(ROWS).parquet(str(directory / "rows"))


def archive(spark: SparkSession, cluster: RunningCluster, directory: Path) -> int:
    """Archive the closed files of one node; return how many messages are in the table."""
    store = str(cluster.store_directory(cluster.master()))
    settings = ArchiveSettings(archive=str(directory), stores={"broker-a": store}, table=TABLE)
    kill_a_driver(settings)
    report = run_archive(settings, SparkRunner(spark))
    assert not report.faults, report.faults
    return report.table_rows


def kill_a_driver(settings: ArchiveSettings) -> None:
    """Run the job in a process of its own, and kill that when it has archived something."""
    options = {"archive": settings.archive, "stores": settings.stores, "table": settings.table}
    given = [
        word for key, value in options.items() for word in ("--set", f"{key}={as_yaml(value)}")
    ]
    command = [sys.executable, "-m", "tandem.spark.jobs", "archive", *given]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as driver:
        assert driver.stderr is not None
        has_archived = any(b"archive: archived" in line for line in driver.stderr)
        driver.send_signal(signal.SIGKILL)
    print("killed the driver of the archive job", "" if has_archived else "(it was done)")


def as_yaml(value: object) -> str:
    """Write a setting as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def ends_of_table(directory: Path) -> dict[str, tuple[int, int]]:
    """Let DuckDB count the table: by queue how many orders, and the offset after the last."""
    with archive_table(directory, LocalDisk()) as table:
        tasks = table.iceberg.scan(f"topic == '{TOPIC}'").plan_files()
        files = [task.file.file_path.removeprefix("file://") for task in tasks]
    rows = duckdb.execute(
        "SELECT queueId, count(*), count(DISTINCT queueOffset), max(queueOffset) + 1"
        " FROM read_parquet($files) GROUP BY queueId",
        {"files": files},
    ).fetchall()
    assert all(number == different for _, number, different, _ in rows), "a message is there twice"
    return {str(queue): (number, end) for queue, number, _, end in rows}


def at_the_brokers(
    spark: SparkSession, cluster: RunningCluster, in_table: dict[str, tuple[int, int]]
) -> int:
    """Count what the brokers have before the same offsets."""
    ends = {TOPIC: {"broker-a": {queue: end for queue, (_, end) in in_table.items()}}}
    table = (
        spark.read.format("tandem")
        .option("nameServers", ";".join(cluster.name_servers))
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps(ends))
        .load()
    )
    return table.count()


def across(spark: SparkSession, cluster: RunningCluster, directory: Path) -> DataFrame:
    """Archived messages from the archive, and all later ones from brokers."""
    table = (
        spark.read.format("tandem")
        .option("nameServers", ";".join(cluster.name_servers))
        .option("subscribe", TOPIC)
        .option("archive", str(directory))
        .load()
    )
    return table.select(col("keys").alias("order"))


def orders_of(table: DataFrame) -> int:
    """Count different orders: who sends again after a crash may have stored one twice."""
    return table.select("order").distinct().count()


if __name__ == "__main__":
    given = sys.argv[1:]
    count = int(given[1]) if given[1:] else COUNT_DEFAULT
    if given:
        sys.exit(main(Path(given[0]), count))
    with tempfile.TemporaryDirectory(prefix="tandem-pipeline-") as made:
        sys.exit(main(Path(made), count))
