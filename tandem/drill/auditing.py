"""Runs the audit of the disks, after the last node has stopped: in Python, or with Spark.

Both block for seconds, so they run in a worker thread while this task keeps the terminal alive and
hears signals. It is the one thread of the drill; it touches files and Spark, no object of ours.

Cancelling abandons the thread and ends the Java process that Spark started: what it would still
find out, nobody waits for. If this process is killed, Java ends by itself: its standard input is a
pipe from here.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import trio
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from tandem.drill.errors import AuditError, MissingRequirementError, Requirement
from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.errors import NoJavaError, SparkSourceError
from tandem.spark.java import find_java

REFRESH_SECONDS: Final = 0.1
LINE_SECONDS: Final = 5.0
"""Without a terminal: how often one line says how it goes."""

SHOWN_SECONDS_MIN: Final = 0.05
"""Stages that were shorter are not named at the end."""

SPARK_TAKES_TIME: Final = (
    "audit with Spark: to start Java takes most of its time, however small the logs are."
    " It judges by the same rules as the audit in Python."
)
END_SECONDS_MAX: Final = 8.0
"""How long Java may take to stop and remove its temporary files; about 1 s here."""


class AuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to audit, how, and where to.

    The findings become the table `audit` in `out`; what Spark writes on standard error goes to
    `spark_log`, and its temporary files to `scratch`.
    """

    ledger: Path
    stores: Mapping[str, Path]
    master: str
    topic: str
    out: Path
    spark: bool
    spark_log: Path
    scratch: Path
    confirm: int | None = None
    """Of a fenced group: below this every node had the whole log."""
    since: int = 0
    """Up to there a log may start anywhere: what was there before the drill."""


def java_for_spark(option: str = "--spark") -> str:
    """Return where Spark's Java was found; `option` is what asked for it.

    Raises:
        MissingRequirementError: there is none; the text says what was looked at.
    """
    try:
        return find_java().found_in
    except NoJavaError as error:
        raise MissingRequirementError(
            f"{error}; or leave {option} out: the audit in Python judges by the same rules",
            Requirement.JAVA,
        ) from error


async def audit_with_progress(request: AuditRequest, console: Console) -> AuditSummary:
    """Run the audit; say what it is doing and how long that takes. See the module about cancelling.

    Raises:
        AuditError: in a group; it could not be done.
    """
    stages = Stages()
    others = frozenset(_children())
    if request.spark:
        console.print(SPARK_TAKES_TIME, highlight=False, soft_wrap=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show_progress, console, stages)
        try:
            found = await trio.to_thread.run_sync(_audit, request, stages, abandon_on_cancel=True)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await _end_children(others)
            raise
        nursery.cancel_scope.cancel()
    console.print(stages.said(), highlight=False, soft_wrap=True)
    # Java would end by itself, but only after us.
    await _end_children(others)
    return found


class Stages:
    """What the audit is doing. Its thread writes, the drill's reads: the list only grows.

    The clock is not trio's, which the thread of the audit cannot ask.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: list[tuple[float, str]] = [(clock(), "starting")]

    def begin(self, stage: str) -> None:
        """Note that a stage begins, which ends the one before."""
        self._begun.append((self._clock(), stage))

    def now(self) -> str:
        """What is done at this moment, and since when."""
        now = self._clock()
        begun_at, stage = self._begun[-1]
        in_all = now - self._begun[0][0]
        return f"audit: {stage} … {now - begun_at:.0f} s (audit so far {in_all:.0f} s)"

    def said(self) -> str:
        """All of it in one line, when it is over."""
        ended_at = self._clock()
        ends = [*(begun_at for begun_at, _ in self._begun[1:]), ended_at]
        parts = [
            f"{stage} {end - begun_at:.1f} s"
            for (begun_at, stage), end in zip(self._begun, ends, strict=True)
            if end - begun_at >= SHOWN_SECONDS_MIN
        ]
        in_all = f"audited in {ended_at - self._begun[0][0]:.1f} s"
        return f"{in_all}: {'; '.join(parts)}" if parts else in_all


async def _show_progress(console: Console, stages: Stages) -> None:
    if not console.is_terminal or console.is_dumb_terminal:
        while True:
            await trio.sleep(LINE_SECONDS)
            console.print(stages.now(), highlight=False, soft_wrap=True)
    spinner = Spinner("dots")
    with Live(spinner, console=console, auto_refresh=False, transient=True) as live:
        while True:
            spinner.update(text=stages.now())
            live.refresh()
            await trio.sleep(REFRESH_SECONDS)


def _audit(request: AuditRequest, stages: Stages) -> AuditSummary:
    if request.spark:
        return _audit_with_spark(request, stages)
    try:
        return run_quick_audit(
            request.ledger,
            request.stores,
            master=request.master,
            topic=request.topic,
            out_dir=request.out,
            confirm=request.confirm,
            since=request.since,
            on_stage=stages.begin,
        )
    except (SparkSourceError, OSError) as error:
        raise AuditError(f"the audit could not be done: {error}") from error


def _audit_with_spark(request: AuditRequest, stages: Stages) -> AuditSummary:
    stages.begin("starting Java and Spark")
    # Only now: pyspark takes a second to import, and the audit in Python does without it.
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from tandem.spark.audit.job import run_audit  # noqa: PLC0415
    from tandem.spark.session import SHORT_LIVED, local_session  # noqa: PLC0415

    # It would log every broken connection when the audit is cut short.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_a_lost_java)
    try:
        with _standard_error_to(request.spark_log):
            session = local_session(
                app_name="tandem drill",
                java_options=SHORT_LIVED,
                settings={"spark.local.dir": str(request.scratch)},
            )
        try:
            return run_audit(
                session,
                request.ledger,
                request.stores,
                master=request.master,
                topic=request.topic,
                out_dir=request.out,
                confirm=request.confirm,
                since=request.since,
                on_stage=stages.begin,
            )
        finally:
            stages.begin("stopping Spark")
            session.stop()
    except (SparkSourceError, PySparkException, Py4JError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise AuditError(
            f"the audit could not be done: {reason} (Spark's own words: {request.spark_log.name})"
        ) from error


def _is_not_of_a_lost_java(record: logging.LogRecord) -> bool:
    """Drop what py4j logs when Java has ended: it could not let go of an object.

    A connection that matters raises besides.
    """
    return record.msg != "Exception while sending command."


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their standard error to a file.

    Java and its Python workers would otherwise write into the live view. Spark offers no other way.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    before = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


async def _end_children(others: frozenset[int]) -> None:
    """End what Spark started, kindly first, so that its temporary files go too.

    `others` are children of this process that were there before: nothing happens to them.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _running(others):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        with trio.move_on_after(END_SECONDS_MAX):
            while True:
                if not _running(others):
                    return
                await trio.sleep(REFRESH_SECONDS)


def _running(others: frozenset[int]) -> list[int]:
    return [pid for pid in _children() - others if _is_running(pid)]


def _children() -> set[int]:
    """Our child processes, ended ones too (none where there is no Linux /proc)."""
    found: set[int] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has just ended
            found |= {int(pid) for pid in children.read_text().split()}
    return found


def _is_running(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:  # the thread that started it has seen its end
        return False
