"""What a drill leaves on the terminal: the verdict, what it rests on, and where to read on."""

from pathlib import Path
from typing import Final

from rich.console import Console

from tandem.drill.consumers.promises import ConsumerSummary
from tandem.drill.headline import in_words
from tandem.drill.judgement import READS
from tandem.drill.outcomes import EXIT_STATUSES
from tandem.drill.stream_audit import StreamSummary
from tandem.drill.summary import (
    NOT_MEASURED,
    Summary,
    broken_promises,
    failed_expectations,
    last_fault_before,
    why,
)
from tandem.drill.undisturbed import Calm
from tandem.text_table import Cell, Line, TableColumn, rich_text, table_lines, words_lines

BAD: Final = "bold red"
SWITCHES_SHOWN_MAX: Final = 20
"""On the terminal; the report has them all."""

EVIDENCE_SHOWN_MAX: Final = 5

_STYLES: Final = {
    "PASSED": "bold green",
    "FAILED": BAD,
    "INCONCLUSIVE": "bold yellow",
    "INTERRUPTED": "bold yellow",
    "NOT POSSIBLE": "bold yellow",
}


def exit_status(summary: Summary) -> int:
    """0 only if everything ran and every promise and expectation held."""
    return EXIT_STATUSES[summary.verdict]


def print_verdict(console: Console, summary: Summary, page: Path) -> None:
    """Print what there is to say at the end. Lines are folded for terminals alone."""
    is_terminal = console.is_terminal and not console.is_dumb_terminal
    width = console.width if is_terminal else None
    lines = words_lines(in_words(summary), width, style=_STYLES[summary.verdict])
    for words in why(summary) if summary.verdict != "PASSED" else []:
        lines += words_lines(words, width, indent=2)
    lines += _contract(summary, width)
    if summary.promises_broken is not None:
        lines += _counts(summary, width)
    if summary.groups:
        lines += _groups(summary, width)
    if summary.switches:
        lines += _switches(summary, width)
    if any(run.unavailable_seconds is not None for run in summary.runs):
        lines += _unavailability(summary, width)
    for run in summary.runs:
        if not run.is_possible:
            lines += words_lines(f"{run.name}: {run.outcome}", width, style="bold yellow")
    lines += _evidence(summary, width)
    if failed_expectations(summary):
        lines += _failures(summary, width)
    lines += words_lines(f"report: {page}", width)
    console.print()
    console.print(rich_text(lines), highlight=False, soft_wrap=True)


def _contract(summary: Summary, width: int | None) -> list[Line]:
    contract = summary.target.contract
    return words_lines(f"contract: {contract}", width) if contract else []


def _evidence(summary: Summary, width: int | None) -> list[Line]:
    """What the first broken promises rest on, as lines."""
    return [
        line
        for each in summary.evidence[:EVIDENCE_SHOWN_MAX]
        for words in each.in_words()
        for line in words_lines(words, width, indent=2)
    ]


def _counts(summary: Summary, width: int | None) -> list[Line]:
    rows = [
        ("sync", _of(summary.sync_acknowledged, "acknowledged"), _lost_of_sync(summary)),
        (
            "async",
            _of(summary.async_acknowledged, "acknowledged"),
            _allowed(summary.async_acknowledged, summary.async_lost),
        ),
        (
            "no clear answer",
            _of(summary.unknown_found, "found"),
            _of(summary.unknown_missing, "not found"),
        ),
    ]
    if summary.settings.group_kind == "fenced":
        rows.append(
            (
                "sent again",
                Cell(f"{summary.stored_again or 0:,} stored more than once, as often as sent"),
                _of(summary.cut_records, "in tails that were cut off, none acknowledged")
                if not summary.acknowledged_cut
                else Cell(f"{summary.acknowledged_cut:,} acknowledged ones cut off", BAD),
            )
        )
    same = summary.identical_by_slave or {}
    rows.append(
        (
            "slaves" if summary.settings.group_kind == "classic" else "other nodes",
            Cell(f"{sum(same.values())} of {len(same)} equal the master, byte for byte"),
            Cell(", ".join(f"{node} not compared" for node in summary.not_compared)),
        )
    )
    if summary.stream is not None:
        rows.append(("Spark stream", _of(summary.stream.rows, "rows"), _stream(summary.stream)))
    if summary.witness is not None:
        rows.append(("Java's client", _of(summary.witness.deliveries, "given"), _witness(summary)))
    if summary.consumers is not None:
        rows.append(("groups", *_consumers(summary.consumers)))
    broken = ", ".join(f"{count:,} {name}" for name, count in broken_promises(summary))
    if not summary.sends:
        held = Cell(NOT_MEASURED)
    else:
        held = Cell(broken, BAD) if broken else Cell("none", "green")
    rows.append(("broken promises", held, Cell("")))
    columns = [TableColumn(""), TableColumn("", " "), TableColumn("", " ")]
    _, *lines = table_lines(columns, [[Cell(name), *cells] for name, *cells in rows], width)
    return lines


def _stream(stream: StreamSummary) -> Cell:
    if stream.promises_broken:
        return Cell("; ".join(stream.examples), BAD)
    if not stream.rows:
        return Cell(NOT_MEASURED)
    return Cell("each record of the log once, and nothing else", "green")


def _witness(summary: Summary) -> Cell:
    witness = summary.witness
    if witness is None or not witness.deliveries:
        return Cell(NOT_MEASURED)
    if witness.promises_broken:
        style = "" if READS in summary.target.not_promised else BAD
        return Cell("; ".join(witness.examples), style)
    again = f", {witness.repeated:,} once more (allowed)" if witness.repeated else ""
    return Cell(f"the same messages as ours{again}", "green")


