"""What a drill leaves on the terminal: the verdict, what it rests on, and where to read on."""

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tandem.drill.stream_audit import StreamSummary
from tandem.drill.summary import Summary, broken_promises, failed_expectations

EXIT_HELD: Final = 0
EXIT_BROKEN: Final = 1
EXIT_NOT_RUN: Final = 2
SWITCHES_SHOWN_MAX: Final = 20
"""On the terminal; the report has them all."""

EXIT_INTERRUPTED: Final = 130
"""As a shell reports a program that Ctrl-C ended: 128 + SIGINT."""

_STYLES: Final = {
    "PASSED": "bold green",
    "FAILED": "bold red",
    "INTERRUPTED": "bold yellow",
    "NOT POSSIBLE": "bold yellow",
}


def exit_status(summary: Summary) -> int:
    """0 only if everything ran and every promise and expectation held."""
    match summary.verdict:
        case "PASSED":
            return EXIT_HELD
        case "INTERRUPTED":
            return EXIT_INTERRUPTED
        case "FAILED":
            return EXIT_BROKEN
        case "NOT POSSIBLE":
            return EXIT_NOT_RUN


def print_verdict(console: Console, summary: Summary, page: Path) -> None:
    """Print what there is to say at the end; frames are for terminals."""
    title = Text(summary.verdict, _STYLES[summary.verdict])
    if summary.stopped_because:
        title.append(f"  {summary.stopped_because}", "default")
    parts: list[Table | Text] = [title]
    if summary.promises_broken is not None:
        parts.append(_counts(summary))
    if summary.switches:
        parts.append(_switches(summary))
    if any(run.unavailable_seconds is not None for run in summary.runs):
        parts.append(_unavailability(summary))
    parts += [
        Text(f"{run.name}: {run.outcome}", "bold yellow")
        for run in summary.runs
        if not run.is_possible
    ]
    if failed_expectations(summary):
        parts.append(_failures(summary))
    parts.append(Text(f"report: {page}"))
    for part in parts:
        if isinstance(part, Table) and (not console.is_terminal or console.is_dumb_terminal):
            part.box, part.pad_edge = None, False
    console.print()
    for part in parts:
        console.print(part, highlight=False, soft_wrap=True)


def _counts(summary: Summary) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("sync", _of(summary.sync_acknowledged, "acknowledged"), _lost(summary.sync_lost))
    table.add_row(
        "async",
        _of(summary.async_acknowledged, "acknowledged"),
        Text(f"{summary.async_lost:,} lost (allowed)"),
    )
    table.add_row(
        "no clear answer",
        _of(summary.unknown_found, "found"),
        _of(summary.unknown_missing, "not found"),
    )
    if summary.settings.group_kind == "fenced":
        table.add_row(
            "sent again",
            Text(f"{summary.stored_again or 0:,} stored more than once, as often as sent"),
            _of(summary.cut_records, "in tails that were cut off, none acknowledged")
            if not summary.acknowledged_cut
            else Text(f"{summary.acknowledged_cut:,} acknowledged ones cut off", "bold red"),
        )
    same = summary.identical_by_slave or {}
    table.add_row(
        "slaves" if summary.settings.group_kind == "classic" else "other nodes",
        f"{sum(same.values())} of {len(same)} equal the master, byte for byte",
    )
    if summary.stream is not None:
        table.add_row("Spark stream", _of(summary.stream.rows, "rows"), _stream(summary.stream))
    broken = ", ".join(f"{count:,} {name}" for name, count in broken_promises(summary))
    table.add_row("broken promises", Text(broken or "none", "bold red" if broken else "green"))
    return table


def _stream(stream: StreamSummary) -> Text:
    if not stream.promises_broken:
        return Text("each record of the log once, and nothing else", "green")
    return Text("; ".join(stream.examples), "bold red")


def _switches(summary: Summary) -> Table:
    """Each change of master with the time of each step, in seconds since its fault."""
    table = Table(
        "fault",
        "new master",
        "detect",
        "fence",
        "elect",
        "open",
        "first ack",
        title="Failovers (s)",
    )
    table.title_justify = "left"
    for switch in summary.switches[-SWITCHES_SHOWN_MAX:]:
        steps = (
            switch.detect_seconds,
            switch.fence_seconds,
            switch.elect_seconds,
            switch.open_seconds,
            switch.first_ack_seconds,
        )
        times = ["-" if step is None else f"{step:.2f}" for step in steps]
        table.add_row(switch.fault, f"{switch.master}, epoch {switch.epoch}", *times)
    return table


def _unavailability(summary: Summary) -> Table:
    table = Table(
        "scenario", "runs", "median", "p99", "longest", title="Without an acknowledgement (s)"
    )
    table.title_justify = "left"
    for row in summary.unavailability:
        seconds = (row.median_seconds, row.p99_seconds, row.max_seconds)
        table.add_row(row.scenario, str(row.runs), *(f"{each:.2f}" for each in seconds))
    return table


def _of(number: int | None, what: str) -> str:
    return f"{number or 0:,} {what}"


def _lost(number: int | None) -> Text:
    return Text(f"{number or 0:,} lost", "bold red" if number else "green")


def _failures(summary: Summary) -> Table:
    table = Table("scenario", "phase", "expected", "seen", title_justify="left")
    for expectation in failed_expectations(summary):
        table.add_row(
            expectation.scenario, expectation.phase, expectation.expected, expectation.seen
        )
    return table
