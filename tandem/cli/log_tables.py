"""How `tandem log` shows files, numbers and records to people."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tandem.cli.formats import Column, Section, print_sections
from tandem.cli.output import human_bytes, print_words
from tandem.log.record_filter import time_text
from tandem.text_table import Cell, Line, RunningTable, TableColumn

if TYPE_CHECKING:
    from tandem.log import DumpedRecord, Listing, StoreStat
    from tandem.log.cluster_files import CoordinatorReport
    from tandem.log.findings import FindingReport
    from tandem.log.stat import QueueStat
    from tandem.log.verify import VerifyReport
    from tandem.wire.message import MessageExt

BODY_CHARACTERS_MAX: Final = 60
_COLOURS: Final = {"damage": "bold red", "warning": "yellow", "note": "dim"}


def print_listing(listing: "Listing") -> None:
    """Print what `tandem log ls` found."""
    state = "open in a running node" if listing.is_live else "not open in any node"
    stop = "abort is there: the last stop was a crash" if listing.has_abort else "stopped cleanly"
    print_words(f"{listing.path}: {state}{'' if listing.is_live else f', {stop}'}")
    print_sections([_log_section(listing), _topics_section(listing), _index_section(listing)])
    checkpoint = listing.checkpoint
    if checkpoint is None:
        print_words("checkpoint: none")
    else:
        print_words(
            f"checkpoint: log to {_time(checkpoint.physic_msg_timestamp_ms)},"
            f" queues to {_time(checkpoint.logics_msg_timestamp_ms)},"
            f" index to {_time(checkpoint.index_msg_timestamp_ms)},"
            f" master flushed {checkpoint.master_flushed_offset},"
            f" confirm offset {checkpoint.confirm_physical_offset}"
        )
    for stray in listing.strays:
        print_words(f"not a file of a store: {stray.path} ({stray.reason})")


def _log_section(listing: "Listing") -> Section[Any]:
    return Section[Any](
        listing.commit_log,
        [
            Column("file", lambda row: Path(row.path).name),
            _number("from", lambda row: f"{row.offset}"),
            _number("to", lambda row: f"{row.offset + row.used_bytes}"),
            _number("size", lambda row: human_bytes(row.size)),
            _number(
                "fill", lambda row: f"{100 * row.used_bytes / row.size if row.size else 0:.1f} %"
            ),
            Column("first stored", lambda row: _time(row.first_store_timestamp_ms)),
            Column("last stored", lambda row: _time(row.last_store_timestamp_ms)),
        ],
        title="commit log",
    )


def _topics_section(listing: "Listing") -> Section[Any]:
    return Section[Any](
        listing.topics,
        [
            Column("topic", lambda row: row.topic),
            _number("queues", lambda row: f"{row.queue_count}"),
            _number("files", lambda row: f"{row.file_count}"),
            _number("size", lambda row: human_bytes(row.size)),
            _number("units", lambda row: f"{row.unit_count}"),
            _number("offsets from", lambda row: f"{row.min_offset}"),
            _number("to", lambda row: f"{row.max_offset}"),
            Column("kind", lambda row: row.kind + (" + ext" if row.has_ext else "")),
        ],
        title="queues",
    )


def _index_section(listing: "Listing") -> Section[Any]:
    return Section[Any](
        listing.index_files,
        [
            Column("file", lambda row: Path(row.path).name),
            _number("size", lambda row: human_bytes(row.size)),
            _number("keys", lambda row: f"{row.key_count}"),
            _number("offsets from", lambda row: f"{row.begin_physical_offset}"),
            _number("to", lambda row: f"{row.end_physical_offset}"),
            Column("first stored", lambda row: _time(row.begin_timestamp_ms)),
            Column("last stored", lambda row: _time(row.end_timestamp_ms)),
        ],
        title="index",
    )


def _number(title: str, value: Callable[[Any], str]) -> Column[Any]:
    """A column of numbers that may be copied into other commands: no commas in them."""
    return Column(title, value, is_number=True)


def _time(timestamp_ms: int) -> str:
    return time_text(timestamp_ms) if timestamp_ms else "-"


class _StatRow(NamedTuple):
    topic: str
    queue: str
    stat: "QueueStat"


def print_stat(stat: "StoreStat") -> None:
    """Print what `tandem log stat` counted: a line a queue, a line for all."""
    rows = [_StatRow(queue.topic, f"{queue.queue_id}", queue) for queue in stat.queues]
    if len(rows) != 1:
        rows.append(_StatRow("all", "", stat.total))
    columns = [
        Column("topic", lambda row: row.topic),
        _number("queue", lambda row: row.queue),
        _number("messages", lambda row: f"{row.stat.message_count}"),
        _number("bytes", lambda row: human_bytes(row.stat.total_bytes)),
        _number("share", lambda row: f"{100 * row.stat.share:.1f} %"),
        _number("msg/s", lambda row: f"{row.stat.messages_per_second:,.1f}"),
        _number("bytes/s", lambda row: human_bytes(round(row.stat.bytes_per_second))),
        _number("size p50", lambda row: f"{row.stat.size_p50_bytes}"),
        _number("p99", lambda row: f"{row.stat.size_p99_bytes}"),
        _number("max", lambda row: f"{row.stat.size_max_bytes}"),
        Column("first stored", lambda row: _time(row.stat.first_store_timestamp_ms)),
        Column("last stored", lambda row: _time(row.stat.last_store_timestamp_ms)),
    ]
    print_sections([Section[Any](rows, columns)])


def print_report(report: "VerifyReport", seconds: float) -> None:
    """Print what was checked and found; what a kind of finding means is said once."""
    _print_findings(report)
    print_words(
        f"checked {report.record_count} records (offsets {report.log_start} to {report.log_end}),"
        f" {report.unit_count} units of {report.queue_count} queues,"
        f" {report.index_count} entries of {report.index_file_count} index files:"
        f" {human_bytes(report.bytes_read)} in {seconds:.1f} s",
    )
    _print_verdict(report)


def print_coordinator_report(report: "CoordinatorReport") -> None:
    """Print the same of a coordinator's journal."""
    _print_findings(report)
    print_words(
        f"checked {report.record_count} records of the coordinator's journal:"
        f" {human_bytes(report.bytes_read)}",
    )
    _print_verdict(report)


