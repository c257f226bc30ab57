import os
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tandem.cluster.control import (
    SOCKET_PATH_BYTES_MAX,
    Reply,
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
from tandem.cluster.spec import read_spec
from tandem.testing import write_cluster_file
from tests.tandem.cluster.fakes import fake_spec


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
    spec = fake_spec(tmp_path, "a")
    with (
        ownership(spec),
        pytest.raises(AlreadyRunningError, match="`tandem cluster down`") as caught,
        ownership(spec),
    ):
        pass
    assert caught.value.pid == os.getpid()


@pytest.mark.parametrize("file", ["cluster.yaml", "copy.yaml"])
def test_so_is_one_with_another_temporary_directory_or_a_copy_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    spec = fake_spec(tmp_path, "a")
    other = msgspec.structs.replace(spec, file=tmp_path / file)
    with ownership(spec):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
        with pytest.raises(AlreadyRunningError) as caught, ownership(other):
            pass
    assert caught.value.pid == os.getpid()
    with ownership(other):
        pass


def test_a_supervisor_is_asked_from_where_the_temporary_directory_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_cluster_file(tmp_path, 0, {}, kind="fenced")
    with ownership(read_spec(config)) as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(send_request, config, Request("status"))
            connection, _ = listener.accept()
            with connection:
                assert b"status" in connection.recv(1_000)
                connection.sendall(msgspec.json.encode(Reply(pid=7, nodes=[])))
            assert asked.result().pid == 7
    with pytest.raises(NotRunningError):
        send_request(config, Request("status"))


def test_a_supervisor_that_cannot_be_reached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_cluster_file(tmp_path, 0, {}, kind="fenced")
    with ownership(read_spec(config)):  # and nobody listens
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "data"))
        with pytest.raises(SupervisorGoneError, match=f"process {os.getpid()}"):
            send_request(config, Request("status"))


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
    with (
        ownership(fake_spec(tmp_path, "a")) as path,
        socket.socket(socket.AF_UNIX) as listener,
    ):
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
