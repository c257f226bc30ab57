"""Streams of the source `tandem` through Spark, over one node."""

import pickle
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import tandem
from tandem.client.errors import ClientError, ConnectionCause, ConnectionLostError
from tandem.client.results import MessageQueue
from tandem.spark.errors import OptionError
from tandem.spark.live.offsets import Offsets
from tandem.spark.live.stream import LiveStreamReader
from tandem.spark.live.stream_plan import StreamPlan
from tandem.spark.source import TandemDataSource
from tandem.spark.stream_metrics import source_metrics, watch_streams
from tandem.testing import RunningCluster
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.spark.live.live_world import Asked, FakeTime, counting_producer, options, queue


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


class Shown:
    """A cluster, as far as the progress of a stream is shown there."""

    def __init__(self, *trouble: ClientError) -> None:
        self.commits: list[Offsets] = []
        self.asked: list[Offsets] = []
        self.trouble = list(trouble)

    def commit(self, group: str, places: Offsets) -> None:
        assert group == "g"
        self.commits.append(places)
        if self.trouble:
            raise self.trouble.pop()

    def stored_at(self, places: Offsets) -> dict[MessageQueue, int]:
        self.asked.append(places)
        if self.trouble:
            raise self.trouble.pop()
        return {each: 1000 + each.queue_id for each in places}


def reader_of(asked: Asked, shown: Shown, **given: str) -> LiveStreamReader:
    time = FakeTime()
    parsed = options(startingOffsets="earliest", **given)
    plan = StreamPlan(parsed, asked, clock=time.monotonic, sleep=time.sleep)
    reader = LiveStreamReader(parsed, ["topic"])
    reader._opened = shown, asked, plan  # type: ignore[assignment]
    return reader


def test_the_group_is_where_the_checkpoint_is_and_each_place_is_shown_once() -> None:
    shown = Shown(ConnectionLostError("h:1", ConnectionCause.CLOSED, "closed"))
    reader = reader_of(Asked(q0=5), shown, groupId="g")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    assert shown.commits == [], "nothing is read yet"
    for _ in range(3):
        reader.latestOffset(end, ReadMaxRows(0))
    reader.commit(end)
    assert shown.commits == [{queue(0): 2}], "a commit that fails is not tried again"
    reader.commit(reader.latestOffset(end, ReadAllAvailable()))
    assert shown.commits == [{queue(0): 2}, {queue(0): 5}]


def test_the_age_of_what_is_unread_is_asked_for_where_there_is_something() -> None:
    shown = Shown()
    reader = reader_of(Asked(q0=5, q1=50), shown)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(11))
    said = reader.reportLatestOffset()
    assert said == {"orders": {"broker-a": {"0": 5, "1": 50}}, "oldest unread": 1000}
    assert reader.reportLatestOffset() == said
    assert shown.asked == [{queue(0): 1, queue(1): 10}], "asked once"
    reader.latestOffset(end, ReadAllAvailable())
    assert reader.reportLatestOffset() == {"orders": {"broker-a": {"0": 5, "1": 50}}}


def test_an_age_that_nobody_says_is_left_out() -> None:
    shown = Shown(ConnectionLostError("h:1", ConnectionCause.CLOSED, "closed"))
    reader = reader_of(Asked(q0=5), shown)
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    assert reader.reportLatestOffset() == {"orders": {"broker-a": {"0": 5}}}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_stream_goes_on_where_it_was_and_shows_its_group(
    spark: "SparkSession", node: "RunningCluster", tmp_path: Path
) -> None:
    topic = node.topic(queues=3)
    group = f"{topic}-readers"

    def send(count: int) -> None:
        with counting_producer(node) as producer:
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
        query.awaitTermination()
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
    # Also of the last batch, after which there was no other.
    assert sum(read) == 45


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_stream_says_how_far_it_is_behind(
    spark: "SparkSession", node: "RunningCluster", tmp_path: Path
) -> None:
    topic = node.topic(queues=2)
    with counting_producer(node) as producer:
        for number in range(40):
            producer.send(tandem.Message(topic, b"%d" % number, tags="ab"[number % 2]))
    watched = watch_streams(spark)
    try:
        stream = (
            spark.readStream.format("tandem")
            .options(nameServers=";".join(node.name_servers), subscribe=topic, tags="a")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=10)
            .load()
        )
        query = (
            stream.select("body")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        assert query.exception() is None
        end = time.monotonic() + PATIENCE_SECONDS  # Spark calls listeners some time later
        while [said.total for said in watched.of(query.id) if said is not None] != [0]:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(watched)
    each = [source_metrics(progress) for progress in query.recentProgress]
    found = [metrics for (metrics,) in each if metrics is not None]
    assert [metrics.total for metrics in found][:4] == [30, 20, 10, 0]
    assert all(metrics.lag_ms for metrics in found[:3])
    assert found[3].lag_ms == 0
    read = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted(int(row.body) for row in read.collect()) == list(range(0, 40, 2))
    # Half of the messages have another tag, here and in what comes.
    assert 10 <= sum(metrics.rows or 0 for metrics in found[:3]) <= 60
