"""One drill, from its checks to its report.

    checks        -> nothing was started: one clear line, exit 2
    load          -> `play`
    ledger, audit -> only when no node runs any more
    report        -> whatever happened: passed, failed, interrupted

Ctrl-C, SIGTERM and a closed terminal end the load or the audit at once; the report is written all
the same and says INTERRUPTED.
"""

import shutil
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from rich.console import Console

from tandem.cluster_file.errors import ClusterError
from tandem.drill.auditing import AuditRequest, audit_with_progress, java_for_spark
from tandem.drill.consumers.lines import Place
from tandem.drill.consumers.log_places import places_in_log
from tandem.drill.errors import AuditError, BadOptionsError, DrillError, first_of
from tandem.drill.evidence import Evidence, collect
from tandem.drill.group_summary import GroupSummary, summarise_group
from tandem.drill.ledger import Ledger, read_entries, write_parquet
from tandem.drill.machines import Machines, machines
from tandem.drill.options import (
    RATE_PER_SECOND_DEFAULT,
    SHORT_RATE_PER_SECOND,
    DrillOptions,
)
from tandem.drill.orders import BodySource, FileLines, Orders
from tandem.drill.plan import Plan
from tandem.drill.play import attempt_ms, play
from tandem.drill.preflight import claimed
from tandem.drill.recording import Recording
from tandem.drill.report import CHECKS, write_report
from tandem.drill.scenario_file import Scenario
from tandem.drill.sentences.sentence import Fault
from tandem.drill.small_disks import Disks, small_disks
from tandem.drill.spark_stream import audit_output
from tandem.drill.subjects import check_names
from tandem.drill.summary import Summary, summarise
from tandem.drill.targets.choice import target_of, witness_of
from tandem.drill.targets.target import Ground, Target, cannot
from tandem.drill.verdict import exit_status, print_verdict
from tandem.drill.workload import Clock, producer_states
from tandem.plain_text import plain_json
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.errors import SparkSourceError

if TYPE_CHECKING:
    from tandem.drill.stream_audit import StreamSummary

PRODUCERS_PER_MODE: Final = 3

RATE_PER_SECOND_AUTOMATIC_MAX: Final = 2_000.0
"""What a drill chooses by itself for a long input; two cores carry it beside the nodes."""

