"""What an audit has to find, a send and a record at a time: the rules once more, in plain Python.

The audit of the library judges columns, cut into pieces. This is what its tables are compared with.
Bytes are compared, and cut tails read, by the library alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from tandem.spark.audit import rules
from tandem.spark.audit.cut_tails import AcknowledgedPlace, cut_findings, cut_records
from tandem.spark.audit.log_compare import differences_by_node, differences_in, open_logs
from tandem.spark.audit.record_rows import scan_options
from tandem.spark.audit.rules import AuditSummary, Finding
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split
from tandem.wire.untrusted import convert


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules need of a ledger entry."""

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

    @property
    def is_acknowledged(self) -> bool:
        return (self.mode, self.status) == ("sync", rules.SEND_OK)


class Record(msgspec.Struct, frozen=True):
    """What the rules need of a row of the log; all but place and error are null in a hole."""

    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    physical_offset: int
    keys: str | None
    body_crc: int | None
    error: str | None


def plain_audit(
    ledger: Path, stores: Mapping[str, Path], *, master: str, topic: str, confirm: int | None = None
) -> tuple[list[Finding], AuditSummary]:
    """Return all rows of the table, in any order, and the summary."""
    logs = open_logs(stores, master, confirm)
    differences = differences_by_node(logs, master, differences_in)
    log = list(_read_log(str(stores[master])))
    records = [record for record in log if record.topic == topic]
    entries = pq.read_table(ledger, columns=list(Send.__struct_fields__)).to_pylist()
    sends = {send.send_id: send for send in convert(entries, list[Send])}
    copies: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.keys is not None and _fits(sends.get(record.keys), record):
            copies[record.keys].append(record)
    cut = [
        record
        for node, path in stores.items()
        for record in cut_records(node, str(path))
        if record.topic == topic
    ]
    acknowledged = {
        send.send_id: AcknowledgedPlace(send.send_id, send.body_crc32, send.physical_offset)
        for send in sends.values()
        if send.is_acknowledged
    }
    counts = {send_id: len(there) for send_id, there in copies.items()}
    judge = _Judge(master, sends, copies, is_fenced=confirm is not None)
    findings = [
        *judge.outcomes(),
        *judge.phantoms(records),
        *judge.misplaced(),
        *judge.gaps(records),
        *judge.disorder(),
        *(judge.about(rules.CORRUPT, None, row, row.error) for row in log if row.error is not None),
        *cut_findings(iter(cut), acknowledged, counts, logs[master]),
        *rules.slave_findings(differences, {node: log.end for node, log in logs.items()}, master),
    ]
    return findings, rules.summarise(
        Counter(finding.finding for finding in findings),
        Counter(send.mode for send in sends.values() if send.status == rules.SEND_OK),
        records=len(records),
        log_bytes=logs[master].end,
        differences=differences,
        log_ends={node: log.end for node, log in logs.items()},
        cut_records=len(cut),
    )


def _read_log(store: str) -> Iterator[Record]:
    columns = ("topic", "queueId", "queueOffset", "physicalOffset", "keys", "bodyCrc", "error")
    options = scan_options(store)
    for split in plan_splits(options):
        for batch in read_split(split, options, columns):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Record(*row)


def _fits(send: Send | None, record: Record) -> bool:
    return send is not None and send.body_crc32 == record.body_crc


