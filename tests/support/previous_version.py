"""The version before this one, in a virtual environment of its own: built from the repository."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

import pytest

from tests.support.paths import ROOT

RECORD: Final = ROOT / "tests" / "data" / "previous-version.txt"

BUILD_SECONDS_MAX: Final = 600


def previous_commit() -> str:
    """The commit that is written down as the version before this one."""
    lines = RECORD.read_text().splitlines()
    return next(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def install_previous(directory: Path) -> Path:
    """Clone the repository at that commit, and install it; return its Python.

    Fails the test if the history of the repository is not here: an upgrade that nobody has tried
    must not look like one that works.
    """
    commit = previous_commit()
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode:
        pytest.fail(
            f"commit {commit} of {RECORD} is not in this repository, so no upgrade was tried:"
            " fetch its history, `git fetch --unshallow`"
        )
    source, environment = directory / "source", directory / "venv"
    _run("git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(source))
    _run("git", "-C", str(source), "checkout", "--quiet", commit)
    venv.create(environment)
    python = environment / "bin" / "python"
    site = sysconfig.get_path(
        "purelib", vars={"base": str(environment), "platbase": str(environment)}
    )
    # What both versions depend on is taken from here; the version itself comes first.
    (environment / site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _run(
        *(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"),
        *("--no-deps", "--no-build-isolation", "--no-compile", str(source)),
    )
    found = _run(str(python), "-P", "-c", "import tandem; print(tandem.__file__)")
    assert str(environment) in found.stdout, found.stdout
    return python


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done
