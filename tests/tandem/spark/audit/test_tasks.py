"""What tasks hand to each other. What comes of it: tests/tandem/spark/audit/test_job.py."""

from pathlib import Path

import pyarrow as pa
import pytest

from tandem.spark.audit import tasks
from tandem.spark.audit.audit_work import DEFAULT_SIZES
from tandem.spark.audit.findings_table import new_parts
from tandem.spark.audit.record_rows import RECORDS, scan_options
from tandem.spark.audit.send_judge import SENDS as SENDS_SCHEMA
from tandem.spark.audit.tasks import AuditPlan, ReadTask, RowGroup, TaskReport
from tandem.spark.commitlog.plan import plan_splits
from tests.support.planted_drill import MASTER, SENDS, TOPIC, PlantedDrill


def a_plan(folder: Path, buckets: int) -> tuple[AuditPlan, ReadTask]:
    ledger, stores = PlantedDrill().write(folder)
    options = scan_options(str(stores[MASTER]))
    plan = AuditPlan(
        topic=TOPIC,
        node=MASTER,
        options=options,
        parts=new_parts(str(folder)),
        is_fenced=False,
        buckets=buckets,
        span=DEFAULT_SIZES.span,
    )
    return plan, ReadTask(0, tuple(plan_splits(options)), (RowGroup(str(ledger), 0),))


def test_sends_and_their_records_come_into_the_same_buckets_and_are_spread(tmp_path: Path) -> None:
    plan, task = a_plan(tmp_path, buckets=5)
    schemas = {"sends": (SENDS_SCHEMA, "send_id"), "records": (RECORDS, "keys")}
    found: dict[str, dict[int, set[str]]] = {"sends": {}, "records": {}}
    for bucket, (kind, payload) in tasks.read(plan, [task]):
        if isinstance(payload, TaskReport):
            assert (payload.records, payload.names) == (SENDS, ())
            continue
        schema, key = schemas[kind]
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        found[kind].setdefault(bucket, set()).update(batch.column(key).to_pylist())
    assert found["sends"] == found["records"]
    assert sorted(found["sends"]) == list(range(5))
    assert min(map(len, found["sends"].values())) > SENDS / 5 / 2


def test_many_rows_are_handed_on_in_portions_and_kept_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, task = a_plan(tmp_path, buckets=1)
    monkeypatch.setattr(tasks, "HELD_ROWS_MAX", 50)
    monkeypatch.setattr(tasks, "_SPOOLED_BYTES_MAX", 1000)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},elsewhere")
    blocks = list(tasks.read(plan, [task]))
    # Records before sends: they wait, and are then all judged.
    blocks.sort(key=lambda block: block[1][0])
    reports = list(tasks.order(plan, tasks.judge(plan, blocks)))
    assert {("stored", "sync"): SENDS // 2, ("stored", "async"): SENDS // 2} in [
        report.counts for report in reports
    ]


def test_a_part_of_the_queues_that_nobody_sent_to_says_nothing(tmp_path: Path) -> None:
    plan, _ = a_plan(tmp_path, buckets=3)
    assert list(tasks.order(plan, [])) == []
    blocks = list(tasks.judge(plan, []))
    assert [kind for _, (kind, _) in blocks] == ["report"]
