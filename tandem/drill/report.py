"""`report/`: a page that opens without a network, and the same facts for programs."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import jinja2
import msgspec

from tandem.drill.consumers.promises import RULES
from tandem.drill.errors import ReportError
from tandem.drill.headline import in_words
from tandem.drill.outcomes import STATUSES
from tandem.drill.plots import STATUS_COLOURS, details_svg
from tandem.drill.story import labels, longest, masters
from tandem.drill.story_plot import NARROW_INCHES, story_svg
from tandem.drill.summary import (
    Summary,
    broken_promises,
    failed_expectations,
    last_fault_before,
    why,
)
from tandem.drill.timeline import Timeline
from tandem.drill.watched_group import Change
from tandem.views.drill_reports import SUMMARY_NAME

PAGE_NAME: Final = "index.html"

GLOSSARY: Final = (
    (
        "SEND_OK",
        "A sync send: as many nodes hold the message as the group asks for. In a fenced group that"
        " is every in-sync replica, at least min_isr of them; in a classic group the master and its"
        " slaves, in_sync_replicas of them in all. An async send: the master holds it. A sync"
        " message that was answered so and is gone is a broken promise.",
    ),
    (
        "SLAVE_NOT_AVAILABLE",
        "The message is in the master's log, but too few other nodes are connected. Its outcome is"
        " unknown, not failed: sending it again makes a second copy.",
    ),
    (
        "FLUSH_SLAVE_TIMEOUT",
        "The message is in the master's log, another node was there, and its answer did not come in"
        " time. Outcome unknown, not failed; a fenced group may have another master already, whose"
        " log may lack it.",
    ),
    (
        "FLUSH_DISK_TIMEOUT",
        "The message is in the master's memory and its disk was too slow to say more. Outcome"
        " unknown, not failed.",
    ),
    (
        "UNKNOWN",
        "The request left and no answer came back. The message may be stored or not; both are"
        " allowed, twice is not.",
    ),
    ("REJECTED", "The broker refused. The message is nowhere; if it is found, that is a phantom."),
    ("NOT_SENT", "The request never left the client. If the message is found, it is a phantom."),
)

CHECKS: Final = (
    ("sync_lost", "sync sends answered SEND_OK that the master's log does not hold"),
    (
        "stored_but_missing",
        "sends answered FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE that the"
        " master's log does not hold",
    ),
    ("duplicated", "messages that the master's log holds more often than they were sent"),
    ("phantom", "messages in the log that were never sent, were refused, or have another body"),
    ("misplaced", "messages stored at another place than the answer said"),
    (
        "out_of_order",
        "gaps in a queue's offsets, and messages of one producer that swapped places in a queue",
    ),
    ("corrupt", "records that cannot be read or whose checksum is wrong"),
    (
        "acknowledged_cut",
        "messages that a node of a fenced group cut off its log although they were acknowledged",
    ),
    ("slaves_not_identical", "nodes whose log differs from the master's in any byte"),
)


def write_report(
    summary: Summary, timeline: Timeline, history: Sequence[Change], out: Path
) -> Path:
    """Write `summary.json` and `index.html`; return the page.

    Raises:
        ReportError: they cannot be written.
    """
    encoded = msgspec.json.format(msgspec.json.encode(summary), indent=2)
    page = out / PAGE_NAME
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / SUMMARY_NAME).write_bytes(encoded + b"\n")
        page.write_text(render(summary, timeline, history), encoding="utf-8")
    except OSError as error:
        raise ReportError(f"cannot write the report in {out}: {error.strerror}") from error
    return page


def render(summary: Summary, timeline: Timeline, history: Sequence[Change] = ()) -> str:
    """Return the page as one self-contained document."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tandem.drill", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = _count
    return environment.get_template("report.html").render(
        summary=summary,
        broken=broken_promises(summary),
        meanings=dict(CHECKS) | {f"consumers_{name}": text for name, text in RULES.items()},
        why=why(summary),
        failed=[(each, last_fault_before(summary, each)) for each in failed_expectations(summary)],
        failed_scenarios={each.scenario for each in failed_expectations(summary)},
        checks=[(name, text, _check_count(summary, name)) for name, text in CHECKS],
        statuses=[status for status in STATUSES if summary.sends_by_status.get(status)],
        colours=STATUS_COLOURS,
        glossary=GLOSSARY,
        title=in_words(summary),
        date=_date(summary.started_at),
        longest=longest(summary.outages),
        faults=labels(
            summary.faults, masters(timeline, history, summary.seconds, summary.settings.nodes[0])
        ),
        **pictures(summary, timeline, history),
    )


def pictures(
    summary: Summary, timeline: Timeline, history: Sequence[Change]
) -> dict[Literal["wide", "narrow", "details"], str]:
    """Draw what the page shows, each as an `<svg>` element."""
    shown = (timeline, summary.seconds, history, summary.outages, summary.settings.nodes)
    return {
        "wide": story_svg(*shown),
        "narrow": story_svg(*shown, width_inches=NARROW_INCHES),
        "details": details_svg(timeline, summary.seconds),
    }


def _date(started_at: str) -> str:
    """The day and the minute, as people write them: 22 November 2026, 23:40 UTC."""
    at = datetime.fromisoformat(started_at)
    return f"{at.day} {at:%B %Y, %H:%M} UTC"


def _count(number: int | None) -> str:
    return "none" if number is None else f"{number:,}"


def _check_count(summary: Summary, name: str) -> int | None:
    if summary.promises_broken is None:
        return None
    return dict(broken_promises(summary)).get(name, 0)
