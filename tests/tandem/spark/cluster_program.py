"""A driver for a Spark cluster, with executors killed in the middle; prints what it saw.

    cluster_program.py MASTER PACKAGE STORE NAME_SERVERS NODE_STORE FOLDER_OF_THE_WORKERS

It reads a store, writes a topic, reads that back, and archives the log of a node.
"""

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, concat, lit, udf

from tandem.spark.jobs.archive_job import run_archive
from tandem.spark.jobs.runner import SparkRunner
from tandem.spark.jobs.settings import ArchiveSettings, OpenFile
from tandem.spark.session import cluster_session
from tests.support.spark_standalone import executors_of, kill

SLOW_SECONDS = 0.02
ROWS = 400
TOPIC = "from-spark"


def slowly(key: str) -> str:
    time.sleep(SLOW_SECONDS)
    return key


def kill_one(folder: Path) -> int:
    """Kill an executor; return which."""
    chosen = executors_of(folder)[0]
    kill(chosen)
    return chosen


def read_files(spark: SparkSession, store: str, folder: Path) -> dict[str, object]:
    log = spark.read.format("commitlog").option("splitSizeBytes", "8192").load(store)
    keys = sorted(row[0] for row in log.select("keys").collect())
    later = log.select(udf(slowly)("keys").alias("key")).toLocalIterator()
    again = [next(later)[0]]
    killed = kill_one(folder)
    again += [row[0] for row in later]
    return {"keys": keys, "again": sorted(again), "killed": killed}


def write_and_read(spark: SparkSession, servers: str, folder: Path) -> dict[str, object]:
    numbers = spark.range(ROWS).repartition(4).select(col("id").cast("string").alias("id"))
    rows = numbers.select(
        udf(slowly)("id").alias("keys"),
        concat(lit("body "), "id").alias("body"),
        lit(TOPIC).alias("topic"),
    )
    killed: list[int] = []
    timer = threading.Timer(1.0, lambda: killed.append(kill_one(folder)))
    timer.start()
    rows.write.format("tandem").option("nameServers", servers).mode("append").save()
    timer.join()
    read = spark.read.format("tandem").options(nameServers=servers, subscribe=TOPIC).load()
    found = [row[0] for row in read.select("keys").collect()]
    return {"sent": sorted({int(each) for each in found}), "copies": len(found), "killed": killed}


def main(master: str, package: str, store: str, servers: str, node: str, folder: str) -> None:
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    spark = cluster_session(master, package, app_name="on-a-cluster", settings=settings)

    def where(_: object) -> list[tuple[str, str]]:
        import tandem  # noqa: PLC0415 - in the worker

        return [(tandem.__file__, sys.prefix)]

    workers = Path(folder)
    found = spark.sparkContext.parallelize([0, 1], 2).mapPartitions(where).collect()
    said: dict[str, object] = {"where": found, "files": read_files(spark, store, workers)}
    said["topic"] = write_and_read(spark, servers, workers)
    archive = str(Path(package).parent / "archive")
    asked = ArchiveSettings(archive=archive, stores={"broker-a": node}, open_file=OpenFile.TAKE)
    report = run_archive(asked, SparkRunner(spark))
    said["archive"] = {"faults": report.faults, "rows": report.rows}
    said["after"] = executors_of(workers)
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
