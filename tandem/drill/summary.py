"""What a drill showed, as records: the content of `summary.json` and of the page."""

import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from tandem import __version__
from tandem.drill.consumers.promises import ConsumerSummary
from tandem.drill.effects import Effect
from tandem.drill.evidence import PROMISES, Evidence, held_to
from tandem.drill.group_summary import GroupSummary, broken_of, examples_of
from tandem.drill.judgement import READS, READY_SECONDS_SLOW, excused, is_disordered, verdict_of
from tandem.drill.lost_leases import LostLease, lost_leases
from tandem.drill.outcomes import SEND_OK, STATUSES, SendMode, Verdict
from tandem.drill.plan import Plan, TargetFacts
from tandem.drill.recording import Recording
from tandem.drill.scenario import Expectation, ScenarioRun
from tandem.drill.story import Outage, outages
from tandem.drill.stream_audit import StreamSummary
from tandem.drill.switches import Switch, switches_of
from tandem.drill.timeline import Fault, Phase, Reason, percentile
from tandem.drill.witness_audit import WitnessSummary
from tandem.spark.audit.rules import AuditSummary

EXAMPLES_MAX: Final = 10
SAID_MAX: Final = 5
"""Findings about consumers on the terminal; the report has more."""

TO_GROUPS_MIN: Final = 20
"""Messages to groups, two seconds of them, of which one has to be acknowledged. Of fewer the report
says that nothing was measured: the first ones may have come before the slaves."""

NOT_MEASURED: Final = "not measured"
"""Said of a count that is 0 or missing because there was nothing to count."""


class PhaseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One phase. Times in UTC and in seconds since the drill started; sends by time of sending."""

    name: str
    start: str
    end: str
    start_seconds: float
    end_seconds: float
    counts: dict[str, int]
    counts_by_mode: dict[SendMode, dict[str, int]]
    messages_read: int
    reads_failed: int


class ScenarioSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario with its phases in order."""

    name: str
    phases: list[PhaseSummary]


class ReasonSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of answer that was not SEND_OK, and why; the texts of its first occurrence."""

    status: str
    reason: str
    count: int
    example_send_id: str


class PlanSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the drill, and where it was held."""

    config: str
    group: str = ""
    """The one that was drilled: of several, the one that was hurt."""
    group_kind: str
    input_file: str | None
    scenarios: list[str]
    repeat: int
    rate_per_second: float
    duration_seconds: float
    seed: int
    producers: list[str]
    nodes: list[str]
    lease_ttl_ms: int
    audit: Literal["spark", "quick"]
    tandem_version: str
    python_version: str
    machine: str


class Unavailability(msgspec.Struct, frozen=True, kw_only=True):
    """How long sync sends went without SEND_OK, over all runs of one scenario. Seconds."""

    scenario: str
    promise: str
    runs: int
    median_seconds: float
    p99_seconds: float
    max_seconds: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole drill. Counts of the audit are None when there was none; so is `stream`."""

    verdict: Verdict
    promises_broken: int | None
    expectations_failed: int
    sync_acknowledged: int | None
    sync_lost: int | None
    async_acknowledged: int | None
    async_lost: int | None
    stored_but_missing: int | None
    unknown_found: int | None
    unknown_missing: int | None
    duplicated: int | None
    out_of_order: int | None
    phantom: int | None
    misplaced: int | None
    corrupt: int | None
    stored_again: int | None
    acknowledged_cut: int | None
    cut_records: int | None
    byte_identical: bool | None
    identical_by_slave: dict[str, bool] | None
    first_difference_by_slave: dict[str, int] | None
    shorter_slaves: list[str] | None
    """Of those that differ: whose logs only lack the end of the master's."""
    not_compared: list[str] = []
    """Whose logs nothing was promised of: see `Recording.apart`."""
    sends: int
    sends_by_status: dict[str, int]
    messages_read: int
    read_out_of_order: int
    read_out_of_order_examples: list[str]
    input_lines: int
    input_lines_acknowledged: int
    started_at: str
    seconds: float
    audit_seconds: float | None
    stopped_because: str
    scenarios: list[ScenarioSummary]
    runs: list[ScenarioRun]
    switches: list[Switch]
    unavailability: list[Unavailability]
    outages: list[Outage]
    """The longest one of each run."""
    faults: list[Fault]
    expectations: list[Expectation]
    reasons: list[ReasonSummary]
    settings: PlanSummary
    stream: StreamSummary | None = None
    lost_leases: list[LostLease] = []
    """Of masters to which nothing had been done."""

    ready_seconds: float = 0.0
    """How long the cluster took to start, before anything was done to it."""

    late_seconds_max: float = 0.0
    """How late the drill itself was woken at most; 0 where it was woken in time."""

    slow_nodes: list[str] = []
    """What nodes that nobody froze say of machines that do not run them in time, in words."""

    witness: WitnessSummary | None = None
    """What another client was given, compared with what ours has read."""

    exits: list[str] = []
    """Nodes that ended although nobody stopped them, and how."""

    target: TargetFacts = TargetFacts()
    """What was broken, and what its answers promise."""

    evidence: list[Evidence] = []
    """What the first broken promises rest on, and losses that were allowed."""

    consumers: ConsumerSummary | None = None
    """What groups got of what they were promised; None where they are not audited."""

    effects: list[Effect] = []
    """What faults did, as it was seen and not as it was asked for."""

    groups: list[GroupSummary] = []
    """Each group of a cluster that has several, the one that was hurt first."""


