"""The source inside Spark: what the JVM and the workers do to it."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.functions import col, count, countDistinct, sha2
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tandem.spark.commitlog.source import SCHEMA, CommitLogDataSource, CommitLogReader
from tandem.spark.errors import OptionError
from tandem.wire.message import MessageExt
from tests.support.log_builder import LogBuilder

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

FILE_BYTES = 65_536


@pytest.fixture(scope="module")
def log() -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(600):
        log.put(
            topic=f"Topic{number % 3}",
            body=b"body %d" % number,
            queue_id=number % 4,
            keys=f"k{number}",
        )
    return log


@pytest.fixture(scope="module")
def store(log: LogBuilder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log.write(tmp_path_factory.mktemp("store"))


def load(spark: "SparkSession", *paths: Path, **options: str) -> "DataFrame":
    return spark.read.format("commitlog").options(**options).load([str(path) for path in paths])


def test_all_records_arrive_with_all_fields(
    spark: "SparkSession", log: LogBuilder, store: Path
) -> None:
    table = load(spark, store, splitSizeBytes="8192")
    assert table.schema == SCHEMA
    rows = {row.physicalOffset: row for row in table.collect()}
    assert len(rows) == len(log.messages)
    for message in log.messages:
        row = rows[message.physical_offset]
        assert _as_seen(row) == _as_put(message)
        assert row.crcOk is True
        assert row.error is None
        assert row.store == str(store)


def _as_seen(row: object) -> tuple[object, ...]:
    names = ("topic", "queueId", "queueOffset", "storeSize", "keys", "properties", "bodyCrc")
    return (*(getattr(row, name) for name in names), bytes(row.body), str(row.bornHost))  # type: ignore[attr-defined]


def _as_put(message: MessageExt) -> tuple[object, ...]:
    return (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.store_size,
        message.keys,
        message.properties,
        message.body_crc,
        message.body,
        str(message.born_host),
    )


def test_one_table_queried_twice_gives_both_answers(spark: "SparkSession", store: Path) -> None:
    """With pushFilters Spark 4.1 to 4.3 would answer the second question like the first."""
    table = load(spark, store)
    assert table.where("topic = 'Topic1'").count() == 200
    assert table.count() == 600
    table.createOrReplaceTempView("log")
    assert spark.sql("select count(*) from log where queueId = 0").first() == (150,)
    assert spark.sql("select count(*) from log").first() == (600,)


@pytest.mark.long
def test_a_self_join_of_two_filters_joins_two_different_sides(
    spark: "SparkSession", store: Path
) -> None:
    table = load(spark, store, columns="queueId,queueOffset,topic")
    left = table.where("topic = 'Topic1'").alias("a")
    right = table.where("topic = 'Topic2'").alias("b")
    joined = left.join(
        right,
        (col("a.queueId") == col("b.queueId")) & (col("a.queueOffset") == col("b.queueOffset")),
    )
    seen = joined.select("a.topic", "b.topic").distinct().collect()
    assert [tuple(row) for row in seen] == [("Topic1", "Topic2")]
    assert joined.count() == 200


def test_filters_are_not_pushed_down() -> None:
    assert CommitLogReader.pushFilters is DataSourceReader.pushFilters


def test_options_select_and_workers_agree_on_bodies(
    spark: "SparkSession", log: LogBuilder, store: Path
) -> None:
    table = load(spark, store, subscribe="Topic0,Topic2", queues="1,3", splitSizeBytes="4096")
    row = table.agg(count("*"), countDistinct(sha2("body", 256))).first()
    wanted = [m for m in log.messages if m.topic != "Topic1" and m.queue_id in (1, 3)]
    assert row == (len(wanted), len(wanted))


def test_columns_and_a_schema_of_the_users_own_choose_what_is_read(
    spark: "SparkSession", store: Path
) -> None:
    assert load(spark, store, columns="keys,topic").columns == ["keys", "topic"]
    own = StructType([StructField("queueOffset", LongType()), StructField("keys", StringType())])
    table = spark.read.format("commitlog").schema(own).load(str(store))
    assert table.where("queueOffset = 0").count() == 12


def test_two_stores_are_one_table(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    small = LogBuilder()
    small.put(topic="Topic1")
    other = small.write(tmp_path)
    seen = load(spark, store, other, topic="Topic1").groupBy("store").count().collect()
    assert {row.store: row["count"] for row in seen} == {str(store): 200, str(other): 1}


def test_a_view_can_be_made_in_sql(spark: "SparkSession", store: Path) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING commitlog"
        f" OPTIONS (path '{store}', topic 'Topic1', columns 'queueId')"
    )
    assert spark.sql("select count(*) from orders where queueId = 1").first() == (50,)


def test_an_empty_store_is_an_empty_table(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert load(spark, tmp_path).collect() == []


def test_damage_fails_the_query_with_file_and_offset_or_becomes_a_row(
    spark: "SparkSession", log: LogBuilder, tmp_path: Path
) -> None:
    damaged = LogBuilder(file_bytes=FILE_BYTES)
    damaged.log = bytearray(log.log)
    damaged.messages = log.messages[:]
    torn = log.messages[-1].physical_offset
    del damaged.log[torn + 60 :]
    root = damaged.write(tmp_path)
    rows = load(spark, root, onError="row").where("error is not null").collect()
    assert [(row.physicalOffset, row.topic) for row in rows] == [(torn, None)]
    assert rows[0].error.startswith("torn: ")
    with pytest.raises(PySparkException, match=f"torn record in .* at physical offset {torn}"):
        load(spark, root).count()


def test_a_stream_writes_every_record_once_over_restarts(
    spark: "SparkSession", tmp_path: Path
) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    seen: list[int] = []
    for limit in ("20000", "1000000"):
        for number in range(150):
            log.put(topic=f"Topic{number % 3}", body=bytes(100), tags=("new", "old")[number % 2])
        log.write(tmp_path / "store")
        stream = (
            spark.readStream.format("commitlog")
            .options(startingOffsets="earliest", maxBytesPerTrigger=limit, topic="Topic1")
            .options(tags="new", columns="physicalOffset")
            .load(str(tmp_path / "store"))
        )
        query = (
            stream.select("physicalOffset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        seen.append(len(query.recentProgress))
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    expected = [m.physical_offset for m in log.messages if m.topic == "Topic1" and m.tags == "new"]
    assert sorted(row[0] for row in rows) == expected
    assert seen == [2, 1]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"startTimestamp": "1"}, ["startTimestamp"]),
        ({"columns": "topic,nothing"}, ["columns"]),
        ({"columns": "topic", "onError": "row"}, ["onError", "error"]),
        ({"maxBytesPerTrigger": "1"}, ["maxBytesPerTrigger"]),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_read(
    options: dict[str, str], names: list[str], store: Path
) -> None:
    source = CommitLogDataSource({"path": str(store), **options})
    with pytest.raises(OptionError) as caught:
        source.reader(source.schema())
    assert list(caught.value.names) == names


def test_a_stream_has_no_end(store: Path) -> None:
    source = CommitLogDataSource({"path": str(store), "endingOffsets": "latest"})
    with pytest.raises(OptionError, match="availableNow") as caught:
        source.streamReader(source.schema())
    assert caught.value.names == ("endingOffsets",)


def test_a_schema_that_does_not_fit_is_refused(store: Path) -> None:
    source = CommitLogDataSource({"path": str(store)})
    with pytest.raises(OptionError) as caught:
        source.reader(StructType([StructField("topic", LongType())]))
    assert caught.value.names == ("topic",)


def test_spark_passes_our_words_on(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="known are path, paths, commitLog"):
        load(spark, tmp_path, nonsense="1").count()
    with pytest.raises(PySparkException, match="neither a directory `commitlog` nor files"):
        load(spark, tmp_path).count()
