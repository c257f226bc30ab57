"""Real node processes: how they start, refuse to start, and stop."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import Ext, RemotingCommand, encode_frame
from tandem.wire.request_headers import (
    HARuntimeInfo,
    PullMessageRequestHeader,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeaderV2,
)
from tandem.wire.route import decode_json_body
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.processes import ENVIRONMENT

pytestmark = [pytest.mark.fault, pytest.mark.slow]


CLUSTER = """\
cluster:
  data_directory: data
store:
  mapped_file_size_commit_log_bytes: 1048576
  mapped_file_size_consume_queue_bytes: 6000
  max_message_size_bytes: 65536
replication:
  ha_reconnect_interval_ms: 100
  slave_timeout_ms: 60000
broker:
  register_broker_interval_ms: 500
  slave_synchronize_interval_ms: 500
  stop_grace_ms: 1000
groups:
  broker-a:
    broker_role: SYNC_MASTER
nodes:
  - {name: a0, group: broker-a, broker_id: 0, address: NET.1}
  - {name: a1, group: broker-a, broker_id: 1, address: NET.2}
"""


class Cluster:
    """Nodes of a cluster on loopback addresses that no other test uses."""

    def __init__(self, directory: Path) -> None:
        self.net = own_network()
        self.directory = directory
        self.file = directory / "cluster.yaml"
        self.file.write_text(CLUSTER.replace("NET", self.net), encoding="utf-8")
        self.processes: list[subprocess.Popen[str]] = []
        self.connections: list[Connection] = []

    def address(self, number: int) -> str:
        return f"{self.net}.{number + 1}"

    def connect(self, number: int) -> Connection:
        connection = Connection(self.address(number))
        self.connections.append(connection)
        return connection

    def popen(self, *arguments: str, flags: tuple[str, ...] = ("-P",)) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *flags, "-m", "node", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.processes.append(process)
        return process

    def start(self, name: str) -> subprocess.Popen[str]:
        """Start a supervised node and wait until it is ready."""
        process = self.popen("--config", str(self.file), "--name", name, "--supervised")
        assert process.stdout is not None
        assert process.stdout.readline() == f'READY {{"name":"{name}"}}\n'
        return process

    def refused(self, *arguments: str, flags: tuple[str, ...] = ("-P",)) -> tuple[int, str]:
        """Run something that must end by itself; return its status and what it said."""
        process = self.popen(*arguments, flags=flags)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        return process.returncode, errors

    def run(self, name: str) -> tuple[int, str]:
        return self.refused("--config", str(self.file), "--name", name)


class Connection:
    """A blocking connection to a node."""

    def __init__(self, host: str, port: int = 10911) -> None:
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_SECONDS)
        self._frames = FrameBuffer()

    def call(self, code: int, ext: Ext = None) -> RemotingCommand:
        self._socket.sendall(encode_frame(RemotingCommand(code, 1, ext=ext)))
        while (answer := self._frames.next_command()) is None:
            data = self._socket.recv(65536)
            assert data, "the node closed the connection"
            self._frames.receive_data(data)
        return answer

    def send(self, body: bytes, *, wait: bool = True) -> RemotingCommand:
        header = SendMessageRequestHeaderV2(
            "PG", "T", "TBW102", 4, 0, 0, 1, 0, f"WAIT\x01{str(wait).lower()}\x02"
        )
        command = RemotingCommand(310, 1, ext=header, body=body)
        self._socket.sendall(encode_frame(command))
        while (answer := self._frames.next_command()) is None:
            data = self._socket.recv(65536)
            assert data, "the node closed the connection"
            self._frames.receive_data(data)
        return answer

    def pull(self, offset: int = 0, suspend_ms: int = 0) -> RemotingCommand:
        flags = 4 | (2 if suspend_ms else 0)
        return self.call(
            11, PullMessageRequestHeader("g", "T", 0, offset, 32, flags, 0, suspend_ms, 0, "*")
        )

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for connection in cluster.connections:
        connection.close()
    for process in cluster.processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)


def slaves_in_sync(cluster: Cluster) -> int:
    connection = cluster.connect(0)
    return decode_json_body(connection.call(907).body, HARuntimeInfo).in_sync_slave_nums


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_messages(answer.body)]


def test_check_names_the_nodes_that_would_start(cluster: Cluster) -> None:
    process = cluster.popen("check", "--config", str(cluster.file))
    out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["a0", "a1"]


def test_check_reports_every_problem_and_ends_with_2(cluster: Cluster) -> None:
    text = cluster.file.read_text(encoding="utf-8")
    cluster.file.write_text(text.replace("broker_id: 1", "broker_id: x, prot: 1"), encoding="utf-8")
    status, errors = cluster.refused("check", "--config", str(cluster.file))
    assert status == 2
    line = 1 + text.splitlines().index(next(x for x in text.splitlines() if "name: a1" in x))
    assert errors.count(f"{cluster.file}:{line}: nodes[1].") == 2
    assert "Traceback" not in errors


def test_hostile_registrations_fill_no_log_and_forge_no_line(cluster: Cluster) -> None:
    file = cluster.directory / "a0.log"
    file.write_bytes(b"of an earlier life\n" * 900_000)  # more than is kept in one file
    process = cluster.popen(
        *["--config", str(cluster.file), "--name", "a0", "--supervised"],
        *["--log-file", str(file)],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == 'READY {"name":"a0"}\n'
    connection = cluster.connect(0)
    forged = "\x1b[2J\n2026-01-01 00:00:00,000 CRITICAL a0 the disk is lost"
    for number in range(300):
        header = RegisterBrokerRequestHeader(
            broker_name=f"b{number}{forged}{'x' * 20_000}",
            broker_addr=f"10.{number // 250}.0.{number % 250}:1{forged}",
            cluster_name="c",
            ha_server_addr="10.0.0.1:2",
            broker_id=0,
        )
        connection.call(103, header)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert (cluster.directory / "a0.log.1").stat().st_size > 16_000_000
    data = file.read_bytes()
    assert len(data) < 200_000  # they sent 6 MB of names
    assert b"\x1b" not in data
    lines = data.decode().splitlines()
    assert all(
        re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ a0 ", line) for line in lines
    )
    assert not any("CRITICAL" in line.split()[2] for line in lines)


def test_a_log_that_cannot_be_opened_ends_with_2_and_the_remedy(cluster: Cluster) -> None:
    status, errors = cluster.refused(
        *["--config", str(cluster.file), "--name", "a0", "--log-file", "/proc/none/a0.log"]
    )
    assert (status, len(errors.splitlines())) == (2, 1)
    assert "--log-file /proc/none/a0.log: cannot be written: No such file or directory" in errors


def test_json_lines_are_json_to_the_last(cluster: Cluster) -> None:
    text = cluster.file.read_text(encoding="utf-8")
    cluster.file.write_text(f"logging: {{format: json}}\n{text}", encoding="utf-8")
    with socket.create_server((cluster.address(0), 10911)):
        status, errors = cluster.run("a0")
    assert status == 3
    lines = [json.loads(line) for line in errors.splitlines()]
    assert "10911 is in use" in lines[-1]["message"]


def test_a_node_that_is_not_in_the_file_ends_with_2(cluster: Cluster) -> None:
    status, errors = cluster.run("a9")
    assert status == 2
    assert "no node is named 'a9'; the file has a0, a1" in errors


@pytest.mark.parametrize("port", [10911, 10912, 9876])
def test_a_busy_port_ends_with_3_and_names_address_and_remedy(cluster: Cluster, port: int) -> None:
    with socket.create_server((cluster.address(0), port)):
        status, errors = cluster.run("a0")
    assert status == 3
    assert f"{cluster.address(0)}:{port} is in use" in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_a_store_that_is_open_elsewhere_ends_with_4(cluster: Cluster) -> None:
    cluster.start("a0")
    text = cluster.file.read_text(encoding="utf-8")
    other = cluster.file.with_name("other.yaml")
    other.write_text(text.replace(f"{cluster.net}.1", f"{cluster.net}.9"), encoding="utf-8")
    status, errors = cluster.refused("--config", str(other), "--name", "a0")
    assert status == 4
    assert "another process has this store open" in errors
    assert "Traceback" not in errors


def test_a_truncated_log_file_ends_with_4_and_one_clear_message(cluster: Cluster) -> None:
    cluster.start("a0")
    connection = cluster.connect(0)
    assert connection.send(b"x", wait=False).code == 0
    stop(cluster.processes[0], signal.SIGTERM)
    log = cluster.directory / "data/a0/commitlog/00000000000000000000"
    with log.open("r+b") as file:
        file.truncate(5000)
    status, errors = cluster.run("a0")
    assert status == 4
    assert str(log) in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_a_directory_that_cannot_be_used_ends_with_4(cluster: Cluster) -> None:
    (cluster.directory / "data").write_text("in the way", encoding="utf-8")
    status, errors = cluster.run("a0")
    assert status == 4
    assert f"{cluster.directory}/data: " in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_a_damaged_table_ends_with_4(cluster: Cluster) -> None:
    config = cluster.directory / "data/a0/config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text("{", encoding="utf-8")
    status, errors = cluster.run("a0")
    assert status == 4
    assert "topics.json: neither it nor its .bak can be read" in errors


def test_a_node_refuses_to_run_without_its_assertions(cluster: Cluster) -> None:
    status, errors = cluster.refused(
        "--config", str(cluster.file), "--name", "a0", flags=("-P", "-O")
    )
    assert status == 1
    assert "run Python without -O" in errors


def stop(process: subprocess.Popen[str], signal_number: int) -> str:
    """Stop a node and return its log."""
    process.send_signal(signal_number)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    return errors


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_node_cleanly(cluster: Cluster, signal_number: int) -> None:
    log = stop(cluster.start("a0"), signal_number)
    assert log.splitlines()[-1].endswith("INFO a0 this node has stopped")
    assert not (cluster.directory / "data/a0/abort").exists()


def test_the_end_of_the_lifeline_stops_a_node_cleanly(cluster: Cluster) -> None:
    process = cluster.start("a0")
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    assert not (cluster.directory / "data/a0/abort").exists()


def test_a_node_does_not_survive_whoever_started_it(cluster: Cluster) -> None:
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys\n"
            "node = subprocess.Popen([sys.executable, '-P', '-m', 'node', *sys.argv[1:]],"
            " stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
            "print(node.stdout.readline(), node.pid, flush=True)\n"
            "sys.stdin.read()",
            *("--config", str(cluster.file), "--name", "a0", "--supervised"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    )
    assert starter.stdout is not None
    assert starter.stdout.readline().startswith("READY")
    node_pid = int(starter.stdout.readline())
    starter.kill()
    starter.communicate(timeout=PATIENCE_SECONDS)
    wait_until(lambda: not Path(f"/proc/{node_pid}").exists())
    assert not (cluster.directory / "data/a0/abort").exists()


def test_a_put_does_not_wait_for_ever_for_a_slave_that_stands_still(cluster: Cluster) -> None:
    text = cluster.file.read_text(encoding="utf-8")
    impatient = text.replace("slave_timeout_ms: 60000", "slave_timeout_ms: 500")
    cluster.file.write_text(impatient, encoding="utf-8")
    cluster.start("a0")
    slave = cluster.start("a1")
    wait_until(lambda: slaves_in_sync(cluster) == 1)
    slave.send_signal(signal.SIGSTOP)
    connection = cluster.connect(0)
    try:
        answer = connection.send(b"x")
    finally:
        slave.send_signal(signal.SIGCONT)
    assert answer.code == 12
    assert "a1" in str(answer.remark)


def test_a_killed_slave_comes_back_and_the_reasons_are_told(cluster: Cluster) -> None:
    cluster.start("a0")
    slave = cluster.start("a1")
    wait_until(lambda: slaves_in_sync(cluster) == 1)
    connection = cluster.connect(0)
    assert connection.send(b"one").code == 0
    slave.kill()
    wait_until(lambda: slaves_in_sync(cluster) == 0)
    answer = connection.send(b"two")
    assert (answer.code, answer.remark) == (11, "no slave connected")
    assert connection.send(b"three", wait=False).code == 0
    cluster.start("a1")
    wait_until(lambda: slaves_in_sync(cluster) == 1)
    assert connection.send(b"four").code == 0
    reader = cluster.connect(1)
    # A slave's queues follow its log.
    wait_until(lambda: (pulled := reader.pull()).code == 0 and len(bodies(pulled)) >= 4)
    assert bodies(reader.pull()) == [b"one", b"two", b"three", b"four"]


def test_a_killed_master_recovers_and_its_slave_serves_meanwhile(cluster: Cluster) -> None:
    master = cluster.start("a0")
    cluster.start("a1")
    wait_until(lambda: slaves_in_sync(cluster) == 1)
    connection = cluster.connect(0)
    for number in range(20):
        assert connection.send(b"%d" % number).code == 0
    reader = cluster.connect(1)
    wait_until(lambda: reader.pull().code == 0)
    master.kill()
    # A slave's queues follow its log some milliseconds later.
    wait_until(lambda: len(bodies(reader.pull())) == 20)
    begin = time.monotonic()
    held = reader.pull(offset=20, suspend_ms=300)
    assert held.code == 19
    assert time.monotonic() - begin >= 0.25
    assert reader.send(b"x").code == 2
    cluster.start("a0")
    wait_until(lambda: slaves_in_sync(cluster) == 1)
    connection = cluster.connect(0)
    assert connection.send(b"after").code == 0
    assert bodies(connection.pull(offset=20)) == [b"after"]
    for process in cluster.processes[1:]:
        stop(process, signal.SIGTERM)
    logs = [
        (cluster.directory / f"data/{name}/commitlog/00000000000000000000").read_bytes()
        for name in ("a0", "a1")
    ]
    assert logs[0] == logs[1]
