import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.functions import udf

from tandem.spark.session import local_session
from tests.support.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_a_second_call_joins_the_session_that_runs(spark: "SparkSession") -> None:
    assert local_session().sparkContext is spark.sparkContext


def test_workers_run_this_python_and_find_this_package(spark: "SparkSession") -> None:
    @udf("string", useArrow=False)
    def where(_: int) -> str:
        import tandem  # noqa: PLC0415 - in the worker

        return f"{sys.prefix} {Path(tandem.__file__).parent}"

    (row,) = spark.range(1).select(where("id")).collect()
    expected = Path(sys.modules["tandem"].__file__ or "").parent
    assert row[0] == f"{sys.prefix} {expected}"


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
