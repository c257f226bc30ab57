import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.functions import udf

from tandem.spark.errors import PackageError
from tandem.spark.session import (
    cluster_session,
    is_submitted,
    local_session,
    submitted_session,
    workers_have_pyspark,
)
from tests.support.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_a_second_call_joins_the_session_that_runs(spark: "SparkSession") -> None:
    assert local_session().sparkContext is spark.sparkContext


def test_a_submitted_program_knows_it_and_its_session_knows_our_formats(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_submitted()
    session = submitted_session()
    assert session.sparkContext is spark.sparkContext
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    log = LogBuilder()
    log.put()
    assert session.read.format("commitlog").load(str(log.write(tmp_path))).count() == 1


def test_a_submitted_program_keeps_the_time_zone_that_it_was_given(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    given = spark.sparkContext.getConf().set("spark.sql.session.timeZone", "Europe/Berlin")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda _: given)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert submitted_session().conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_a_python_in_an_archive_has_to_be_unpacked_here_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is asked of Spark, whose error is a traceback of Java."""
    python = "./environment/bin/python"
    package = tmp_path / "workers.zip"
    package.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    with pytest.raises(PackageError, match="mkdir environment && tar"):
        cluster_session("spark://h:7077", package, python=python)
    monkeypatch.setattr("tandem.spark.session.SparkSession", None)
    with pytest.raises(PackageError, match="mkdir environment && tar"):
        submitted_session()
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/bin/python")
    with pytest.raises(PackageError, match="Name one that is here") as refused:
        submitted_session()
    assert "mkdir" not in str(refused.value)  # of a path from the root nothing is to be unpacked
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    Path(python).parent.mkdir(parents=True)
    Path(python).symlink_to(sys.executable)
    with pytest.raises(AttributeError):  # the next thing is Spark's
        submitted_session()


def test_workers_run_this_python_and_find_this_package(spark: "SparkSession") -> None:
    @udf("string", useArrow=False)
    def where(_: int) -> str:
        import pyspark  # noqa: PLC0415 - in the worker

        import tandem  # noqa: PLC0415

        return f"{sys.prefix} {Path(tandem.__file__).parent} {pyspark.__file__}"

    (row,) = spark.range(1).select(where("id")).collect()
    expected = Path(sys.modules["tandem"].__file__ or "").parent
    # The one that is installed, compiled: the zip file in it costs each process half a second.
    assert row[0] == f"{sys.prefix} {expected} {sys.modules['pyspark'].__file__}"


def test_only_workers_that_are_this_python_here_find_pyspark_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert [workers_have_pyspark(master) for master in ("local", "local[*]", "local[2,4]")] == [
        True,
        True,
        True,
    ]
    assert not workers_have_pyspark("local-cluster[2,1,1024]")
    assert not workers_have_pyspark("spark://h:7077")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.99")
    assert not workers_have_pyspark("local")


def test_the_environment_is_as_before_apart_from_the_python_to_use(spark: "SparkSession") -> None:
    assert "tandem-java" not in os.environ.get("JAVA_HOME", "")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_example_reports_topics_and_damage(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LogBuilder()
    log.put(topic="orders")
    torn = log.put(topic="orders").physical_offset
    del log.log[torn + 50 :]
    log.log[-1] = 1
    example = runpy.run_path("examples/spark_batch.py")
    example["report"](spark, [str(log.write(tmp_path))])
    printed = capsys.readouterr().out
    assert "orders|1       |" in printed
    assert f"|{torn}" in printed
    assert "torn: " in printed
