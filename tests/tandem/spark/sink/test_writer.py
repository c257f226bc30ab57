"""Batches and streams through Spark into one node, read back by a client and by our source."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import tandem
from tandem.spark.errors import OptionError, SparkSourceError
from tandem.spark.sink import writer
from tandem.spark.sink.repeats import drop_repeats
from tandem.spark.sink.unique_key import RowKeys, key_of
from tandem.spark.sink.writer import (
    BATCH_ID,
    QUERY_ID,
    TandemStreamWriter,
    TandemWriter,
    batch_writer,
    is_written_before,
    send_partition,
    stream_writer,
)
from tandem.spark.source import TandemDataSource
from tandem.testing import RunningCluster
from tandem.wire.message import MessageExt
from tests.tandem.spark.sink.patient import PATIENT_MS

VALUES = StructType([StructField("value", StringType())])
GIVEN = {"nameservers": "h:1", "topic": "t"}


def test_everything_is_checked_before_anything_is_sent() -> None:
    schema = StructType([StructField("value", IntegerType()), StructField("more", StringType())])
    with pytest.raises(OptionError) as caught:
        batch_writer(schema, {"acks": "all", "batchmaxbytes": "x"}, overwrite=True)
    names = {"acks", "batchMaxBytes", "value", "more", "topic", "nameServers", "mode"}
    assert set(caught.value.names) == names
    with pytest.raises(OptionError) as caught:
        stream_writer(VALUES, {"nameservers": "h:1"})
    assert caught.value.names == ("topic",)


def test_the_source_gives_both_writers() -> None:
    source = TandemDataSource(GIVEN)
    assert source.writer(VALUES, overwrite=False) is not None
    assert source.streamWriter(VALUES, overwrite=True) is not None
    with pytest.raises(OptionError) as caught:
        source.writer(VALUES, overwrite=True)
    assert caught.value.names == ("mode",)


def test_only_the_last_written_batch_is_passed_over() -> None:
    """A checkpoint that was put back has a batch of an older number planned with other rows."""
    assert [is_written_before(batch, 0, "") for batch in (0, 1)] == [False, False]
    assert [is_written_before(batch, 7, "") for batch in (6, 7, 8)] == [True, False, False]
    for written in (8, 1_000_000):
        with pytest.raises(SparkSourceError):
            is_written_before(6, written, "")


def test_written_batches_are_a_matter_of_streams() -> None:
    with pytest.raises(OptionError) as caught:
        batch_writer(VALUES, GIVEN | {"skipcommittedbatches": "true"}, overwrite=False)
    assert caught.value.names == ("skipCommittedBatches",)
    stream_writer(VALUES, GIVEN | {"skipcommittedbatches": "true"})


def test_a_task_is_a_task_of_spark() -> None:
    empty: Iterator[pa.RecordBatch] = iter(())
    with pytest.raises(OptionError, match="in a task of Spark"):
        batch_writer(VALUES, GIVEN, overwrite=False).write(empty)
    with pytest.raises(OptionError):
        stream_writer(VALUES, GIVEN).write(empty)


class Task:
    """A try of a task of Spark, as far as it is asked: it knows its place, and which try it is."""

    def __init__(
        self, partition: int, query: str = "q", batch: str = "0", attempt: int = 0
    ) -> None:
        self._properties = {QUERY_ID: query, BATCH_ID: batch}
        self._partition = partition
        self._attempt = attempt

    def partitionId(self) -> int:  # noqa: N802 - Spark's
        return self._partition

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's
        return self._properties[name]

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's
        return self._attempt

    def taskAttemptId(self) -> int:  # noqa: N802 - Spark's
        return 1000 * self._partition + self._attempt


def first_key(of: TandemWriter | TandemStreamWriter, task: Task, patch: pytest.MonkeyPatch) -> str:
    """Return the key of the first row that a task writes. The writer gets there pickled."""
    taken: list[str] = []

    def take(_: object, __: object, keys: RowKeys, *___: object) -> writer.Sent:
        taken.extend(keys.take(1))
        return writer.Sent(1, 0, "")

    patch.setattr(TaskContext, "get", lambda: task)
    patch.setattr(writer, "send_partition", take)
    pickle.loads(pickle.dumps(of)).write(iter(()))
    return taken[0]


def test_a_row_of_a_batch_has_one_key_in_all_tries_and_no_other_row_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def key(of: TandemWriter, partition: int, attempt: int = 0) -> str:
        return first_key(of, Task(partition, attempt=attempt), monkeypatch)

    one, other = (batch_writer(VALUES, GIVEN, overwrite=False) for _ in range(2))
    assert key(one, 1) == key(one, 1, attempt=3)
    assert len({key(one, 1), key(one, 2), key(other, 1)}) == 3
    named = GIVEN | {"writeid": "job 7"}
    one, other = (batch_writer(VALUES, named, overwrite=False) for _ in range(2))
    assert key(one, 1) == key(other, 1) != key(one, 2)
    assert key(batch_writer(VALUES, GIVEN | {"writeid": "job 8"}, overwrite=False), 1) != key(
        one, 1
    )


def test_a_row_of_a_stream_has_one_key_in_all_tries_and_no_other_row_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def key(*place: object, **given: str) -> str:
        of = stream_writer(VALUES, GIVEN | given)
        return first_key(of, Task(*place), monkeypatch)  # type: ignore[arg-type]

    assert key(1, "q", "5") == key(1, "q", "5", 3)
    assert len({key(1, "q", "5"), key(2, "q", "5"), key(1, "q", "6"), key(1, "r", "5")}) == 4
    assert key(1, "q", "5", writeid="w") == key(1, "r", "5", writeid="w") != key(1, "q", "5")


def read(node: "RunningCluster", topic: str) -> "list[MessageExt]":
    with tandem.BlockingPullConsumer(node.name_servers, group="test") as consumer:
        return list(consumer.messages(topic, until_end=True))


@pytest.mark.slow
@pytest.mark.fault
def test_a_partition_that_is_written_twice_has_repeats_with_the_same_keys(
    node: "RunningCluster",
) -> None:
    topic = node.topic()
    given = {"nameservers": ";".join(node.name_servers), "topic": topic}
    given["attempttimeoutms"] = str(PATIENT_MS)
    made = batch_writer(VALUES, given, overwrite=False)
    rows = [f"row {number}" for number in range(3000)]
    batches = [
        pa.RecordBatch.from_pydict({"value": rows[at : at + 1000]}) for at in (0, 1000, 2000)
    ]
    for _ in range(2):
        sent = send_partition(
            made._options, made._columns, RowKeys("w", 0, 3), "partition 3", iter(batches)
        )
        assert sent.messages == 3000
    found = read(node, topic)
    assert len(found) == 6000
    by_key = {each.properties["UNIQ_KEY"]: each.body.decode() for each in found}
    assert by_key == dict(zip(RowKeys("w", 0, 3).take(3000), rows, strict=True))
    seen = tandem.DuplicateFilter()
    assert sum(not seen.is_duplicate(each) for each in found) == 3000


EXPECTED = sorted(f"{number} {line}" for number in range(3) for line in range(200))


def write_files(folder: Path) -> None:
    """Make the input of a stream, two micro-batches of lines."""
    (folder / "in").mkdir()
    for number in range(3):
        lines = "\n".join(line for line in EXPECTED if line.startswith(str(number)))
        (folder / "in" / f"{number}.txt").write_text(lines)


def forget_last_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as a driver does that is killed when its last batch is written."""
    commits = sorted((checkpoint / "commits").glob("[0-9]"))
    for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        file.unlink()


