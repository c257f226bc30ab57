import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.functions import udf

from tandem.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


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
