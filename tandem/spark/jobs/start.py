"""Starts a job: settings, a session, the job, and what it found as one record.

    run_job("archive", settings)        in this process, on the master that the settings name

Under `spark-submit` the master is that of `spark-submit`, with all that it was given.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tandem.spark.audit.job import run_audit
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs.archive_job import run_archive, verify_archive
from tandem.spark.jobs.compact_job import run_compact
from tandem.spark.jobs.replay_job import run_replay
from tandem.spark.jobs.replay_plan import window_of
from tandem.spark.jobs.reports import OnProgress, silent
from tandem.spark.jobs.runner import SparkRunner
from tandem.spark.jobs.scrub_job import rules_of, run_scrub
from tandem.spark.jobs.stats_job import run_stats, times_of
from tandem.spark.session import TIME_ZONE, is_submitted, local_session, submitted_session

if TYPE_CHECKING:
    from tandem.spark.jobs.settings import AuditSettings

_WORDS_MAX: Final = 600


class JobRequest(msgspec.Struct, frozen=True):
    """What is to be done. `verify` belongs to `archive`, `dry_run` to `replay`."""

    job: str
    settings: Any
    verify: bool = False
    dry_run: bool = False


def run_job(request: JobRequest, *, on_progress: OnProgress = silent) -> Any:  # noqa: ANN401
    """Run a job and return its report.

    Raises:
        SparkSourceError: it cannot be done; also for what Spark itself says.
        ClusterConfigError: the settings contradict each other.
    """
    # First: Spark takes seconds to start.
    if judge := _JUDGES.get(request.job):
        judge(request.settings)
    on_progress("starting Spark")
    is_ours = SparkSession.getActiveSession() is None
    name = f"tandem {request.job}"
    if is_submitted():
        spark = submitted_session(app_name=name)
        spark.conf.set(TIME_ZONE, "UTC")  # reports say hours of UTC
    else:
        spark = local_session(app_name=name, master=request.settings.master)
    try:
        return _RUNS[request.job](request, spark, on_progress)
    except (PySparkException, Py4JError) as error:
        raise SparkSourceError(f"Spark: {_first_words(error)}") from error
    finally:
        if is_ours:
            spark.stop()


def _archive(request: JobRequest, spark: SparkSession, on_progress: OnProgress) -> object:
    run = verify_archive if request.verify else run_archive
    return run(request.settings, SparkRunner(spark), on_progress=on_progress)


def _replay(request: JobRequest, spark: SparkSession, on_progress: OnProgress) -> object:
    return run_replay(
        request.settings, SparkRunner(spark), dry_run=request.dry_run, on_progress=on_progress
    )


def _scrub(request: JobRequest, spark: SparkSession, on_progress: OnProgress) -> object:
    return run_scrub(request.settings, SparkRunner(spark), on_progress=on_progress)


def _stats(request: JobRequest, spark: SparkSession, on_progress: OnProgress) -> object:
    return run_stats(request.settings, spark, on_progress=on_progress)


def _compact(request: JobRequest, spark: SparkSession, on_progress: OnProgress) -> object:
    return run_compact(request.settings, spark, on_progress=on_progress)


def _audit(request: JobRequest, spark: SparkSession, on_progress: OnProgress) -> AuditSummary:
    settings: AuditSettings = request.settings
    return run_audit(
        spark,
        settings.ledger,
        settings.stores,
        master=settings.master_node,
        topic=settings.topic,
        out_dir=settings.output,
        on_stage=on_progress,
    )


def _master_of(settings: "AuditSettings") -> str:
    if settings.master_node not in settings.stores:
        raise SparkSourceError(
            f"master_node: {settings.master_node!r} is none of stores: {', '.join(settings.stores)}"
        )
    return settings.master_node


def _first_words(error: Exception) -> str:
    """Return what matters of an error of Spark, which may have a page of Java in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if "tandem." in line and "Error: " in line]
    words = own[-1] if own else lines[0] if lines else type(error).__name__
    return words[:_WORDS_MAX]


_RUNS: Final[Mapping[str, Callable[[JobRequest, SparkSession, OnProgress], object]]] = {
    "archive": _archive,
    "replay": _replay,
    "scrub": _scrub,
    "stats": _stats,
    "compact": _compact,
    "audit": _audit,
}

_JUDGES: Final[Mapping[str, Callable[[Any], object]]] = {
    "replay": window_of,
    "scrub": rules_of,
    "stats": times_of,
    "audit": _master_of,
}
"""What a job reads of its settings, and raises where they make no sense."""
