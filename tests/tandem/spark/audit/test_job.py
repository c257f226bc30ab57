"""The Spark audit against made-up drills.

Fault by fault: tests/tandem/drill/test_quick_audit.py.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit.job import run_audit
from tests.support.planted_drill import MASTER, PLANTS, SENDS, TOPIC, PlantedDrill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def rows_of(table: Path) -> list[tuple[str, ...]]:
    rows = pq.read_table(table).to_pylist()
    return sorted(tuple(str(value) for value in row.values()) for row in rows)


def test_both_audits_find_every_planted_fault_and_write_the_same_table(
    spark: "SparkSession", tmp_path: Path
) -> None:
    drill = PlantedDrill()
    expected: dict[str, int] = {}
    for plant in PLANTS:
        for name, change in plant(drill).items():
            expected[name] = expected.get(name, 0) + change
    ledger, stores = drill.write(tmp_path)
    stages: list[str] = []
    summary = run_audit(
        spark,
        ledger,
        stores,
        master=MASTER,
        topic=TOPIC,
        out_dir=tmp_path / "spark",
        on_stage=stages.append,
    )
    assert [stage.split()[0] for stage in stages] == ["comparing", "reading", "counting"]
    quick = run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path / "quick")
    assert rows_of(tmp_path / "spark" / "audit") == rows_of(tmp_path / "quick" / "audit")
    assert summary == quick
    clean = {
        "sends": SENDS,
        "records": SENDS,
        "sync_acknowledged": SENDS // 2,
        "async_acknowledged": SENDS // 2,
    }
    for name in {*expected, *clean}:
        assert getattr(summary, name) == clean.get(name, 0) + expected.get(name, 0), name


def test_a_clean_drill_breaks_no_promise(spark: "SparkSession", tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "old.parquet").write_bytes(b"of an audit before")
    summary = run_audit(spark, ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path)
    assert summary.promises_broken == 0
    assert summary.byte_identical
    assert (summary.sends, summary.records) == (SENDS, SENDS)
    table = spark.read.parquet(str(tmp_path / "audit"))
    assert table.where("finding = 'stored' and copies = 1").count() == SENDS == table.count()