def _print_findings(report: "FindingReport") -> None:
    explained = ""
    for finding in report.findings:
        if finding.kind != explained:
            explained = finding.kind
            colour = _COLOURS[finding.severity]
            print_words(f"{finding.severity}: {finding.kind}: {finding.meaning}", colour)
            print_words(f"remedy: {finding.remedy}", indent=2)
        place = f" position {finding.position}:" if finding.position >= 0 else ""
        more = f" (and {finding.count - 1} more like it)" if finding.count > 1 else ""
        print_words(f"{finding.file}:{place} {finding.what}{more}", indent=2)


def _print_verdict(report: "FindingReport") -> None:
    if report.damage_count:
        print_words(f"DAMAGED: {report.damage_count} findings", "bold red")
    elif report.warning_count:
        print_words("sound, with warnings", "yellow")
    else:
        print_words("sound", "green")


class RecordTable:
    """Prints records as they come: nothing is held back, and columns grow when they have to."""

    def __init__(
        self, write: Callable[[Sequence[Line]], None], width: int | None, *, shows_body: bool
    ) -> None:
        self._write = write
        self._shows_body = shows_body
        columns = [*_RECORD_COLUMNS, TableColumn("body" if shows_body else "", " ")]
        self._table = RunningTable(columns, width, [*_RECORD_WIDTHS, 0])
        write(self._table.head())

    def add(self, record: "DumpedRecord", body_text: Callable[[bytes], str]) -> None:
        """Print one record, and the messages of an inner batch below it."""
        message = record.message
        notes = "" if record.crc_ok else " [CRC WRONG]"
        if record.body.problem:
            notes += f" [{record.body.problem}]"
        if record.body.inner:
            self._row(message, f"batch of {len(record.body.inner)}{notes}")
            for inner in record.body.inner:
                self._row(inner, body_text(inner.body), place="")
        else:
            self._row(message, body_text(record.body.body), notes=notes)

    def _row(
        self, message: "MessageExt", text: str, *, place: str | None = None, notes: str = ""
    ) -> None:
        cells = (
            f"{message.physical_offset}" if place is None else place,
            message.topic,
            f"{message.queue_id}",
            f"{message.queue_offset}",
            time_text(message.store_timestamp_ms),
            message.tags,
            message.keys,
            _shortened(text) + notes if self._shows_body else notes.strip(),
        )
        self._write(self._table.row([*map(Cell, cells)]))


_RECORD_COLUMNS: Final = (
    TableColumn("physical", is_number=True),
    TableColumn("topic"),
    TableColumn("queue", is_number=True),
    TableColumn("offset", is_number=True),
    TableColumn("stored"),
    TableColumn("tags", rank=1),
    TableColumn("keys", rank=1),
)
_RECORD_WIDTHS: Final = (14, 20, 5, 10, 24, 12, 16)


def _shortened(text: str) -> str:
    if len(text) <= BODY_CHARACTERS_MAX:
        return text
    return f"{text[:BODY_CHARACTERS_MAX]}… ({len(text)} characters)"
