"""One drill, from its checks to its report.

    checks        -> nothing was started: one clear line, exit 2
    load          -> `play`
    ledger, audit -> only when no node runs any more
    report        -> whatever happened: passed, failed, interrupted

Ctrl-C, SIGTERM and a closed terminal end the load or the audit at once; the report is written all
the same and says INTERRUPTED.
"""

import os
import platform
import shutil
import signal
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from rich.console import Console

from tandem import __version__
from tandem.cluster.errors import ClusterError
from tandem.cluster.spec import ClusterSpec, NodeSpec, read_spec
from tandem.drill.auditing import AuditRequest, audit_with_progress, java_for_spark
from tandem.drill.errors import AuditError, DrillError
from tandem.drill.ledger import Ledger, write_parquet
from tandem.drill.options import RATE_PER_SECOND_DEFAULT, DrillOptions
from tandem.drill.orders import BodySource, FileLines, Orders
from tandem.drill.play import TOPIC, Plan, Recording, play
from tandem.drill.preflight import (
    Group,
    check_ports,
    choose_group,
    claimed,
    read_settings,
    write_config,
)
from tandem.drill.report import write_report
from tandem.drill.scenario import SCENARIOS
from tandem.drill.summary import Played, Settings, Summary, summarise
from tandem.drill.verdict import exit_status, print_verdict
from tandem.drill.workload import Clock, producer_states

if TYPE_CHECKING:
    from tandem.spark.audit_rules import AuditSummary

PRODUCERS_PER_MODE: Final = 3

RATE_PER_SECOND_AUTOMATIC_MAX: Final = 2_000.0
"""What a drill chooses by itself for a long input; two cores carry it beside the nodes."""

INPUT_SHARE: Final = 0.7
"""Share of the time under load in which the cluster takes sends; a file has to fit into that."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A drill that passed its checks."""

    options: DrillOptions
    plan: Plan
    out: Path
    stores: dict[str, Path]


def run(options: DrillOptions) -> int:
    """Play one drill; return the exit status.

    Raises:
        DrillError, ClusterError: it cannot be played.
    """
    console = Console()
    spec = read_spec(options.config)
    settings = read_settings(options.config)
    group, status_without_slaves = choose_group(spec, settings)
    check_ports(group.nodes)
    if options.spark:
        java_for_spark()
    with ExitStack() as stack:
        source = _source(options, settings.store.max_message_size_bytes, stack)
        out = stack.enter_context(claimed(options.out))
        own = read_spec(write_config(spec.file, out))
        setup = Setup(
            options=options,
            plan=Plan(
                config=own.file,
                group=group,
                status_without_slaves=status_without_slaves,
                slave_timeout_ms=settings.replication.slave_timeout_ms,
                max_message_size_bytes=settings.store.max_message_size_bytes,
                scenarios=_scenarios(options),
                duration_seconds=options.duration_seconds,
                rate_per_second=_rate(options, source),
                producers=producer_states(PRODUCERS_PER_MODE, PRODUCERS_PER_MODE),
            ),
            out=out,
            stores=_stores(own, group),
        )
        return trio.run(partial(_Drill(setup, source, console).run))


def _source(options: DrillOptions, line_bytes_max: int, stack: ExitStack) -> BodySource:
    if options.input_file is None:
        return Orders(options.seed)
    return stack.enter_context(FileLines(options.input_file, line_bytes_max=line_bytes_max))


def _scenarios(options: DrillOptions) -> list[str]:
    return list(SCENARIOS) if options.scenario == "all" else [options.scenario]


def _rate(options: DrillOptions, source: BodySource) -> float:
    """As asked for; else so that a long input is through when the scenarios are."""
    if options.rate_per_second is not None:
        return options.rate_per_second
    needed = source.line_count / (options.duration_seconds * INPUT_SHARE)
    return min(max(RATE_PER_SECOND_DEFAULT, needed), RATE_PER_SECOND_AUTOMATIC_MAX)


def _stores(own: ClusterSpec, group: Group) -> dict[str, Path]:
    names = {node.name for node in group.nodes}
    nodes: list[NodeSpec] = [node for node in own.nodes if node.name in names]
    return {node.name: node.directory for node in nodes}


