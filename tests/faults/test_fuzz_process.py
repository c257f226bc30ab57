"""Hostile bytes at real processes, for a few seconds; `python -m tests.fuzz` goes on for longer."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.processes import ENVIRONMENT

pytestmark = [pytest.mark.slow, pytest.mark.fault]

SECONDS_MAX = 540


def test_nobody_suffers_from_hostile_bytes() -> None:
    """The wait is long because the whole suite runs beside it."""
    command = [sys.executable, "-m", "tests.fuzz", "--frames", "1000", "--wait-seconds", "60"]
    done = subprocess.run(
        [*command, "--quiet"],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout
