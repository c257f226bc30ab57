"""Runs the audit of the disks, after the last node has stopped: Spark's, or the quick one.

Both block for seconds, so they run in a worker thread while this task keeps the terminal alive and
hears signals. It is the one thread of the drill; it touches files and Spark, no object of ours.

Cancelling abandons the thread and ends the Java process that Spark started: what it would still
find out, nobody waits for. If this process is killed, Java ends by itself: its standard input is a
pipe from here.
"""

import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import trio
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from tandem.drill.errors import AuditError, MissingRequirementError
from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit_rules import AuditSummary
from tandem.spark.errors import NoJavaError, SparkSourceError
from tandem.spark.java import find_java

REFRESH_SECONDS: Final = 0.1
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


def java_for_spark() -> str:
    """Return where Spark's Java was found.

    Raises:
        MissingRequirementError: there is none; the text says what was looked at.
    """
    try:
        return find_java().found_in
    except NoJavaError as error:
        raise MissingRequirementError(f"{error}; or drill without Spark: --no-spark") from error


async def audit_with_progress(request: AuditRequest, console: Console) -> AuditSummary:
    """Run the audit; show on a terminal that it is alive. See the module about cancelling.

    Raises:
        AuditError: in a group; it could not be done.
    """
    what = "Spark reads the logs of all nodes" if request.spark else "reading the logs of all nodes"
    others = frozenset(_children())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show_progress, console, what)
        try:
            found = await trio.to_thread.run_sync(_audit, request, abandon_on_cancel=True)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await _end_children(others)
            raise
        nursery.cancel_scope.cancel()
    # Java would end by itself, but only after us.
    await _end_children(others)
    return found


async def _show_progress(console: Console, what: str) -> None:
    if not console.is_terminal:
        console.print(f"{what} …", highlight=False)
        return
    started = trio.current_time()
    spinner = Spinner("dots")
    with Live(spinner, console=console, auto_refresh=False, transient=True) as live:
        while True:
            spinner.update(text=f"{what} … {trio.current_time() - started:.0f} s")
            live.refresh()
            await trio.sleep(REFRESH_SECONDS)


def _audit(request: AuditRequest) -> AuditSummary:
    if request.spark:
        return _audit_with_spark(request)
    try:
        return run_quick_audit(
            request.ledger,
            request.stores,
            master=request.master,
            topic=request.topic,
            out_dir=request.out,
            confirm=request.confirm,
        )
    except (SparkSourceError, OSError) as error:
        raise AuditError(f"the audit could not be done: {error}") from error


def _audit_with_spark(request: AuditRequest) -> AuditSummary:
    # Only now: pyspark takes a second to import, and `--no-spark` does without it.
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from tandem.spark.audit import run_audit  # noqa: PLC0415
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
            )
        finally:
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
