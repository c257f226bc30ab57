"""Ask Spark about the logs of a cluster, or of any RocketMQ 5.3 store.

    python examples/spark_batch.py data/broker-a-0 [data/broker-a-1 ...]

The nodes may be running: each table is a snapshot of what was there when the query was planned.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, count, length, max, sum  # noqa: A004

from tandem.spark.session import local_session


def report(spark: SparkSession, stores: list[str]) -> None:
    """Print what the topics hold, and every place that cannot be read as it was written."""
    # One row a record. Damage becomes a row with `error` set; without onError it ends the query.
    log = spark.read.format("commitlog").option("onError", "row").load(stores)
    log.where("topic is not null").groupBy("store", "topic").agg(
        count("*").alias("messages"),
        sum("storeSize").alias("bytes"),
        avg(length("body")).cast("int").alias("body_bytes"),
        max("storeTimestamp").alias("last_stored"),
    ).orderBy("store", "topic").show(truncate=False)
    damaged = log.where(col("error").isNotNull()).select("store", "physicalOffset", "error")
    damaged.show(truncate=False)


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    with local_session(app_name="spark_batch") as spark:
        report(spark, sys.argv[1:])
