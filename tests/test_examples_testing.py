"""Clusters of `tandem testing serve` in the tests of other languages, as their users run them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.programs import NotToBeHadError, fetch, need
from tests.support.paths import ROOT
from tests.support.processes import ENVIRONMENT

pytestmark = [
    pytest.mark.fault,
    pytest.mark.long,
    pytest.mark.timeout(1_800),
    pytest.mark.xdist_group("examples_testing"),
]

RUN_SECONDS_MAX = 900.0


def copied(name: str, directory: Path) -> Path:
    """A copy of an example, which its tools write into."""
    return Path(shutil.copytree(ROOT / "examples" / name, directory / name))


def fetched(command: list[str], *programs: str, cwd: Path) -> None:
    """Have what an example needs; skip where a program is missing, or the network."""
    try:
        need(*programs)
        fetch(command, cwd=cwd)
    except NotToBeHadError as error:
        pytest.skip(str(error))


def run(command: list[str], cwd: Path) -> str:
    """Run the tests of an example, which must pass; return what is said."""
    tool = cwd / "tandem"
    line = '"from tandem.cli import main; main()"'
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -P -c {line} "$@"\n')
    tool.chmod(0o755)
    temporary = cwd / "t"
    temporary.mkdir()
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**ENVIRONMENT, "PATH": f"{cwd}:{os.environ['PATH']}", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]
    assert not list(temporary.glob("tandem-testing-*"))
    return done.stdout


def test_junit_kills_a_master_and_rocketmqs_client_consumes_everything(tmp_path: Path) -> None:
    directory = copied("junit", tmp_path)
    fetched(["mvn", "-q", "-B", "dependency:resolve"], "java", "javac", "mvn", cwd=directory)
    said = run(["mvn", "-B", "test", f"-DargLine=-Duser.home={directory}"], directory)
    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in said


def test_go_kills_a_master_and_rocketmqs_client_consumes_everything(tmp_path: Path) -> None:
    directory = copied("go/tandemtest", tmp_path)
    fetched(["go", "mod", "download"], "go", cwd=directory)
    said = run(["go", "test", "-count=1", "-v", "./..."], directory)
    assert said.count("--- PASS: ") == 2
