"""A drill that takes a group to this version from the one before, and back, under load."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from tandem.drill.outcomes import EXIT_HELD
from tandem.drill.scenario import PLAYED
from tests.faults.drills import a_drill, draw_nothing, status_of, summary_of, unmet
from tests.support.previous_version import install_previous

pytestmark = [
    pytest.mark.fault,
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
]

PATIENCE: Final = 6.0


def test_a_group_goes_to_this_version_and_back_and_keeps_its_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    python = install_previous(tmp_path)
    directory = tmp_path / "drill"
    directory.mkdir()
    options = a_drill(directory, "rolling-upgrade", kind="fenced", seconds=10.0)
    options = msgspec.structs.replace(options, previous=python, patience=PATIENCE)

    status = status_of(options)

    summary = summary_of(options)
    assert status == EXIT_HELD, (unmet(summary), summary["stopped_because"])
    assert [run["outcome"] for run in summary["runs"]] == [PLAYED]
    assert summary["target"]["version"].startswith("from ")
    assert str(tmp_path) in summary["target"]["version"]
    assert len(summary["switches"]) >= 2
    assert summary["sync_acknowledged"] > 0
    assert summary["sync_lost"] == 0
    assert summary["byte_identical"] is True