def summarise(
    plan: Plan,
    recording: Recording,
    *,
    audit: AuditSummary | None,
    audit_seconds: float | None,
    interrupted: bool,
    stopped_because: str = "",
    stream: StreamSummary | None = None,
    evidence: Sequence[Evidence] = (),
    groups: Sequence[GroupSummary] = (),
) -> Summary:
    """Put everything together and decide the verdict. `stopped_because`: empty after a whole drill.

    A drill passed when it was played to its end, every expectation held, no node ended by itself,
    what consumers saw was in order, messages to their groups were acknowledged if these are
    audited, and neither the audit of the logs nor that of a stream found a broken promise. If this
    machine could play none of its scenarios, it did not pass. If the machine was too slow for all
    that failed (`judgement`), or a fault did nothing (`effects`), it shows nothing: it is
    inconclusive.

    Long because every field of the record is one line of it.
    """
    timeline = recording.timeline
    is_whole = stopped_because == recording.stopped_because  # else interrupted, or not audited
    sends = _by_status(timeline.phases)
    possible = not recording.runs or any(run.is_possible for run in recording.runs)
    if possible and not stopped_because and SEND_OK not in sends:
        stopped_because = "no send was acknowledged, so no promise was measured"
    consumers = None if recording.promises is None else recording.promises.summary()
    if possible and not stopped_because and consumers is not None:
        stopped_because = _nothing_for_groups(consumers)
    failed = sum(not expectation.held for expectation in recording.expectations)
    not_promised = plan.target.not_promised
    passed = not (failed or stopped_because) and _nothing_broken(
        recording, audit, stream, not_promised
    )
    switches = _switches(recording)
    lease_ttl_ms = plan.coordinator.lease_ttl_ms
    lost = lost_leases(recording.history, timeline.faults, recording.lateness, lease_ttl_ms / 1000)
    are_sound = not broken_of(groups)
    are_late = any(group.excused for group in groups)
    is_excused = (
        is_whole
        and are_sound
        and (
            (passed and are_late)
            or excused(recording, lost, lease_ttl_ms / 1000, audit, stream, not_promised)
        )
    )
    return Summary(
        verdict=verdict_of(
            interrupted=interrupted,
            passed=passed and are_sound and not are_late,
            possible=possible,
            is_excused=is_excused,
            is_felt=not recording.effects.unfelt,
        ),
        expectations_failed=failed,
        sends=sum(sends.values()),
        sends_by_status=sends,
        messages_read=sum(phase.messages_read for phase in timeline.phases),
        read_out_of_order=len(recording.disorder),
        read_out_of_order_examples=recording.disorder[:EXAMPLES_MAX],
        input_lines=recording.input_lines,
        input_lines_acknowledged=recording.input_lines_acknowledged,
        started_at=_utc(recording, 0.0),
        seconds=round(_ended_at(recording), 3),
        audit_seconds=audit_seconds,
        stopped_because=stopped_because,
        scenarios=_scenarios(recording),
        runs=recording.runs,
        switches=switches,
        unavailability=list(unavailability(recording.runs)),
        outages=outages(recording.runs, timeline, switches, lease_ttl_ms),
        faults=timeline.faults,
        expectations=recording.expectations,
        reasons=_reasons(timeline.reasons.values()),
        settings=_plan_summary(plan),
        stream=stream,
        lost_leases=lost,
        slow_nodes=_slow_nodes(recording),
        exits=sorted(recording.exits),
        witness=recording.witness,
        ready_seconds=round(recording.ready_at, 3),
        late_seconds_max=max((each.seconds for each in recording.lateness), default=0.0),
        target=plan.target,
        evidence=list(evidence),
        effects=recording.effects.found,
        groups=list(groups),
        consumers=consumers,
        not_compared=recording.apart,
        promises_broken=None if audit is None else held_to(audit, not_promised),
        **{name: getattr(audit, name, None) for name in _AUDIT_FIELDS},
    )


