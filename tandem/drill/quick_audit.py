"""The audit without Spark and without Java: the same rules, in plain Python.

One core and everything in memory: about a second for 90,000 sends. The rules and the table are in
`tandem.spark.audit.rules`; tests hold both audits to the same answer.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.spark.audit import rules
from tandem.spark.audit.cut_tails import AcknowledgedPlace, cut_findings, cut_records
from tandem.spark.audit.log_compare import (
    Log,
    bounded,
    first_difference,
    logs_differ_at,
    open_extent,
    pieces,
)
from tandem.spark.audit.rules import AuditSummary, Finding
from tandem.spark.audit.stages import OnStage, comparing, joining, no_stage, reading
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split
from tandem.wire.untrusted import convert

_RECORD_COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "keys",
    "bodyCrc",
    "error",
)

_SCHEMA: Final = pa.schema(
    [
        ("finding", pa.string()),
        ("node", pa.string()),
        ("send_id", pa.string()),
        ("scenario", pa.string()),
        ("phase", pa.string()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
        ("mode", pa.string()),
        ("status", pa.string()),
        ("copies", pa.int64()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("detail", pa.string()),
    ]
)

assert tuple(_SCHEMA.names) == Finding.__struct_fields__


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit needs of a ledger entry."""

    send_id: str
    scenario: str
    phase: str
    producer: str
    sequence: int
    mode: str
    body_crc32: int
    status: str
    reason: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    attempts: int


class Record(msgspec.Struct, frozen=True):
    """What the audit needs of a row of the log; all but place and error are null in a hole."""

    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    physical_offset: int
    keys: str | None
    body_crc: int | None
    error: str | None


def run_quick_audit(
    ledger: str | Path,
    stores: Mapping[str, str | Path],
    *,
    master: str,
    topic: str,
    out_dir: str | Path,
    confirm: int | None = None,
    on_stage: OnStage = no_stage,
) -> AuditSummary:
    """Judge every send of `ledger` by the logs in `stores`; see `tandem.spark.audit.job.run_audit`.

    Raises:
        NotAStoreError: the master's directory is not a store.
    """
    logs = {node: _extent(path, confirm) for node, path in stores.items()}
    on_stage(comparing(logs, master))
    differences = {
        node: _difference(logs[master], log) for node, log in logs.items() if node != master
    }
    on_stage(reading(logs, master))
    log = list(_read_log(str(stores[master])))
    records = [record for record in log if record.topic == topic]
    sends = {send.send_id: send for send in _read_ledger(ledger)}
    on_stage(joining(len(sends), len(records)))
    copies = _copies(sends, records)
    counts = {send_id: len(there) for send_id, there in copies.items()}
    cut = [
        record
        for node, path in stores.items()
        for record in cut_records(node, str(path))
        if record.topic == topic
    ]
    ends = {node: extent.end for node, extent in logs.items()}
    findings = [
        *_outcomes(sends, copies, master, is_fenced=confirm is not None),
        *_phantoms(sends, records, master),
        *_misplaced(sends, copies, master, is_fenced=confirm is not None),
        *_gaps(records, master),
        *_disorder(sends, copies, master),
        *_damage(log, master),
        *cut_findings(iter(cut), _acknowledged(sends), counts, logs[master]),
        *rules.slave_findings(differences, ends, master),
    ]
    _write(findings, Path(out_dir) / rules.TABLE_NAME)
    acknowledged = Counter(s.mode for s in sends.values() if s.status == rules.SEND_OK)
    return rules.summarise(
        Counter(finding.finding for finding in findings),
        acknowledged,
        records=len(records),
        log_bytes=logs[master].end,
        differences=differences,
        cut_records=len(cut),
    )


def _extent(store: str | Path, confirm: int | None) -> Log:
    log = open_extent(str(store))
    return log if confirm is None else bounded(log, confirm)


def _acknowledged(sends: Mapping[str, Send]) -> dict[str, AcknowledgedPlace]:
    return {
        send.send_id: AcknowledgedPlace(send.send_id, send.body_crc32, send.physical_offset)
        for send in sends.values()
        if send.mode == "sync" and send.status == rules.SEND_OK
    }


def _read_ledger(path: str | Path) -> list[Send]:
    rows = pq.read_table(path, columns=list(Send.__struct_fields__)).to_pylist()
    return convert(rows, list[Send])


def _read_log(store: str) -> Iterator[Record]:
    # The broker's own records too: each has to be readable.
    options = ScanOptions(paths=(store,), on_error="row", with_system_topics=True)
    for split in plan_splits(options):
        for batch in read_split(split, options, _RECORD_COLUMNS):
            columns = [column.to_pylist() for column in batch.columns]
            for row in zip(*columns, strict=True):
                yield Record(*row)


def _fits(send: Send | None, record: Record) -> bool:
    return send is not None and send.body_crc32 == record.body_crc


