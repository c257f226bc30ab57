import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tandem.spark.errors import OptionError
from tandem.spark.worker_words import (
    HIDES_TRACEBACK,
    OF_WORKERS,
    in_one_sentence,
    is_worker,
    rows_in_one_sentence,
)

OURS = OptionError("columns: no such column", ["columns"])


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OF_WORKERS, HIDES_TRACEBACK):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def raised(error: Exception) -> None:
    @in_one_sentence
    def plan() -> int:
        raise error

    @rows_in_one_sentence
    def read() -> Iterator[int]:
        yield 1
        raise error

    with pytest.raises(type(error)):
        plan()
    rows = read()
    assert next(rows) == 1
    with pytest.raises(type(error)):
        next(rows)


@pytest.mark.parametrize("name", sorted(OF_WORKERS))
def test_in_a_worker_an_error_of_ours_hides_its_traceback(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    assert is_worker()
    raised(OURS)
    assert os.environ[HIDES_TRACEBACK]


def test_an_error_of_anybody_else_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    raised(ValueError("a bug"))
    assert HIDES_TRACEBACK not in os.environ


def test_nothing_is_changed_where_there_is_no_worker() -> None:
    assert not is_worker()
    raised(OURS)
    assert HIDES_TRACEBACK not in os.environ


def test_what_returns_is_handed_on() -> None:
    assert in_one_sentence(lambda number: number + 1)(1) == 2
    assert list(rows_in_one_sentence(lambda number: iter(range(number)))(3)) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("is_one", [True, False])
def test_a_worker_that_ends_says_nothing_more(*, is_one: bool) -> None:
    program = (
        "import sys; from tandem.spark.worker_words import end_quietly\n"
        "end_quietly(); print('a traceback', file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "x"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment if is_one else dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ("" if is_one else "a traceback\n")
