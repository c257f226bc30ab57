"""Supervisors of real nodes, ended in every way: no process may be left."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cluster import ClusterSpec, read_spec
from tandem.cluster.control import Request, send_request
from tandem.testing import write_cluster_file
from tests.support.patience import wait_until
from tests.support.processes import (
    ENVIRONMENT,
    TANDEM,
    all_gone,
    end_of,
    run_tandem,
    started,
    wait_output,
)

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    """A master and a slave."""
    return read_spec(write_cluster_file(tmp_path, 1, {}))


@pytest.fixture
def alone(tmp_path: Path) -> ClusterSpec:
    """A node without slaves, where one will do."""
    return read_spec(write_cluster_file(tmp_path, 0, {}))


def node_pids(spec: ClusterSpec) -> list[int]:
    nodes = send_request(spec.file, Request("status")).nodes
    return [node.pid for node in nodes if node.pid]


def up(spec: ClusterSpec) -> list[str]:
    return [*TANDEM, "cluster", "up", "--config", str(spec.file)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_the_cluster_down_in_order(
    spec: ClusterSpec, number: signal.Signals
) -> None:
    with started(up(spec)) as process:
        wait_output(process, "stops it")
        pids = node_pids(spec)
        os.killpg(process.pid, number)  # as a terminal does
        output = end_of(process)
    assert process.returncode == 0
    assert output.count("ended with status 0") == 2
    assert all_gone(pids)


def test_a_killed_supervisor_leaves_no_node(alone: ClusterSpec) -> None:
    with started(up(alone)) as process:
        wait_output(process, "stops it")
        pids = node_pids(alone)
        process.kill()
        wait_until(lambda: all_gone(pids))


def test_a_killed_supervisor_leaves_not_even_a_frozen_node(spec: ClusterSpec) -> None:
    with started(up(spec)) as process:
        wait_output(process, "stops it")
        pids = node_pids(spec)
        send_request(spec.file, Request("pause", "broker-a-1"))
        process.kill()
        wait_until(lambda: all_gone(pids))


def test_after_a_killed_supervisor_the_cluster_comes_up_again(alone: ClusterSpec) -> None:
    with started(up(alone)) as process:
        wait_output(process, "stops it")
        pids = node_pids(alone)
    wait_until(lambda: all_gone(pids))
    with started(up(alone)) as process:
        wait_output(process, "stops it")
        send_request(alone.file, Request("down"))
        end_of(process)
    assert process.returncode == 0


def test_a_killed_program_with_a_cluster_for_a_block_leaves_nothing(alone: ClusterSpec) -> None:
    code = (
        "import sys; from pathlib import Path; from tandem.cluster.detached import up_for_block;"
        "from tandem.cluster import read_spec\n"
        "with up_for_block(read_spec(Path(sys.argv[1]))) as reply:\n"
        "    print('up', flush=True); sys.stdout.close(); __import__('signal').pause()"
    )
    with started([sys.executable, "-c", code, str(alone.file)]) as process:
        wait_output(process, "up")
        pids = [send_request(alone.file, Request("status")).pid, *node_pids(alone)]
        process.kill()
        wait_until(lambda: all_gone(pids))


def test_a_second_up_is_refused_and_does_not_disturb_the_first(alone: ClusterSpec) -> None:
    with started(up(alone)) as process:
        wait_output(process, "stops it")
        pids = node_pids(alone)
        for options in ([], ["--detach"]):
            second = run_tandem("cluster", "up", "--config", str(alone.file), *options)
            assert second.returncode == 1
            assert "is up already" in second.stderr
            assert "Traceback" not in second.stderr
        assert node_pids(alone) == pids


def test_a_busy_port_is_one_clear_line_and_nothing_stays_up(spec: ClusterSpec) -> None:
    with socket.create_server((spec.nodes[1].address, 10911)):
        result = run_tandem("cluster", "up", "--config", str(spec.file))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert f"broker-a-1 did not start: {spec.nodes[1].address}:10911 is in use" in line


def test_a_bad_cluster_file_is_complaints_and_exit_status_2(alone: ClusterSpec) -> None:
    alone.file.write_text(alone.file.read_text().replace("SYNC_MASTER", "SINK_MASTER"))
    for command in (["cluster", "up"], ["ha", "status"], ["produce", "orders"]):
        result = run_tandem(*command, "--config", str(alone.file))
        assert result.returncode == 2
        assert "groups.broker-a.broker_role" in result.stderr
        assert "Traceback" not in result.stderr


def test_a_truncated_log_file_is_one_clear_line(alone: ClusterSpec) -> None:
    with started(up(alone)) as process:
        wait_output(process, "stops it")
        sent = run_tandem("produce", "orders", "--config", str(alone.file), text="one\n")
        assert sent.returncode == 0
        pids = node_pids(alone)
    wait_until(lambda: all_gone(pids))
    log_file = alone.nodes[0].directory / "commitlog" / ("0" * 20)
    os.truncate(log_file, 100)
    result = run_tandem("cluster", "up", "--config", str(alone.file))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "broker-a-0 did not start: " in line
    assert str(log_file) in line


def test_ctrl_c_of_a_command_is_exit_status_130(alone: ClusterSpec) -> None:
    follow = [*TANDEM, "consume", "orders", "--follow", "--config", str(alone.file)]
    produce = [*TANDEM, "produce", "orders", "--config", str(alone.file)]
    with started(up(alone)) as process:
        wait_output(process, "stops it")
        subprocess.run(
            produce, env=ENVIRONMENT, input=b"one\n", check=True, stdout=subprocess.DEVNULL
        )
        with started(follow) as follower:
            wait_output(follower, "one")
            os.killpg(follower.pid, signal.SIGINT)
            output = end_of(follower)
        assert follower.returncode == 130, output
        assert "Traceback" not in output
        assert "stopped after 1 message" in output
        # A thread waits for more input, and for nothing else.
        with started([*produce, "--format", "text"], stdin=subprocess.PIPE) as sender:
            assert sender.stdin is not None
            sender.stdin.write("two\n")
            sender.stdin.flush()
            wait_output(sender, "orders")
            os.killpg(sender.pid, signal.SIGINT)
            output = end_of(sender)
        assert sender.returncode == 130, output
        assert "1 message in" in output
        assert "Fatal" not in output
