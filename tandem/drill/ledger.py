"""The ledger: what was sent and what came of it, kept where no node can touch it.

While the drill runs it is NDJSON, two lines a send:

    {"event":"sending", "send_id":…, "scenario":…, "phase":…, …, "sent_at_ms":…}
    {"event":"answered","send_id":…, "status":…, "reason":…, …, "latency_ms":…}

The first is handed to the kernel before the request leaves, so nothing that was sent can be missing
from the ledger, not even when the drill is killed. A send without a second line never got an
answer: its status is UNKNOWN. At the end both are joined into one Parquet row for the audit.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.drill.errors import LedgerError
from tandem.drill.outcomes import UNKNOWN, SendMode
from tandem.wire.untrusted import UnreadableError, json_decoder

NO_ANSWER: Final = "the drill ended before an answer came"

_ROWS_PER_GROUP: Final = 65_536

_SCHEMA: Final = pa.schema(
    [
        ("send_id", pa.string()),
        ("scenario", pa.string()),
        ("phase", pa.string()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
        ("mode", pa.string()),
        ("topic", pa.string()),
        ("body_crc32", pa.int32()),
        ("body_bytes", pa.int32()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("offset_msg_id", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("sent_at_ms", pa.float64()),
        ("answered_at_ms", pa.float64()),
        ("latency_ms", pa.float64()),
        ("attempts", pa.int32()),
    ]
)


class Sending(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="sending"):
    """A send that is about to leave. `sequence` rises by one per producer, from 0."""

    send_id: str
    scenario: str
    phase: str
    producer: str
    sequence: int
    mode: SendMode
    topic: str
    body_crc32: int
    body_bytes: int
    sent_at_ms: float


class Answered(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="answered", omit_defaults=True
):
    """What became of a send. Places are -1 where the broker named none.

    `attempts` counts the requests that may have been stored: a message that was sent again because
    no clear answer came can be in the log as often, always with one UNIQ_KEY.
    """

    send_id: str
    status: str
    reason: str = ""
    offset_msg_id: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    physical_offset: int = -1
    answered_at_ms: float
    latency_ms: float
    attempts: int = 1


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One send with its outcome, as the audit sees it."""

    send_id: str
    scenario: str
    phase: str
    producer: str
    sequence: int
    mode: SendMode
    topic: str
    body_crc32: int
    body_bytes: int
    status: str
    reason: str
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sent_at_ms: float
    answered_at_ms: float
    latency_ms: float
    attempts: int


assert LedgerEntry.__struct_fields__ == tuple(_SCHEMA.names)


class Ledger:
    """An open ledger. Owns its file; a context manager closes it.

    Every line is one `write` system call (about 2 µs): buffering would lose what a killed drill had
    already sent.
    """

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            LedgerError: it is there already or cannot be made.
        """
        self._path = path
        self._encoder = msgspec.json.Encoder()
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise LedgerError(f"cannot create the ledger {path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def write(self, line: msgspec.Struct) -> None:
        """Append one line; it is the kernel's when this returns.

        Raises:
            LedgerError: the disk is full or failing. The caller must not send.
        """
        data = self._encoder.encode(line) + b"\n"
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            raise self._refused(os.strerror(error.errno or 0)) from error
        if written != len(data):
            # The kernel took what there was room for.
            raise self._refused(os.strerror(errno.ENOSPC))

    def _refused(self, reason: str) -> LedgerError:
        return LedgerError(
            f"cannot write the ledger {self._path}: {reason};"
            " make room or give another directory by --out"
        )


def read_entries(path: Path) -> Iterator[LedgerEntry]:
    """Yield every send of a ledger once, answered ones first, in the order of their answers.

    Memory is bounded by the sends that never got an answer. A torn last line is skipped: what it
    speaks of was not sent yet, or is UNKNOWN.

    Raises:
        LedgerError: a line in the middle is damaged.
    """
    decode = json_decoder(Sending | Answered)
    open_sends: dict[str, Sending] = {}
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            try:
                event: Sending | Answered = decode(line)
            except UnreadableError as error:
                raise LedgerError(f"{path} is damaged: {error}; run the drill again") from error
            if isinstance(event, Sending):
                open_sends[event.send_id] = event
            else:
                yield _join(open_sends.pop(event.send_id), event)
    for sending in open_sends.values():
        yield _join(sending, _unanswered(sending))


def _unanswered(sending: Sending) -> Answered:
    return Answered(
        send_id=sending.send_id,
        status=UNKNOWN,
        reason=NO_ANSWER,
        answered_at_ms=sending.sent_at_ms,
        latency_ms=0.0,
    )


def _join(sending: Sending, answered: Answered) -> LedgerEntry:
    return LedgerEntry(
        send_id=sending.send_id,
        scenario=sending.scenario,
        phase=sending.phase,
        producer=sending.producer,
        sequence=sending.sequence,
        mode=sending.mode,
        topic=sending.topic,
        body_crc32=sending.body_crc32,
        body_bytes=sending.body_bytes,
        status=answered.status,
        reason=answered.reason,
        offset_msg_id=answered.offset_msg_id,
        queue_id=answered.queue_id,
        queue_offset=answered.queue_offset,
        physical_offset=answered.physical_offset,
        sent_at_ms=sending.sent_at_ms,
        answered_at_ms=answered.answered_at_ms,
        latency_ms=answered.latency_ms,
        attempts=answered.attempts,
    )


def write_parquet(ndjson: Path, parquet: Path) -> int:
    """Join the lines of a ledger into one Parquet file for the audit; return its rows.

    Raises:
        LedgerError: the file cannot be written.
    """
    rows = 0
    try:
        with pq.ParquetWriter(parquet, _SCHEMA, compression="zstd") as writer:
            for entries in _chunks(read_entries(ndjson)):
                writer.write_table(_table(entries))
                rows += len(entries)
    except OSError as error:
        raise LedgerError(f"cannot write the ledger {parquet}: {error}") from error
    return rows


def _chunks(entries: Iterator[LedgerEntry]) -> Iterator[list[LedgerEntry]]:
    chunk: list[LedgerEntry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == _ROWS_PER_GROUP:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _table(entries: list[LedgerEntry]) -> pa.Table:
    columns = {name: [getattr(entry, name) for entry in entries] for name in _SCHEMA.names}
    return pa.table(columns, schema=_SCHEMA)