def _nothing_broken(
    recording: Recording,
    audit: AuditSummary | None,
    stream: StreamSummary | None,
    not_promised: Mapping[str, str],
) -> bool:
    return (
        (recording.is_empty if audit is None else not held_to(audit, not_promised))
        and not recording.exits
        and not (stream is not None and stream.promises_broken)
        and not (recording.promises is not None and recording.promises.counts)
        and (READS in not_promised or not is_disordered(recording))
    )


def _nothing_for_groups(consumers: ConsumerSummary) -> str:
    """Return why nothing is known of what groups were promised, or ""."""
    if any(consumers.acknowledged.values()) or sum(consumers.sent.values()) < TO_GROUPS_MIN:
        return ""
    return "no message to groups of consumers was acknowledged, so no promise to them was measured"


def _slow_nodes(recording: Recording) -> list[str]:
    """Return what nodes say of slow machines, but not those that were frozen on purpose."""
    said = recording.watched.too_slow if recording.watched is not None else {}
    frozen = [fault.text for fault in recording.timeline.faults if fault.text.startswith("freeze ")]
    return [
        f"{node} is too slow: {words}"
        for node, words in sorted(said.items())
        if not any(node in text for text in frozen)
    ]


def _plan_summary(plan: Plan) -> PlanSummary:
    options = plan.options
    return PlanSummary(
        config=str(options.config),
        input_file=str(options.input_file) if options.input_file is not None else None,
        group=plan.group.name,
        group_kind=plan.group.kind,
        scenarios=[scenario.name for scenario in plan.scenarios],
        repeat=options.repeat,
        rate_per_second=plan.rate_per_second,
        duration_seconds=plan.duration_seconds,
        seed=options.seed,
        producers=[producer.name for producer in plan.producers],
        nodes=[node.name for node in plan.group.nodes],
        lease_ttl_ms=plan.coordinator.lease_ttl_ms,
        audit="spark" if options.spark else "quick",
        tandem_version=__version__,
        python_version=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    )


def _ended_at(recording: Recording) -> float:
    assert recording.ended_at is not None, "it was played"
    return recording.ended_at


def _switches(recording: Recording) -> list[Switch]:
    timeline = recording.timeline
    begun = [(phase.started_at, phase.scenario) for phase in timeline.phases]
    return switches_of(recording.history, timeline.faults, timeline.sync_acks, begun)


def unavailability(runs: Iterable[ScenarioRun]) -> Iterator[Unavailability]:
    """Yield the figures of each scenario that hurt something, in the order of the first runs."""
    by_name: dict[str, list[ScenarioRun]] = {}
    for run in runs:
        if run.unavailable_seconds is not None:
            by_name.setdefault(run.name, []).append(run)
    for name, of_name in by_name.items():
        seconds = [run.unavailable_seconds or 0.0 for run in of_name]
        yield Unavailability(
            scenario=name,
            promise=of_name[0].promise,
            runs=len(seconds),
            median_seconds=percentile(seconds, 0.5),
            p99_seconds=percentile(seconds, 0.99),
            max_seconds=max(seconds),
        )


_AUDIT_FIELDS: Final = (
    "byte_identical",
    *sorted({*AuditSummary.__struct_fields__} & {*Summary.__struct_fields__} - {"sends"}),
)


