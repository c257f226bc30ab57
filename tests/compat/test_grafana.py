"""The dashboard by Grafana's own schema, as its Go SDK has it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat.programs import NotToBeHadError, fetch, need
from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(700)]

PROGRAM = Path(__file__).parent / "grafana"
DASHBOARD = ROOT / "examples" / "monitoring" / "dashboard.json"


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that reads a dashboard; skips where it cannot be built."""
    directory = tmp_path_factory.mktemp("grafana")
    shutil.copytree(PROGRAM, directory, dirs_exist_ok=True)
    try:
        need("go")
        fetch(["go", "build", "-o", "schema", "."], cwd=directory)
    except NotToBeHadError as error:
        pytest.skip(f"Grafana's schema cannot be had: {error}")
    return directory / "schema"


def complaints(schema: Path, file: Path) -> list[str]:
    done = subprocess.run(
        [str(schema), str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    found = done.stdout.split("\n")
    assert done.returncode == int(any(found)), done.stderr
    return [line for line in found if line]


def test_the_dashboard_is_one_to_grafana(schema: Path, tmp_path: Path) -> None:
    assert complaints(schema, DASHBOARD) == []
    # What it does not take, for the first line to mean something.
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panel = dashboard["panels"][1]
    panel["colour"] = "red"
    del panel["options"]["graphMode"]
    file = tmp_path / "dashboard.json"
    file.write_text(json.dumps(dashboard), encoding="utf-8")
    found = complaints(schema, file)
    assert any("colour" in line for line in found), found
    assert any("graphMode" in line for line in found), found
