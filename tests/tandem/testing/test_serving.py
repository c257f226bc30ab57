"""`tandem testing serve` as a program in another language has it: a process and two pipes."""

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

import tandem
from tandem.cluster.control import socket_path
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.processes import ENVIRONMENT, TANDEM

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SERVE: Final = [*TANDEM, "testing", "serve"]

MARK: Final = "TANDEM_TEST_MARK"


class Room:
    """An empty place for temporary files, and a mark by which all processes are found."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.mark = f"{MARK}={secrets.token_hex(8)}"
        name, _, value = self.mark.partition("=")
        self.environment = {**ENVIRONMENT, name: value, "TMPDIR": str(place)}

    def pids(self) -> list[int]:
        """Those that live, forked ones too: a fork has the environment of its first program."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
            except OSError:  # it has ended
                continue
        return found

    def wait_empty(self) -> None:
        """Wait until no process and no file is left."""
        wait_until(lambda: not self.pids())
        wait_until(lambda: not list(self.place.iterdir()))


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    place = tmp_path / "t"
    place.mkdir()
    found = Room(place)
    yield found
    for pid in found.pids():
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)


class Served:
    """The parent's side."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.ready: dict[str, Any] = self.read()["ready"]

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), line
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, line: bytes) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        return self.read()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def served(room: Room, *options: str) -> Iterator[Served]:
    with subprocess.Popen(
        [*SERVE, *options],
        env=room.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


def test_a_cluster_is_ready_obeys_and_ends_with_its_input(room: Room) -> None:
    with served(room, "--topic", "Orders", "--topic", "Payments:2") as cluster:
        ready = cluster.ready
        assert ready["kind"] == "fenced"
        assert ready["topics"] == ["Orders", "Payments"]
        assert [node["name"] for node in ready["nodes"]] == [f"broker-a-{n}" for n in (1, 2, 3)]
        assert ready["name_servers"] == ";".join(node["address"] for node in ready["nodes"])
        assert ready["master"] in [node["name"] for node in ready["nodes"]]
        assert all(Path(node["log_file"]).is_file() for node in ready["nodes"])
        assert ready["version"] == tandem.__version__
        killed = cluster.ask(b'{"kill_master": {}, "id": 1}')
        assert killed == {"id": 1, "done": "kill_master", "result": {"node": ready["master"]}}
        with tandem.BlockingProducer(
            ready["name_servers"], group="test", resend_until_ok=True
        ) as producer:
            result = producer.send(tandem.Message("Orders", b"one"))
        assert result.status is tandem.SendStatus.SEND_OK
        # Supervisor, its fork server, the nodes that live, proxies, fork server, sweeper, itself.
        assert len(room.pids()) == 8
        assert cluster.end() == 0
        # All is gone before it ends, and not some time after.
        assert list(room.place.iterdir()) == []
    room.wait_empty()
    assert not socket_path(Path(ready["cluster_file"])).exists()


HOSTILE: Final = (
    (b"hello", "not_json"),
    (b"", "not_json"),
    (b"\xff\x00\x1b", "not_json"),
    (b"[" * 60_000, "not_json"),
    (b"x" * 70_000, "too_long"),
    (b'{"explode": {}}', "unknown_order"),
    (b'{"kill": {"node": "../../etc"}}', "unknown_node"),
    (b'{"kill": {"node": 7}}', "wrong_arguments"),
    (b'{"fill_disk": {"node": "broker-a-0"}}', "not_possible"),
    (b'{"heal": {}, "recover": {}}', "several_orders"),
)


def test_hostile_lines_are_answered_and_the_process_lives_on(room: Room) -> None:
    with served(room, "--classic", "--nodes", "1") as cluster:
        for line, code in HOSTILE:
            assert cluster.ask(line)["error"]["code"] == code, line
        assert cluster.ask(b'{"master": {}}')["result"] == {"node": "broker-a-0"}
        assert cluster.process.stdin is not None
        # What came before the end is done and answered, also a line that has no end.
        cluster.process.stdin.write(b'{"status": {}}\n{"master": {}}')
        assert cluster.end() == 0
        assert [cluster.read()["done"] for _ in range(2)] == ["status", "master"]


PARENT: Final = """
import subprocess, sys, time
serve = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
if sys.argv[1] == "pipe is held":
    # Another child has the pipe, too, and lives on: there is no end of standard input.
    held = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        pass_fds=[serve.stdin.fileno()], env={},
    )