def _utc(recording: Recording, seconds: float) -> str:
    at = datetime.fromtimestamp(recording.clock.started_ms / 1000 + seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _by_status(phases: Iterable[Phase]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for phase in phases:
        for (_, status), count in phase.sends.items():
            total[status] += count
    return {status: total[status] for status in STATUSES if total[status]}


def _scenarios(recording: Recording) -> list[ScenarioSummary]:
    by_name: dict[str, list[PhaseSummary]] = {}
    for phase in recording.timeline.phases:
        by_name.setdefault(phase.scenario, []).append(_phase(phase, recording))
    return [ScenarioSummary(name=name, phases=phases) for name, phases in by_name.items()]


def _phase(phase: Phase, recording: Recording) -> PhaseSummary:
    ended_at = _ended_at(recording) if phase.ended_at is None else phase.ended_at
    modes: tuple[SendMode, ...] = ("sync", "async")
    return PhaseSummary(
        name=phase.name,
        start=_utc(recording, phase.started_at),
        end=_utc(recording, ended_at),
        start_seconds=round(phase.started_at, 3),
        end_seconds=round(ended_at, 3),
        counts=_by_status([phase]),
        counts_by_mode={
            mode: {
                status: phase.sends[mode, status]
                for status in STATUSES
                if phase.sends[mode, status]
            }
            for mode in modes
        },
        messages_read=phase.messages_read,
        reads_failed=phase.reads_failed,
    )


def _reasons(reasons: Iterable[Reason]) -> list[ReasonSummary]:
    """Most frequent first within a status, statuses from best to worst."""

    def rank(reason: Reason) -> tuple[int, int]:
        return STATUSES.index(reason.status), -reason.count

    return [
        ReasonSummary(
            status=reason.status,
            reason=reason.text,
            count=reason.count,
            example_send_id=reason.example,
        )
        for reason in sorted(reasons, key=rank)
    ]


def broken_promises(summary: Summary) -> list[tuple[str, int]]:
    """The counts above 0 that must be 0, with their names."""
    not_identical = sum(not same for same in (summary.identical_by_slave or {}).values())
    counts = [
        (name, not_identical if name == "slaves_not_identical" else getattr(summary, name) or 0)
        for name in PROMISES
    ]
    of_stream = summary.stream.broken() if summary.stream is not None else []
    promised = [(n, count) for n, count in counts if count and n not in summary.target.not_promised]
    is_judged = summary.witness is not None and READS not in summary.target.not_promised
    of_witness = summary.witness.broken() if summary.witness is not None and is_judged else []
    of_consumers = summary.consumers.broken() if summary.consumers is not None else []
    return [*promised, *of_stream, *of_witness, *of_consumers, *broken_of(summary.groups)]


def why(summary: Summary) -> list[str]:
    """Return in sentences what failed, and what the drill knows of the cause."""
    said = [summary.stopped_because] if summary.stopped_because else []
    said += [each.in_words() for each in summary.lost_leases]
    said += summary.slow_nodes
    if summary.late_seconds_max and not summary.lost_leases:
        said.append(
            f"the drill itself was woken up to {summary.late_seconds_max:.1f} s late: the machine"
            " had too much to do"
        )
    if summary.ready_seconds >= READY_SECONDS_SLOW:
        said.append(f"the cluster took {summary.ready_seconds:.1f} s to start: a second is usual")
    said += [each.in_words() for each in summary.effects if not each.is_felt]
    said += [f"{each}: nobody had stopped it" for each in summary.exits]
    if summary.read_out_of_order:
        examples = "; ".join(summary.read_out_of_order_examples)
        said.append(
            f"consumers saw {summary.read_out_of_order:,} messages out of order, such as {examples}"
        )
    if summary.consumers is not None:
        said += [each.in_words() for each in summary.consumers.findings[:SAID_MAX]]
    said += examples_of(summary.groups)
    if summary.stopped_because and summary.shorter_slaves:
        said.append(
            f"the drill stopped before {' and '.join(summary.shorter_slaves)} could catch up: that"
            " a log is shorter than the master's says little by itself"
        )
    if summary.not_compared:
        said.append(
            f"the drill stopped before {' and '.join(summary.not_compared)} followed the master: a"
            " log may have a tail until then, and is not compared"
        )
    return said


def last_fault_before(summary: Summary, expectation: Expectation) -> Fault | None:
    """Return what had been done last when something was not seen."""
    before = [fault for fault in summary.faults if fault.at_seconds <= expectation.at_seconds]
    return before[-1] if before else None


def failed_expectations(summary: Summary) -> Sequence[Expectation]:
    """What had to be seen and was not."""
    return [expectation for expectation in summary.expectations if not expectation.held]
