"""The table of compatibility: one row a scenario, one column a target."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from tests.compat.refusals import REFUSALS
from tests.compat.targets import TARGET_NAMES, TargetName

Verdict = Literal["yes", "no", "refused", "-"]
REASON_CHARACTERS_MAX: Final = 400


class Outcome(msgspec.Struct, frozen=True):
    """How one scenario went against one target.

    `shape` is the output of a tool without what differs from run to run, where there is one.
    """

    suite: str
    name: str
    target: TargetName
    ok: bool
    seconds: float = 0.0
    reason: str = ""
    shape: list[str] = []


class Row(msgspec.Struct, frozen=True):
    """One scenario against every target that was asked."""

    suite: str
    name: str
    outcomes: dict[TargetName, Outcome]

    @property
    def counts(self) -> bool:
        """Whether RocketMQ itself passes; otherwise it says nothing about us."""
        real = self.outcomes.get("real")
        return real is None or real.ok

    @property
    def refusal(self) -> str:
        """Why we do not do this by design; empty if we should."""
        return REFUSALS.get((self.suite, self.name), "")

    def verdict(self, target: TargetName) -> Verdict:
        """What stands in the column of a target."""
        outcome = self.outcomes.get(target)
        if outcome is None:
            return "-"
        if outcome.ok:
            return "yes"
        return "refused" if self.refusal and target != "real" else "no"

    @property
    def failures(self) -> dict[TargetName, str]:
        """Of our targets, those that should pass and do not, and why."""
        if not self.counts or self.refusal:
            return {}
        return {
            name: outcome.reason
            for name, outcome in self.outcomes.items()
            if name != "real" and not outcome.ok
        }


def rows_of(outcomes: Iterable[Outcome]) -> list[Row]:
    """Group outcomes by scenario, by suite and name."""
    rows: dict[tuple[str, str], Row] = {}
    for outcome in outcomes:
        key = (outcome.suite, outcome.name)
        row = rows.setdefault(key, Row(outcome.suite, outcome.name, {}))
        row.outcomes[outcome.target] = outcome
    return sorted(rows.values(), key=lambda row: (row.suite, row.name))


def as_text(rows: Sequence[Row]) -> str:
    """Print the table for a terminal: rows, reasons of what failed, and the sums."""
    width = max((len(row.name) for row in rows), default=0)
    lines = [f"{'':8} {'':{width}} {' '.join(f'{name:8}' for name in TARGET_NAMES)}"]
    for row in rows:
        verdicts = " ".join(f"{row.verdict(name):8}" for name in TARGET_NAMES)
        lines.append(f"{row.suite:8} {row.name:{width}} {verdicts} {reason_of(row)}".rstrip())
    lines += ["", *(f"{suite}: {words}" for suite, words in sums_of(rows))]
    return "\n".join(lines) + "\n"


def sums_of(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Per suite, how many rows count and how many of them each target passes."""
    suites = list(dict.fromkeys(row.suite for row in rows))
    sums = []
    for suite in [*suites, "all"]:
        counted = [row for row in rows if suite in (row.suite, "all") and row.counts]
        parts = [f"{len(counted)} scenarios"]
        for name in TARGET_NAMES:
            verdicts = [row.verdict(name) for row in counted]
            if set(verdicts) - {"-"}:
                refused = verdicts.count("refused")
                words = f"{name} {verdicts.count('yes')}"
                parts.append(words + (f" and {refused} refused" if refused else ""))
        sums.append((suite, ", ".join(parts)))
    return sums


def reason_of(row: Row) -> str:
    """Say why a row fails, is refused or does not count; empty if it is well."""
    if not row.counts:
        return f"(does not count: {_short(row.outcomes['real'].reason)})"
    if row.refusal and any(row.verdict(name) == "refused" for name in TARGET_NAMES):
        return row.refusal
    reasons = list(dict.fromkeys(_short(reason) for reason in row.failures.values()))
    return " / ".join(reasons)


def _short(reason: str) -> str:
    one_line = re.sub(r"\s+", " ", reason)
    # What the client adds to every error.
    one_line = re.sub(r" (BROKER: \S+|For more information|See https?:).*", "", one_line)
    if len(one_line) > REASON_CHARACTERS_MAX:
        return f"{one_line[:REASON_CHARACTERS_MAX]}..."
    return one_line