def run(
    spark: "SparkSession",
    node: "RunningCluster",
    topic: str,
    folder: Path,
    checkpoint: str = "checkpoint",
    *,
    keyed: bool = False,
    **given: str,
) -> None:
    """Run the stream until it has written everything that it has not written yet."""
    source = spark.readStream.option("maxFilesPerTrigger", 2).text(str(folder / "in"))
    if keyed:
        source = source.withColumn("uniqueKey", fn.col("value"))
    query = (
        source.writeStream.format("tandem")
        .options(nameServers=";".join(node.name_servers), topic=topic)
        .options(attemptTimeoutMs=PATIENT_MS, **given)
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    said = query.exception()
    assert said is None, said


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
class TestThroughSpark:
    def table(self, spark: "SparkSession", node: "RunningCluster", topic: str) -> "DataFrame":
        servers = ";".join(node.name_servers)
        return spark.read.format("tandem").options(nameServers=servers, subscribe=topic).load()

    def test_a_batch_becomes_messages_and_a_second_run_repeats_them(
        self, spark: "SparkSession", node: "RunningCluster"
    ) -> None:
        topic = node.topic()
        rows = spark.range(600, numPartitions=2).select(
            fn.lit(topic).alias("topic"),
            fn.concat(fn.lit("body "), "id").cast("binary").alias("body"),
            fn.array(fn.concat(fn.lit("key"), "id"), fn.lit("all")).alias("keys"),
            fn.lit("new").alias("tags"),
            fn.create_map(fn.lit("id"), fn.col("id").cast("string")).alias("properties"),
            (fn.col("id") % 7).cast("string").alias("shardingKey"),
        )
        servers = ";".join(node.name_servers)
        write = rows.write.format("tandem").options(nameServers=servers, writeId="job 7")
        for _ in range(2):
            write.mode("append").save()
        found = read(node, topic)
        # A busy machine sends again what was not safe in time.
        assert len(found) >= 1200
        assert {each.body.decode() for each in found} == {f"body {n}" for n in range(600)}
        assert len({each.properties["UNIQ_KEY"] for each in found}) == 600
        for each in found[:50]:
            number = int(each.body.split()[1])
            assert each.keys == f"key{number} all"
            assert each.tags == "new"
            assert each.properties["id"] == str(number)
            assert each.properties["__SHARDINGKEY"] == str(number % 7)
        queues = {(each.properties["__SHARDINGKEY"], each.queue_id) for each in found}
        assert len(queues) == 7
        assert drop_repeats(self.table(spark, node, topic)).count() == 600
        with pytest.raises((PySparkException, AnalysisException), match="SAVE_MODE"):
            write.mode("errorifexists").save()
        with pytest.raises(PySparkException, match="never overwritten"):
            write.mode("overwrite").save()
        with pytest.raises(PySparkException, match="column body is null: filter"):
            rows.withColumn("body", fn.lit(None).cast("binary")).write.format("tandem").options(
                nameServers=servers
            ).mode("append").save()

    def test_a_stream_becomes_messages_with_keys_of_its_own(
        self, spark: "SparkSession", node: "RunningCluster", tmp_path: Path
    ) -> None:
        topic = node.topic()
        write_files(tmp_path)
        run(spark, node, topic, tmp_path)
        first = read(node, topic)
        by_key = {each.properties["UNIQ_KEY"]: each.body.decode() for each in first}
        assert sorted(by_key.values()) == EXPECTED
        # The last batch is not known to be done: it is written once more when the query restarts.
        forget_last_commit(tmp_path / "checkpoint")
        run(spark, node, topic, tmp_path)
        again = read(node, topic)
        assert len(first) < len(again) < len(first) + 600
        assert {each.properties["UNIQ_KEY"]: each.body for each in again} == {
            each.properties["UNIQ_KEY"]: each.body for each in first
        }

    def test_a_micro_batch_that_was_written_is_not_sent_again(
        self, spark: "SparkSession", node: "RunningCluster", tmp_path: Path
    ) -> None:
        topic = node.topic()
        write_files(tmp_path)
        run(spark, node, topic, tmp_path, skipCommittedBatches="true")
        first = read(node, topic)
        assert sorted(each.body.decode() for each in first) == EXPECTED
        for _ in range(2):
            # As after a driver that died between the sink's commit and that of the checkpoint.
            forget_last_commit(tmp_path / "checkpoint")
            run(spark, node, topic, tmp_path, skipCommittedBatches="true")
        assert [each.queue_offset for each in read(node, topic)] == [
            each.queue_offset for each in first
        ]
        # What comes after is written, and a stream of its own has its own numbers.
        (tmp_path / "in" / "3.txt").write_text("more")
        run(spark, node, topic, tmp_path, skipCommittedBatches="true")
        assert len(read(node, topic)) == len(EXPECTED) + 1
        run(spark, node, topic, tmp_path, "other", skipCommittedBatches="true")
        assert len(read(node, topic)) == 2 * (len(EXPECTED) + 1)

    @pytest.mark.long
    def test_a_stream_that_drops_repeats_has_every_row_once(
        self, spark: "SparkSession", node: "RunningCluster", tmp_path: Path
    ) -> None:
        topic = node.topic()
        write_files(tmp_path)
        for checkpoint in ("one", "two"):
            run(spark, node, topic, tmp_path, checkpoint, keyed=True)
        assert {each.properties["UNIQ_KEY"] for each in read(node, topic)} == set(
            map(key_of, EXPECTED)
        )
        assert len(read(node, topic)) == 2 * len(EXPECTED)
        stream = spark.readStream.format("tandem").options(
            nameServers=";".join(node.name_servers), subscribe=topic, startingOffsets="earliest"
        )
        once = drop_repeats(stream.load(), within="10 minutes").select(
            fn.col("body").cast("string").alias("text")
        )
        query = (
            once.writeStream.format("memory")
            .queryName("once")
            .option("checkpointLocation", str(tmp_path / "reader"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sorted(row.text for row in spark.table("once").collect()) == EXPECTED
