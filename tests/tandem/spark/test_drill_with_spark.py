"""A whole drill whose logs Spark reads. Java of its own: tests/faults/test_drill.py, long."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tandem.drill.command import run_drill
from tandem.spark import session
from tests.faults.drills import a_drill, draw_nothing, signals_as_before, summary_of, unmet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
]


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    with signals_as_before():
        yield


def test_a_drill_with_spark_holds_every_promise(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins the session that is here, as a first query in a new one takes half a minute."""
    asked, stops = [], []

    def joined(**wanted: object) -> "SparkSession":
        asked.append(wanted)
        return spark

    monkeypatch.setattr(session, "local_session", joined)
    monkeypatch.setattr(spark, "stop", lambda: stops.append(spark))
    draw_nothing(monkeypatch)
    options = a_drill(tmp_path, "slave-loss", spark=True)

    status = run_drill(options)

    summary = summary_of(options)
    assert status == 0, unmet(summary)
    assert (len(asked), stops) == (1, [spark])
    assert summary["settings"]["audit"] == "spark"
    assert summary["byte_identical"] is True
    assert summary["sync_acknowledged"] > 50
    assert pq.read_table(options.out / "audit").num_rows >= summary["sends"]
    assert spark.range(3).count() == 3, "the drill ends its own children alone"