class _Drill:
    """One drill while it runs. What it learns stays here when it is cut short."""

    def __init__(self, setup: Setup, source: BodySource, console: Console) -> None:
        self._setup = setup
        self._source = source
        self._console = console
        self._interrupted_by = ""
        self._audit_failed = ""
        self._audit: AuditSummary | None = None
        self._audit_seconds: float | None = None

    async def run(self) -> int:
        """Play, audit, report; return the exit status."""
        setup = self._setup
        clock = Clock(trio.current_time(), time.time_ns() / 1e6)
        slaves = {node.name: node.address for node in setup.plan.group.slaves}
        recording = Recording(clock, slaves)
        self._console.print(_headline(setup), highlight=False, soft_wrap=True)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._watch_signals, nursery.cancel_scope)
                with Ledger(setup.out / "ledger.ndjson") as ledger:
                    await play(setup.plan, recording, self._source, ledger, self._console)
                await self._run_audit()
                nursery.cancel_scope.cancel()
        except* (DrillError, ClusterError) as errors:
            raise _first(errors) from errors
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

    async def _run_audit(self) -> None:
        setup = self._setup
        write_parquet(setup.out / "ledger.ndjson", setup.out / "ledger.parquet")
        request = AuditRequest(
            ledger=setup.out / "ledger.parquet",
            stores=setup.stores,
            master=setup.plan.group.master.name,
            topic=TOPIC,
            out=setup.out,
            spark=setup.options.spark,
            spark_log=setup.out / "data" / "logs" / "spark.log",
            scratch=setup.out / "data" / "spark",
        )
        started = trio.current_time()
        try:
            self._audit = await audit_with_progress(request, self._console)
        except* AuditError as errors:
            self._audit_failed = str(_first(errors))
        self._audit_seconds = round(trio.current_time() - started, 1)

    def _conclude(self, recording: Recording) -> int:
        setup = self._setup
        if self._interrupted_by:
            write_parquet(setup.out / "ledger.ndjson", setup.out / "ledger.parquet")
        (setup.out / "ledger.ndjson").unlink()
        summary = self._summarise(recording)
        page = write_report(summary, recording.timeline, setup.out)
        kept = _tidy(setup.out, keep_data=summary.verdict == "FAILED")
        print_verdict(self._console, summary, page)
        if kept is not None:
            self._console.print(f"the nodes' data is kept in {kept}", highlight=False)
        return exit_status(summary)

    def _summarise(self, recording: Recording) -> Summary:
        assert recording.ended_at is not None
        interrupted = f"stopped by {self._interrupted_by}" if self._interrupted_by else ""
        return summarise(
            Played(
                timeline=recording.timeline,
                expectations=recording.expectations,
                disorder=recording.disorder,
                input_lines=self._source.line_count,
                input_lines_acknowledged=self._source.acknowledged_count,
                started_ms=recording.clock.started_ms,
                seconds=recording.ended_at,
                stopped_because=interrupted or recording.stopped_because or self._audit_failed,
            ),
            self._settings(),
            audit=self._audit,
            audit_seconds=self._audit_seconds,
            interrupted=bool(self._interrupted_by),
        )

    def _settings(self) -> Settings:
        options, plan = self._setup.options, self._setup.plan
        return Settings(
            config=str(options.config),
            input_file=str(options.input_file) if options.input_file is not None else None,
            scenario=options.scenario,
            rate_per_second=plan.rate_per_second,
            duration_seconds=options.duration_seconds,
            seed=options.seed,
            producers=[producer.name for producer in plan.producers],
            audit="spark" if options.spark else "quick",
            tandem_version=__version__,
            python_version=platform.python_version(),
            machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        )


def _headline(setup: Setup) -> str:
    plan = setup.plan
    scenarios = " and ".join(plan.scenarios)
    return (
        f"drill of {plan.group.name} (1 master, {len(plan.group.slaves)} slaves): {scenarios},"
        f" {plan.duration_seconds:g} s under load of {plan.rate_per_second:,.0f} sends a second"
    )


def _first(errors: BaseExceptionGroup[DrillError | ClusterError]) -> DrillError | ClusterError:
    """One of the errors that ended the drill; they all say the same or follow from another."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _tidy(out: Path, *, keep_data: bool) -> Path | None:
    """Move the nodes' own logs into the report and remove their data, or say where it is."""
    data = out / "data"
    logs = data / "logs"
    if logs.is_dir():
        logs.replace(out / "logs")
    if keep_data and data.is_dir():
        return data
    shutil.rmtree(data, ignore_errors=True)
    return None
