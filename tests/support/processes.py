"""Programs of ours as processes: how they are started, read and found."""

import os
import select
import signal
import subprocess
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS

ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": str(ROOT)}
"""As for a user who has the package installed."""

TANDEM: Final = (sys.executable, "-P", "-c", "from tandem.cli import main; main()")
"""The command line; arguments follow."""

NODE: Final = (sys.executable, "-P", "-m", "node")


def run_tandem(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [*TANDEM, *arguments],
        env=ENVIRONMENT,
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def run_example(
    name: str, *arguments: str, seconds: float = PATIENCE_SECONDS, is_quiet: bool = False
) -> list[str]:
    """Run a program of `examples/`, which must succeed; return the lines it prints.

    One that `is_quiet` prints no traceback either, of whatever process of its own.
    """
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (is_quiet and "Traceback" in done.stderr), done.stderr
    return done.stdout.splitlines()


@contextmanager
def started(
    command: list[str], *, stdin: int = subprocess.DEVNULL
) -> Iterator["subprocess.Popen[str]"]:
    """A process in a group of its own, as a shell starts it; killed at the end of the block."""
    process = subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdin=stdin,
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


def wait_output(process: "subprocess.Popen[str]", text: str) -> str:
    """Read what a process prints until it has printed `text`; return it."""
    assert process.stdout is not None
    # Not `readline`: what it has buffered, `select` does not see.
    descriptor = process.stdout.fileno()
    deadline = time.monotonic() + PATIENCE_SECONDS
    decoder = getincrementaldecoder("utf-8")()  # a letter may come in two pieces
    seen = ""
    while time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.1)[0]:
            data = os.read(descriptor, 65_536)
            seen += decoder.decode(data)
            if text in seen:
                return seen
            if not data:
                break
    pytest.fail(f"no {text!r} in {seen!r}")


def end_of(process: "subprocess.Popen[str]", number: signal.Signals | None = None) -> str:
    """Send a signal, if any, and wait for the end; return what was printed and not yet read."""
    if number is not None:
        process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return output


def all_gone(pids: list[int]) -> bool:
    """Whether all these processes have ended; a zombie has."""
    return not any(_command_line(str(pid)) for pid in pids)


def processes_with(text: str) -> list[str]:
    """Running processes that have a text in their command line, this one not counted."""
    numbers = (path.name for path in Path("/proc").glob("[0-9]*"))
    lines = [_command_line(number) for number in numbers if int(number) != os.getpid()]
    return [line for line in lines if text in line]


def _command_line(pid: str) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()  # empty for a zombie
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return line.replace(b"\0", b" ").decode(errors="replace")
