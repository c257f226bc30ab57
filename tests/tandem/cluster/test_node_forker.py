import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cluster.errors import ForkServerError
from tandem.cluster.node_forker import become_subreaper
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import ENVIRONMENT

PROGRAM = Path(__file__).with_name("fake_supervisor.py")


@pytest.mark.fault
@pytest.mark.slow
def test_nodes_are_children_of_their_supervisor(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), str(log)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["without"].startswith("ForkServerGoneError: ")
    del seen["without"]
    assert seen == {
        "is_parent": True,
        "descriptors": [0, 1, 2],
        "leads": [False, True],
        "statuses": [3, 1, -9],
    }
    assert "ZeroDivisionError: on purpose" in log.read_text()


def test_a_system_that_adopts_no_children_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class System:
        def prctl(self, *_: int) -> int:
            ctypes.set_errno(22)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: System())
    with pytest.raises(ForkServerError, match="prctl: Invalid argument"):
        become_subreaper()