def _copies(sends: Mapping[str, Send], records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each send that is in the log, in log order."""
    copies: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.keys is not None and _fits(sends.get(record.keys), record):
            copies[record.keys].append(record)
    return dict(copies)


def _outcomes(
    sends: Mapping[str, Send],
    copies: Mapping[str, Sequence[Record]],
    node: str,
    *,
    is_fenced: bool,
) -> Iterator[Finding]:
    """Exactly one row a send, and one more for each that is there more than once."""
    for send in sends.values():
        there = copies.get(send.send_id, ())
        first = there[0] if there else None
        count = len(there) or None
        outcome = _outcome(send, is_there=bool(there), is_fenced=is_fenced)
        yield _about(outcome, node, send, first, send.reason, count)
        if len(there) > 1:
            detail = f"in the log {count} times, sent {send.attempts} times"
            finding = rules.DUPLICATED if len(there) > send.attempts else rules.STORED_AGAIN
            yield _about(finding, node, send, first, detail, count)


def _outcome(send: Send, *, is_there: bool, is_fenced: bool) -> str:
    if send.status == rules.SEND_OK:
        lost = rules.SYNC_LOST if send.mode == "sync" else rules.ASYNC_LOST
        return rules.STORED if is_there else lost
    if send.status in rules.REFUSED_STATUSES:
        return rules.REFUSED_BUT_STORED if is_there else rules.NOT_STORED
    if is_there:
        return rules.UNKNOWN_FOUND
    if send.status in rules.STORED_STATUSES and not is_fenced:
        return rules.STORED_BUT_MISSING
    return rules.UNKNOWN_MISSING


def _phantoms(sends: Mapping[str, Send], records: Sequence[Record], node: str) -> Iterator[Finding]:
    for record in records:
        send = sends.get(record.keys or "")
        if send is None:
            why = "no send has these keys"
        elif not _fits(send, record):
            why = "the body is not what was sent"
        elif send.status in rules.REFUSED_STATUSES:
            why = f"the send ended as {send.status}"
        else:
            continue
        yield _about(rules.PHANTOM, node, send, record, f"{why}: keys '{record.keys or ''}'")


def _misplaced(
    sends: Mapping[str, Send],
    copies: Mapping[str, Sequence[Record]],
    node: str,
    *,
    is_fenced: bool,
) -> Iterator[Finding]:
    """Sends that are in the log, but not where their answer said."""
    for send_id, there in copies.items():
        send = sends[send_id]
        if is_fenced and (send.mode, send.status) != ("sync", rules.SEND_OK):
            continue
        if send.queue_offset >= 0 and not any(_is_at_place(send, record) for record in there):
            detail = (
                f"the answer said queue {send.queue_id}, offset {send.queue_offset},"
                f" physical offset {send.physical_offset}"
            )
            yield _about(rules.MISPLACED, node, send, there[0], detail, len(there))


def _is_at_place(send: Send, record: Record) -> bool:
    in_log = send.physical_offset < 0 or send.physical_offset == record.physical_offset
    in_queue = (record.queue_id, record.queue_offset) == (send.queue_id, send.queue_offset)
    return in_log and in_queue


def _gaps(records: Sequence[Record], node: str) -> Iterator[Finding]:
    """Records whose queue offset is not the one after their predecessor's in the log."""
    expected: dict[int | None, int] = {}
    for record in records:
        wanted = expected.get(record.queue_id, 0)
        assert record.queue_offset is not None
        if record.queue_offset != wanted:
            yield _about(rules.OUT_OF_ORDER, node, None, record, f"expected queue offset {wanted}")
        expected[record.queue_id] = record.queue_offset + 1


def _disorder(
    sends: Mapping[str, Send], copies: Mapping[str, Sequence[Record]], node: str
) -> Iterator[Finding]:
    """Records that a producer sent before the one that precedes them in the same queue."""
    queues: dict[tuple[str, int | None], list[tuple[Record, Send]]] = defaultdict(list)
    for send_id, there in copies.items():
        send = sends[send_id]
        queues[send.producer, there[0].queue_id].append((there[0], send))
    for queue in queues.values():
        queue.sort(key=lambda pair: (pair[0].queue_offset or 0, pair[0].physical_offset))
        before = -1
        for record, send in queue:
            if send.sequence <= before:
                detail = f"after sequence {before} of the same producer"
                yield _about(rules.OUT_OF_ORDER, node, send, record, detail)
            before = send.sequence


def _damage(log: Sequence[Record], node: str) -> Iterator[Finding]:
    for record in log:
        if record.error is not None:
            yield _about(rules.CORRUPT, node, None, record, record.error)


def _about(
    finding: str,
    node: str,
    send: Send | None,
    record: Record | None,
    detail: str,
    copies: int | None = None,
) -> Finding:
    return Finding(
        finding=finding,
        node=node,
        send_id=send.send_id if send else None,
        scenario=send.scenario if send else None,
        phase=send.phase if send else None,
        producer=send.producer if send else None,
        sequence=send.sequence if send else None,
        mode=send.mode if send else None,
        status=send.status if send else None,
        copies=copies,
        queue_id=record.queue_id if record else None,
        queue_offset=record.queue_offset if record else None,
        physical_offset=record.physical_offset if record else None,
        detail=detail,
    )


def _difference(master: Log, other: Log) -> int | None:
    found = (first_difference(piece) for piece in pieces(master, other))
    return logs_differ_at(master, other, [at for at in found if at is not None])


def _write(findings: Sequence[Finding], folder: Path) -> None:
    rows = [msgspec.structs.asdict(finding) for finding in findings]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.parquet"):
        old.unlink()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), folder / "part-0.parquet")
