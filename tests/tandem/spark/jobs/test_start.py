from typing import TYPE_CHECKING

import msgspec
import pytest

from tandem.cluster_file.errors import ClusterConfigError
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs import start
from tandem.spark.jobs.archive_job import ArchiveReport
from tandem.spark.jobs.settings import (
    AuditSettings,
    ReplaySettings,
    ScrubSettings,
    StatsSettings,
)
from tandem.spark.jobs.start import JobRequest, run_job
from tests.support.small_archive import SmallArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_an_archive_is_written_in_tasks(spark: "SparkSession", small: SmallArchive) -> None:
    small.put(200)
    report = run_job(JobRequest("archive", small.settings()))
    assert isinstance(report, ArchiveReport)
    assert report.log_files == report.verified > 0
    assert report.faults == []
    # The session was there before, and is there after it.
    assert spark.range(1).count() == 1


REPLAY = ReplaySettings("state", "orders", ["127.0.0.1:9876"], archive="a")


@pytest.mark.parametrize(
    ("job", "settings", "words"),
    [
        ("audit", AuditSettings("l", {"a-0": "x"}, "b", "drill", "out"), "'b' is none of stores"),
        ("stats", StatsSettings("a", ending_timestamp="noon"), "'noon' is no time"),
        ("scrub", ScrubSettings("a", "b"), "none is given"),
        ("replay", msgspec.structs.replace(REPLAY, queues=["x"]), "'x' is no whole number"),
    ],
)
def test_settings_are_judged_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, job: str, settings: object, words: str
) -> None:
    monkeypatch.delattr(start, "local_session")
    with pytest.raises((SparkSourceError, ClusterConfigError), match=words):
        run_job(JobRequest(job, settings))


def test_a_job_that_is_submitted_runs_where_it_was_submitted_to(
    monkeypatch: pytest.MonkeyPatch, spark: "SparkSession", small: SmallArchive
) -> None:
    small.put(20)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.delattr(start, "local_session")
    settings = msgspec.structs.replace(small.settings(), master="local[7]")
    assert run_job(JobRequest("archive", settings)).faults == []
    assert spark.sparkContext.master != "local[7]"


def test_of_a_page_of_java_the_line_that_matters_is_left() -> None:
    page = "Job aborted\n  at org.apache\ntandem.spark.errors.LogDamagedError: torn record\n at x"
    assert start._first_words(RuntimeError(page)).startswith("tandem.spark.errors.LogDamaged")
    assert start._first_words(RuntimeError("one\ntwo")) == "one"
    assert start._first_words(RuntimeError("")) == "RuntimeError"
