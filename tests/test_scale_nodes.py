"""The benchmark of nodes with many queues: its parts, and a short run with a node of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.pipelined import LoadError
from benchmarks.scale_nodes import (
    Restarted,
    count_of,
    frame_of,
    growth,
    is_listening,
    is_running,
    memory_kib,
)
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITES = "import os, time; open('lives', 'a').write(f'{os.getpid()}\\n'); time.sleep(600)"


def test_it_grows_to_each_number_once_whatever_their_order() -> None:
    assert growth([4_000, 1_000, 4_000]) == [1_000, 4_000]
    for wrong in ([0, 1_000], [7]):
        with pytest.raises(ValueError, match=str(wrong[0])):
            growth(wrong)


def test_frames_of_one_topic_name_its_eight_queues() -> None:
    frames = [frame_of(number) for number in range(9)]
    assert [b"topic-000000" in frame for frame in frames] == [True] * 8 + [False]
    assert len({len(frame) for frame in frames}) == 1


def test_a_process_says_what_it_has() -> None:
    own = os.getpid()
    assert 0 < memory_kib(own, "RssAnon") <= memory_kib(own, "VmRSS")
    before = count_of(own, "fd")
    with open(os.devnull, "rb"):  # noqa: PTH123 - a descriptor
        assert count_of(own, "fd") == before + 1
    assert count_of(own, "maps") > 1
    assert not is_listening(("127.0.0.1", 1))


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", WRITES], cwd=tmp_path) as process:
        yield process
        process.kill()


def lives(directory: Path) -> list[int]:
    file = directory / "lives"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_is_ended_and_started_again_as_it_was(
    number: signal.Signals, child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    while not lives(tmp_path):
        assert is_running(child.pid)
    again = Restarted(child.pid)
    seconds, cpu = again.end(number)
    assert seconds > 0
    assert cpu >= 0
    assert not is_running(child.pid)
    again.start(lambda: len(lives(tmp_path)) == 2)
    assert lives(tmp_path) == [child.pid, again.pid]
    again.close()
    assert not is_running(again.pid)


@pytest.mark.slow
def test_a_process_that_ends_before_it_serves_is_an_error(tmp_path: Path) -> None:
    program = "import time; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program, "x"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before it runs, the system may not say by which command
        again = Restarted(process.pid)
        again.end(signal.SIGKILL)
    tmp_path.rmdir()
    with pytest.raises((LoadError, OSError)):
        again.start(lambda: False)
    again.close()


@pytest.mark.fault
@pytest.mark.thorough
def test_a_short_run_with_a_slave_says_each_line(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "scale_nodes.py")]
    options = ["--queues", "16", "8", "--only", "ours", "--seconds", "0.5", "--idle", "0.5"]
    done = subprocess.run(
        [*command, *options, "--follower", "--directory", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for line in ("ours, 8 queues: new queue", "16 queues: puts into all", "clean stop", "kill"):
        assert line in done.stdout
    assert "a slave has 16 queues" in done.stdout


def test_too_few_queues_are_refused_in_one_line() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "scale_nodes.py"), "--queues", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--queues 0" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
