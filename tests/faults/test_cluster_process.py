"""Supervisors of real nodes, ended in every way: no process may be left."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tandem.cluster import ClusterSpec, read_spec
from tandem.cluster.control import Request, send_request
from tandem.testing import write_cluster_file
from tests.support.paths import ROOT

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TANDEM = [sys.executable, "-c", "from tandem.cli import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    return read_spec(write_cluster_file(tmp_path, 1, {}))


@contextmanager
def started(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """A process in a group of its own, as a shell starts it."""
    process = subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_line(process: "subprocess.Popen[str]", text: str, seconds_max: float = 30.0) -> None:
    assert process.stdout is not None
    # Not `readline`: what it has buffered, `select` does not see.
    descriptor = process.stdout.fileno()
    deadline = time.monotonic() + seconds_max
    seen = ""
    while time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.1)[0]:
            data = os.read(descriptor, 65_536).decode()
            seen += data
            if text in seen:
                return
            if not data:
                break
    pytest.fail(f"no {text!r} in {seen!r}")


def wait_until(condition: Callable[[], bool], seconds_max: float = 15.0) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def node_pids(spec: ClusterSpec) -> list[int]:
    nodes = send_request(spec.file, Request("status")).nodes
    return [node.pid for node in nodes if node.pid]


def all_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}/cmdline").exists() and _cmdline(pid) for pid in pids)


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()  # empty for a zombie
    except (FileNotFoundError, ProcessLookupError):
        return b""


def up(spec: ClusterSpec) -> list[str]:
    return [*TANDEM, "cluster", "up", "--config", str(spec.file)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_the_cluster_down_in_order(
    spec: ClusterSpec, number: signal.Signals
) -> None:
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        pids = node_pids(spec)
        os.killpg(process.pid, number)  # as a terminal does
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert output.count("ended with status 0") == 2
    assert all_gone(pids)


def test_a_killed_supervisor_leaves_no_node(spec: ClusterSpec) -> None:
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        pids = node_pids(spec)
        process.kill()
        wait_until(lambda: all_gone(pids))


def test_a_killed_supervisor_leaves_not_even_a_frozen_node(spec: ClusterSpec) -> None:
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        pids = node_pids(spec)
        send_request(spec.file, Request("pause", "broker-a-1"))
        process.kill()
        wait_until(lambda: all_gone(pids))


def test_after_a_killed_supervisor_the_cluster_comes_up_again(spec: ClusterSpec) -> None:
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        pids = node_pids(spec)
    wait_until(lambda: all_gone(pids))
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        send_request(spec.file, Request("down"))
        assert process.wait(20) == 0


def test_a_killed_program_with_a_cluster_for_a_block_leaves_nothing(spec: ClusterSpec) -> None:
    code = (
        "import sys; from pathlib import Path; from tandem.cluster.detached import up_for_block;"
        "from tandem.cluster import read_spec\n"
        "with up_for_block(read_spec(Path(sys.argv[1]))) as reply:\n"
        "    print('up', flush=True); sys.stdout.close(); __import__('signal').pause()"
    )
    with started([sys.executable, "-c", code, str(spec.file)]) as process:
        wait_line(process, "up")
        pids = [send_request(spec.file, Request("status")).pid, *node_pids(spec)]
        process.kill()
        wait_until(lambda: all_gone(pids))


def run_tandem(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TANDEM, *arguments],
        env=ENVIRONMENT,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_second_up_is_refused_and_does_not_disturb_the_first(spec: ClusterSpec) -> None:
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        pids = node_pids(spec)
        for options in ([], ["--detach"]):
            second = run_tandem("cluster", "up", "--config", str(spec.file), *options)
            assert second.returncode == 1
            assert "is up already" in second.stderr
            assert "Traceback" not in second.stderr
        assert node_pids(spec) == pids


def test_a_busy_port_is_one_clear_line_and_nothing_stays_up(spec: ClusterSpec) -> None:
    with socket.create_server((spec.nodes[1].address, 10911)):
        result = run_tandem("cluster", "up", "--config", str(spec.file))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert f"broker-a-1 did not start: {spec.nodes[1].address}:10911 is in use" in line


def test_a_bad_cluster_file_is_complaints_and_exit_status_2(spec: ClusterSpec) -> None:
    spec.file.write_text(spec.file.read_text().replace("SYNC_MASTER", "SINK_MASTER"))
    for command in (["cluster", "up"], ["ha", "status"], ["produce", "orders"]):
        result = run_tandem(*command, "--config", str(spec.file))
        assert result.returncode == 2
        assert "groups.broker-a.broker_role" in result.stderr
        assert "Traceback" not in result.stderr


def test_a_truncated_log_file_is_one_clear_line(spec: ClusterSpec) -> None:
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        sent = run_tandem("produce", "orders", "--config", str(spec.file), text="one\n")
        assert sent.returncode == 0
        pids = node_pids(spec)
    wait_until(lambda: all_gone(pids))
    log_file = spec.nodes[0].directory / "commitlog" / ("0" * 20)
    os.truncate(log_file, 100)
    result = run_tandem("cluster", "up", "--config", str(spec.file))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "broker-a-0 did not start: " in line
    assert str(log_file) in line


def test_ctrl_c_of_a_command_is_exit_status_130(spec: ClusterSpec) -> None:
    follow = [*TANDEM, "consume", "orders", "--follow", "--config", str(spec.file)]
    produce = [*TANDEM, "produce", "orders", "--config", str(spec.file)]
    with started(up(spec)) as process:
        wait_line(process, "stops it")
        subprocess.run(
            produce, env=ENVIRONMENT, input=b"one\n", check=True, stdout=subprocess.DEVNULL
        )
        with started(follow) as follower:
            wait_line(follower, "one")
            os.killpg(follower.pid, signal.SIGINT)
            output, _ = follower.communicate(timeout=20)
        assert follower.returncode == 130, output
        assert "Traceback" not in output
