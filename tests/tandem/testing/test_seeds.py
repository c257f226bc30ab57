import os
from collections.abc import Callable

import pytest

from tandem.testing.errors import SeedsError
from tandem.testing.seeds import VARIABLE, asked_seeds, first_failing, jobs_default


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("", range(10)), ("417", range(417, 418)), ("3-5", range(3, 6)), ("0", range(1))],
)
def test_the_environment_says_which_seeds(
    monkeypatch: pytest.MonkeyPatch, text: str, seeds: range
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert asked_seeds(range(10)) == seeds


@pytest.mark.parametrize("text", ["x", "-1", "5-3", "3-", "1,2", "²", " "])
def test_what_says_no_seeds_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(SeedsError) as raised:
        asked_seeds(range(10))
    assert raised.value.text == text


def test_a_worker_of_xdist_forks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert jobs_default() == 1


def fails_at(*failing: int) -> Callable[[int], bool]:
    return lambda seed: seed not in failing


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("failing", [(), (0,), (99,), (41, 40), (50, 7, 98)])
def test_the_first_failing_seed_is_the_same_with_any_number_of_jobs(
    jobs: int, failing: tuple[int, ...]
) -> None:
    assert first_failing(range(100), fails_at(*failing), jobs) == min(failing, default=None)


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_seeds_pass(jobs: int) -> None:
    assert first_failing([], fails_at(), jobs) is None


def test_seeds_beyond_the_first_failing_one_are_not_played_here() -> None:
    played = []

    def passes(seed: int) -> bool:
        played.append(seed)
        return seed < 3

    assert first_failing(range(100), passes, 1) == 3
    assert played == [0, 1, 2, 3]


def test_a_forked_process_that_dies_says_where() -> None:
    def passes(seed: int) -> bool:
        if seed == 30:
            os._exit(1)
        return True

    assert first_failing(range(100), passes, 2) == 30


def test_what_forked_seeds_print_is_not_seen(capfd: pytest.CaptureFixture[str]) -> None:
    def passes(seed: int) -> bool:
        print("seed", seed)  # noqa: T201
        return True

    assert first_failing(range(50), passes, 2) is None
    assert capfd.readouterr().out == ""
