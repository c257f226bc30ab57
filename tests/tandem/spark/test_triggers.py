"""Triggers that Spark has and sources in Python have not: who asks for one is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.support.log_builder import LogBuilder
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture
def start(
    spark: "SparkSession", tmp_path: Path
) -> "Callable[[Callable[[DataStreamWriter], DataStreamWriter]], StreamingQuery]":
    """Starts a stream of files with the trigger that a function sets."""
    log = LogBuilder()
    log.put(body=b"one")
    root = log.write(tmp_path / "store")

    def started(trigger: "Callable[[DataStreamWriter], DataStreamWriter]") -> "StreamingQuery":
        stream = (
            spark.readStream.format("commitlog")
            .options(startingOffsets="earliest", columns="body")
            .load(str(root))
        )
        writer = (
            stream.writeStream.format("console")
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        return trigger(writer).start()

    return started


def test_real_time_mode_ends_a_query_when_it_starts(
    start: "Callable[[Callable[[DataStreamWriter], DataStreamWriter]], StreamingQuery]",
) -> None:
    # The stubs of pyspark do not know it.
    query = start(lambda writer: writer.trigger(realTime="5 minutes"))  # type: ignore[call-overload]
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(int(PATIENCE_SECONDS))
    assert "[STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED]" in str(caught.value)


def test_continuous_mode_starts_no_query(
    start: "Callable[[Callable[[DataStreamWriter], DataStreamWriter]], StreamingQuery]",
) -> None:
    with pytest.raises(UnsupportedOperationException):
        start(lambda writer: writer.trigger(continuous="1 second"))
