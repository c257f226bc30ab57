"""The command line as a process: what its streams may be, and what ends it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.loopback import own_network
from tests.support.paths import GOLDEN, ROOT
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import ENVIRONMENT, TANDEM, started, wait_output

pytestmark = [pytest.mark.fault, pytest.mark.slow]

STORE: Final = str(GOLDEN / "basic")
COMMANDS: Final = [
    ("log", "dump", STORE, "--format", "jsonl"),
    ("log", "ls", STORE),
    ("cluster", "--help"),
]


def run(*arguments: str, **streams: Any) -> "subprocess.CompletedProcess[str]":  # noqa: ANN401
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "HOME"}
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams}
    return subprocess.run(
        [*TANDEM, *arguments],
        env={**environment, "TERM": "dumb"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        **options,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_went_away_ends_it_without_a_word(command: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run(*command, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_line(command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(*command, stdout=full)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: No space left on device; free some room on that disk, or name another place"
    ]


def test_streams_may_be_closed() -> None:
    for number in range(3):
        done = run("log", "ls", STORE, preexec_fn=lambda number=number: os.close(number))
        assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_is_130_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    text = (ROOT / "examples/classic.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("127.0.0", own_network()), encoding="utf-8")
    with started([*TANDEM, "ha", "status", "--watch", "--config", str(file)]) as process:
        wait_output(process, "broker-a-0")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130
    assert "Traceback" not in said
    assert "Error" not in said


def test_a_cluster_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tandem-data").touch()
    done = run("cluster", "up", "--detach", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "go to a directory that you may write to, or give --config" in line


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/log-tools.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "program.py").write_text(program.replace("Orders", "TopicA").replace("demo", "U1"))
    shutil.copytree(STORE, tmp_path / "data/broker-a-0")
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "body=b'hello1'" in done.stdout


def test_a_sparse_file_of_a_terabyte_is_no_log_and_said_at_once(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    with (log / ("0" * 20)).open("wb") as file:
        file.truncate(1 << 40)
    began = time.monotonic()
    done = run("log", "verify", str(tmp_path), "--format", "json")
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    assert done.returncode == 1
    kinds = [finding["kind"] for finding in json.loads(done.stdout)["findings"]]
    assert "log-file-too-long" in kinds
