"""A small made-up drill, for the tests of everything that shows one."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tandem.cluster.spec import NodeSpec
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.drill.consumers.promises import Promises
from tandem.drill.effects import Effects
from tandem.drill.group_summary import GroupSummary
from tandem.drill.lost_leases import Late
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import NOT_SENT, SEND_OK, SLAVE_NOT_AVAILABLE, UNKNOWN, SendMode
from tandem.drill.plan import Plan
from tandem.drill.preflight import Group
from tandem.drill.recording import Recording
from tandem.drill.run_record import RunRecord, record_of
from tandem.drill.scenario import PLAYED, Expectation, ScenarioRun
from tandem.drill.scenario_file import Scenario, find_scenario
from tandem.drill.stream_audit import StreamSummary
from tandem.drill.summary import Summary, summarise
from tandem.drill.timeline import Timeline
from tandem.drill.undisturbed import Calm
from tandem.drill.watched_group import Change
from tandem.drill.witness_audit import WitnessSummary
from tandem.drill.workload import Clock, producer_states
from tandem.spark.audit.rules import AuditSummary
from tandem.wire.ha_status import FencedStatus
from tandem.wire.switch_cause import SwitchCause

PHASES: tuple[tuple[str, str, float, str], ...] = (
    ("slave-loss", "steady", 3.0, SEND_OK),
    ("slave-loss", "slaves-down", 2.0, SLAVE_NOT_AVAILABLE),
    ("master-loss", "master-down", 2.0, NOT_SENT),
    ("master-loss", "recovered", 2.0, SEND_OK),
)


def timeline() -> Timeline:
    found = Timeline()
    now = 0.0
    for scenario, name, seconds, status in PHASES:
        phase = found.start_phase(now, scenario, name)
        if status == SLAVE_NOT_AVAILABLE:
            found.fault(now, "kill -9 broker-a-1, broker-a-2")
        started = now
        for step in range(round(seconds * 10)):
            now = started + step / 10
            for mode in ("sync", "async"):
                _send(found, now, mode, status)
            found.read(now, 3)
            found.lagged(now, "broker-a-1", 100, connected=status == SEND_OK)
        now = started + seconds
        assert phase.in_flight == 0
    _send(found, now, "sync", UNKNOWN)
    found.end_phase(now)
    return found


def _send(found: Timeline, now: float, mode: SendMode, status: str) -> None:
    phase = found.sent()
    reason = {
        SLAVE_NOT_AVAILABLE: "no slave connected",
        NOT_SENT: "127.0.0.1:10911 <refused> & gone",
        UNKNOWN: "no answer in time",
    }.get(status, "")
    found.answered(
        now, phase, mode, status, reason=reason, send_id=f"{mode}-1-{now:.1f}", latency_ms=1.5
    )


def expectation(*, held: bool = True, is_liveness: bool = True) -> Expectation:
    return Expectation(
        at_seconds=4.0,
        scenario="slave-loss",
        phase="slaves-down",
        expected="every sync send answers SLAVE_NOT_AVAILABLE",
        seen="20 SLAVE_NOT_AVAILABLE" if held else "19 SLAVE_NOT_AVAILABLE, 1 SEND_OK",
        held=held,
        waited_seconds=0.0,
        is_liveness=is_liveness,
    )


def audit(
    *,
    sync_lost: int = 0,
    duplicated: int = 0,
    second_slave_equal: bool = True,
    shorter_slaves: list[str] | None = None,
) -> AuditSummary:
    return AuditSummary(
        sends=110,
        records=105,
        log_bytes=123_456,
        sync_acknowledged=51,
        sync_lost=sync_lost,
        async_acknowledged=52,
        async_lost=3,
        stored_but_missing=0,
        unknown_found=1,
        unknown_missing=2,
        duplicated=duplicated,
        phantom=0,
        misplaced=0,
        out_of_order=0,
        corrupt=0,
        identical_by_slave={"broker-a-1": True, "broker-a-2": second_slave_equal},
        first_difference_by_slave={} if second_slave_equal else {"broker-a-2": 4096},
        shorter_slaves=shorter_slaves or [],
    )


def status(node: str, master: str, epoch: int, *, refusal: str = "") -> FencedStatus:
    """What a node of a fenced group says."""
    return FencedStatus(
        node=node,
        group="broker-a",
        role="MASTER" if node == master else "FOLLOWER",
        epoch=epoch,
        log_epoch=epoch,
        master=master,
        incarnation="x",
        promised=epoch,
        log_start=0,
        log_end=1000,
        flushed=1000,
        confirm=1000,
        min_isr=2,
        ack_level="written",
        isr=[],
        lease_left_ms=4000 if node == master else 0,
        refusal=refusal,
    )


RUN = ScenarioRun(
    name="master-kill",
    promise="Nothing is lost.",
    started_at_seconds=0.0,
    ended_at_seconds=9.0,
    outcome=PLAYED,
    unavailable_seconds=1.5,
    unavailable_from_seconds=4.0,
)

NODES = ("broker-a-0", "broker-a-1", "broker-a-2")


def group(kind: GroupKind = GroupKind.CLASSIC) -> Group:
    nodes = [
        NodeSpec(
            name=name,
            group="broker-a",
            broker_id=number,
            role="SLAVE" if number else "MASTER",
            address=f"127.0.0.{number + 1}",
            port=1,
            ha_port=2,
            name_server_port=3,
            replication_port=4,
            directory=Path("data"),
            commit_log_directories=(),
        )
        for number, name in enumerate(NODES)
    ]
    return Group(name="broker-a", kind=kind, nodes=nodes)


def plan(
    *scenarios: Scenario,
    kind: GroupKind = GroupKind.CLASSIC,
    repeat: int = 1,
    duration_seconds: float = 9.0,
) -> Plan:
    """What was asked: by default, what `timeline` shows."""
    return Plan(
        options=DrillOptions(repeat=repeat, spark=False),
        config=Path("report/cluster.yaml"),
        cluster="c",
        group=group(kind),
        coordinator=CoordinatorSettings(),
        slave_timeout_ms=3000,
        max_message_size_bytes=1000,
        scenarios=scenarios or [find_scenario("slave-loss"), find_scenario("master-loss")],
        duration_seconds=duration_seconds,
        rate_per_second=20.0,
        producers=producer_states(1, 1),
        out=Path("report"),
        stores={},
    )


def recording(
    *,
    expectations: list[Expectation] | None = None,
    disorder: list[str] | None = None,
    runs: list[ScenarioRun] | None = None,
    history: list[Change] | None = None,
) -> Recording:
    """What was seen; with a history, of a fenced group."""
    found = Recording(
        Clock(0.0, 1_767_225_600_000.0),
        group(GroupKind.CLASSIC if history is None else GroupKind.FENCED),
    )
    found.timeline = timeline()
    found.expectations = [expectation()] if expectations is None else expectations
    found.disorder = disorder or []
    found.runs = runs or []
    found.ended_at = 9.0
    if found.watched is not None:
        found.watched.history += history or []
    return found


def summary(
    *,
    found: AuditSummary | None = None,
    audited: bool = True,
    expectations: list[Expectation] | None = None,
    disorder: list[str] | None = None,
    interrupted: bool = False,
    stopped_because: str = "",
    runs: list[ScenarioRun] | None = None,
    history: list[Change] | None = None,
    stream: StreamSummary | None = None,
    lateness: list[Late] | None = None,
    exits: set[str] | None = None,
    witness: WitnessSummary | None = None,
    promises: Promises | None = None,
    effects: Effects | None = None,
    groups: Sequence[GroupSummary] = (),
    apart: Sequence[str] = (),
) -> Summary:
    of_drill = recording(expectations=expectations, disorder=disorder, runs=runs, history=history)
    of_drill.lateness = lateness or []
    of_drill.exits = exits or set()
    of_drill.witness = witness
    of_drill.promises = promises
    of_drill.effects = effects or Effects()
    of_drill.stopped_because = stopped_because
    of_drill.apart = list(apart)
    return summarise(
        plan(kind=GroupKind.CLASSIC if history is None else GroupKind.FENCED),
        of_drill,
        audit=(found or audit()) if audited else None,
        audit_seconds=1.0 if audited else None,
        interrupted=interrupted,
        stopped_because=stopped_because,
        stream=stream,
        groups=groups,
    )


def two_groups(
    *, disturbed: int = 2, excused: int = 0, sync_lost: int = 1
) -> tuple[GroupSummary, GroupSummary]:
    """A group that was hurt, and another one: how often that was disturbed, what it has lost."""
    calm = Calm(
        seconds=8.0,
        sends=100,
        slower_than_ms=1_500.0,
        slowest_ms=2_345.0,
        failed=1,
        slow=disturbed + excused - 1,
        elections=0,
        excused=excused,
        examples=["sync-1-0000007 at 11.0 s: SEND_OK after 2.35 s"],
    )
    broken = {"sync_lost": sync_lost, "disturbed": disturbed}
    hurt = GroupSummary(
        name="broker-a",
        group_kind="fenced",
        is_hurt=True,
        nodes=list(NODES),
        sends=110,
        sends_by_status={SEND_OK: 110},
        slowest_ms=4_500.0,
        sync_acknowledged=51,
        sync_lost=0,
        async_lost=0,
        byte_identical=True,
        messages_read=100,
        elections=1,
        calm=None,
        broken={},
    )
    other = msgspec.structs.replace(
        hurt,
        name="broker-b",
        is_hurt=False,
        elections=0,
        sync_lost=sync_lost,
        calm=calm if disturbed + excused else msgspec.structs.replace(calm, failed=0, slow=0),
        broken={name: count for name, count in broken.items() if count},
        excused=excused,
    )
    return hurt, other


LOST = [
    Change(0.5, "epoch", "broker-a-0", 1),
    Change(2.0, "leader-gone", "broker-a-0", 1),
    Change(2.5, "epoch", "broker-a-1", 2, cause=SwitchCause.LEASE_ENDED),
]
"""A master that loses its lease before anything is done to the group."""


def effects(*, is_felt: bool = False, scenario: str = "master-kill") -> Effects:
    """Syncs that were to be slow."""
    found = Effects()
    count = 7 if is_felt else 0
    text = f"{count} syncs were delayed"
    found.note(4.0, scenario, "let syncs of a be slow", text=text, count=count, is_felt=is_felt)
    return found


def inconclusive(*, late_seconds: float = 2.5, found: AuditSummary | None = None) -> Summary:
    """An election that nobody wanted, on a machine that was slow if the drill was late."""
    return summary(
        found=found,
        expectations=[expectation(held=False)],
        history=LOST,
        runs=[RUN],
        lateness=[Late(1.0, late_seconds)],
    )


def record(of: Summary | None = None, *, label: str = "") -> RunRecord:
    """The line of a history for a summary."""
    return record_of(msgspec.json.encode(of or summary()), label)
