import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cluster.errors import AlreadyRunningError
from tandem.cluster.supervisor_lock import LOCK_NAME, Supervisor, supervising, supervisor_of
from tandem.cluster_file.errors import ClusterError


def test_who_has_the_lock_is_known_with_its_socket_and_not_before_or_after(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert supervisor_of(data) is None
    with supervising(tmp_path / "c.yaml", data, Path("/run/x.sock")):
        assert supervisor_of(data) == Supervisor(os.getpid(), "/run/x.sock")
        # Looking takes nothing away from who has it.
        assert supervisor_of(data) is not None
        other = supervising(tmp_path / "d.yaml", data, Path("/run/y.sock"))
        with pytest.raises(AlreadyRunningError) as caught, other:
            pass
        assert caught.value.pid == os.getpid()
    assert supervisor_of(data) is None
    with supervising(tmp_path / "d.yaml", data, Path("/run/y.sock")):
        assert supervisor_of(data) == Supervisor(os.getpid(), "/run/y.sock")


def test_a_killed_supervisor_has_it_no_more(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path;"
        "from tandem.cluster.supervisor_lock import supervising;"
        "path = Path(sys.argv[1]);"
        "supervising(path, path, path).__enter__(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / LOCK_NAME).exists()
    assert supervisor_of(tmp_path) is None


def test_one_that_has_said_nothing_yet_is_one_all_the_same(tmp_path: Path) -> None:
    with supervising(tmp_path, tmp_path, tmp_path):
        (tmp_path / LOCK_NAME).write_text("{")
        assert supervisor_of(tmp_path) == Supervisor()


def test_a_directory_that_takes_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    refused = supervising(tmp_path / "c.yaml", tmp_path / "data", tmp_path)
    with pytest.raises(ClusterError, match="data_directory"), refused:
        pass
