from typing import TYPE_CHECKING

import pytest

from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs import start
from tandem.spark.jobs.archive_job import ArchiveReport
from tandem.spark.jobs.settings import AuditSettings
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


def test_what_a_job_cannot_do_is_told_in_words(spark: "SparkSession") -> None:
    settings = AuditSettings("ledger", {"broker-a-0": "x"}, "broker-b", "drill", "out")
    with pytest.raises(SparkSourceError, match="master_node: 'broker-b' is none of stores"):
        run_job(JobRequest("audit", settings))
    assert spark.range(1).count() == 1


def test_of_a_page_of_java_the_line_that_matters_is_left() -> None:
    page = "Job aborted\n  at org.apache\ntandem.spark.errors.LogDamagedError: torn record\n at x"
    assert start._first_words(RuntimeError(page)).startswith("tandem.spark.errors.LogDamaged")
    assert start._first_words(RuntimeError("one\ntwo")) == "one"
    assert start._first_words(RuntimeError("")) == "RuntimeError"
