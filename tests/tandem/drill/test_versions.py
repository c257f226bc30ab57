"""Nodes that begin as another version, and what is said of a Python that has none."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tandem.cluster.spec import node_command
from tandem.drill.errors import BadOptionsError
from tandem.drill.versions import Versions, other_version

FILE = Path("cluster.yaml")


def test_a_node_begins_as_the_other_version_and_changes_when_it_is_told() -> None:
    versions = Versions(Path("/other/python"), ["a", "b"])
    other = versions.command(FILE, "a")
    assert other[:4] == ["env", "-u", "PYTHONPATH", "/other/python"]
    assert other[4:] == node_command(FILE, "a")[1:]

    versions.upgrade("a")

    assert versions.command(FILE, "a") == node_command(FILE, "a")
    assert "/other/python" in versions.command(FILE, "b")
    versions.upgrade("a")
    versions.go_back("a")
    assert versions.command(FILE, "a") == other


def test_a_python_beside_is_found_from_everywhere_and_a_link_to_it_is_not_followed() -> None:
    command = Versions(Path("before/bin/python"), ["a"]).command(FILE, "a")
    assert command[3] == f"{Path.cwd()}/before/bin/python"


def test_a_version_is_said_by_its_number_and_place() -> None:
    said = other_version(Path(sys.executable))
    assert said.startswith(f"{version('tandem-mq')} of /")


@pytest.mark.parametrize(
    "program", ["exit 0", "echo 'ImportError: no' >&2; exit 1", "printf '\\377' >&2; exit 1", None]
)
def test_what_is_no_python_with_a_server_is_refused_by_its_name(
    program: str | None, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    if program is not None:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
    with pytest.raises(BadOptionsError, match=str(python)):
        other_version(python)
