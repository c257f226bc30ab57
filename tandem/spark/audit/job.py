"""The audit as a Spark job: what became of every send, judged by the logs on the disks.

    ledger (Parquet)  --join on send id, body CRC-->  records of the master's log
    other nodes' logs --byte by byte-->               the master's log

The rules and the table are in `rules`, the work of the tasks in `tasks`. It is two jobs of RDDs and
no query: there is nothing to plan or to compile, and the rows stay in Arrow.

No task sees a whole queue, or all that one producer sent. Log, ledger and queues are cut into
pieces by size; what pieces cannot judge alone, their edges, comes to the driver: for each task that
reads the log one row a queue, and for each stretch of a queue one row a producer.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tandem.spark.audit import queue_order, rules, tasks
from tandem.spark.audit.cut_tails import AcknowledgedPlace, CutRecord, cut_findings, cut_records
from tandem.spark.audit.findings_table import PartWriter, new_parts, publish, table_of
from tandem.spark.audit.log_compare import (
    Log,
    bounded,
    differences_in,
    logs_differ_at,
    open_extent,
    pieces,
)
from tandem.spark.audit.neighbours import join, with_nothing_before
from tandem.spark.audit.record_rows import scan_options
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.audit.stages import OnStage, comparing, no_stage, reading
from tandem.spark.audit.tasks import AuditPlan, ReadTask, RowGroup, TaskReport
from tandem.spark.commitlog.log_files import commit_log_folder, local_path
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.split import LogSplit
from tandem.spark.errors import AuditTableError

_MIB: Final = 1 << 20
_LEDGER_ROW_BYTES: Final = 100


class AuditSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How the work is cut. The defaults suit logs from nothing to many terabytes.

    A task reads at least `task_bytes_min`, unless there is less, and at most about `task_bytes_max`
    of log. A bucket has about `bucket_sends` sends, or the records of `bucket_log_bytes`; its task
    needs about 1.2 KB of memory a send. A queue is cut into stretches of `span` offsets.
    """

    task_bytes_min: int = 32 * _MIB
    task_bytes_max: int = 512 * _MIB
    bucket_sends: int = 250_000
    bucket_log_bytes: int = 1024 * _MIB
    span: int = 1 << 19
    split_bytes: int | None = None


DEFAULT_SIZES: Final = AuditSizes()


def run_audit(
    spark: SparkSession,
    ledger: str | Path,
    stores: Mapping[str, str | Path],
    *,
    master: str,
    topic: str,
    out_dir: str | Path,
    confirm: int | None = None,
    on_stage: OnStage = no_stage,
    sizes: AuditSizes = DEFAULT_SIZES,
) -> AuditSummary:
    """Judge every send of `ledger` by the logs in `stores`, and write the table `audit`.

    `stores` maps node names to store directories; no node may be writing to them. `ledger` is a
    Parquet file or a directory of such. The table `out_dir/audit` is replaced when everything is
    judged. All of them have to be at the same paths for driver and workers. `confirm` is given for
    a fenced group: all nodes had the whole log below it. `on_stage` is called with words for what
    begins now.

    Raises:
        NotAStoreError: the master's directory is not a store.
        AuditTableError: a task failed, or its findings are not where the driver sees them.
    """
    commit_log_folder(local_path(str(stores[master])))
    logs = {node: open_extent(str(path)) for node, path in stores.items()}
    if confirm is not None:
        logs = {node: bounded(log, confirm) for node, log in logs.items()}
    on_stage(comparing(logs, master))
    differences = _compare(spark, logs, master, sizes)
    on_stage(reading(logs, master) + ", and joining it with the ledger")
    cut = [
        record
        for node, path in stores.items()
        for record in cut_records(node, str(path))
        if record.topic == topic
    ]
    groups = list(_row_groups(local_path(str(ledger))))
    sends = sum(rows for _, rows in groups)
    log_bytes = logs[master].end - logs[master].start
    plan = AuditPlan(
        topic=topic,
        node=master,
        options=scan_options(str(stores[master]), sizes.split_bytes),
        parts=new_parts(str(local_path(str(out_dir)))),
        is_fenced=confirm is not None,
        buckets=_buckets(sends, log_bytes, sizes),
        span=sizes.span,
        cut_keys=tuple(sorted({record.keys for record in cut})),
    )
    count = _task_count(
        log_bytes + sends * _LEDGER_ROW_BYTES, spark.sparkContext.defaultParallelism, sizes
    )
    work = _read_tasks(plan_splits(plan.options), [group for group, _ in groups], count)
    reports = _run(spark, plan, work)
    on_stage("counting what was found")
    part = PartWriter(plan.parts)
    for rows in _left_for_all(reports, plan, cut, logs, differences):
        part.write(rows)
    names, counts = part.close()
    reports.append(TaskReport(names=names, counts=counts))
    publish(plan.parts, [name for report in reports for name in report.names])
    return _summarise(reports, logs[master].end, differences, len(cut))