class _Judge:
    def __init__(
        self,
        node: str,
        sends: Mapping[str, Send],
        copies: Mapping[str, Sequence[Record]],
        *,
        is_fenced: bool,
    ) -> None:
        self._node = node
        self._sends = sends
        self._copies = copies
        self._is_fenced = is_fenced

    def outcomes(self) -> Iterator[Finding]:
        for send in self._sends.values():
            there = self._copies.get(send.send_id, ())
            first = there[0] if there else None
            count = len(there) or None
            yield self.about(
                self._outcome(send, is_there=bool(there)), send, first, send.reason, count
            )
            if len(there) > 1:
                finding = rules.DUPLICATED if len(there) > send.attempts else rules.STORED_AGAIN
                detail = f"in the log {count} times, sent {send.attempts} times"
                yield self.about(finding, send, first, detail, count)

    def _outcome(self, send: Send, *, is_there: bool) -> str:
        if send.status == rules.SEND_OK:
            lost = rules.SYNC_LOST if send.mode == "sync" else rules.ASYNC_LOST
            return rules.STORED if is_there else lost
        if send.status in rules.REFUSED_STATUSES:
            return rules.REFUSED_BUT_STORED if is_there else rules.NOT_STORED
        if is_there:
            return rules.UNKNOWN_FOUND
        if send.status in rules.STORED_STATUSES and not self._is_fenced:
            return rules.STORED_BUT_MISSING
        return rules.UNKNOWN_MISSING

    def phantoms(self, records: Sequence[Record]) -> Iterator[Finding]:
        for record in records:
            send = self._sends.get(record.keys or "")
            if send is None:
                why = "no send has these keys"
            elif not _fits(send, record):
                why = "the body is not what was sent"
            elif send.status in rules.REFUSED_STATUSES:
                why = f"the send ended as {send.status}"
            else:
                continue
            detail = f"{why}: keys '{record.keys or ''}'"
            yield self.about(rules.PHANTOM, send, record, detail)

    def misplaced(self) -> Iterator[Finding]:
        for send_id, there in self._copies.items():
            send = self._sends[send_id]
            if self._is_fenced and not send.is_acknowledged:
                continue
            if send.queue_offset >= 0 and not any(_is_at_place(send, record) for record in there):
                detail = (
                    f"the answer said queue {send.queue_id}, offset {send.queue_offset},"
                    f" physical offset {send.physical_offset}"
                )
                yield self.about(rules.MISPLACED, send, there[0], detail, len(there))

    def gaps(self, records: Sequence[Record]) -> Iterator[Finding]:
        expected: dict[int | None, int] = {}
        for record in records:
            wanted = expected.get(record.queue_id, 0)
            assert record.queue_offset is not None
            if record.queue_offset != wanted:
                detail = f"expected queue offset {wanted}"
                yield self.about(rules.OUT_OF_ORDER, None, record, detail)
            expected[record.queue_id] = record.queue_offset + 1

    def disorder(self) -> Iterator[Finding]:
        queues: dict[tuple[str, int | None], list[tuple[Record, Send]]] = defaultdict(list)
        for send_id, there in self._copies.items():
            send = self._sends[send_id]
            queues[send.producer, there[0].queue_id].append((there[0], send))
        for queue in queues.values():
            queue.sort(key=lambda pair: (pair[0].queue_offset or 0, pair[0].physical_offset))
            before = -1
            for record, send in queue:
                if send.sequence <= before:
                    detail = f"after sequence {before} of the same producer"
                    yield self.about(rules.OUT_OF_ORDER, send, record, detail)
                before = send.sequence

    def about(
        self,
        finding: str,
        send: Send | None,
        record: Record | None,
        detail: str | None,
        copies: int | None = None,
    ) -> Finding:
        """A row; what send and record say is under the same names in it."""
        of_send = ("send_id", "scenario", "phase", "producer", "sequence", "mode", "status")
        of_record = ("queue_id", "queue_offset", "physical_offset")
        known = {name: getattr(send, name, None) for name in of_send}
        known |= {name: getattr(record, name, None) for name in of_record}
        return Finding(finding=finding, node=self._node, copies=copies, detail=detail, **known)


def _is_at_place(send: Send, record: Record) -> bool:
    in_log = send.physical_offset < 0 or send.physical_offset == record.physical_offset
    in_queue = (record.queue_id, record.queue_offset) == (send.queue_id, send.queue_offset)
    return in_log and in_queue
