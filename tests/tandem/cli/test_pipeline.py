"""What `tandem pipeline` prints and how it ends; the jobs themselves are not run here."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tandem.cli import pipeline
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs import start
from tandem.spark.jobs.archive_job import ArchiveReport
from tandem.spark.jobs.compact_job import CompactedTopic
from tandem.spark.jobs.replay_job import ReplayReport
from tandem.spark.jobs.scrub_job import ScrubReport
from tandem.spark.jobs.stats_job import QueueHour

RunCli = Callable[..., Any]

AUDIT: dict[str, Any] = {
    field.name: {} if field.name.endswith("_by_slave") else 0
    for field in msgspec.structs.fields(AuditSummary)
    if field.required
}
ARCHIVED = ArchiveReport("a", 2, 30, 2, [], {"broker-a": ["/s/000"]}, ["broker-a: [0, 5)"])
REPORTS: dict[str, Any] = {
    "archive": ARCHIVED,
    "replay": ReplayReport("again", 5, 2048, 7, dry_run=False),
    "audit": msgspec.convert(AUDIT, AuditSummary),
    "stats": [QueueHour("t", "b", 0, "2026-01-01T00:00Z", 3, 9, 3, 3, 3, 1, 1, 0, 5, ["h 3"])],
    "compact": [
        CompactedTopic("t", {}, 10, 4, 1, 0, kept_tombstones=False),
    ],
    "scrub": ScrubReport("s", 1, 10, 0, []),
}
CONFIG = {
    "archive": ["archive=a", "stores={b: s}"],
    "replay": ["state=s", "source_topic=t", "name_servers=[n]", "archive=a"],
    "audit": ["ledger=l", "stores={b: s}", "master_node=b", "topic=t", "output=o"],
    "stats": ["archive=a"],
    "compact": ["archive=a", "topics=[t]", "output=o"],
    "scrub": ["archive=a", "output=o"],
}


class Done:
    """How a command ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def tandem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run a command line in this process, with jobs that answer `REPORTS`."""
    from tandem.cli.command_line import run_command_line  # noqa: PLC0415

    def run_job(request: Any, **_: object) -> object:  # noqa: ANN401
        report = REPORTS[request.job]
        if isinstance(report, Exception):
            raise report
        return report

    monkeypatch.setattr(start, "run_job", run_job)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr("sys.argv", ["tandem", *arguments])
        status = run_command_line()
        printed = capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return run


def settings(job: str) -> list[str]:
    return [word for each in CONFIG[job] for word in ("--set", each)]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("archive", "/s/000"),
        ("replay", "messages sent"),
        ("audit", "promises broken"),
        ("stats", "2026-01-01T00:00Z"),
        ("compact", "tombstones"),
        ("scrub", "dropped"),
    ],
)
def test_a_report_is_printed(tandem: Callable[..., Done], job: str, words: str) -> None:
    done = tandem("pipeline", job, *settings(job))
    assert (done.status, done.err) == (0, "")
    assert words in done.out
    done = tandem("pipeline", job, *settings(job), "--format", "json")
    assert msgspec.json.decode(done.out)


def test_faults_end_with_status_1(
    tandem: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [f"file {number}: is missing" for number in range(30)]
    wrong = msgspec.structs.replace(ARCHIVED, faults=faults)
    monkeypatch.setitem(REPORTS, "archive", wrong)
    done = tandem("pipeline", "archive", *settings("archive"), "--verify")
    assert done.status == 1
    assert "file 19: is missing" in done.err
    assert "and 10 more" in done.err


def test_what_a_job_cannot_do_is_one_error(
    tandem: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REPORTS, "stats", SparkSourceError("a is no archive"))
    done = tandem("pipeline", "stats", *settings("stats"), "--master", "local[1]")
    assert (done.status, done.out, done.err) == (1, "", "error: a is no archive\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stats"], "tandem pipeline init stats"),
        (["stats", "--set", "archive"], "'archive' is no KEY=VALUE"),
        (["stats", "--set", "archiev=a"], "did you mean 'archive'"),
        (["stats", "-c", "none.yaml"], "there is no such file"),
        (["init", "statz"], "there is no job 'statz'"),
    ],
)
def test_a_wrong_line_is_told(
    tandem: Callable[..., Done], arguments: list[str], words: str
) -> None:
    done = tandem("pipeline", *arguments)
    assert done.status == 2
    assert words in done.err


def test_an_example_is_written_once(
    tandem: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tandem("pipeline", "init", "archive", "a.yaml").status == 0
    assert tandem("pipeline", "init", "archive").out == Path("a.yaml").read_text()
    done = tandem("pipeline", "init", "archive", "a.yaml")
    assert done.status == 2
    assert "is there already" in done.err


def test_without_pyspark_it_says_what_to_install(
    tandem: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "find_spec", lambda _: None)
    done = tandem("pipeline", "stats", *settings("stats"))
    assert done.status == 2
    assert "pip install 'tandem-mq[spark]'" in done.err
    assert importlib.util.find_spec("pyspark")


def test_a_package_says_its_size_and_what_workers_need(
    tandem: Callable[..., Done], tmp_path: Path
) -> None:
    done = tandem("pipeline", "package", str(tmp_path / "tandem.zip"))
    assert done.status == 0
    assert "a Python with pyarrow, numpy, msgspec, anyio and outcome" in done.out
    assert (tmp_path / "tandem.zip").stat().st_size > 100_000
    refused = tandem("pipeline", "package", str(tmp_path / "tandem.egg"))
    assert refused.status == 2
    assert refused.err == "error: tandem.egg ends in neither .zip nor .tar.gz\n"
