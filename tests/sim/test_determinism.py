"""One seed decides everything: two runs of it are the same, event by event."""

import os
import subprocess
import sys

import pytest

from tests.sim.simulation import draw_settings, run_seed

SEED = 7


@pytest.mark.sim
@pytest.mark.slow
def test_two_runs_of_a_seed_in_one_process_are_the_same() -> None:
    first, second = run_seed(SEED), run_seed(SEED)
    assert first.digest == second.digest
    assert first.summary() == second.summary()


@pytest.mark.sim
@pytest.mark.slow
def test_runs_of_a_seed_in_other_processes_are_the_same() -> None:
    program = f"from tests.sim.simulation import run_seed; print(run_seed({SEED}).summary())"
    summaries = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=dict(os.environ, PYTHONHASHSEED=hash_seed),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert summaries == {run_seed(SEED).summary()}


@pytest.mark.sim
@pytest.mark.slow
def test_another_seed_is_another_run() -> None:
    assert run_seed(SEED).digest != run_seed(SEED + 1).digest


def test_settings_of_a_seed_do_not_change_from_call_to_call() -> None:
    assert draw_settings(SEED) == draw_settings(SEED)
    assert len({str(draw_settings(seed)) for seed in range(20)}) == 20