if sys.argv[1] != "at once":
    print(serve.stdout.readline().decode(), end="", flush=True)
else:
    print(serve.pid, flush=True)
if sys.argv[1] == "in an order":
    serve.stdin.write(b'{"wait_for_master": {"other_than": "broker-a-1", "seconds_max": 600}}\\n')
    serve.stdin.flush()
print("waits", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("when", ["when ready", "in an order", "pipe is held", "at once"])
def test_nothing_is_left_when_the_parent_is_killed(room: Room, when: str) -> None:
    nodes = "1" if when == "in an order" else "2"
    command = [sys.executable, "-c", PARENT, when, *SERVE, "--nodes", nodes]
    with subprocess.Popen(
        command, env=room.environment, stdout=subprocess.PIPE, process_group=0
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()
        assert parent.stdout.readline() == b"waits\n"
        parent.kill()
    room.wait_empty()


def test_nothing_is_left_when_it_is_killed_itself_or_its_whole_group_is(room: Room) -> None:
    with served(room, "--nodes", "2") as cluster:
        assert cluster.ask(b'{"freeze": {"node": "broker-a-2"}}')["result"] == {"fault": 1}
        cluster.process.kill()
        room.wait_empty()
    command = [sys.executable, "-c", PARENT, "when ready", *SERVE, "--nodes", "2"]
    with subprocess.Popen(
        command, env=room.environment, stdout=subprocess.PIPE, process_group=0
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()
        os.killpg(parent.pid, signal.SIGKILL)
    room.wait_empty()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, -1)]
)
def test_signals_end_it(room: Room, number: signal.Signals, status: int) -> None:
    with served(room, "--nodes", "1") as cluster:
        cluster.process.send_signal(number)
        assert cluster.process.wait(PATIENCE_SECONDS) == status
    room.wait_empty()


def test_its_files_stay_where_they_were_asked_for(room: Room, tmp_path: Path) -> None:
    directory = tmp_path / "kept" / "cluster"
    with served(room, "--nodes", "1", "--directory", str(directory)) as cluster:
        assert Path(cluster.ready["cluster_file"]) == directory / "cluster.yaml"
        assert cluster.end() == 0
    assert "serves" in (directory / "data" / "logs" / "broker-a-1.log").read_text()
    again = run(room, "--directory", str(directory))
    assert again.returncode == 1
    assert json.loads(again.stdout)["error"]["code"] == "not_started"
    room.wait_empty()


def test_of_two_that_find_a_directory_empty_one_gets_it(room: Room, tmp_path: Path) -> None:
    place = tmp_path / "two"
    place.mkdir()
    directory = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # as one does that has not written anything yet
        second = run(room, "--nodes", "1", "--directory", str(place))
    finally:
        os.close(directory)
    assert json.loads(second.stdout)["error"]["code"] == "not_started"
    assert list(place.iterdir()) == []
    room.wait_empty()


def run(room: Room, *options: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*SERVE, *options],
        env=room.environment,
        input=b"",
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        (["--settings", '{"broker": {"no_such_setting": 1}}'], 2, "wrong_settings"),
        (["--topic", "no spaces, please", "--nodes", "1"], 1, "not_started"),
    ],
)
def test_a_cluster_that_cannot_be_is_one_line_and_words(
    room: Room, options: list[str], status: int, code: str
) -> None:
    done = run(room, *options)
    assert done.returncode == status
    assert json.loads(done.stdout)["error"]["code"] == code
    assert done.stdout.count(b"\n") == 1
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr
    room.wait_empty()


def test_who_reads_no_answers_ends_it(room: Room) -> None:
    with served(room, "--nodes", "1") as cluster:
        assert cluster.process.stdin is not None
        assert cluster.process.stdout is not None
        cluster.process.stdout.close()
        cluster.process.stdin.write(b'{"master": {}}\n')
        cluster.process.stdin.flush()
        assert cluster.process.wait(PATIENCE_SECONDS) == 1
    room.wait_empty()
