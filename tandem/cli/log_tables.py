"""How `tandem log` shows files, numbers and records to people."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tandem.cli.output import human_bytes, shown
from tandem.cli.output import table as new_table
from tandem.log.record_filter import time_text
from tandem.plain_text import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tandem.log import DumpedRecord, Listing, StoreStat
    from tandem.log.cluster_files import CoordinatorReport
    from tandem.log.findings import FindingReport
    from tandem.log.stat import QueueStat
    from tandem.log.verify import VerifyReport
    from tandem.wire.message import MessageExt

BODY_CHARACTERS_MAX: Final = 60
_COLOURS: Final = {"damage": "bold red", "warning": "yellow", "note": "dim"}


def print_listing(console: "Console", listing: "Listing") -> None:
    """Print what `tandem log ls` found."""
    state = "open in a running node" if listing.is_live else "not open in any node"
    stop = "abort is there: the last stop was a crash" if listing.has_abort else "stopped cleanly"
    console.print(f"{shown(listing.path)}: {state}{'' if listing.is_live else f', {stop}'}")
    _print_log(console, listing)
    _print_topics(console, listing)
    _print_index(console, listing)
    checkpoint = listing.checkpoint
    if checkpoint is None:
        console.print("checkpoint: none")
    else:
        console.print(
            f"checkpoint: log to {_time(checkpoint.physic_msg_timestamp_ms)},"
            f" queues to {_time(checkpoint.logics_msg_timestamp_ms)},"
            f" index to {_time(checkpoint.index_msg_timestamp_ms)},"
            f" master flushed {checkpoint.master_flushed_offset},"
            f" confirm offset {checkpoint.confirm_physical_offset}"
        )
    for stray in listing.strays:
        console.print(f"not a file of a store: {shown(stray.path)} ({shown(stray.reason)})")


def _print_log(console: "Console", listing: "Listing") -> None:
    table = new_table(title="commit log")
    _columns(table, "file", right=("from", "to", "size", "fill"))
    _columns(table, "first stored", "last stored")
    for row in listing.commit_log:
        table.add_row(
            shown(Path(row.path).name),
            f"{row.offset}",
            f"{row.offset + row.used_bytes}",
            human_bytes(row.size),
            f"{100 * row.used_bytes / row.size if row.size else 0:.1f} %",
            _time(row.first_store_timestamp_ms),
            _time(row.last_store_timestamp_ms),
        )
    console.print(table)


def _print_topics(console: "Console", listing: "Listing") -> None:
    table = new_table(title="queues")
    _columns(table, "topic", right=("queues", "files", "size", "units", "offsets from", "to"))
    _columns(table, "kind")
    for row in listing.topics:
        table.add_row(
            shown(row.topic),
            f"{row.queue_count}",
            f"{row.file_count}",
            human_bytes(row.size),
            f"{row.unit_count}",
            f"{row.min_offset}",
            f"{row.max_offset}",
            row.kind + (" + ext" if row.has_ext else ""),
        )
    console.print(table)


def _print_index(console: "Console", listing: "Listing") -> None:
    table = new_table(title="index")
    _columns(table, "file", right=("size", "keys", "offsets from", "to"))
    _columns(table, "first stored", "last stored")
    for row in listing.index_files:
        table.add_row(
            shown(Path(row.path).name),
            human_bytes(row.size),
            f"{row.key_count}",
            f"{row.begin_physical_offset}",
            f"{row.end_physical_offset}",
            _time(row.begin_timestamp_ms),
            _time(row.end_timestamp_ms),
        )
    console.print(table)


def _columns(table: "Table", *left: str, right: tuple[str, ...] = ()) -> None:
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right")


def _time(timestamp_ms: int) -> str:
    return time_text(timestamp_ms) if timestamp_ms else "-"


def print_stat(console: "Console", stat: "StoreStat") -> None:
    """Print what `tandem log stat` counted: a line a queue, a line for all."""
    table = new_table()
    _columns(table, "topic", right=("queue", "messages", "bytes", "share", "msg/s", "bytes/s"))
    _columns(table, right=("size p50", "p99", "max"))
    _columns(table, "first stored", "last stored")
    for queue in stat.queues:
        table.add_row(shown(queue.topic), f"{queue.queue_id}", *_stat_cells(queue))
    if len(stat.queues) != 1:
        table.add_section()
        table.add_row("all", "", *_stat_cells(stat.total))
    console.print(table)


def _stat_cells(stat: "QueueStat") -> tuple[str, ...]:
    return (
        f"{stat.message_count}",
        human_bytes(stat.total_bytes),
        f"{100 * stat.share:.1f} %",
        f"{stat.messages_per_second:,.1f}",
        human_bytes(round(stat.bytes_per_second)),
        f"{stat.size_p50_bytes}",
        f"{stat.size_p99_bytes}",
        f"{stat.size_max_bytes}",
        _time(stat.first_store_timestamp_ms),
        _time(stat.last_store_timestamp_ms),
    )


def print_report(console: "Console", report: "VerifyReport", seconds: float) -> None:
    """Print what was checked and found; what a kind of finding means is said once."""
    _print_findings(console, report)
    _say(
        console,
        f"checked {report.record_count} records (offsets {report.log_start} to {report.log_end}),"
        f" {report.unit_count} units of {report.queue_count} queues,"
        f" {report.index_count} entries of {report.index_file_count} index files:"
        f" {human_bytes(report.bytes_read)} in {seconds:.1f} s",
    )
    _print_verdict(console, report)


def print_coordinator_report(console: "Console", report: "CoordinatorReport") -> None:
    """Print the same of a coordinator's journal."""
    _print_findings(console, report)
    _say(
        console,
        f"checked {report.record_count} records of the coordinator's journal:"
        f" {human_bytes(report.bytes_read)}",
    )
    _print_verdict(console, report)


def _print_findings(console: "Console", report: "FindingReport") -> None:
    explained = ""
    for finding in report.findings:
        if finding.kind != explained:
            explained = finding.kind
            colour = _COLOURS[finding.severity]
            _say(console, f"{finding.severity}: {finding.kind}: {finding.meaning}", colour)
            _say(console, f"  remedy: {finding.remedy}")
        place = f" position {finding.position}:" if finding.position >= 0 else ""
        more = f" (and {finding.count - 1} more like it)" if finding.count > 1 else ""
        _say(console, f"  {finding.file}:{place} {finding.what}{more}")


def _print_verdict(console: "Console", report: "FindingReport") -> None:
    if report.damage_count:
        _say(console, f"DAMAGED: {report.damage_count} findings", "bold red")
    elif report.warning_count:
        _say(console, "sound, with warnings", "yellow")
    else:
        _say(console, "sound", "green")


def _say(console: "Console", text: str, style: str | None = None) -> None:
    console.print(plain(text), style=style, markup=False, soft_wrap=True)


class RecordTable:
    """Prints records as they come, in columns of fixed width: nothing is held back."""

    _ROW: Final = "{:>14}  {:<20} {:>5} {:>10}  {:<24}  {:<12}  {:<16}  {}"

    def __init__(self, write: Callable[[str], None], *, shows_body: bool) -> None:
        self._write = write
        self._shows_body = shows_body
        head = ("physical", "topic", "queue", "offset", "stored", "tags", "keys")
        write(self._ROW.format(*head, "body" if shows_body else "").rstrip())

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
        self._write(self._ROW.format(*(plain(cell) for cell in cells)).rstrip())


def _shortened(text: str) -> str:
    if len(text) <= BODY_CHARACTERS_MAX:
        return text
    return f"{text[:BODY_CHARACTERS_MAX]}… ({len(text)} characters)"
