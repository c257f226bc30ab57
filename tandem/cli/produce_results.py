"""What became of messages that were sent: single results, if they are wanted, and the sum."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import typer

from tandem.cli.formats import Column, Format, Section, write
from tandem.cli.output import hints
from tandem.plain_text import one_line, plain

if TYPE_CHECKING:
    from tandem.client import ClientError, SendResult
    from tandem.wire.message import Message

REASONS_SHOWN_MAX: Final = 5

NOT_STORED: Final = "NOT_STORED"
UNKNOWN: Final = "UNKNOWN"

_STYLES: Final = {"SEND_OK": "green", NOT_STORED: "bold red", UNKNOWN: "bold red"}


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one message. `status` as in `SendStatus`, else NOT_STORED or UNKNOWN."""

    status: str
    topic: str
    broker: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    msg_id: str | None = None
    reason: str = ""


class Tally:
    """Counts what became of the messages: by status, and why if it is not SEND_OK."""

    def __init__(self) -> None:
        self.by_status: Counter[str] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.failed_count = 0
        self.in_flight_count = 0
        """Messages that nobody has answered when the command was ended."""
        self._hints: dict[str, None] = {}

    def take(self, outcome: "SendResult | ClientError", count: int) -> None:
        """Count `count` messages that share one outcome."""
        status, reason = status_of(outcome)
        if isinstance(outcome, Exception):
            self.failed_count += count
            self._hints |= dict.fromkeys(hints(outcome))
        self.by_status[status] += count
        if reason:
            self.reasons[status, reason] += count

    def refuse(self, count: int, reason: str) -> None:
        """Have `count` messages that were not sent for this reason, all in all."""
        key = (NOT_STORED, reason)
        more = count - self.reasons[key]
        if more:
            self.failed_count += more
            self.by_status[NOT_STORED] += more
            self.reasons[key] = count

    def leave(self, count: int) -> None:
        """Have `count` messages of which nobody knows, because the command was ended."""
        self.in_flight_count += count
        self.failed_count += count

    @property
    def total_count(self) -> int:
        """All messages that have an outcome."""
        return sum(self.by_status.values())

    def __str__(self) -> str:
        return ", ".join(f"{status} {count:,}" for status, count in sorted(self.by_status.items()))

    def summary(self, seconds: float) -> str:
        """Return the sum in a line, and reasons in the next ones."""
        total = self.total_count
        if not total and not self.in_flight_count:
            return "nothing was sent"
        what = "message" if total == 1 else "messages"
        rate = f", {total / seconds:,.0f}/s" if total > 1 and seconds > 0 else ""
        lines = [f"{total:,} {what} in {seconds:.2f} s{rate}: {str(self) or 'no answer'}"]
        if self.in_flight_count:
            lines.append(f"and {self.in_flight_count:,} in flight, outcome unknown")
        reasons = self.reasons.most_common()
        for (status, text), count in reasons[:REASONS_SHOWN_MAX]:
            lines.append(f"{status} {count:,}: {one_line(text)}")
        if (left_out := len(reasons) - REASONS_SHOWN_MAX) > 0:
            lines.append(f"and {left_out} other reasons")
        return "\n".join([*lines, *self._hints])


def status_of(outcome: "SendResult | ClientError") -> tuple[str, str]:
    """Return the status of a message, and the reason if it has one."""
    if isinstance(outcome, Exception):
        return UNKNOWN if outcome.outcome_unknown else NOT_STORED, str(outcome)
    return outcome.status.value, outcome.reason


def sent_of(messages: "Sequence[Message]", outcome: "SendResult | ClientError") -> list[Sent]:
    """Return what became of messages that share an outcome, as those of a batch do."""
    status, reason = status_of(outcome)
    if isinstance(outcome, Exception):
        return [Sent(status=status, topic=each.topic, reason=reason) for each in messages]
    ids = outcome.msg_id.split(",")
    return [
        Sent(
            status=status,
            topic=each.topic,
            broker=outcome.queue.broker_name,
            queue_id=outcome.queue.queue_id,
            queue_offset=outcome.queue_offset + index,
            msg_id=ids[index] if index < len(ids) else None,
            reason=reason,
        )
        for index, each in enumerate(messages)
    ]


class ResultPrinter:
    """Prints results: as lines at once, as a table or a document at the end."""

    def __init__(self, output_format: Format) -> None:
        self._format = output_format
        self._kept: list[Sent] = []

    def take(self, results: list[Sent]) -> None:
        """Print some, or keep them."""
        if self._format in (Format.JSONL, Format.TEXT):
            write(self._format, results_section(results))
            sys.stdout.flush()
        else:
            self._kept += results

    def end(self) -> None:
        """Print what was kept."""
        if self._format in (Format.TABLE, Format.JSON):
            write(self._format, results_section(self._kept))


def results_section(results: Sequence[Sent]) -> Section[Sent]:
    """Return the table of results."""
    columns: list[Column[Sent]] = [
        Column("status", lambda each: each.status, _STYLES),
        Column("topic", lambda each: each.topic),
        Column("broker", lambda each: each.broker),
        Column("queue", lambda each: each.queue_id),
        Column("offset", lambda each: each.queue_offset),
        Column("message id", lambda each: each.msg_id),
    ]
    if any(each.reason for each in results):
        columns.append(Column("reason", lambda each: each.reason or None, folds_at=" "))
    return Section(results, columns, none="nothing was sent")


def say_bad_line(number: int, reason: str) -> None:
    """Say on standard error what is wrong with a line of the input."""
    typer.secho(f"line {number}: {plain(reason)}", err=True, fg=typer.colors.YELLOW)
