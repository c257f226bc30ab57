"""Only the columns that a query uses are read, and every query answers as without that."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StringType, StructField, StructType

from tandem.spark import pruning
from tandem.spark.commitlog.source import SCHEMA, CommitLogDataSource
from tandem.spark.errors import OptionError
from tandem.spark.pruning import is_pruned, is_wanted, prune_columns
from tests.support.log_builder import LogBuilder

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module", autouse=True)
def asked_for(spark: "SparkSession") -> None:
    assert prune_columns(spark)


@pytest.fixture(scope="module")
def log() -> LogBuilder:
    log = LogBuilder()
    for number in range(60):
        log.put(topic=f"Topic{number % 3}", body=b"%d" % number, queue_id=number % 4)
    return log


@pytest.fixture(scope="module")
def store(log: LogBuilder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log.write(tmp_path_factory.mktemp("pruned"))


def load(spark: "SparkSession", store: Path, **options: str) -> "DataFrame":
    return spark.read.format("commitlog").options(**options).load(str(store))


def plan(table: "DataFrame") -> str:
    return str(table._jdf.queryExecution().executedPlan().toString())


def scanned(table: "DataFrame") -> list[str]:
    """The columns that the one scan of a query reads, without their ids."""
    columns = plan(table).partition("BatchScan commitlog[")[2].partition("]")[0]
    return [name.partition("#")[0] for name in columns.split(", ")]


def test_a_scan_reads_what_the_query_refers_to(spark: "SparkSession", store: Path) -> None:
    table = load(spark, store)
    assert scanned(table) == SCHEMA.names
    assert scanned(table.select("queueId", "topic")) == ["queueId", "topic"]
    assert scanned(table.select("queueId").where("topic = 'a' and keys is null")) == [
        "topic",
        "queueId",
        "keys",
    ]
    assert scanned(table.groupBy("tags").count()) == ["tags"]
    assert scanned(table.selectExpr("length(body) + queueId as x")) == ["queueId", "body"]
    assert len(scanned(table.selectExpr("count(*)"))) == 1


def test_a_scan_with_nothing_over_it_is_not_projected_again(
    spark: "SparkSession", store: Path
) -> None:
    assert "Project" not in plan(load(spark, store))
    assert "Project" not in plan(load(spark, store).select("queueId", "topic"))


def test_pruned_queries_answer_as_others(
    spark: "SparkSession", log: LogBuilder, store: Path
) -> None:
    table = load(spark, store, splitSizeBytes="4096")
    left, right = table.alias("a"), table.alias("b")
    joined = left.where("a.topic = 'Topic1'").join(
        right.where("b.topic = 'Topic2'"), col("a.queueId") == col("b.queueId")
    )
    questions = [
        table.select("queueId", "topic"),
        table.select(col("topic").alias("x"), "topic", "queueId").where("x <> 'Topic1'"),
        joined.select("a.physicalOffset", "b.physicalOffset"),
        table.where("body = '7'").select("queueOffset"),
    ]
    answers = [sorted(map(tuple, question.collect())) for question in questions]
    spark.conf.set("spark.sql.optimizer.excludedRules", "tandem.spark.PrunedScans$Prune")
    try:
        whole = [question.select("*") for question in questions]
        assert "body" in plan(whole[0])
        assert [sorted(map(tuple, question.collect())) for question in whole] == answers
    finally:
        spark.conf.unset("spark.sql.optimizer.excludedRules")
    assert len(answers[0]) == table.count() == len(log.messages)
    assert len(answers[2]) == 100


def test_a_table_is_a_snapshot_whatever_is_read_of_it(
    spark: "SparkSession", tmp_path: Path
) -> None:
    log = LogBuilder()
    log.put(topic="A")
    root = log.write(tmp_path)
    table = load(spark, root)
    assert table.select("topic").count() == 1
    log.put(topic="B")
    log.write(tmp_path)
    assert [row.topic for row in table.select("topic").collect()] == ["A"]
    assert table.select("queueId", "topic").count() == 1
    assert load(spark, root).select("topic").count() == 2


def test_damage_is_a_row_also_if_its_error_is_not_asked_for(
    spark: "SparkSession", tmp_path: Path
) -> None:
    log = LogBuilder()
    log.put(topic="A")
    log.put(topic="B")
    del log.log[-20:]
    table = load(spark, log.write(tmp_path), onError="row")
    assert table.count() == 2
    assert [row.topic for row in table.select("topic").collect()] == ["A", None]


def test_the_rules_are_installed_once(spark: "SparkSession") -> None:
    assert prune_columns(spark)
    names = spark._jsparkSession.experimental().extraOptimizations().toString()
    assert names.count("PrunedScans") == 1


@pytest.mark.parametrize(
    ("setting", "wanted"), [(None, False), ("false", False), ("true", True), ("TRUE", True)]
)
def test_a_session_asks_for_it(
    spark: "SparkSession",
    setting: str | None,
    wanted: bool,  # noqa: FBT001
) -> None:
    if setting is not None:
        spark.conf.set(pruning.SETTING, setting)
    try:
        assert is_wanted(spark) is wanted
    finally:
        spark.conf.unset(pruning.SETTING)


def test_without_being_asked_every_column_is_read(store: Path) -> None:
    """A session of its own: rules that are there once stay for as long as the driver runs."""
    program = (
        "import sys; from tandem.spark.session import local_session;"
        " spark = local_session(master='local[1]');"
        " table = spark.read.format('commitlog').load(sys.argv[1]).select('topic');"
        " print(table._jdf.queryExecution().executedPlan().toString());"
        " spark.stop()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store)], capture_output=True, text=True, check=True
    )
    scan = done.stdout.partition("BatchScan commitlog[")[2].partition("]")[0]
    assert [name.partition("#")[0] for name in scan.split(", ")] == SCHEMA.names


def test_a_spark_that_the_rules_do_not_fit_is_logged(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = tmp_path / "Rules.java"
    other.write_text("package tandem.spark; import org.apache.spark.Gone; class PrunedScans {}")
    monkeypatch.setattr(pruning, "_RULES", other)
    monkeypatch.setattr(pruning, "_rules_of", {})
    with caplog.at_level(logging.WARNING):
        assert not prune_columns(spark)
    assert "reads all columns of our sources" in caplog.text


def test_only_a_pruned_reader_may_lack_the_column_error(store: Path) -> None:
    source = CommitLogDataSource({"path": str(store), "onError": "row"})
    part = StructType([StructField("topic", StringType())])
    assert not is_pruned(part)
    with pytest.raises(OptionError) as caught:
        source.reader(part)
    assert caught.value.names == ("onError", "error")
    part = StructType([StructField("topic", StringType(), metadata={"tandem.pruned": True})])
    assert is_pruned(part)
    assert source.reader(part).partitions() == []
