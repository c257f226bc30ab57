"""Five questions whose answers make a job: an archive that is a table.

    answers = {"stores": "broker-a=data/broker-a-0", "archive": "archive", ...}
    text = job_file(answers)

The file is the example of the job with these answers in it, so it has a comment for every key.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tandem.cluster_file.errors import ClusterConfigError
from tandem.spark.jobs.examples import EXAMPLES
from tandem.spark.jobs.settings import ArchiveSettings, load_settings


class Question(msgspec.Struct, frozen=True):
    """A question, by the key that its answer is for. No default: an answer is needed."""

    key: str
    words: str
    default: str | None


QUESTIONS: Final = (
    Question("stores", "Which store of each group (GROUP=DIRECTORY, with commas between)?", None),
    Question("archive", "Which directory becomes the archive?", "archive"),
    Question("table", "Which Iceberg table is it (NAMESPACE.NAME; - for none)?", "logs.messages"),
    Question("exclude_topics", "Which topics are left out (with commas between; - for none)?", "-"),
    Question("master", "Where does Spark run?", "local[*]"),
)

_NONE: Final = "-"
_LINES: Final = {
    "stores": "stores:\n  broker-a: data/broker-a-0\n",
    "archive": "archive: archive\n",
    "table": 'table: ""\n',
    "exclude_topics": "exclude_topics: []\n",
    "master": "master: local[*]\n",
}
"""What the example has in the place of an answer."""


def job_file(answers: Mapping[str, str]) -> str:
    """Return the file of the job that the answers describe; `answers` has every key of QUESTIONS.

    Raises:
        ClusterConfigError: an answer is none.
    """
    values = {key: _value(key, answer.strip()) for key, answer in answers.items()}
    load_settings(ArchiveSettings, None, values)
    text = EXAMPLES["archive"]
    for key, line in _LINES.items():
        before, found, after = text.partition(f"\n{line}")
        if not found:
            raise AssertionError(f"the example of the archive job has no {key}")
        text = f"{before}\n{key}: {values[key]}\n{after}"
    return text


def _value(key: str, answer: str) -> str:
    """Return an answer as YAML."""
    if key == "stores":
        return _json(dict(_store(pair) for pair in _parts(answer)))
    if key == "exclude_topics":
        return _json([] if answer == _NONE else _parts(answer))
    return _json("" if answer == _NONE else answer)


def _parts(answer: str) -> list[str]:
    return [part.strip() for part in answer.split(",") if part.strip()]


def _store(pair: str) -> tuple[str, str]:
    found = re.fullmatch(r"([^=]+)=(.+)", pair)
    if found is None:
        raise ClusterConfigError(
            f"stores: {pair!r} is no GROUP=DIRECTORY, such as broker-a=data/broker-a-0"
        )
    return found[1].strip(), found[2].strip()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
