"""A drill in Markdown, for a pull request: the verdict, why, and a row for each scenario. Pure.

Names and reasons come from nodes and files. Nothing in them makes a link, a mention, an image or
HTML of it.
"""

import re
from collections.abc import Iterator
from typing import Final

from tandem.drill.outcomes import Verdict
from tandem.drill.run_record import RunRecord
from tandem.plain_text import one_line

_SIGNS: Final[dict[Verdict, str]] = {
    "PASSED": "\N{WHITE HEAVY CHECK MARK}",
    "FAILED": "\N{CROSS MARK}",
    "INCONCLUSIVE": "\N{BLACK QUESTION MARK ORNAMENT}",
    "INTERRUPTED": "\N{BLACK QUESTION MARK ORNAMENT}",
    "NOT POSSIBLE": "\N{BLACK QUESTION MARK ORNAMENT}",
}
_MEANINGS: Final[dict[Verdict, str]] = {
    "PASSED": "every promise held",
    "FAILED": "a promise is broken, or something expected was not seen",
    "INCONCLUSIVE": "the machine was too slow, or a fault did nothing; nothing was found broken",
    "INTERRUPTED": "it was stopped; this says nothing",
    "NOT POSSIBLE": "this machine could play none of the scenarios",
}
_ACTIVE: Final = re.compile(r"[\\`*_{}\[\]<>()#!|~&@]|://")
REASONS_MAX: Final = 10


def markdown_of(record: RunRecord) -> str:
    """Return the summary of a drill."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: RunRecord) -> Iterator[str]:
    label = f" of {_said(record.label)}" if record.label else ""
    yield f"### {_SIGNS[record.verdict]} Drill{label}: {record.verdict}"
    yield ""
    target = f"{_said(record.target)}, " if record.target else ""
    yield (
        f"{_MEANINGS[record.verdict].capitalize()}. {target}{record.nodes} nodes,"
        f" {_said(record.group_kind)} group, {record.seconds:,.0f} s, seed {record.seed},"
        f" by TandemMQ {_said(record.tandem_version)}."
    )
    yield ""
    yield from _reasons(record)
    yield "| scenario | outcome | runs | without an acknowledgement, median | longest |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for each in record.scenarios:
        gaps = (_seconds(each.unavailable_seconds), _seconds(each.unavailable_seconds_max))
        yield f"| {_said(each.name)} | {each.outcome} | {each.runs} | {' | '.join(gaps)} |"
    yield ""
    if record.groups:
        yield from _groups(record)
    if record.sync_acknowledged is None:
        yield "The logs were not audited."
    else:
        broken = ", ".join(f"{count:,} {_said(name)}" for name, count in record.broken.items())
        yield (
            f"{record.sync_acknowledged:,} sync sends acknowledged; broken promises:"
            f" {broken or 'none'}."
        )


def _groups(record: RunRecord) -> Iterator[str]:
    yield "| group | outcome | sends | slowest while others were hurt | broken |"
    yield "| --- | --- | ---: | ---: | --- |"
    for each in record.groups:
        name = f"{_said(each.name)} (hurt)" if each.is_hurt else _said(each.name)
        broken = ", ".join(f"{count:,} {_said(what)}" for what, count in each.broken.items())
        slowest = _seconds(each.slowest_calm_seconds)
        yield f"| {name} | {each.outcome} | {each.sends:,} | {slowest} | {broken or 'none'} |"
    yield ""


def _reasons(record: RunRecord) -> Iterator[str]:
    unmet = [(each.name, words) for each in record.scenarios for words in each.failed]
    for name, words in unmet[:REASONS_MAX]:
        yield f"- **{_said(name)}** {_said(words)}"
    if len(unmet) > REASONS_MAX:
        yield f"- and {len(unmet) - REASONS_MAX} more in the report"
    if record.why and not unmet:
        yield f"- {_said(record.why)}"
    if record.why:
        yield ""


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _said(text: str) -> str:
    """Return foreign text so that Markdown acts on nothing in it."""
    return _ACTIVE.sub(lambda found: "".join(map(_entity, found[0])), one_line(text, 300))


def _entity(character: str) -> str:
    return f"&#{ord(character)};"
