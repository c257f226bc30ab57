"""A driver for a Spark cluster: reads a store while an executor is killed; prints what it saw.

cluster_program.py MASTER PACKAGE STORE FOLDER_OF_THE_WORKERS
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql.functions import udf

from tandem.spark.session import cluster_session
from tests.support.spark_standalone import executors_of, kill

SLOW_SECONDS = 0.02


def main(master: str, package: str, store: str, folder: str) -> None:
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

    found = spark.sparkContext.parallelize([0, 1], 2).mapPartitions(where).collect()
    log = spark.read.format("commitlog").option("splitSizeBytes", "8192").load(store)
    keys = sorted(row[0] for row in log.select("keys").collect())

    @udf("string", useArrow=False)
    def slowly(key: str) -> str:
        time.sleep(SLOW_SECONDS)
        return key

    before = executors_of(Path(folder))
    later = log.select(slowly("keys").alias("key")).toLocalIterator()
    again = [next(later)[0]]
    kill(before[0])
    again += [row[0] for row in later]
    said = {
        "where": found,
        "keys": keys,
        "again": sorted(again),
        "executors": [len(before), before[0]],
        "after": executors_of(Path(folder)),
    }
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
