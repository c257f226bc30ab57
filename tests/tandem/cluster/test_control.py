import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cluster.control import (
    SOCKET_PATH_BYTES_MAX,
    Request,
    ownership,
    send_request,
    socket_path,
)
from tandem.cluster.errors import (
    AlreadyRunningError,
    NotRunningError,
    SocketDirectoryError,
    SupervisorGoneError,
)


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_each_cluster_file_has_a_socket_of_its_own_for_this_user_only(tmp_path: Path) -> None:
    first, second = socket_path(tmp_path / "a.yaml"), socket_path(tmp_path / "b.yaml")
    assert first != second
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700


def test_a_directory_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    directory = socket_path(tmp_path / "a.yaml").parent
    directory.chmod(0o755)
    assert stat.S_IMODE(socket_path(tmp_path / "a.yaml").parent.stat().st_mode) == 0o700
    directory.rmdir()
    (tmp_path / "elsewhere").mkdir()
    directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SocketDirectoryError, match="set TMPDIR") as caught:
        socket_path(tmp_path / "a.yaml")
    assert caught.value.path == directory


def test_the_same_file_by_another_path_has_the_same_socket(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert socket_path(tmp_path / "link/a.yaml") == socket_path(tmp_path / "a.yaml")


def test_a_long_temporary_directory_does_not_make_the_path_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("d" * 100)))
    assert len(os.fsencode(socket_path(tmp_path / "a.yaml"))) <= SOCKET_PATH_BYTES_MAX


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    with (
        ownership(config),
        pytest.raises(AlreadyRunningError, match="`tandem cluster down`") as caught,
        ownership(config),
    ):
        pass
    assert caught.value.pid == os.getpid()


def test_a_socket_left_by_a_killed_supervisor_is_replaced(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    code = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX);"
        "s.bind(sys.argv[1]); s.listen(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(socket_path(config))], check=False)
    assert socket_path(config).exists()
    with pytest.raises(NotRunningError):
        send_request(config, Request("status"))
    with ownership(config) as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert not path.exists()


def test_without_a_supervisor_the_answer_is_that_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError):
        send_request(tmp_path / "cluster.yaml", Request("down"))


def test_a_supervisor_that_dies_before_it_answers_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen();"
        "print('ready', flush=True); s.accept()[0].recv(10)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(socket_path(config))], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(SupervisorGoneError):
            send_request(config, Request("status"))
