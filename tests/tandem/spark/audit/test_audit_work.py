"""How an audit is cut. What comes of it, in every size: tests/tandem/spark/audit/test_job.py."""

from pathlib import Path

import pytest

from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit import tasks
from tandem.spark.audit.audit_work import AuditSizes, AuditWork, conclude, prepare, task_count
from tandem.spark.audit.log_compare import open_logs
from tandem.spark.errors import AuditTableError
from tests.support.planted_drill import MASTER, SENDS, TOPIC, PlantedDrill

SMALL = AuditSizes(task_bytes_min=1, task_bytes_max=8192, bucket_sends=150, split_bytes=4096)


def cut(folder: Path, sizes: AuditSizes) -> AuditWork:
    ledger, stores = PlantedDrill().write(folder)
    return prepare(
        ledger,
        stores,
        open_logs(stores, MASTER),
        {},
        master=MASTER,
        topic=TOPIC,
        out_dir=folder,
        is_fenced=False,
        sizes=sizes,
    )


def test_every_piece_of_log_and_ledger_is_in_one_task_in_order(tmp_path: Path) -> None:
    work = cut(tmp_path, SMALL)
    starts = [split.file.offset + split.start for task in work.read_tasks for split in task.splits]
    assert len(work.read_tasks) > 10
    assert starts == sorted(set(starts))
    assert [group.number for task in work.read_tasks for group in task.ledger] == [0]
    assert [task.number for task in work.read_tasks] == list(range(len(work.read_tasks)))
    assert (work.sends, work.plan.buckets) == (SENDS, 3)


def test_uncut_is_one_task_and_one_bucket_for_any_log(tmp_path: Path) -> None:
    work = cut(tmp_path, AuditSizes.uncut())
    assert (len(work.read_tasks), work.plan.buckets) == (1, 1)
    assert task_count(1 << 50, 64, AuditSizes.uncut()) == 1


def test_the_summary_counts_what_every_report_says(tmp_path: Path) -> None:
    work = cut(tmp_path, AuditSizes.uncut())
    blocks = list(tasks.read(work.plan, work.read_tasks))
    reports = list(tasks.order(work.plan, tasks.judge(work.plan, blocks)))
    (left,) = [tasks.read_stream(report.gap_edges) for report in reports if report.gap_edges]
    summary = conclude(work, [*reports, tasks.TaskReport(names=(), counts={("corrupt", None): 2})])
    assert left.num_rows
    assert (summary.sends, summary.corrupt, summary.out_of_order) == (SENDS, 2, 0)


def test_a_ledger_of_no_files_is_an_error(tmp_path: Path) -> None:
    _, stores = PlantedDrill().write(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(AuditTableError, match="has no file"):
        run_quick_audit(
            tmp_path / "empty", stores, master=MASTER, topic=TOPIC, out_dir=tmp_path / "out"
        )
