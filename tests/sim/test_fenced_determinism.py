"""One seed decides everything in a fenced group, too."""

import os
import subprocess
import sys

import pytest

from tests.sim.fenced_simulation import draw_fenced_settings, run_fenced_seed

SEEDS = (7, 12)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_runs_of_a_seed_in_other_processes_are_the_same(seed: int) -> None:
    program = (
        "from tests.sim.fenced_simulation import run_fenced_seed;"
        f"print(run_fenced_seed({seed}).summary())"
    )
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
    assert summaries == {run_fenced_seed(seed).summary()}


@pytest.mark.sim
@pytest.mark.slow
def test_another_seed_is_another_run() -> None:
    first, second = SEEDS
    assert run_fenced_seed(first).digest != run_fenced_seed(second).digest


def test_settings_of_a_seed_do_not_change_from_call_to_call() -> None:
    assert draw_fenced_settings(7) == draw_fenced_settings(7)
    assert len({str(draw_fenced_settings(seed)) for seed in range(20)}) == 20


def test_the_size_of_the_group_can_be_chosen() -> None:
    assert {draw_fenced_settings(seed, 5).node_count for seed in range(20)} == {5}
    assert {draw_fenced_settings(seed).node_count for seed in range(20)} == {3, 5}
