import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cluster.supervisor_lock import supervising
from tandem.testing import sweeper_process
from tandem.testing.sweeper_process import sweep
from tests.support.patience import wait_until
from tests.support.processes import started

pytestmark = pytest.mark.slow


def full(directory: Path) -> Path:
    (directory / "data" / "broker-a-1").mkdir(parents=True)
    (directory / "cluster.yaml").write_text("{}")
    return directory


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper_process, "SETTLED_SECONDS", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_a_directory_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    directory = full(tmp_path / "cluster")
    sweep(directory)
    assert not directory.exists()
    sweep(directory)


@pytest.mark.usefixtures("_at_once")
def test_it_stays_while_a_supervisor_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper_process, "SWEEP_SECONDS_MAX", 0.1)
    directory = full(tmp_path / "cluster")
    with supervising(directory / "cluster.yaml", directory / "data", tmp_path / "socket"):
        sweep(directory)
        assert (directory / "data" / "broker-a-1").is_dir()
    monkeypatch.undo()
    monkeypatch.setattr(sweeper_process, "SETTLED_SECONDS", 0.0)
    sweep(directory)
    assert not directory.exists()


@pytest.mark.fault
def test_the_end_of_its_input_is_what_it_waits_for(tmp_path: Path) -> None:
    directory = full(tmp_path / "cluster")
    command = [sys.executable, "-P", "-m", "tandem.testing.sweeper_process"]
    with started(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(str(directory))
        process.stdin.flush()
        assert directory.exists()
        process.stdin.close()
        wait_until(lambda: not directory.exists())
        assert process.wait() == 0
