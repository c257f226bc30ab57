"""A driver of its own: a stream of files into a topic, until a file `stop` is there.

    python stream_program.py NAME_SERVERS TOPIC FOLDER SKIP_COMMITTED_BATCHES

FOLDER has `in`, where files of lines appear, and gets `checkpoint`. Prints a line when it runs, and
each time that the query has ended.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tandem.spark.session import SHORT_LIVED, local_session


def main(servers: str, topic: str, folder: Path, skip: str) -> None:
    spark = local_session(
        app_name="sink under fire",
        master="local[2,8]",  # a task may fail seven times
        java_options=SHORT_LIVED,
    )
    sys.stdout.write("running\n")
    sys.stdout.flush()
    stop = folder / "stop"
    while True:
        query = start(spark, servers, topic, folder, skip)
        while query.isActive and not stop.exists():
            time.sleep(0.1)
        if query.isActive:
            query.processAllAvailable()
            query.stop()
            break
        # A kill that was not a task's ends the query; a supervisor would start it again.
        sys.stdout.write(f"ended: {query.exception()}"[:300] + "\n")
        sys.stdout.flush()
    spark.stop()


def start(spark: SparkSession, servers: str, topic: str, folder: Path, skip: str) -> StreamingQuery:
    """The query, from its checkpoint on."""
    return (
        spark.readStream.option("maxFilesPerTrigger", 2)
        .text(str(folder / "in"))
        .writeStream.format("tandem")
        .options(nameServers=servers, topic=topic, batchMaxBytes="2000")
        .option("skipCommittedBatches", skip)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
