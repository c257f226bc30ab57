from pathlib import Path

import pytest

from tandem.cluster_file.errors import ClusterConfigError
from tandem.spark.jobs.questions import QUESTIONS, job_file
from tandem.spark.jobs.settings import ArchiveSettings, load_settings

ANSWERS = {
    "stores": "broker-a=data/broker-a-0, broker-b=/logs/b: 1",
    "archive": "out",
    "table": "logs.orders",
    "exclude_topics": "noise, %RETRY%g",
    "master": "local[2]",
}


def load(tmp_path: Path, answers: dict[str, str]) -> ArchiveSettings:
    file = tmp_path / "archive.yaml"
    file.write_text(job_file(answers))
    return load_settings(ArchiveSettings, file, {})


def test_five_questions_make_a_job(tmp_path: Path) -> None:
    assert [question.key for question in QUESTIONS] == list(ANSWERS)
    assert load(tmp_path, ANSWERS) == ArchiveSettings(
        archive=str(tmp_path / "out"),
        stores={"broker-a": str(tmp_path / "data/broker-a-0"), "broker-b": "/logs/b: 1"},
        exclude_topics=["noise", "%RETRY%g"],
        table="logs.orders",
        master="local[2]",
    )


def test_defaults_are_answers(tmp_path: Path) -> None:
    answers = {each.key: each.default or "broker-a=s" for each in QUESTIONS}
    settings = load(tmp_path, answers)
    assert (settings.table, settings.exclude_topics) == ("logs.messages", [])
    assert load(tmp_path, answers | {"table": "-"}).table == ""


def test_the_file_keeps_its_comments() -> None:
    assert job_file(ANSWERS).count("\n#") > 10


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("stores", "data/broker-a-0"),
        ("stores", "=x"),
        ("table", "messages"),
        ("table", 'a.b"\nmaster: x'),
        ("master", "here"),
    ],
)
def test_a_wrong_answer_is_an_error(key: str, answer: str) -> None:
    with pytest.raises(ClusterConfigError) as caught:
        job_file(ANSWERS | {key: answer})
    assert any(key in problem for problem in caught.value.problems)
