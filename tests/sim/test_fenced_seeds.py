"""Fenced groups under seeded faults: no seed breaks a promise.

A seed that fails is printed with the command that replays it.
"""

import sys

import pytest

from tests.sim.fenced_simulation import run_fenced_seed

SEED_COUNT = 300
SEEDS_PER_TEST = 10

FOUND_SOMETHING_ONCE = {
    700_327: "logs that never had an epoch in common ended in quarantine",
    700_710: "a candidate whose turn was a rounding error away spun for ever",
    800_163: "a lease was revoked in the step in which it ended",
}


def _run_chunk(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        # Seen if the run hangs and the time limit of the test ends it.
        sys.stdout.write(f"seed {seed}\n")
        result = run_fenced_seed(seed)
        assert not result.findings, result.report()


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEED_COUNT, SEEDS_PER_TEST))
def test_no_seed_breaks_a_promise(first: int) -> None:
    _run_chunk(first)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", FOUND_SOMETHING_ONCE)
def test_what_a_seed_has_found_stays_mended(seed: int) -> None:
    result = run_fenced_seed(seed)
    assert not result.findings, result.report()


@pytest.mark.sim
@pytest.mark.long
@pytest.mark.parametrize("first", range(SEED_COUNT, 3_000, SEEDS_PER_TEST))
def test_no_seed_of_many_breaks_a_promise(first: int) -> None:
    _run_chunk(first)
