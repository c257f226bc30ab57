"""One drill as one line of a history: what came of it, and what it needs to be compared. Pure.

Made from the bytes of `summary.json`, also from one that another version wrote: what is missing
there is not known here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

import msgspec

from tandem.drill.outcomes import EXIT_STATUSES, Verdict
from tandem.drill.scenario import NOT_POSSIBLE as PREFIX_OF_IMPOSSIBLE
from tandem.drill.witness_audit import WITNESS_COUNTS
from tandem.wire.untrusted import UnreadableError, decode_json

RECORD_VERSION: Final = 1

HELD: Final = "passed"
BROKEN: Final = "failed"
NOT_POSSIBLE: Final = "not possible"
NOT_SHOWN: Final = "inconclusive"
NOT_ENDED: Final = "interrupted"

_NOT_HELD: Final[Mapping[str, str]] = {"INTERRUPTED": NOT_ENDED, "NOT POSSIBLE": NOT_POSSIBLE}
"""What a verdict says of all that was not found broken."""

ROUNDED_SECONDS: Final = 0.001

_COUNTS: Final = (
    "sync_lost",
    "stored_but_missing",
    "duplicated",
    "phantom",
    "misplaced",
    "out_of_order",
    "corrupt",
    "acknowledged_cut",
    "read_out_of_order",
)
"""Counts of a summary that must be 0. Logs that differ, and a stream's, are told apart below."""

STREAM_COUNTS: Final = (
    "missing",
    "acknowledged_missing",
    "repeated",
    "phantom",
    "not_in_log",
)


class NotASummaryError(Exception):
    """These bytes are no `summary.json` of a drill; `args[0]` says what is wrong with them."""


class ScenarioRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one scenario in a drill."""

    name: str
    runs: int
    outcome: str
    """`passed`, `failed`, `inconclusive`, `interrupted` or `not possible`."""
    failed: list[str] = []
    """What was expected and not seen, each once."""
    unavailable_seconds: float | None = None
    """Median over the runs; None where nothing was hurt."""
    unavailable_seconds_max: float | None = None
    seconds: float = 0.0
    """All runs together, from the first step of each to its last."""


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a drill with several."""

    name: str
    is_hurt: bool = False
    outcome: str
    """As of a scenario: whether its promises held, that it was not disturbed among them."""
    broken: dict[str, int] = {}
    sends: int = 0
    slowest_calm_seconds: float | None = None
    """The slowest send while another group was hurt; None where that never was so."""
    said: list[str] = []
    """What disturbed it, in words."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One drill. Counts are None where there was no audit."""

    version: int = RECORD_VERSION
    started_at: str
    label: str = ""
    """What the user calls it: a commit, a build, a machine."""
    verdict: Verdict
    why: str = ""
    exit_status: int
    seconds: float
    group_kind: str
    nodes: int
    scenarios: list[ScenarioRecord]
    groups: list[GroupRecord] = []
    """Of a cluster with several, the one that was hurt first."""
    broken: dict[str, int] = {}
    """Counts above 0 that must be 0."""
    failed_expectations: int = 0
    sends: int = 0
    sync_acknowledged: int | None = None
    async_acknowledged: int | None = None
    async_lost: int | None = None
    failovers: int = 0
    first_ack_seconds: float | None = None
    """From the fault to the first acknowledgement of the next master; median of all failovers."""
    late_seconds_max: float = 0.0
    rate_per_second: float = 0.0
    duration_seconds: float = 0.0
    repeat: int = 1
    seed: int = 1
    audit: str = ""
    tandem_version: str = ""
    python_version: str = ""
    machine: str = ""
    target: str = ""
    """What was drilled, such as `rocketmq 5.3.3 controller`; empty: our own cluster."""


class _Run(msgspec.Struct, kw_only=True):
    name: str
    started_at_seconds: float
    ended_at_seconds: float
    outcome: str
    unavailable_seconds: float | None = None


class _Expectation(msgspec.Struct, kw_only=True):
    at_seconds: float
    expected: str
    seen: str
    held: bool


class _Switch(msgspec.Struct, kw_only=True):
    first_ack_seconds: float | None = None


class _Settings(msgspec.Struct, kw_only=True):
    group_kind: str
    scenarios: list[str]
    nodes: list[str]
    repeat: int = 1
    rate_per_second: float = 0.0
    duration_seconds: float = 0.0
    seed: int = 1
    audit: str = ""
    tandem_version: str = ""
    python_version: str = ""
    machine: str = ""


