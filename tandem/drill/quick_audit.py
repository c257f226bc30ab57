"""The audit without Spark and without Java: its tasks, one after the other in this process.

One core, with the ledger and what is needed of the records in memory.
"""

from collections.abc import Mapping
from pathlib import Path

from tandem.spark.audit import tasks
from tandem.spark.audit.audit_work import AuditSizes, conclude, prepare
from tandem.spark.audit.log_compare import (
    differences_by_node,
    differences_in,
    known_confirmed,
    open_logs,
)
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.audit.stages import OnStage, comparing, joining, no_stage, reading
from tandem.spark.audit.tasks import TaskReport


def run_quick_audit(
    ledger: str | Path,
    stores: Mapping[str, str | Path],
    *,
    master: str,
    topic: str,
    out_dir: str | Path,
    confirm: int | None = None,
    since: int = 0,
    on_stage: OnStage = no_stage,
) -> AuditSummary:
    """Judge every send of `ledger` by the logs in `stores`; see `tandem.spark.audit.job.run_audit`.

    Raises:
        NotAStoreError: the master's directory is not a store.
    """
    if confirm is None:
        confirm = known_confirmed(stores)
    logs = open_logs(stores, master, confirm)
    on_stage(comparing(logs, master))
    differences = differences_by_node(logs, master, differences_in, since)
    on_stage(reading(logs, master))
    work = prepare(
        ledger,
        stores,
        logs,
        differences,
        master=master,
        topic=topic,
        out_dir=out_dir,
        is_fenced=confirm is not None,
        sizes=AuditSizes.uncut(),
    )
    blocks = list(tasks.read(work.plan, work.read_tasks))
    records = sum(said.records for _, (_, said) in blocks if isinstance(said, TaskReport))
    on_stage(joining(work.sends, records))
    return conclude(work, tasks.order(work.plan, tasks.judge(work.plan, blocks)))
