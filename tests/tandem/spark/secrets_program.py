"""A driver with an event log: reads and writes, as batches and streams, with the keys of a user.

    secrets_program.py NAME_SERVERS TOPIC ACCESS_KEY SECRET_KEY FOLDER

FOLDER gets `events`, `checkpoint` and `sink`; what plans and progress say goes to standard output.
"""

import contextlib
import io
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tandem.spark.session import SHORT_LIVED, local_session


def main(servers: str, topic: str, access_key: str, secret_key: str, folder: Path) -> None:
    (folder / "events").mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    spark = local_session(master="local[2]", java_options=SHORT_LIVED, settings=settings)
    given = {"nameServers": servers, "accessKey": access_key, "secretKey": secret_key}
    rows = spark.range(20).selectExpr("cast(id as string) as body")
    rows.write.format("tandem").options(topic=topic, ack="async", **given).mode("append").save()
    read = spark.read.format("tandem").options(subscribe=topic, **given).load()
    plans = io.StringIO()
    with contextlib.redirect_stdout(plans):
        for mode in ("extended", "formatted", "cost", "codegen"):
            read.explain(mode)
    said = [plans.getvalue(), f"rows {read.count()}"]
    read.createOrReplaceTempView("orders")
    said.append(str(spark.sql("describe extended orders").collect()))
    stream = (
        spark.readStream.format("tandem")
        .options(subscribe=topic, startingOffsets="earliest", **given)
        .load()
    )
    query = run(stream, folder, {"topic": topic, "ack": "async", **given})
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        query.explain(extended=True)
    # A table is a snapshot: what the stream has written is in another one.
    again = spark.read.format("tandem").options(subscribe=topic, **given).load()
    said += [shown.getvalue(), *map(str, query.recentProgress), f"rows {again.count()}"]
    # An error about an option beside them must not show them either.
    with contextlib.suppress(Exception):
        spark.read.format("tandem").options(subscribe=topic, tagz="x", **given).load()
    try:
        spark.read.format("tandem").options(subscribe="no-such-topic", **given).load().count()
    except Exception as error:  # noqa: BLE001 - whatever it is, its text is what counts
        said.append(str(error))
    spark.stop()
    sys.stdout.write("\n".join(said))


def run(stream: DataFrame, folder: Path, given: dict[str, str]) -> StreamingQuery:
    """Write the stream, once; a machine on which Spark's processes start too late tries again."""
    while True:
        query = (
            stream.selectExpr("body")
            .writeStream.format("tandem")
            .options(skipCommittedBatches="true", **given)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5]))