class _Effect(msgspec.Struct, kw_only=True):
    at_seconds: float
    fault: str
    text: str
    is_felt: bool = True


class _Calm(msgspec.Struct, kw_only=True):
    slowest_ms: float
    sends: int = 0
    examples: list[str] = []


class _Group(msgspec.Struct, kw_only=True):
    name: str
    is_hurt: bool = False
    sends: int = 0
    broken: dict[str, int] = {}
    excused: int = 0
    calm: _Calm | None = None


class _Consumers(msgspec.Struct, kw_only=True):
    broken_counts: dict[str, int] = {}


class _Target(msgspec.Struct, kw_only=True):
    name: str = ""
    version: str = ""
    not_promised: dict[str, str] = {}


class _Summary(msgspec.Struct, kw_only=True):
    verdict: Verdict
    started_at: str
    seconds: float
    settings: _Settings
    expectations_failed: int = 0
    sync_lost: int | None = None
    stored_but_missing: int | None = None
    duplicated: int | None = None
    phantom: int | None = None
    misplaced: int | None = None
    out_of_order: int | None = None
    corrupt: int | None = None
    acknowledged_cut: int | None = None
    read_out_of_order: int | None = None
    identical_by_slave: dict[str, bool] | None = None
    sends: int = 0
    sync_acknowledged: int | None = None
    async_acknowledged: int | None = None
    async_lost: int | None = None
    stopped_because: str = ""
    runs: list[_Run] = []
    switches: list[_Switch] = []
    expectations: list[_Expectation] = []
    stream: dict[str, Any] | None = None
    witness: dict[str, Any] | None = None
    consumers: _Consumers | None = None
    exits: list[str] = []
    late_seconds_max: float = 0.0
    target: _Target = msgspec.field(default_factory=_Target)
    shorter_slaves: list[str] | None = None
    effects: list[_Effect] = []
    groups: list[_Group] = []


def record_of(summary_json: bytes, label: str = "") -> RunRecord:
    """Return the line of a history for a drill.

    Raises:
        NotASummaryError: they are something else.
    """
    try:
        summary = decode_json(summary_json, _Summary)
    except UnreadableError as error:
        raise NotASummaryError(str(error)) from error
    settings = summary.settings
    acks = [each.first_ack_seconds for each in summary.switches]
    known = [seconds for seconds in acks if seconds is not None]
    return RunRecord(
        started_at=summary.started_at,
        label=label,
        verdict=summary.verdict,
        why="; ".join(_why(summary)),
        exit_status=EXIT_STATUSES[summary.verdict],
        seconds=summary.seconds,
        group_kind=settings.group_kind,
        nodes=len(settings.nodes),
        scenarios=list(_scenarios(summary)),
        groups=[_group(summary, group) for group in summary.groups],
        broken=dict(_broken(summary)),
        failed_expectations=summary.expectations_failed,
        sends=summary.sends,
        sync_acknowledged=summary.sync_acknowledged,
        async_acknowledged=summary.async_acknowledged,
        async_lost=summary.async_lost,
        failovers=len(summary.switches),
        first_ack_seconds=round(median(known), 3) if known else None,
        late_seconds_max=summary.late_seconds_max,
        rate_per_second=settings.rate_per_second,
        duration_seconds=settings.duration_seconds,
        repeat=settings.repeat,
        seed=settings.seed,
        audit=settings.audit,
        tandem_version=settings.tandem_version,
        python_version=settings.python_version,
        machine=settings.machine,
        target=_target(summary.target),
    )


def _target(target: _Target) -> str:
    is_ours = target.name in ("", "tandem")
    return "" if is_ours else f"{target.name} {target.version}".strip()


def _broken(summary: _Summary) -> Iterator[tuple[str, int]]:
    """Yield the counts above 0 that must be 0, as the verdict was judged."""
    for name in _COUNTS:
        count = getattr(summary, name)
        if count and name not in summary.target.not_promised:
            yield name, count
    differing = sum(not same for same in (summary.identical_by_slave or {}).values())
    if summary.stopped_because:
        differing -= len(summary.shorter_slaves or ())  # they had no time to catch up
    if differing > 0:
        yield "slaves_not_identical", differing
    yield from _counted("stream", summary.stream, STREAM_COUNTS)
    if "read_out_of_order" not in summary.target.not_promised:
        yield from _counted("witness", summary.witness, WITNESS_COUNTS)
    if summary.consumers is not None:
        counts = summary.consumers.broken_counts
        yield from _counted("consumers", counts, counts)
    for group in summary.groups:
        for name, count in group.broken.items():
            yield f"{group.name}: {name}", count


