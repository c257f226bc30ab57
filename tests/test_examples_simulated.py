"""The example of a simulated cluster: its bug is found, and its remedy is one."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.sim, pytest.mark.slow, pytest.mark.thorough]

EXAMPLE = "examples/simulated_charges.py"


def run_it(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(ROOT / EXAMPLE), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_bug_of_the_naive_service_is_found_within_a_thousand_seeds() -> None:
    done = run_it("naive", "1000")
    assert done.returncode == 1
    assert "; again: TANDEM_SEEDS=" in done.stderr
    assert "HandledTwiceError" in done.stderr or "LostError" in done.stderr


def test_few_seeds_find_nothing_in_the_mended_service() -> None:
    done = run_it("mended", "15")
    assert done.stdout == "in all seeds that were played, each order was charged once\n", (
        done.stderr
    )


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_thousand_seeds_find_nothing_in_the_mended_service() -> None:
    done = run_it("mended", "1000")
    assert done.stdout == "in all seeds that were played, each order was charged once\n", (
        done.stderr
    )


def test_how_it_is_used() -> None:
    done = run_it()
    assert done.returncode == 1
    assert "naive|mended" in done.stderr
    assert "Traceback" not in done.stderr
