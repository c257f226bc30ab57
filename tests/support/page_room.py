"""Where the blocks of a page run: a directory, loopback addresses, and `tandem` on the PATH.

Pages say 127.0.0.1 to 127.0.0.3, as the example cluster does. There people have their clusters, so
a room has a network of its own. Its addresses take the place of those of the page in all that is
run and in the cluster files that commands write, and the other way round in what is printed.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tandem.cluster.spec import config_to_start
from tests.support.page_output import differs
from tests.support.page_steps import RunLine, Step, WriteFile
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS, wait_until

_PAGES_NETWORK: Final = "127.0.0."
FORKED_TOOL: Final = Path(__file__).with_name("forked_tool.py")

_POLL_SECONDS: Final = 0.02
_CLUSTER_FILES: Final = ("cluster.yaml", "tandem-data/cluster.yaml")
_PATIENT_LEASE: Final = ("lease_ttl_ms: 5000", "lease_ttl_ms: 30000")
"""No page waits for the end of a lease; a busy machine is not to change what pages show."""


class Room:
    """One directory, with the addresses of one cluster.

    `network`: three of their four numbers. `programs`: a directory with `tandem` and `python` that
    are to be used; without it, they are of this checkout. `forker`: the socket of a server of
    `tests.support.forked_tools`, from which `tandem` and `python FILE` then come.
    """

    def __init__(
        self,
        directory: Path,
        network: str,
        programs: Path | None = None,
        forker: Path | None = None,
    ) -> None:
        self.directory = directory
        self.network = network
        self._in_background: list[_Started] = []
        self._lines_count = 0
        tools = directory / ".tools"
        tools.mkdir(parents=True)
        if programs is None:
            _write_tool(
                tools / "tandem", "-P", "-c", "from tandem.cli import main; main()", forker=forker
            )
            _write_tool(tools / "python", forker=forker)
            _write_tool(tools / "pytest", "-m", "pytest", "-p", "no:cacheprovider")
        self._environment = {
            **os.environ,
            "PATH": f"{programs or tools}:{os.environ['PATH']}",
            "PYTHONPATH": "" if programs else str(ROOT),
            "REPOSITORY": str(ROOT),
            "COLUMNS": "120",
            "TERM": "dumb",
        }

    def play(self, steps: Iterable[Step]) -> None:
        """Do what a page says, one step after the other; fail where it is otherwise."""
        try:
            for step in steps:
                if isinstance(step, WriteFile):
                    self.write(step.name, step.text)
                else:
                    self._run(step)
            for started in self._in_background:
                self._interrupt_after_what_is_shown(started)
        finally:
            for started in self._in_background:
                started.end(signal.SIGKILL)
            self._in_background.clear()

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if name in _CLUSTER_FILES:
            text = text.replace(*_PATIENT_LEASE)
        file.write_text(self._with_own_addresses(text), encoding="utf-8")

    def _run(self, step: RunLine) -> None:
        if "cluster up" in step.line:
            self._have_cluster_file()
        started = self._start(step)
        if step.in_background:
            self._in_background.append(started)
        elif step.until:
            self._wait_for(started, lambda: self._has_printed(started))
            started.end(signal.SIGINT)
            self._compare(started)
        else:
            status = started.wait()
            printed = self._printed(started)
            if status != step.exits:
                pytest.fail(f"{started}\nexit status {status}, not {step.exits}:\n{printed}")
            self._compare(started)
        self._move_cluster_files()

    def _interrupt_after_what_is_shown(self, started: "_Started") -> None:
        self._wait_for(started, lambda: not self._difference(started))
        started.end(signal.SIGINT)

    def _wait_for(self, started: "_Started", holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            is_last = time.monotonic() > deadline or started.process.poll() is not None
            if holds():
                return
            if is_last:
                pytest.fail(f"{started}\n{self._difference(started) or self._printed(started)}")
            time.sleep(_POLL_SECONDS)  # noqa: TID251 - a test waits for other processes

    def _has_printed(self, started: "_Started") -> bool:
        """Whether it has printed what is waited for, and all that is shown, in whichever order."""
        return started.step.until in self._printed(started) and not self._difference(started)

    def _compare(self, started: "_Started") -> None:
        if difference := self._difference(started):
            pytest.fail(f"{started}\n{difference}")

    def _difference(self, started: "_Started") -> str:
        step = started.step
        if not step.shown:
            return ""
        may_go_on = step.in_background or bool(step.until)
        return differs(step.shown, self._printed(started), step.varies, is_start=may_go_on)

    def _printed(self, started: "_Started") -> str:
        text = started.output.read_text(encoding="utf-8", errors="replace")
        return text.replace(f"{self.network}.", _PAGES_NETWORK)

    def _start(self, step: RunLine) -> "_Started":
        self._lines_count += 1
        output = self.directory / ".tools" / f"{self._lines_count}.out"
        with output.open("wb") as target:
            process = subprocess.Popen(
                ["bash", "-c", self._with_own_addresses(step.line)],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        return _Started(step, process, output)

    def _with_own_addresses(self, text: str) -> str:
        return text.replace(_PAGES_NETWORK, f"{self.network}.")

    def _have_cluster_file(self) -> None:
        """Let `tandem cluster up` find what it would write in an empty directory."""
        with contextlib.chdir(self.directory):
            config_to_start()
        self._move_cluster_files()

    def _move_cluster_files(self) -> None:
        """Give the clusters that the page has described the addresses of this room."""
        for name in _CLUSTER_FILES:
            file = self.directory / name
            if file.exists() and _PAGES_NETWORK in (text := file.read_text(encoding="utf-8")):
                self.write(name, text)


class _Started:
    """A line that runs."""

    def __init__(self, step: RunLine, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.step = step
        self.process = process
        self.output = output

    def __str__(self) -> str:
        return f"{self.step.place}: {self.step.line}"

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.end(signal.SIGKILL)
            pytest.fail(
                f"{self}\ndid not end in {PATIENCE_SECONDS:g} s; until it was killed:\n"
                f"{self.output.read_text(errors='replace')}"
            )

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the line and what it has started, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        if number is signal.SIGKILL:
            self.process.wait()
        else:
            self.wait()


def _write_tool(file: Path, *arguments: str, forker: Path | None = None) -> None:
    text = f'#!/bin/sh\nexec {shlex.join([sys.executable, *arguments])} "$@"\n'
    if forker is not None:
        # A cluster comes from real processes, and options of Python are for Python.
        fork = [sys.executable, "-I", "-S", str(FORKED_TOOL), str(forker), file.name]
        text = text.replace(
            "exec",
            f'case "$1" in cluster | -*) ;; *) exec {shlex.join(fork)} "$@" ;; esac\nexec',
            1,
        )
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


@contextlib.contextmanager
def tool_forker(directory: Path) -> Iterator[Path]:
    """A server of `tests.support.forked_tools` for rooms; its socket."""
    place = directory / "tools"
    command = [sys.executable, "-P", "-m", "tests.support.forked_tools", str(place)]
    with subprocess.Popen(
        command,
        # Nothing here multiplies matrices; threads would be lost in each fork.
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        process_group=0,
    ) as process:
        wait_until(lambda: place.exists() or process.poll() is not None)
        yield place
