"""Triggers that Spark has and sources in Python have not: who asks for one is refused."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.support.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(
    ("trigger", "condition"),
    [
        ({"realTime": "5 minutes"}, "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED"),
        ({"continuous": "1 second"}, None),
    ],
)
def test_real_time_and_continuous_mode_are_refused(
    spark: "SparkSession", tmp_path: Path, trigger: dict[str, str], condition: str | None
) -> None:
    log = LogBuilder()
    log.put(body=b"one")
    root = log.write(tmp_path / "store")
    stream = (
        spark.readStream.format("commitlog")
        .options(startingOffsets="earliest", columns="body")
        .load(str(root))
    )
    with pytest.raises(PySparkException) as caught:
        query = (
            stream.writeStream.format("console")
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**trigger)
            .start()
        )
        query.awaitTermination(60)
    assert caught.value.getCondition() == condition, caught.value
