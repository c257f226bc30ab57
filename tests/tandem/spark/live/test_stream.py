"""Streams of the source `tandem` through Spark, over one node."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import tandem
from tandem.spark.errors import OptionError
from tandem.spark.live.stream import LiveStreamReader
from tandem.spark.source import TandemDataSource
from tests.tandem.spark.live.live_world import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tandem.testing import RunningCluster


def test_the_limit_of_a_batch_is_that_of_the_option() -> None:
    reader = LiveStreamReader(options(), ["topic"])
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    reader = LiveStreamReader(options(maxOffsetsPerTrigger="7"), ["topic"])
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)


def test_a_reader_travels_without_its_connections() -> None:
    reader = LiveStreamReader(options(), ["topic"])
    assert reader._plan is reader._plan
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._opened is None
    reader.stop()
    reader.stop()


def test_options_of_batches_are_refused() -> None:
    source = TandemDataSource({"nameservers": "h:1", "subscribe": "t", "endingoffsets": "latest"})
    with pytest.raises(OptionError) as caught:
        source.streamReader(source.schema())
    assert caught.value.names == ("endingOffsets",)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_stream_goes_on_where_it_was_and_shows_its_group(
    spark: "SparkSession", node: "RunningCluster", tmp_path: Path
) -> None:
    topic = node.topic(queues=3)
    group = f"{topic}-readers"

    def send(count: int) -> None:
        with tandem.BlockingProducer(node.name_servers, group="p") as producer:
            for number in range(count):
                producer.send(tandem.Message(topic, b"%d" % number))

    def run() -> list[int]:
        stream = (
            spark.readStream.format("tandem")
            .options(nameServers=";".join(node.name_servers), subscribe=topic)
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=20, groupId=group)
            .load()
        )
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination(60)
        sizes = [progress.numInputRows for progress in query.recentProgress]
        assert query.exception() is None
        return [size for size in sizes if size]

    send(30)
    assert run() == [20, 10]
    send(15)
    assert run() == [15]
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.count() == 45
    assert rows.select("queueId", "queueOffset").distinct().count() == 45
    with tandem.BlockingPullConsumer(node.name_servers, group=group) as consumer:
        read = [
            consumer.fetch_consume_offset(each) or 0
            for each in consumer.fetch_message_queues(topic)
        ]
    # Spark says a batch is done when it begins the next one.
    assert 20 <= sum(read) <= 45