def _consumers(consumers: ConsumerSummary) -> tuple[Cell, Cell]:
    acknowledged = sum(consumers.acknowledged.values())
    first = _of(acknowledged, "acknowledged for them")
    if consumers.promises_broken:
        return first, Cell(f"{consumers.promises_broken:,} promises broken", BAD)
    if consumers.left:
        left = ", ".join(f"{count:,} {words}" for words, count in consumers.left.items())
        return first, Cell(left, BAD)
    if not acknowledged:
        return first, Cell(NOT_MEASURED)
    allowed = (consumers.not_promised_left, consumers.not_promised_counts)
    words = ", ".join(f"{count:,} {name}" for counts in allowed for name, count in counts.items())
    if consumers.not_promised_left:
        return first, Cell(f"nothing broken; not promised: {words}")
    allowed_words = f"; not promised: {words}" if words else ""
    held = "each of them handled, none early or passed over"
    return first, Cell(f"{held}{allowed_words}", "" if words else "green")


def _switches(summary: Summary, width: int | None) -> list[Line]:
    """Each change of master with the time of each step, in seconds since its fault."""
    steps = ("detect", "fence", "elect", "open", "first ack")
    columns = [
        TableColumn("fault", " "),
        TableColumn("new master"),
        *(TableColumn(step, is_number=True) for step in steps),
    ]
    rows = []
    for switch in summary.switches[-SWITCHES_SHOWN_MAX:]:
        seconds = (
            switch.detect_seconds,
            switch.fence_seconds,
            switch.elect_seconds,
            switch.open_seconds,
            switch.first_ack_seconds,
        )
        times = ["-" if each is None else f"{each:.2f}" for each in seconds]
        new = f"{switch.master}, epoch {switch.epoch}"
        rows.append([*map(Cell, (switch.fault, new, *times))])
    return [*words_lines("Failovers (s)", width), *table_lines(columns, rows, width)]


def _groups(summary: Summary, width: int | None) -> list[Line]:
    """Each group, and what became of it while others were hurt."""
    columns = [
        TableColumn("group"),
        TableColumn("sends", is_number=True),
        TableColumn("sync lost", is_number=True),
        TableColumn("slowest s", is_number=True),
        TableColumn("while others were hurt", " "),
        TableColumn("broken", " "),
    ]
    rows = []
    for group in summary.groups:
        lost = "-" if group.sync_lost is None else f"{group.sync_lost:,}"
        broken = ", ".join(f"{count:,} {name}" for name, count in group.broken.items())
        rows.append(
            [
                Cell(f"{group.name} (hurt)" if group.is_hurt else group.name),
                Cell(f"{group.sends:,}"),
                Cell(lost),
                Cell(f"{group.slowest_ms / 1000:.2f}"),
                Cell(_calm(group.calm)),
                Cell(broken, BAD) if broken else Cell("none", "green"),
            ]
        )
    return [*words_lines("Groups", width), *table_lines(columns, rows, width)]


def _calm(calm: Calm | None) -> str:
    if calm is None:
        return "never so"
    late = f", {calm.excused:,} of these by a slow machine" if calm.excused else ""
    return (
        f"{calm.sends:,} sends: {calm.failed:,} failed, {calm.slow:,} slower than"
        f" {calm.slower_than_ms / 1000:g} s; {calm.elections:,} elections{late}"
    )


def _unavailability(summary: Summary, width: int | None) -> list[Line]:
    columns = [
        TableColumn("scenario"),
        *(TableColumn(name, is_number=True) for name in ("runs", "median", "p99", "longest")),
    ]
    rows = []
    for row in summary.unavailability:
        seconds = (row.median_seconds, row.p99_seconds, row.max_seconds)
        figures = (row.scenario, str(row.runs), *(f"{each:.2f}" for each in seconds))
        rows.append([*map(Cell, figures)])
    title = words_lines("Without an acknowledgement (s)", width)
    return [*title, *table_lines(columns, rows, width)]


def _of(number: int | None, what: str) -> Cell:
    return Cell(f"{number or 0:,} {what}")


def _lost_of_sync(summary: Summary) -> Cell:
    if summary.sync_lost and "sync_lost" in summary.target.not_promised:
        return Cell(f"{summary.sync_lost:,} lost (not promised)")
    if summary.sync_lost:
        return Cell(f"{summary.sync_lost:,} lost", BAD)
    return Cell("0 lost", "green") if summary.sync_acknowledged else Cell(NOT_MEASURED)


def _allowed(acknowledged: int | None, lost: int | None) -> Cell:
    return Cell(f"{lost or 0:,} lost (allowed)" if acknowledged else NOT_MEASURED)


def _failures(summary: Summary, width: int | None) -> list[Line]:
    columns = [
        TableColumn("scenario"),
        TableColumn("phase"),
        TableColumn("expected", " "),
        TableColumn("seen", " "),
        TableColumn("last done before", " "),
    ]
    rows = []
    for each in failed_expectations(summary):
        fault = last_fault_before(summary, each)
        done = "nothing" if fault is None else fault.text
        rows.append(
            [
                Cell(each.scenario),
                Cell(each.phase),
                Cell(each.expected),
                Cell(each.seen, BAD),
                Cell(done),
            ]
        )
    return table_lines(columns, rows, width)
