import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs import __main__ as program
from tandem.spark.jobs import start
from tandem.spark.jobs.scrub_job import ScrubReport


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that would have been run."""
    requests: list[Any] = []

    def run_job(request: Any, **_: object) -> object:  # noqa: ANN401
        requests.append(request)
        if request.settings.archive.endswith("bad"):
            raise SparkSourceError("no such archive")
        return ScrubReport("o", 1, 2, 0, ["one"] if request.settings.archive.endswith("f") else [])

    monkeypatch.setattr(start, "run_job", run_job)
    return requests


def test_a_job_is_run_and_reported(ran: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    given = ["archive", "--set", "archive=a", "--set", "stores={b: s}", "--verify"]
    assert program.main(given) == 0
    assert ran[0].verify
    assert ran[0].settings.archive == str(Path.cwd() / "a")
    assert msgspec.json.decode(capsys.readouterr().out)["rows"] == 2


@pytest.mark.parametrize(
    ("archive", "status", "words"), [("a/f", 1, ""), ("a/bad", 1, "error: no such archive")]
)
def test_a_failure_has_its_status(
    ran: list[Any], capsys: pytest.CaptureFixture[str], archive: str, status: int, words: str
) -> None:
    given = ["archive", "--set", f"archive={archive}", "--set", "stores={b: s}"]
    assert program.main(given) == status
    assert words in capsys.readouterr().err
    assert ran


def test_wrong_settings_are_told_before_spark_is_loaded(
    ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["archive", "--set", "archive=a"]) == 2
    assert "stores: missing" in capsys.readouterr().err
    assert not ran


def test_nothing_is_logged_after_the_report(
    ran: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """py4j does that at the end of a session; the output of a submitted program is one."""
    caplog.set_level(logging.INFO)
    py4j = logging.getLogger("py4j.clientserver")
    assert program.main(["archive", "--set", "archive=a", "--set", "stores={b: s}"]) == 0
    assert ran
    assert not py4j.isEnabledFor(logging.INFO)
    assert py4j.isEnabledFor(logging.WARNING)
    assert program.logger.isEnabledFor(logging.INFO)
