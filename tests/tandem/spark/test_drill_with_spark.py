"""What `tandem drill --spark` does when the last node has stopped: its audit, in the session here.

Stores and ledger are made up, so that it takes a second. Long, in tests/faults/test_drill.py: a
whole drill as a command, with nodes, and with a Java of its own, which takes most of a minute.
What nodes write is audited in every drill of the ordinary tests, in Python; that both audits say
the same of any logs: tests/tandem/spark/audit/test_job.py.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from rich.console import Console

pytest.importorskip("pyspark")

from tandem.drill.auditing import AuditRequest, audit_with_progress
from tandem.spark import session
from tests.support.planted_drill import MASTER, SENDS, TOPIC, PlantedDrill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


async def test_the_audit_of_a_drill_starts_spark_judges_the_stores_and_ends_it(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, stops = [], []

    def joined(**wanted: object) -> "SparkSession":
        asked.append(wanted)
        return spark

    monkeypatch.setattr(session, "local_session", joined)
    monkeypatch.setattr(spark, "stop", lambda: stops.append(spark))
    drill = PlantedDrill()
    drill.send(20).copies = 0
    ledger, stores = drill.write(tmp_path)
    shown = Console(file=io.StringIO(), width=200)

    summary = await audit_with_progress(
        AuditRequest(
            ledger=ledger,
            stores=stores,
            master=MASTER,
            topic=TOPIC,
            out=tmp_path / "report",
            spark=True,
            spark_log=tmp_path / "logs" / "spark.log",
            scratch=tmp_path / "scratch",
        ),
        shown,
    )

    assert (len(asked), stops) == (1, [spark])
    assert asked[0]["settings"] == {"spark.local.dir": str(tmp_path / "scratch")}
    assert (summary.sends, summary.sync_lost, summary.promises_broken) == (SENDS, 1, 1)
    assert summary.byte_identical
    assert pq.read_table(tmp_path / "report" / "audit").num_rows == SENDS
    assert isinstance(shown.file, io.StringIO)
    assert "audited in " in shown.file.getvalue()
    assert spark.range(3).count() == 3, "the drill ends its own children alone"
