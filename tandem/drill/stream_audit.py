"""What a Spark stream wrote into Parquet, judged by the log and the ledger: exactly once or not.

    log of the master   every record of the topic exactly once in the output, and nothing else
    ledger              every sync send that was answered SEND_OK, and only what was sent

A row of the output is known by its queue and queue offset. Its body counts as it is in the output:
its CRC is computed here.

Spark's file sink writes files in tasks and lists in `_spark_metadata` those that count; what a
killed task left is not among them, and is not read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow.parquet as pq

from tandem.spark.audit import rules
from tandem.spark.audit.record_rows import rows_of_split, scan_options
from tandem.spark.commitlog.plan import plan_splits
from tandem.wire.crc import crc32
from tandem.wire.untrusted import UnreadableError, decode_json

EXAMPLES_MAX: Final = 5
STREAM_COLUMNS: Final = ("queueId", "queueOffset", "keys", "body")
"""What the output of a stream has to have."""

_METADATA: Final = "_spark_metadata"

Place = tuple[int, int]
"""Queue id and queue offset."""

Content = tuple[str, int]
"""Keys and CRC of the body."""


class StreamSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a stream's audit. All but `rows` have to be 0.

    `missing` records of the log are not in the output; so are `acknowledged_missing` sync sends
    that were answered SEND_OK. `repeated` rows were there before. `phantom` rows fit no send, or
    one that was refused; `not_in_log` rows are not what the log has at their place.
    """

    rows: int
    missing: int = 0
    acknowledged_missing: int = 0
    repeated: int = 0
    phantom: int = 0
    not_in_log: int = 0
    examples: tuple[str, ...] = ()

    @property
    def promises_broken(self) -> int:
        """All of them together."""
        counts = (self.missing, self.acknowledged_missing, self.repeated)
        return sum(counts) + self.phantom + self.not_in_log

    def broken(self) -> list[tuple[str, int]]:
        """The counts above 0, with their names."""
        names = ("missing", "acknowledged_missing", "repeated", "phantom", "not_in_log")
        return [(f"stream_{name}", getattr(self, name)) for name in names if getattr(self, name)]


class SentMessage(msgspec.Struct, frozen=True):
    """What the ledger says of a send."""

    body_crc32: int
    mode: str
    status: str


def judge_stream(
    rows: Iterable[tuple[Place, Content]],
    log: Mapping[Place, Content],
    sends: Mapping[str, SentMessage],
) -> StreamSummary:
    """Compare rows of the output with the log and the ledger."""
    count = 0
    wrong: Counter[str] = Counter()
    examples: list[str] = []
    seen: set[Place] = set()
    fitting: set[str] = set()

    def note(what: str, detail: str) -> None:
        wrong[what] += 1
        if len(examples) < EXAMPLES_MAX:
            examples.append(f"{what}: {detail}")

    for place, (keys, crc) in rows:
        count += 1
        where = f"queue {place[0]}, offset {place[1]}, keys '{keys}'"
        if place in seen:
            note("repeated", where)
        seen.add(place)
        if log.get(place) != (keys, crc):
            note("not_in_log", where)
        send = sends.get(keys)
        if send is None or send.body_crc32 != crc or send.status in rules.REFUSED_STATUSES:
            note("phantom", where)
        else:
            fitting.add(keys)
    for place in sorted(log.keys() - seen):
        note("missing", f"queue {place[0]}, offset {place[1]}, keys '{log[place][0]}'")
    for send_id, send in sends.items():
        if (send.mode, send.status) == ("sync", rules.SEND_OK) and send_id not in fitting:
            note("acknowledged_missing", send_id)
    return StreamSummary(rows=count, examples=tuple(examples), **wrong)


def audit_stream(
    output: Path, ledger: Path, store: Path, *, topic: str, confirm: int | None = None
) -> StreamSummary:
    """Judge what a stream wrote to `output`; the log counts below `confirm`.

    Raises:
        OSError: output, ledger or log cannot be read.
        NotAStoreError: `store` is not one.
        UnreadableError: the list of the output's files is no list.
    """
    return judge_stream(read_output(output), read_log(store, topic, confirm), read_sends(ledger))


def read_output(output: Path) -> Iterator[tuple[Place, Content]]:
    """Yield the rows of the files that count."""
    for path in committed_files(output):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=list(STREAM_COLUMNS)):
                queue, offset, keys, body = (batch.column(name) for name in STREAM_COLUMNS)
                for row in zip(
                    queue.to_pylist(), offset.to_pylist(), keys.to_pylist(), body, strict=True
                ):
                    yield (row[0], row[1]), (row[2] or "", crc32(memoryview(row[3].as_buffer())))


def committed_files(output: Path) -> list[Path]:
    """Return the files of a Spark file sink that count; none before its first batch.

    `_spark_metadata/7` lists those of batch 7, `9.compact` those of all up to 9.
    """
    named: set[Path] = set()
    folder = output / _METADATA
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    for entry in entries:
        if entry.name.startswith(".") or entry.suffix not in ("", ".compact"):
            continue
        for line in entry.read_bytes().splitlines()[1:]:  # the first says the version
            named.add(_file_named(line))
    return sorted(named)


def _file_named(line: bytes) -> Path:
    entry = decode_json(line, dict[str, object])
    path, action = entry.get("path"), entry.get("action")
    if not isinstance(path, str) or action != "add":
        raise UnreadableError(f"no entry of a file sink: {line.decode(errors='replace')}")
    return Path(unquote(urlsplit(path).path))


def read_log(store: Path, topic: str, confirm: int | None = None) -> dict[Place, Content]:
    """Return the records of the topic below `confirm`, by place."""
    options = scan_options(str(store))
    found: dict[Place, Content] = {}
    for split in plan_splits(options):
        for rows in rows_of_split(split, options, topic):
            for record in rows.records.to_pylist():
                if confirm is None or record["physical_offset"] < confirm:
                    place = record["queue_id"], record["queue_offset"]
                    found[place] = record["keys"] or "", record["body_crc"]
    return found


def read_sends(ledger: Path) -> dict[str, SentMessage]:
    """Return the sends of a ledger by id."""
    names = ("send_id", *SentMessage.__struct_fields__)
    columns = pq.read_table(ledger, columns=list(names))
    return {
        send_id: SentMessage(*fields)
        for send_id, *fields in zip(
            *(columns[name].combine_chunks().to_pylist() for name in names), strict=True
        )
    }
