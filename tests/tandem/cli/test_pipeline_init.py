"""Five questions: asked on a terminal, answered by options, never asked elsewhere."""

import sys
from pathlib import Path

import pytest
import typer

from tandem.cli.output import CommandError
from tandem.cli.pipeline_init import write_job
from tandem.spark.jobs.questions import QUESTIONS
from tandem.spark.jobs.settings import ArchiveSettings, load_settings

NOTHING: dict[str, str | None] = {question.key: None for question in QUESTIONS}


def terminal(monkeypatch: pytest.MonkeyPatch, *, is_one: bool) -> list[str]:
    """Let there be a terminal, whose user takes every default and names a store, or none."""
    asked: list[str] = []

    def prompt(words: str, default: str | None) -> str:
        asked.append(words)
        return default or "broker-a=data/broker-a-0"

    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: is_one, raising=False)
    monkeypatch.setattr(typer, "prompt", prompt)
    return asked


def test_a_terminal_is_asked_five_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = terminal(monkeypatch, is_one=True)
    write_job(tmp_path / "a.yaml", NOTHING)
    assert asked == [question.words for question in QUESTIONS]
    settings = load_settings(ArchiveSettings, tmp_path / "a.yaml", {})
    assert settings.stores == {"broker-a": str(tmp_path / "data/broker-a-0")}


def test_what_options_answer_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = terminal(monkeypatch, is_one=True)
    write_job(tmp_path / "a.yaml", NOTHING | {"stores": "b=s", "table": "a.b"})
    assert len(asked) == 3
    assert load_settings(ArchiveSettings, tmp_path / "a.yaml", {}).table == "a.b"


def test_without_a_terminal_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = terminal(monkeypatch, is_one=False)
    write_job(tmp_path / "a.yaml", NOTHING | {"stores": "b=s"})
    with pytest.raises(CommandError, match="--stores") as caught:
        write_job(tmp_path / "b.yaml", NOTHING)
    assert caught.value.exit_status == 2
    assert asked == []
    assert not (tmp_path / "b.yaml").exists()


def test_a_file_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = terminal(monkeypatch, is_one=True)
    (tmp_path / "a.yaml").write_text("mine")
    with pytest.raises(CommandError):
        write_job(tmp_path / "a.yaml", NOTHING)
    assert (tmp_path / "a.yaml").read_text() == "mine"
    assert asked == []
