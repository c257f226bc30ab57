"""Batches of the source `tandem` through Spark, over one node."""

import json
import pickle
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.functions import col

import tandem
from tandem.spark.errors import OptionError
from tandem.spark.live.ranges import QueueRange
from tandem.spark.live.reader import LiveReader, partitions_of, plan_batch, read_ranges
from tandem.spark.live.stream_plan import StreamPlan
from tandem.wire.message import COMPRESSED_FLAG
from tests.support.log_builder import LogBuilder
from tests.tandem.spark.live.live_world import (
    Asked,
    assigned,
    counting_producer,
    options,
    queue,
)

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, Row, SparkSession

    from tandem.testing import RunningCluster


def test_a_batch_is_what_there_is_between_two_places() -> None:
    ranges = plan_batch(options(), Asked(q0=5, q1=7))
    assert ranges == [
        QueueRange(queue(0), 0, 5, "cluster-a"),
        QueueRange(queue(1), 0, 7, "cluster-a"),
    ]
    given = json.dumps({"orders": {"broker-a": {"0": 3, "1": -1}}})
    ranges = plan_batch(options(startingOffsets=given), Asked(q0=5, q1=7))
    assert [(each.start, each.end) for each in ranges] == [(3, 5), (7, 7)]


def test_queues_that_are_assigned_have_to_be_there() -> None:
    given, world = assigned('{"orders": [0, 7]}'), Asked(q0=5, q1=7)
    with pytest.raises(OptionError, match="not there: 7"):
        plan_batch(given, world)
    plan = StreamPlan(given, world, clock=lambda: 0, sleep=lambda _: None)
    with pytest.raises(OptionError, match="not there: 7"):
        plan.initial()


def test_partitions_travel_with_their_ranges() -> None:
    ranges = [QueueRange(queue(0), 3, 5), QueueRange(queue(1), 7, 9)]
    (partition,) = pickle.loads(pickle.dumps(partitions_of(ranges, options())))
    assert partition.value == ranges
    assert len(partitions_of(ranges, options(minPartitions="3"))) == 3


def test_a_reader_travels_to_a_task() -> None:
    reader = pickle.loads(pickle.dumps(LiveReader(options(), ["topic"])))
    assert list(reader.read(pickle.loads(pickle.dumps(NoPartition())))) == []


def test_bodies_are_read_by_their_schema_and_what_is_none_ends_nothing(tmp_path: Path) -> None:
    log = LogBuilder()
    bodies = (b'{"n": 7}', b'{"n": "x"}', zlib.compress(b'{"n": 8}'), b"cut off")
    for body, flag in zip(bodies, (0, 0, COMPRESSED_FLAG, COMPRESSED_FLAG), strict=True):
        log.put("orders", body, sys_flag=flag)
    of_store = [QueueRange(queue(0), 0, 4, store=str(log.write(tmp_path)))]

    def read(**given: str) -> list[dict[str, object]]:
        found = options(columns="queueOffset,value,bodyError", **given)
        return [
            row
            for batch in read_ranges(of_store, found, found.columns)
            for row in batch.to_pylist()
        ]

    rows = read(bodySchema="n long")
    assert [row["queueOffset"] for row in rows] == [0, 1, 2, 3]
    assert [row["value"] for row in rows] == [{"n": 7}, None, {"n": 8}, None]
    assert [row["bodyError"] is None for row in rows] == [True, False, True, False]
    as_stored = read(bodySchema='{"orders": "n long"}', decompress="false")
    assert [row["value"] for row in as_stored] == [{"n": 7}, None, None, None]


