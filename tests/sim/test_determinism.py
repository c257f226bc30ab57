"""One seed decides everything: two runs of it are the same, event by event."""

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.sim.playbooks import PLAYBOOKS

# One worker, which plays each seed once where that is enough.
pytestmark = pytest.mark.xdist_group("determinism")

SEEDS = [("classic", 7), ("fenced", 12), ("fenced-consumers", 192)]


@cache
def outcome(kind: str, seed: int) -> tuple[str, str]:
    """What came of a seed in this process: its digest and its summary."""
    run = PLAYBOOKS[kind].run_seed(seed)
    return run.digest, run.summary()


@pytest.mark.sim
@pytest.mark.slow
def test_two_runs_of_a_seed_in_one_process_are_the_same() -> None:
    again = PLAYBOOKS["classic"].run_seed(7)
    assert (again.digest, again.summary()) == outcome("classic", 7)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_a_run_of_a_seed_in_another_process_is_the_same(kind: str, seed: int) -> None:
    """There, names have other hashes."""
    program = (
        "from tests.sim.playbooks import PLAYBOOKS;"
        f"print(PLAYBOOKS[{kind!r}].run_seed({seed}).summary())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ, PYTHONHASHSEED="1"),
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == outcome(kind, seed)[1]


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), SEEDS[:2])
def test_another_seed_is_another_run(kind: str, seed: int) -> None:
    assert outcome(kind, seed)[0] != outcome(kind, seed + 1)[0]


@pytest.mark.parametrize("kind", PLAYBOOKS)
def test_settings_of_a_seed_do_not_change_from_call_to_call(kind: str) -> None:
    draw = PLAYBOOKS[kind].draw
    assert draw(7, None) == draw(7, None)
    assert len({str(draw(seed, None)) for seed in range(20)}) == 20


def test_the_size_of_a_fenced_group_can_be_chosen() -> None:
    draw = PLAYBOOKS["fenced"].draw
    assert {draw(seed, 5).node_count for seed in range(20)} == {5}
    assert {draw(seed, None).node_count for seed in range(20)} == {3, 5}
