"""Each benchmark says what it is, and what it takes, before it does anything."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS

BENCHMARKS = sorted(
    file for file in (ROOT / "benchmarks").glob("*.py") if "__main__" in file.read_text()
)


@pytest.mark.slow
@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.stem)
def test_a_benchmark_has_help(file: Path, tmp_path: Path) -> None:
    program = subprocess.run(
        [sys.executable, "-P", file, "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert program.stdout.startswith(f"usage: {file.name} [-h]")
    assert not program.stderr
    assert not list(tmp_path.iterdir())
