"""Two drills compared: what became worse, what better, and what makes them hard to compare. Pure.

Worse is what a drill is held for: a verdict, a count that must be 0, a scenario that did not hold.
Times vary from run to run, and are shown without a judgement.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from tandem.drill.outcomes import Verdict
from tandem.drill.run_record import BROKEN, HELD, GroupRecord, RunRecord, ScenarioRecord

Change = Literal["", "better", "worse", "other"]
"""`other`: they differ, and neither is better."""

_RANKS: Final[dict[Verdict, int]] = {
    "PASSED": 0,
    "NOT POSSIBLE": 1,
    "INTERRUPTED": 1,
    "INCONCLUSIVE": 1,
    "FAILED": 2,
}
_SETTINGS: Final = (
    "target",
    "group_kind",
    "nodes",
    "rate_per_second",
    "duration_seconds",
    "repeat",
    "seed",
    "audit",
    "tandem_version",
    "python_version",
    "machine",
)


NOT_THERE: Final = "not there"
"""Said of a group that a run did not have."""


class Difference(msgspec.Struct, frozen=True):
    """One thing of two runs. `first` and `second` are how each has it, in words."""

    what: str
    first: str
    second: str
    change: Change


def compare(first: RunRecord, second: RunRecord) -> list[Difference]:
    """Return what is to be said of two runs, the older one first: verdicts, counts, scenarios.

    Counts that are 0 in both are left out, and so are settings that are equal.
    """
    return [
        Difference(
            "verdict",
            first.verdict,
            second.verdict,
            _by_rank(_RANKS[first.verdict], _RANKS[second.verdict]),
        ),
        *_broken(first, second),
        *_scenarios(first.scenarios, second.scenarios),
        *_groups(first.groups, second.groups),
        *_figures(first, second),
        *_settings(first, second),
    ]


def is_worse(differences: Sequence[Difference]) -> bool:
    """Whether the second run is worse than the first in anything."""
    return any(each.change == "worse" for each in differences)


def _broken(first: RunRecord, second: RunRecord) -> Iterator[Difference]:
    for name in dict.fromkeys([*first.broken, *second.broken]):
        a, b = first.broken.get(name, 0), second.broken.get(name, 0)
        yield Difference(name, f"{a:,}", f"{b:,}", _by_rank(a, b))
    a, b = first.failed_expectations, second.failed_expectations
    if a or b:
        yield Difference("expectations not met", f"{a:,}", f"{b:,}", _by_rank(a, b))


def _scenarios(
    first: Sequence[ScenarioRecord], second: Sequence[ScenarioRecord]
) -> Iterator[Difference]:
    before = {each.name: each for each in first}
    after = {each.name: each for each in second}
    for name in dict.fromkeys([*before, *after]):
        a, b = before.get(name), after.get(name)
        old, new = _outcome(a), _outcome(b)
        if old != new or old != HELD:
            yield Difference(name, old, new, _by_rank(_rank_of(old), _rank_of(new)))
        if a is not None and b is not None:
            yield from _times(f"{name}: without an acknowledgement", _gap(a), _gap(b))


def _groups(first: Sequence[GroupRecord], second: Sequence[GroupRecord]) -> Iterator[Difference]:
    before = {each.name: each for each in first}
    after = {each.name: each for each in second}
    for name in dict.fromkeys([*before, *after]):
        a, b = before.get(name), after.get(name)
        old, new = (NOT_THERE if each is None else each.outcome for each in (a, b))
        if old != new or old != HELD:
            # That a drill had no such group is neither better nor worse.
            change = "other" if NOT_THERE in (old, new) else _by_rank(_rank_of(old), _rank_of(new))
            yield Difference(f"group {name}", old, new, change)
        if a is not None and b is not None:
            yield from _times(
                f"group {name}: slowest send while others were hurt",
                a.slowest_calm_seconds,
                b.slowest_calm_seconds,
            )


def _outcome(scenario: ScenarioRecord | None) -> str:
    return "not played" if scenario is None else scenario.outcome


def _rank_of(outcome: str) -> int:
    return {HELD: 0, BROKEN: 2}.get(outcome, 1)


def _gap(scenario: ScenarioRecord) -> float | None:
    return scenario.unavailable_seconds


def _times(what: str, first: float | None, second: float | None) -> Iterator[Difference]:
    if first is None and second is None:
        return
    a, b = (f"{each:.2f} s" if each is not None else "not measured" for each in (first, second))
    yield Difference(what, a, b, "" if a == b else "other")


def _figures(first: RunRecord, second: RunRecord) -> Iterator[Difference]:
    yield from _times(
        "fault to first acknowledgement", first.first_ack_seconds, second.first_ack_seconds
    )
    for name in ("sync_acknowledged", "async_acknowledged", "async_lost", "failovers"):
        counts = (getattr(first, name), getattr(second, name))
        a, b = ("not measured" if each is None else f"{each:,}" for each in counts)
        yield Difference(name.replace("_", " "), a, b, "" if a == b else "other")
    if first.late_seconds_max or second.late_seconds_max:
        yield from _times(
            "the drill itself was late by", first.late_seconds_max, second.late_seconds_max
        )


def _settings(first: RunRecord, second: RunRecord) -> Iterator[Difference]:
    for name in _SETTINGS:
        a, b = (
            f"{each:g}" if isinstance(each, float) else str(each)
            for each in (getattr(first, name), getattr(second, name))
        )
        if a != b:
            yield Difference(name.replace("_", " "), a, b, "other")


def _by_rank(first: int, second: int) -> Change:
    if first == second:
        return ""
    return "worse" if second > first else "better"