def _row_groups(ledger: Path) -> Iterator[tuple[RowGroup, int]]:
    """Yield the pieces of the ledger, with how many sends each has."""
    paths = sorted(ledger.glob("*.parquet")) if ledger.is_dir() else [ledger]
    if not paths:
        raise AuditTableError(f"{ledger} has no file *.parquet: give the ledger of the sends")
    for path in paths:
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            yield RowGroup(str(path), number), metadata.row_group(number).num_rows


def _buckets(sends: int, log_bytes: int, sizes: AuditSizes) -> int:
    wanted = max(sends / sizes.bucket_sends, log_bytes / sizes.bucket_log_bytes)
    return max(1, ceil(wanted))


def _task_count(size: int, parallelism: int, sizes: AuditSizes) -> int:
    """Into how many tasks to cut so many bytes."""
    at_most = ceil(size / sizes.task_bytes_min)
    return max(1, min(at_most, max(2 * parallelism, ceil(size / sizes.task_bytes_max))))


def _read_tasks(
    splits: Sequence[LogSplit], groups: Sequence[RowGroup], count: int
) -> list[ReadTask]:
    """Cut log and ledger into up to `count` tasks, of which each has neighbouring pieces."""
    count = max(1, min(count, max(len(splits), len(groups))))

    def share(number: int, whole: int) -> slice:
        return slice(whole * number // count, whole * (number + 1) // count)

    return [
        ReadTask(
            number,
            tuple(splits[share(number, len(splits))]),
            tuple(groups[share(number, len(groups))]),
        )
        for number in range(count)
    ]


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


def _compare(
    spark: SparkSession, logs: Mapping[str, Log], master: str, sizes: AuditSizes
) -> dict[str, int | None]:
    """Return each node's first difference from the master; the pieces are spread over tasks."""
    others = [node for node in logs if node != master]
    work = [(node, piece) for node in others for piece in pieces(logs[master], logs[node])]
    found: Sequence[tuple[str, int]] = ()
    if work:
        size = sum(piece.end - piece.start for _, piece in work)
        count = _task_count(size, spark.sparkContext.defaultParallelism, sizes)
        spread = spark.sparkContext.parallelize(work, min(count, len(work)))
        with _told_in_words():
            found = spread.mapPartitions(differences_in).collect()
    return {
        node: logs_differ_at(logs[master], logs[node], [at for name, at in found if name == node])
        for node in others
    }


def _left_for_all(
    reports: Sequence[TaskReport],
    plan: AuditPlan,
    cut: Sequence[CutRecord],
    logs: Mapping[str, Log],
    differences: Mapping[str, int | None],
) -> Iterator[pa.Table]:
    """Yield the findings that no task could judge alone."""
    in_log = sorted((r.number, r.gap_edges) for r in reports if r.gap_edges)
    pieces_of_log = [tasks.read_stream(edges) for _, edges in in_log]
    if pieces_of_log:
        joined = join(queue_order.in_order(pieces_of_log), queue_order.GAP_KEYS)
        yield queue_order.gaps(joined.followers, plan.node)
        yield queue_order.gaps(with_nothing_before(joined.edges), plan.node)
    stretches = [tasks.read_stream(r.disorder_edges) for r in reports if r.disorder_edges]
    if stretches:
        joined = join(pa.concat_tables(stretches), queue_order.DISORDER_KEYS)
        yield queue_order.disorder(joined.followers, plan.node)
        yield queue_order.disorder(with_nothing_before(joined.edges), plan.node)
    known = [entry for report in reports for entry in report.cut]
    acknowledged: dict[str, AcknowledgedPlace] = {
        place.send_id: place for place, _, _ in known if place is not None
    }
    copies = {send_id: count for _, send_id, count in known if count}
    yield table_of(cut_findings(iter(cut), acknowledged, copies, logs[plan.node]))
    ends = {node: log.end for node, log in logs.items()}
    yield table_of(rules.slave_findings(differences, ends, plan.node))


def _summarise(
    reports: Sequence[TaskReport],
    log_bytes: int,
    differences: Mapping[str, int | None],
    cut_records: int,
) -> AuditSummary:
    counts: Counter[str] = Counter()
    acknowledged: Counter[str] = Counter()
    for report in reports:
        for (finding, mode), count in report.counts.items():
            counts[finding] += count
            if finding in (rules.STORED, rules.SYNC_LOST, rules.ASYNC_LOST) and mode is not None:
                acknowledged[mode] += count
    return rules.summarise(
        counts,
        acknowledged,
        records=sum(report.records for report in reports),
        log_bytes=log_bytes,
        differences=dict(differences),
        cut_records=cut_records,
    )


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
