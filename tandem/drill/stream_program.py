"""A program: a Spark stream of a topic into Parquet, until it is asked to finish.

    python -P -m tandem.drill.stream_program '{"name_servers": …}'

It says on standard output, one JSON object a line, how it goes, and takes one word on standard
input: `finish` lets it read what there is and stop. The end of standard input ends it at once, and
Java with it. Started again with the same directories it goes on where it was.
"""

import os
import select
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.drill.stream_audit import STREAM_COLUMNS
from tandem.wire.untrusted import decode_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS: Final = 0.25
FINISH: Final = b"finish\n"
MASTER: Final = "local[2,4]"
"""Two cores, and four tries of each task: a worker that dies is no reason to end."""


class StreamOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to stream: `topic` of the cluster of `name_servers`.

    `output` gets the files, `checkpoint` what Spark remembers, `scratch` its temporary files;
    `options` are more options of the source.
    """

    name_servers: str
    topic: str
    output: str
    checkpoint: str
    scratch: str
    options: dict[str, str] = {}
    trigger_ms: int = 500


class StreamNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How it goes."""

    state: str
    """`ready`, `running`, `done` or `failed`."""
    batches: int = 0
    reason: str = ""


def say(news: StreamNews) -> None:
    """Write one line; who does not listen any more has ended us already."""
    sys.stdout.buffer.write(msgspec.json.encode(news) + b"\n")
    sys.stdout.buffer.flush()


def start_query(session: "SparkSession", order: StreamOrder) -> "StreamingQuery":
    """Start the stream."""
    source = session.readStream.format("tandem").options(
        nameServers=order.name_servers,
        subscribe=order.topic,
        startingOffsets="earliest",
        **order.options,
    )
    sink = source.load().select(*STREAM_COLUMNS).writeStream.format("parquet")
    sink = sink.option("path", order.output).option("checkpointLocation", order.checkpoint)
    return sink.trigger(processingTime=f"{order.trigger_ms} milliseconds").start()


def run(order: StreamOrder) -> int:
    """Stream until asked to finish; return the exit status."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - imported when it is run

    from tandem.spark.session import SHORT_LIVED, local_session  # noqa: PLC0415

    session = local_session(
        app_name="tandem drill stream",
        master=MASTER,
        java_options=SHORT_LIVED,
        settings={"spark.local.dir": order.scratch},
    )
    try:
        query = start_query(session, order)
        say(StreamNews(state="ready"))
        follow(query)
    except PySparkException as error:
        say(StreamNews(state="failed", reason=str(error).strip().partition("\n")[0]))
        return 1
    session.stop()
    return 0


def follow(query: "StreamingQuery") -> None:
    """Say how it goes until asked to finish, and finish then."""
    batches = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress.batchId != batches:
            batches = progress.batchId
            say(StreamNews(state="running", batches=batches + 1))
        if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            if sys.stdin.buffer.readline() != FINISH:
                os._exit(1)  # nobody wants it any more
            query.processAllAvailable()
            query.stop()
            say(StreamNews(state="done", batches=batches + 1))
            return
    query.awaitTermination()  # raises what ended it


if __name__ == "__main__":
    sys.exit(run(decode_json(sys.argv[1].encode(), StreamOrder)))