class NoPartition:
    """What Spark makes up where there is nothing to read."""

    value = None


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
class TestThroughSpark:
    def table(self, spark: "SparkSession", node: "RunningCluster", **given: str) -> "DataFrame":
        servers = ";".join(node.name_servers)
        return spark.read.format("tandem").options(nameServers=servers, **given).load()

    @pytest.mark.slow
    def test_rows_are_chosen_by_tag_queue_and_time_in_a_batch_and_a_stream(
        self, spark: "SparkSession", node: "RunningCluster"
    ) -> None:
        topic = node.topic(queues=2)
        with counting_producer(node) as producer:
            for number in range(40):
                tags = ("new", "paid", "")[number % 3]
                producer.send(tandem.Message(topic, b"%d" % number, tags=tags), queue_id=number % 2)
        whole = self.table(spark, node, subscribe=topic).orderBy("queueId", "queueOffset").collect()
        assert len(whole) == 40
        times = sorted(int(row.storeTimestamp.timestamp() * 1000) for row in whole)
        start, end = times[10], times[30]

        def expected(**given: str) -> set[int]:
            return {
                int(row.body)
                for row in whole
                if (row.tags in given["tags"].split(",") if "tags" in given else True)
                and (str(row.queueId) in given["queues"] if "queues" in given else True)
                and ("startingTimestamp" not in given or row_ms(row) >= start)
                and ("endingTimestamp" not in given or row_ms(row) < end)
            }

        def row_ms(row: "Row") -> int:
            stored: datetime = row.storeTimestamp
            return round(stored.timestamp() * 1000)

        window = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
        for number, given in enumerate(
            [{"tags": "new"}, {"tags": "new,paid", "queues": "1"}, window, window | {"tags": "new"}]
        ):
            batch = self.table(spark, node, subscribe=topic, columns="body", **given)
            assert {int(row.body) for row in batch.collect()} == expected(**given), given
            begin = {} if "startingTimestamp" in given else {"startingOffsets": "earliest"}
            stream = (
                spark.readStream.format("tandem")
                .options(nameServers=";".join(node.name_servers), subscribe=topic)
                .options(columns="body", **given, **begin)
                .load()
            )
            name = f"chosen_{number}"
            query = (
                stream.writeStream.format("memory")
                .queryName(name)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            assert query.exception() is None
            assert {int(row.body) for row in spark.table(name).collect()} == expected(**given)

    def test_rows_are_the_messages(self, spark: "SparkSession", node: "RunningCluster") -> None:
        topic = node.topic(queues=3)
        sent = {}
        with counting_producer(node) as producer:
            for number in range(100):
                body = b"body %d" % number
                message = tandem.Message(topic, body, keys=f"key{number}", tags="tag")
                result = producer.send(message)
                sent[result.queue.queue_id, result.queue_offset] = (body, f"key{number}")
        table = self.table(spark, node, subscribe=topic, minPartitions="5")
        rows = table.where(col("tags") == "tag").collect()
        found = {(row.queueId, row.queueOffset): (bytes(row.body), row["keys"]) for row in rows}
        assert found == sent
        assert {(row.topic, row.brokerName, row.crcOk) for row in rows} == {
            (topic, "broker-a", True)
        }
        assert all(row.properties["UNIQ_KEY"] for row in rows)
        ends = {"0": 10, "1": 5, "2": 0}
        part = self.table(
            spark,
            node,
            subscribe=topic,
            endingOffsets=json.dumps({topic: {"broker-a": ends}}),
            columns="queueId,queueOffset",
        )
        assert sorted(map(tuple, part.collect())) == [
            *((0, offset) for offset in range(10)),
            *((1, offset) for offset in range(5)),
        ]

    def test_what_is_wrong_is_said_in_words(
        self, spark: "SparkSession", node: "RunningCluster"
    ) -> None:
        with pytest.raises(AnalysisException, match="did you mean startingOffsets"):
            self.table(spark, node, subscribe="t", startingOffset="earliest")
        with pytest.raises((AnalysisException, PythonException), match="no topic 'nowhere'"):
            self.table(spark, node, subscribe="nowhere").collect()


def test_options_of_streams_are_refused() -> None:
    from tandem.spark.source import TandemDataSource  # noqa: PLC0415 - pyspark

    source = TandemDataSource({"nameservers": "h:1", "subscribe": "t", "maxoffsetspertrigger": "5"})
    with pytest.raises(OptionError) as caught:
        source.reader(source.schema())
    assert caught.value.names == ("maxOffsetsPerTrigger",)
