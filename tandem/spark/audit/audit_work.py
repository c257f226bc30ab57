"""An audit before its tasks and after them; between the two, Spark runs them, or this process.

    prepare     how log, ledger and queues are cut into tasks
    conclude    what no task could judge alone, the table, and the summary

Nothing here needs Spark.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.spark.audit import queue_order, rules, tasks
from tandem.spark.audit.cut_tails import AcknowledgedPlace, CutRecord, cut_findings, cut_records
from tandem.spark.audit.findings_table import PartWriter, new_parts, publish, table_of
from tandem.spark.audit.log_compare import Log
from tandem.spark.audit.neighbours import join, with_nothing_before
from tandem.spark.audit.record_rows import scan_options
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.audit.tasks import AuditPlan, ReadTask, RowGroup, TaskReport
from tandem.spark.commitlog.log_files import local_path
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

    @classmethod
    def uncut(cls) -> "AuditSizes":
        """One task, one bucket and whole queues: for one process."""
        most = 1 << 62
        return cls(
            task_bytes_min=most,
            task_bytes_max=most,
            bucket_sends=most,
            bucket_log_bytes=most,
            span=most,
        )


DEFAULT_SIZES: Final = AuditSizes()


class AuditWork(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: `tasks.read`, `judge` and `order` with `plan`, from `read_tasks` on.

    `differences` are the first of each other node, `cut` the topic's records that nodes cut off.
    """

    plan: AuditPlan
    read_tasks: Sequence[ReadTask]
    sends: int
    logs: Mapping[str, Log]
    differences: Mapping[str, int | None]
    cut: Sequence[CutRecord]


def prepare(
    ledger: str | Path,
    stores: Mapping[str, str | Path],
    logs: Mapping[str, Log],
    differences: Mapping[str, int | None],
    *,
    master: str,
    topic: str,
    out_dir: str | Path,
    is_fenced: bool,
    sizes: AuditSizes = DEFAULT_SIZES,
    parallelism: int = 1,
) -> AuditWork:
    """Cut an audit of `logs`, those of `stores`, into tasks; see `job.run_audit` for the arguments.

    Raises:
        AuditTableError: there is no ledger.
    """
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
        is_fenced=is_fenced,
        buckets=_buckets(sends, log_bytes, sizes),
        span=sizes.span,
        cut_keys=tuple(sorted({record.keys for record in cut})),
    )
    count = task_count(log_bytes + sends * _LEDGER_ROW_BYTES, parallelism, sizes)
    return AuditWork(
        plan=plan,
        read_tasks=_read_tasks(plan_splits(plan.options), [group for group, _ in groups], count),
        sends=sends,
        logs=logs,
        differences=differences,
        cut=cut,
    )


def conclude(work: AuditWork, reports: Iterable[TaskReport]) -> AuditSummary:
    """Judge what is left, and make what tasks and this found the table."""
    reports = list(reports)
    part = PartWriter(work.plan.parts)
    for rows in _left_for_all(work, reports):
        part.write(rows)
    names, counts = part.close()
    reports.append(TaskReport(names=names, counts=counts))
    publish(work.plan.parts, [name for report in reports for name in report.names])
    return _summarise(work, reports)


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


def task_count(size: int, parallelism: int, sizes: AuditSizes) -> int:
    """Return into how many tasks `size` bytes are cut."""
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


def _left_for_all(work: AuditWork, reports: Sequence[TaskReport]) -> Iterator[pa.Table]:
    """Yield the findings that no task could judge alone."""
    node = work.plan.node
    in_log = sorted((r.number, r.gap_edges) for r in reports if r.gap_edges)
    pieces_of_log = [tasks.read_stream(edges) for _, edges in in_log]
    if pieces_of_log:
        joined = join(queue_order.in_order(pieces_of_log), queue_order.GAP_KEYS)
        yield queue_order.gaps(joined.followers, node)
        yield queue_order.gaps(with_nothing_before(joined.edges), node)
    stretches = [tasks.read_stream(r.disorder_edges) for r in reports if r.disorder_edges]
    if stretches:
        joined = join(pa.concat_tables(stretches), queue_order.DISORDER_KEYS)
        yield queue_order.disorder(joined.followers, node)
        yield queue_order.disorder(with_nothing_before(joined.edges), node)
    known = [entry for report in reports for entry in report.cut]
    acknowledged: dict[str, AcknowledgedPlace] = {
        place.send_id: place for place, _, _ in known if place is not None
    }
    copies = {send_id: count for _, send_id, count in known if count}
    yield table_of(cut_findings(iter(work.cut), acknowledged, copies, work.logs[node]))
    ends = {name: log.end for name, log in work.logs.items()}
    yield table_of(rules.slave_findings(work.differences, ends, node))


def _summarise(work: AuditWork, reports: Sequence[TaskReport]) -> AuditSummary:
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
        log_bytes=work.logs[work.plan.node].end,
        differences=dict(work.differences),
        log_ends={name: log.end for name, log in work.logs.items()},
        cut_records=len(work.cut),
    )