INPUT_SHARE: Final = 0.7
"""Share of the time under load in which the cluster takes sends; a file has to fit into that."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def hold(options: DrillOptions) -> int:
    """Hold one drill; return the exit status.

    Raises:
        DrillError, ClusterError: it cannot be played.
    """
    with ExitStack() as stack:
        drill = _prepared(options, stack)
        try:
            status = trio.run(drill.run)
        finally:
            # Small disks go first, and leave their files where they were.
            stack.pop_all().close()
        drill.tidy()
        return status


def _prepared(options: DrillOptions, stack: ExitStack) -> "_Drill":
    """Check everything that can be known to be wrong, and decide the rest. The stack cleans up."""
    target = target_of(options)
    scenarios = target.choose(options.scenarios, short=options.short)
    check_names(scenarios, [node.name for node in target.group.nodes])
    target.check(scenarios)
    if options.spark:
        java_for_spark()
    if options.spark_stream:
        java_for_spark("--spark-stream")
    witness = witness_of(options)
    source = _source(options, target.max_message_size_bytes, stack)
    out = stack.enter_context(claimed(options.out))
    ground = target.lay_out(out, scenarios)
    if ground.access is not None and (witness is not None or options.spark_stream):
        raise BadOptionsError(
            "--witness and --spark-stream: the cluster has users, and these sign nothing; leave"
            " them out"
        )
    if witness is not None and ground.tls is not None:
        raise BadOptionsError(
            "--witness java: the cluster has TLS, and the witness has no certificate of it; leave"
            " --witness out, or set tls.mode: disabled"
        )
    of_group = {node.name for node in target.group.nodes}
    plan = Plan(
        options=options,
        config=ground.config,
        cluster=ground.cluster,
        group=target.group,
        coordinator=ground.coordinator,
        slave_timeout_ms=ground.slave_timeout_ms,
        max_message_size_bytes=target.max_message_size_bytes,
        scenarios=scenarios,
        duration_seconds=options.seconds_of(len(scenarios)),
        rate_per_second=_rate(options, source, len(scenarios)) / (1 + len(target.others)),
        producers=producer_states(PRODUCERS_PER_MODE, PRODUCERS_PER_MODE),
        pairs=ground.pairs,
        out=out,
        stores={name: store for name, store in ground.stores.items() if name in of_group},
        tls=ground.tls,
        given_access=ground.access,
        target=ground.facts,
        witness=witness,
        machines=_machines(target, out, ground, scenarios),
    )
    beside = [
        plan.for_group(group, {node.name: ground.stores[node.name] for node in group.nodes})
        for group in target.others
    ]
    plan = msgspec.structs.replace(plan, others=beside)
    small = Fault.FULL_DISK in target.faults and any("disks" in each.needs for each in scenarios)
    disks = {}
    for each in (plan, *beside):
        each.out.mkdir(parents=True, exist_ok=True)
        coordinator = ground.coordinator_directory if each is plan else None
        disks[each.group.name] = _disks(each, coordinator, stack, small=small)
    return _Drill(plan, target, source, disks)


def _disks(plan: Plan, coordinator: Path | None, stack: ExitStack, *, small: bool) -> Disks:
    """Return the disks of a group; `small`: on file systems of their own, if that can be done."""
    chance = Random(plan.options.seed)
    disks = (
        stack.enter_context(small_disks(plan.stores, chance, coordinator=coordinator))
        if small
        else Disks(plan.stores, chance=chance)
    )
    if coordinator is not None:
        disks.add_coordinator(coordinator)
    return disks


def _machines(
    target: Target, out: Path, ground: Ground, scenarios: Sequence[Scenario]
) -> Machines | None:
    """Return the machines of the nodes, if a scenario that can be played hurts them."""
    playable = [each for each in scenarios if not cannot(target.name, target.faults, each)]
    if not any("machines" in scenario.needs for scenario in playable):
        return None
    keeps = any(Fault.POWER in scenario.faults for scenario in playable)
    return machines(out / "data" / "machines", ground.stores, keeps=keeps)


def _source(options: DrillOptions, line_bytes_max: int, stack: ExitStack) -> BodySource:
    if options.input_file is None:
        return Orders(options.seed)
    return stack.enter_context(FileLines(options.input_file, line_bytes_max=line_bytes_max))


def _rate(options: DrillOptions, source: BodySource, scenarios_count: int) -> float:
    """As asked for; else so that a long input is through when the scenarios are."""
    if options.rate_per_second is not None:
        return options.rate_per_second
    usual = SHORT_RATE_PER_SECOND if options.short else RATE_PER_SECOND_DEFAULT
    needed = source.line_count / (options.seconds_of(scenarios_count) * INPUT_SHARE)
    return min(max(usual, needed), RATE_PER_SECOND_AUTOMATIC_MAX)


class _Progress(Console):
    """Says how a drill goes. That nobody reads it any more ends no drill, as rich would."""

    def on_broken_pipe(self) -> None:
        """Be quiet from now on."""
        self.quiet = True


class _Drill:
    """One drill while it is held. Its findings stay here when it is cut short."""

    def __init__(
        self, plan: Plan, target: Target, source: BodySource, disks: Mapping[str, Disks]
    ) -> None:
        self._plan = plan
        self._target = target
        self._disks = disks
        self._keep_data = True
        self._source = source
        self._console = _Progress(stderr=True)
        self._interrupted_by = ""
        self._audit_failed = ""
        self._audit: AuditSummary | None = None
        self._audit_seconds: float | None = None
        self._stream: StreamSummary | None = None
        self._evidence: list[Evidence] = []
        self._groups: list[GroupSummary] = []

    async def run(self) -> int:
        """Play, audit, report; return the exit status."""
        plan = self._plan
        clock = Clock(trio.current_time(), time.time_ns() / 1e6)
        recording = Recording(clock, plan.group)
        recording.beside = {
            other.group.name: Recording(clock, other.group) for other in plan.others
        }
        self._console.print(plan.headline(), highlight=False, soft_wrap=True)
        failed: BaseExceptionGroup[DrillError | ClusterError] | None = None
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._watch_signals, nursery.cancel_scope)
                with Ledger(plan.out / "ledger.ndjson") as ledger:
                    await play(
                        plan,
                        self._target,
                        recording,
                        self._source,
                        ledger,
                        self._disks,
                        self._console,
                    )
                await self._run_audit(recording)
                nursery.cancel_scope.cancel()
        except* (DrillError, ClusterError) as errors:
            failed = errors
        finally:
            for note in recording.notes:
                self._console.print(note, highlight=False, soft_wrap=True, markup=False)
        if failed is not None:
            # Not in the handler: there Python 3.11.2 makes a group of it again.
            raise first_of(failed) from failed
        return self._conclude(recording)

    async def _watch_signals(
        self,
        scope: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                self._interrupted_by = signal.Signals(number).name
                self._console.print(f"{self._interrupted_by}: stopping …", highlight=False)
                scope.cancel()
                return

    async def _run_audit(self, recording: Recording) -> None:
        plan = self._plan
        self._keep_ledgers()
        if recording.is_empty:
            return
        if recording.no_audit:
            self._audit_failed = f"the audit could not be done: {recording.no_audit}"
            return
        started = trio.current_time()
        try:
            self._audit = await self._audit_group(plan, recording)
            if plan.others:
                await self._audit_others(recording)
            if plan.options.spark_stream:
                self._stream = await trio.to_thread.run_sync(
                    audit_output, plan, recording, plan.topic, abandon_on_cancel=True
                )
        except* AuditError as errors:
            self._audit_failed = str(first_of(errors))
        self._audit_seconds = round(trio.current_time() - started, 1)

    def _keep_ledgers(self) -> None:
        for each in (self._plan, *self._plan.others):
            if (each.out / "ledger.ndjson").exists():  # it was not begun, if a drill ends at once
                write_parquet(each.out / "ledger.ndjson", each.out / "ledger.parquet")

    async def _audit_group(self, plan: Plan, recording: Recording) -> AuditSummary:
        """Look at the disks of one group, and for evidence of what was found there."""
        request = AuditRequest(
            ledger=plan.out / "ledger.parquet",
            stores=recording.compared(plan.stores),
            master=recording.master,
            topic=plan.topic,
            out=plan.out,
            spark=plan.options.spark,
            spark_log=self._plan.out / "data" / "logs" / "spark.log",
            scratch=self._plan.out / "data" / "spark",
            confirm=recording.confirm,
            since=_since(plan, recording),
        )
        found = await audit_with_progress(request, self._console)
        self._evidence += await trio.to_thread.run_sync(_collect, plan, abandon_on_cancel=True)
        topics, promises = self._plan.consumer_topics, recording.promises
        if topics is not None and promises is not None:
            master = plan.stores[recording.master]
            since = _since(plan, recording)
            there = partial(_places, master, plan.group.name, topics.queue_counts, since)
            promises.compare_with_log(await trio.to_thread.run_sync(there, abandon_on_cancel=True))
        return found

    async def _audit_others(self, recording: Recording) -> None:
        """Do the same with the other groups, and compare all of them by their ledgers."""
        plan = self._plan
        audits = {plan.group.name: self._audit}
        for other in plan.others:
            own = recording.beside[other.group.name]
            audits[other.group.name] = await self._audit_group(other, own)
        for each in (plan, *plan.others):
            summarised = partial(
                summarise_group,
                each,
                recording,
                read_entries(each.out / "ledger.ndjson"),
                slower_than_ms=attempt_ms(each),
                audit=audits[each.group.name],
            )
            found = await trio.to_thread.run_sync(summarised, abandon_on_cancel=True)
            self._groups.append(found)

    def _conclude(self, recording: Recording) -> int:
        plan, out = self._plan, self._plan.out
        if self._interrupted_by:
            self._keep_ledgers()
        for each in (plan, *plan.others):
            (each.out / "ledger.ndjson").unlink(missing_ok=each is not plan)
        summary = self._summarise(recording)
        page = write_report(summary, recording.timeline, recording.history, out)
        try:
            if plan.options.json:
                sys.stdout.buffer.write(plain_json(msgspec.json.encode(summary)) + b"\n")
            else:
                print_verdict(Console(), summary, page)
        except (OSError, SystemExit):
            # Nobody reads the output any more, for which rich ends a program, or a disk is full.
            self._console.print(f"the output cannot be written; the report is {page}")
        self._keep_data = summary.verdict in ("FAILED", "INCONCLUSIVE")
        return exit_status(summary)

    def _summarise(self, recording: Recording) -> Summary:
        interrupted = f"stopped by {self._interrupted_by}" if self._interrupted_by else ""
        return summarise(
            self._plan,
            recording,
            audit=self._audit,
            audit_seconds=self._audit_seconds,
            stream=self._stream,
            evidence=self._evidence,
            groups=self._groups,
            interrupted=bool(self._interrupted_by),
            stopped_because=interrupted or self._audit_failed or recording.stopped_because,
        )

    def tidy(self) -> None:
        """Keep the nodes' logs, and their data if it is evidence."""
        kept = _tidy(self._plan.out, keep_data=self._keep_data)
        if kept is not None:
            self._console.print(f"the nodes' data is kept in {kept}", highlight=False)


def _since(plan: Plan, recording: Recording) -> int:
    """Return from where on each log has to have what the master's has."""
    return recording.replication.log_end_at_first or 0 if plan.target.has_past else 0


def _collect(plan: Plan) -> list[Evidence]:
    try:
        return collect(
            plan.out,
            plan.stores,
            plan.topic,
            promised=plan.target.rules or dict(CHECKS),
            not_promised=plan.target.not_promised,
        )
    except (SparkSourceError, OSError) as error:
        raise AuditError(f"the audit could not be done: {error}") from error


def _places(store: Path, broker_name: str, topics: Collection[str], since: int) -> dict[Place, str]:
    try:
        return places_in_log(store, broker_name, topics, since)
    except (SparkSourceError, OSError) as error:
        raise AuditError(f"what groups read could not be compared: {error}") from error


def _tidy(out: Path, *, keep_data: bool) -> Path | None:
    """Move the nodes' own logs into the report and remove their data, or say where it is."""
    data = out / "data"
    logs = data / "logs"
    if logs.is_dir():
        logs.replace(out / "logs")
    if keep_data and data.is_dir() and any(data.iterdir()):
        return data
    shutil.rmtree(data, ignore_errors=True)
    return None