def _group(summary: _Summary, group: _Group) -> GroupRecord:
    outcome = HELD
    if group.broken:
        outcome = BROKEN
    elif summary.verdict in _NOT_HELD:
        outcome = _NOT_HELD[summary.verdict]
    elif group.excused:
        outcome = NOT_SHOWN
    calm = group.calm
    return GroupRecord(
        name=group.name,
        is_hurt=group.is_hurt,
        outcome=outcome,
        broken=group.broken,
        sends=group.sends,
        slowest_calm_seconds=None if calm is None else round(calm.slowest_ms / 1000, 3),
        said=[] if calm is None else calm.examples,
    )


def _counted(
    whose: str, counts: Mapping[str, object] | None, names: Iterable[str]
) -> Iterator[tuple[str, int]]:
    for name in names:
        count = (counts or {}).get(name)
        if isinstance(count, int) and count:
            yield f"{whose}_{name}", count


def _why(summary: _Summary) -> Iterator[str]:
    if summary.verdict == "PASSED":
        return
    if summary.stopped_because:
        yield summary.stopped_because
    for name, count in _broken(summary):
        yield f"{count:,} {name}"
    yield from dict.fromkeys(map(_unmet, _failed(summary.expectations)))
    yield from (f"{each.fault}: {each.text}" for each in summary.effects if not each.is_felt)
    for group in summary.groups:
        yield from (
            f"{group.name}: {words}" for words in (group.calm.examples if group.calm else ())
        )
    yield from (f"{each}: nobody had stopped it" for each in summary.exits)
    for run in summary.runs:
        if run.outcome.startswith(PREFIX_OF_IMPOSSIBLE):
            yield f"{run.name}: {run.outcome}"


def _failed(expectations: Sequence[_Expectation]) -> Iterator[_Expectation]:
    return (each for each in expectations if not each.held)


def _unmet(expectation: _Expectation) -> str:
    return f"expected: {expectation.expected}; seen: {expectation.seen}"


def _scenarios(summary: _Summary) -> Iterator[ScenarioRecord]:
    """Yield each scenario once, in the order of what was asked."""
    by_name: dict[str, list[_Run]] = {name: [] for name in summary.settings.scenarios}
    unmet_by_name: dict[str, list[str]] = {}
    for run in summary.runs:
        by_name.setdefault(run.name, []).append(run)
    for expectation in _failed(summary.expectations):
        name = _scenario_at(summary.runs, expectation.at_seconds)
        unmet_by_name.setdefault(name, []).append(_unmet(expectation))
    # Not by the name that they have: of a scenario that is repeated it is that of the round.
    unfelt = {
        _scenario_at(summary.runs, each.at_seconds) for each in summary.effects if not each.is_felt
    }
    for name, runs in by_name.items():
        unmet = unmet_by_name.get(name, [])
        gaps = [run.unavailable_seconds for run in runs if run.unavailable_seconds is not None]
        yield ScenarioRecord(
            name=name,
            runs=len(runs),
            outcome=_outcome(summary, runs, is_met=not unmet, is_felt=name not in unfelt),
            failed=list(dict.fromkeys(unmet)),
            unavailable_seconds=round(median(gaps), 3) if gaps else None,
            unavailable_seconds_max=max(gaps, default=None),
            seconds=round(sum(run.ended_at_seconds - run.started_at_seconds for run in runs), 3),
        )


def _scenario_at(runs: Sequence[_Run], seconds: float) -> str:
    """Return the scenario that was played at a time; that of a run is rounded."""
    begun = [run.name for run in runs if run.started_at_seconds <= seconds + ROUNDED_SECONDS]
    return begun[-1] if begun else ""


def _outcome(summary: _Summary, runs: Sequence[_Run], *, is_met: bool, is_felt: bool) -> str:
    """What became of a scenario. A promise that the audit found broken is the whole drill's."""
    if not runs:
        return NOT_ENDED
    if all(run.outcome.startswith(PREFIX_OF_IMPOSSIBLE) for run in runs):
        return NOT_POSSIBLE
    if is_met:
        return HELD if is_felt else NOT_SHOWN
    return NOT_SHOWN if summary.verdict == "INCONCLUSIVE" else BROKEN
