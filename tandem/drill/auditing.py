"""Runs the audit of the disks, after the last node has stopped: Spark's, or the quick one.

Both block for seconds, so they run in a worker thread while this task keeps the terminal alive and
hears signals. It is the one thread of the drill; it touches files and Spark, no object of ours.

Cancelling abandons the thread and kills the Java process that Spark started: what it would still
find out, nobody waits for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import trio
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from tandem.drill.errors import MissingRequirementError
from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit_rules import AuditSummary
from tandem.spark.errors import NoJavaError
from tandem.spark.java import find_java

REFRESH_SECONDS: Final = 0.1


class AuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to audit, how, and where to: the findings become the table `audit` in `out`."""

    ledger: Path
    stores: Mapping[str, Path]
    master: str
    topic: str
    out: Path
    spark: bool


def java_for_spark() -> str:
    """Return where Spark's Java was found.

    Raises:
        MissingRequirementError: there is none; the text says what was looked at.
    """
    try:
        return find_java().found_in
    except NoJavaError as error:
        raise MissingRequirementError(
            f"{error}; or look at the logs without it: --no-spark"
        ) from error


async def audit_with_progress(request: AuditRequest, console: Console) -> AuditSummary:
    """Run the audit; show on a terminal that it is alive. See the module about cancelling."""
    what = "Spark reads the logs of all nodes" if request.spark else "reading the logs of all nodes"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show_progress, console, what)
        found = await trio.to_thread.run_sync(_audit, request, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()
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
    if not request.spark:
        return run_quick_audit(
            request.ledger,
            request.stores,
            master=request.master,
            topic=request.topic,
            out_dir=request.out,
        )
    # Only now: pyspark takes a second to import, and `--no-spark` does without it.
    from tandem.spark.audit import run_audit  # noqa: PLC0415
    from tandem.spark.session import local_session  # noqa: PLC0415

    session = local_session(app_name="tandem drill")
    try:
        return run_audit(
            session,
            request.ledger,
            request.stores,
            master=request.master,
            topic=request.topic,
            out_dir=request.out,
        )
    finally:
        session.stop()
