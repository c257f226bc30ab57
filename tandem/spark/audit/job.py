"""The audit as a Spark job: what became of every send, judged by the logs on the disks.

    ledger (Parquet)  --join on send id, body CRC-->  records of the master's log
    other nodes' logs --byte by byte-->               the master's log

The rules and the table are in `rules`, the work of the tasks in `tasks`. It is two jobs of RDDs and
no query: there is nothing to plan or to compile, and the rows stay in Arrow.

No task sees a whole queue, or all that one producer sent. Log, ledger and queues are cut into
pieces by size; what pieces cannot judge alone, their edges, comes to the driver: for each task that
reads the log one row a queue, and for each stretch of a queue one row a producer.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tandem.spark.audit import tasks
from tandem.spark.audit.audit_work import (
    DEFAULT_SIZES,
    AuditSizes,
    conclude,
    prepare,
    task_count,
)
from tandem.spark.audit.log_compare import (
    Piece,
    differences_by_node,
    differences_in,
    known_confirmed,
    open_logs,
)
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.audit.stages import OnStage, comparing, no_stage, reading
from tandem.spark.audit.tasks import AuditPlan, ReadTask, TaskReport
from tandem.spark.errors import AuditTableError


def run_audit(
    spark: SparkSession,
    ledger: str | Path,
    stores: Mapping[str, str | Path],
    *,
    master: str,
    topic: str,
    out_dir: str | Path,
    confirm: int | None = None,
    since: int = 0,
    on_stage: OnStage = no_stage,
    sizes: AuditSizes = DEFAULT_SIZES,
) -> AuditSummary:
    """Judge every send of `ledger` by the logs in `stores`, and write the table `audit`.

    `stores` maps node names to store directories; no node may be writing to them. `ledger` is a
    Parquet file or a directory of such. The table `out_dir/audit` is replaced when everything is
    judged. All of them have to be at the same paths for driver and workers. `confirm` is given for
    a fenced group: all nodes had the whole log below it; without it, what their stores know to be
    confirmed counts. `since`: up to there a log may start anywhere, for all sends are behind it.
    `on_stage` is called with words for what begins now.

    Raises:
        NotAStoreError: the master's directory is not a store.
        AuditTableError: a task failed, or its findings are not where the driver sees them.
    """
    if confirm is None:
        confirm = known_confirmed(stores)
    logs = open_logs(stores, master, confirm)
    on_stage(comparing(logs, master))
    parallelism = spark.sparkContext.defaultParallelism

    def find(work: Sequence[tuple[str, Piece]]) -> Sequence[tuple[str, int]]:
        size = sum(piece.end - piece.start for _, piece in work)
        count = min(task_count(size, parallelism, sizes), len(work))
        with _told_in_words():
            spread = spark.sparkContext.parallelize(work, count)
            return spread.mapPartitions(differences_in).collect()

    differences = differences_by_node(logs, master, find, since)
    on_stage(reading(logs, master) + ", and joining it with the ledger")
    work = prepare(
        ledger,
        stores,
        logs,
        differences,
        master=master,
        topic=topic,
        out_dir=out_dir,
        is_fenced=confirm is not None,
        sizes=sizes,
        parallelism=parallelism,
    )
    reports = _run(spark, work.plan, work.read_tasks)
    on_stage("counting what was found")
    return conclude(work, reports)


def _run(spark: SparkSession, plan: AuditPlan, work: Sequence[ReadTask]) -> list[TaskReport]:
    read = partial(tasks.read, plan)
    blocks = spark.sparkContext.parallelize(work, len(work)).mapPartitions(read)
    if len(work) > 1 or plan.buckets > 1:
        blocks = blocks.partitionBy(plan.buckets, tasks.itself)
    judged = blocks.mapPartitions(partial(tasks.judge, plan))
    if plan.buckets > 1:
        judged = judged.partitionBy(plan.buckets, tasks.itself)
    with _told_in_words():
        return list(judged.mapPartitions(partial(tasks.order, plan)).collect())


@contextmanager
def _told_in_words() -> Iterator[None]:
    """Turn what Java says about a failed task into the line in which Python said it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise AuditTableError(_why_failed(str(error))) from error


def _why_failed(text: str) -> str:
    """Return the last line of the first Python traceback in `text`, else its first line."""
    _, _, traceback = text.partition("Traceback (most recent call last):")
    lines = [line for line in traceback.splitlines() if line and not line[0].isspace()]
    said = lines[0] if lines else text.partition("\n")[0]
    return f"a task of the audit failed: {said.strip()}"
