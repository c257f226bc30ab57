"""What the tasks of the audit do: three steps, with a shuffle of few large blocks between them.

    read     pieces of log and ledger   -->  records and sends, by their bucket: CRC of the send id
    judge    all of some buckets        -->  findings about sends; where the first copies are
    order    stretches of queues        -->  findings about the order of a producer's messages

Each step writes its findings itself, and hands on a `TaskReport` with the little that only all
tasks together can judge. A block is a batch of Arrow: Spark moves bytes, and never sees a row.
Nothing here needs Spark, and a task imports nothing of it.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Final, Self, cast
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.spark.audit import queue_order
from tandem.spark.audit.cut_tails import AcknowledgedPlace
from tandem.spark.audit.findings_table import Counts, PartWriter
from tandem.spark.audit.neighbours import join
from tandem.spark.audit.record_rows import RECORDS, rows_of_split
from tandem.spark.audit.send_judge import SENDS, SendJudge
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.split import LogSplit
from tandem.wire.record_scan import Int64s

HELD_ROWS_MAX: Final = 1 << 18
"""How many rows a task gathers before it hands them on, or judges them."""

_SPOOLED_BYTES_MAX: Final = 64 << 20

_RECORDS: Final = "records"
_SENDS: Final = "sends"
_STORED: Final = "stored"
_REPORT: Final = "report"


class RowGroup(msgspec.Struct, frozen=True):
    """A piece of the ledger: a row group of a Parquet file."""

    path: str
    number: int


class ReadTask(msgspec.Struct, frozen=True):
    """What one task reads: neighbouring pieces of the log, the `number`th, or of the ledger."""

    number: int
    splits: tuple[LogSplit, ...] = ()
    ledger: tuple[RowGroup, ...] = ()


class AuditPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks know. `cut_keys` are the keys of the records that nodes cut off.

    Sends are spread over `buckets`, queues cut into stretches of `span` offsets; `parts` is where
    findings are written to.
    """

    topic: str
    node: str
    options: ScanOptions
    parts: str
    is_fenced: bool
    buckets: int
    span: int
    cut_keys: tuple[str, ...] = ()


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says to the driver: counts, parts, and what is left of its edges.

    `gap_edges` are those of the `number`th piece of the log, `disorder_edges` those of stretches of
    queues; both are Arrow streams.
    """

    names: tuple[str, ...]
    counts: Counts
    records: int = 0
    number: int = 0
    gap_edges: bytes = b""
    disorder_edges: bytes = b""
    cut: tuple[tuple[AcknowledgedPlace | None, str, int], ...] = ()


Block = tuple[str, bytes | TaskReport]
"""What a task hands to the next step, and what kind it is."""


def itself(bucket: int) -> int:
    """The partition of a bucket."""
    return bucket


def read(plan: AuditPlan, tasks: Iterable[ReadTask]) -> Iterator[tuple[int, Block]]:
    """Read pieces of log and ledger; yield their rows by bucket."""
    for task in tasks:
        if task.ledger:
            yield from _read_ledger(plan, task)
        if task.splits:
            yield from _read_log(plan, task)


def judge(plan: AuditPlan, blocks: Iterable[tuple[int, Block]]) -> Iterator[tuple[int, Block]]:
    """Judge the sends of some buckets; yield where the stored ones are, by stretches of queues."""
    sends: list[pa.RecordBatch] = []
    with _Spool(RECORDS) as records:
        for _, (kind, payload) in blocks:
            if isinstance(payload, TaskReport):
                yield payload.number % plan.buckets, (_REPORT, payload)
            elif kind == _SENDS:
                sends.append(_unpacked(payload, SENDS))
            else:
                records.add(_unpacked(payload, RECORDS))
        judge = SendJudge(pa.Table.from_batches(sends, SENDS), plan.node, is_fenced=plan.is_fenced)
        part = PartWriter(plan.parts)
        for rows in records.portions(max(HELD_ROWS_MAX, sum(map(len, sends)))):
            part.write(judge.see(rows))
    part.write(judge.verdicts())
    stored = judge.stored()
    if plan.buckets > 1:
        yield from _by_stretch(plan, stored)
    elif stored.num_rows:
        yield 0, (_STORED, _stream(stored))
    names, counts = part.close()
    cut = tuple(judge.found(plan.cut_keys)) if plan.cut_keys else ()
    yield 0, (_REPORT, TaskReport(names=names, counts=counts, cut=cut))


def order(plan: AuditPlan, blocks: Iterable[tuple[int, Block]]) -> Iterator[TaskReport]:
    """Judge the order of stored sends in stretches of queues; yield all reports."""
    stored = []
    for _, (_, payload) in blocks:
        if isinstance(payload, TaskReport):
            yield payload
        else:
            stored.append(read_stream(payload))
    if not stored:
        return
    followers, edges = queue_order.disorder_in_spans(pa.concat_tables(stored), plan.span)
    part = PartWriter(plan.parts)
    part.write(queue_order.disorder(followers, plan.node))
    names, counts = part.close()
    yield TaskReport(names=names, counts=counts, disorder_edges=_stream(edges))


def read_stream(data: bytes) -> pa.Table:
    """Return the table that a report holds."""
    return pa.ipc.open_stream(data).read_all()


def _read_ledger(plan: AuditPlan, task: ReadTask) -> Iterator[tuple[int, Block]]:
    for group in task.ledger:
        with pq.ParquetFile(group.path) as file:
            rows = file.read_row_group(group.number, columns=SENDS.names, use_threads=False)
        rows = rows.select(SENDS.names).cast(SENDS)
        yield from _by_key(plan, _SENDS, rows, rows["send_id"], rows["sequence"].to_numpy())


def _read_log(plan: AuditPlan, task: ReadTask) -> Iterator[tuple[int, Block]]:
    part = PartWriter(plan.parts)
    held: list[pa.Table] = []
    edges: list[pa.Table] = []
    count = 0
    for split in task.splits:
        for rows in rows_of_split(split, plan.options, plan.topic):
            part.write(queue_order.damage(rows.damaged, plan.node))
            if not rows.records.num_rows:
                continue
            count += rows.records.num_rows
            joined = join(queue_order.gap_edges(rows.records), queue_order.GAP_KEYS)
            part.write(queue_order.gaps(joined.followers, plan.node))
            edges.append(joined.edges)
            held.append(rows.records)
            if sum(table.num_rows for table in held) >= HELD_ROWS_MAX:
                yield from _records_by_key(plan, pa.concat_tables(held))
                held = []
    if held:
        yield from _records_by_key(plan, pa.concat_tables(held))
    left = b""
    if edges:
        joined = join(queue_order.in_order(edges), queue_order.GAP_KEYS)
        part.write(queue_order.gaps(joined.followers, plan.node))
        left = _stream(joined.edges)
    names, counts = part.close()
    report = TaskReport(
        names=names, counts=counts, records=count, number=task.number, gap_edges=left
    )
    yield task.number % plan.buckets, (_REPORT, report)


def _records_by_key(plan: AuditPlan, rows: pa.Table) -> Iterator[tuple[int, Block]]:
    yield from _by_key(plan, _RECORDS, rows, rows["keys"], rows["physical_offset"].to_numpy())


def _by_key(
    plan: AuditPlan, kind: str, rows: pa.Table, keys: pa.ChunkedArray, spread: Int64s
) -> Iterator[tuple[int, Block]]:
    """Yield rows by the CRC of their keys; those without any, which fit no send, by `spread`."""
    if plan.buckets == 1:
        buckets = np.zeros(len(keys), np.int64)
    else:
        hashes = (
            crc32(key) if key is not None else at
            for key, at in zip(keys.cast(pa.binary()).to_pylist(), spread.tolist(), strict=True)
        )
        buckets = np.fromiter(hashes, np.int64, len(keys)) % plan.buckets
    for number, part in _by_bucket(rows, buckets):
        yield number, (kind, _packed(part))


def _by_stretch(plan: AuditPlan, stored: pa.Table) -> Iterator[tuple[int, Block]]:
    """Yield stored sends by the stretch of the queue in which they are."""
    span = queue_order.span_of(stored, plan.span).to_numpy()
    queue = stored["queue_id"].to_numpy().astype(np.int64)
    for number, part in _by_bucket(stored, (queue * 1_000_003 + span) % plan.buckets):
        yield number, (_STORED, _stream(part))


def _by_bucket(rows: pa.Table, buckets: Int64s) -> Iterator[tuple[int, pa.Table]]:
    if not rows.num_rows:
        return
    order = np.argsort(buckets, kind="stable")
    buckets = buckets[order]
    rows = rows.take(pa.array(order)).combine_chunks()
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    ends = [*starts[1:].tolist(), len(buckets)]
    for start, end in zip(starts.tolist(), ends, strict=True):
        yield int(buckets[start]), rows.slice(start, end - start)


def _packed(rows: pa.Table) -> bytes:
    """Return a portion without its schema, which would be most of a small one."""
    (batch,) = rows.combine_chunks().to_batches()
    return cast("bytes", batch.serialize().to_pybytes())


def _unpacked(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return cast("bytes", sink.getvalue().to_pybytes())


class _Spool:
    """Portions of rows that wait until all sends are here: in memory, and on the disk if many."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __enter__(self) -> Self:
        local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES_MAX, dir=local or None)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), self._schema)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Keep a portion."""
        self._writer.write_batch(rows)

    def portions(self, rows_max: int) -> Iterator[pa.Table]:
        """Yield all that was kept, `rows_max` rows or a little more at a time."""
        self._writer.close()
        self._file.seek(0)
        held: list[pa.RecordBatch] = []
        for batch in pa.ipc.open_stream(pa.PythonFile(self._file, "r")):
            held.append(batch)
            if sum(map(len, held)) >= rows_max:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)
