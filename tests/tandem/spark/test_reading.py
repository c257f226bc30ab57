"""Tables and streams that are looked at before Spark is, and what Spark says where it is first."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tandem.spark.errors import NotAStoreError, OptionError, SparkSourceError, UnknownTopicError
from tandem.spark.reading import Source, check, read_stream, read_table
from tests.support.fenced_store import note_confirmed
from tests.support.log_builder import LogBuilder

NOBODY = "127.0.0.1:1"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder()
    for _ in range(5):
        log.put(topic="orders")
    return log.write(tmp_path / "broker-a-0")


def wrong(source: Source, given: dict[str, str], **how: Any) -> SparkSourceError:  # noqa: ANN401
    with pytest.raises(SparkSourceError) as caught:
        check(source, given, **how)
    return caught.value


@pytest.mark.parametrize("is_stream", [False, True])
def test_options_are_checked(store: Path, *, is_stream: bool) -> None:
    for source, given in {
        "commitlog": {"path": str(store), "topick": "x", "checkCrc": "maybe"},
        "tandem": {"nameServers": NOBODY, "subscribe": "x", "topick": "x", "checkCrc": "maybe"},
    }.items():
        error = wrong(source, given, is_stream=is_stream)  # type: ignore[arg-type]
        assert isinstance(error, OptionError)
        assert error.names == ("topick", "checkCrc")
        assert "\n" not in str(error)


def test_what_only_a_batch_or_only_a_stream_takes_is_checked(store: Path) -> None:
    given = {"path": str(store), "maxBytesPerTrigger": "5"}
    assert isinstance(wrong("commitlog", given), OptionError)
    check("commitlog", given, is_stream=True)
    given = {"path": str(store), "endingOffsets": "latest"}
    assert isinstance(wrong("commitlog", given, is_stream=True), OptionError)


def test_a_schema_is_checked(store: Path) -> None:
    schema = StructType([StructField("bdy", StringType())])
    error = wrong("commitlog", {"path": str(store)}, schema=schema)
    assert isinstance(error, OptionError)
    assert error.names == ("bdy",)


def test_stores_and_topics_are_looked_at(store: Path, tmp_path: Path) -> None:
    assert isinstance(wrong("commitlog", {"path": str(tmp_path / "no")}), NotAStoreError)
    error = wrong("commitlog", {"path": str(store), "topic": "order"})
    assert isinstance(error, UnknownTopicError)
    assert error.topics == ("order",)
    check("commitlog", {"path": str(store), "topic": "order", "ignoreMissingTopics": "true"})
    note_confirmed(store, 5)
    (store / "checkpoint").unlink()
    assert isinstance(wrong("commitlog", {"path": str(store)}), NotAStoreError)
    check("commitlog", {"path": str(store), "includeUnconfirmed": "true"})


def test_servers_are_asked() -> None:
    given = {"nameServers": NOBODY, "subscribe": "orders", "retryTimeoutMs": "100"}
    assert NOBODY in str(wrong("tandem", given))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_what_is_right_is_read(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    assert read_table(spark, "commitlog", str(store), topic="orders", checkCrc=False).count() == 5
    assert read_table(spark, "commitlog", [str(store)], splitSizeBytes=8192).count() == 5
    stream = read_stream(spark, "commitlog", str(store), startingOffsets="earliest")
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 5


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_an_error_of_ours_comes_through_spark_without_a_traceback_of_a_worker(
    spark: "SparkSession", store: Path, tmp_path: Path
) -> None:
    def said(given: dict[str, str]) -> str:
        with pytest.raises(PySparkException) as caught:
            spark.read.format("commitlog").options(**given).load(str(store)).count()
        return str(caught.value)

    for text in (said({"topick": "x"}), said({"topic": "order"})):
        assert "tandem.spark.errors." in text
        assert "Traceback" not in text
    data = next((store / "commitlog").iterdir())
    damaged = bytearray(data.read_bytes())
    damaged[5] ^= 1
    data.write_bytes(damaged)
    text = said({})
    assert "LogDamagedError" in text
    assert "Traceback" not in text
    query = (
        spark.readStream.format("commitlog")
        .option("startingOffsets", "earliest")
        .load(str(store))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination()
    assert "LogDamagedError" in str(caught.value)
