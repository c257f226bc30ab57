"""One program of RocketMQ's: started, killed, frozen, and watched for its end.

It does not outlive this process, where `setpriv` (util-linux) can say so to the kernel. It has a
session of its own, so that Ctrl-C reaches the drill alone.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from tandem.drill.scenario import NodeFailedError, OutOfPlaceError, until

READY_WORDS: Final = b"boot success"
STOP_SECONDS_MAX: Final = 40.0
"""A broker writes its tables and joins its threads; then it is killed."""

GONE_SECONDS_MAX: Final = 10.0
_TAIL_BYTES: Final = 4_096


class JavaProgram:
    """A program with the file that takes what it prints."""

    def __init__(self, name: str, command: Sequence[str], log: Path, home: Path) -> None:
        self.name = name
        self.log = log
        self._home = home
        setpriv = shutil.which("setpriv")
        self._command = [*((setpriv, "--pdeathsig", "KILL") if setpriv else ()), *command]
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0

    @property
    def runs(self) -> bool:
        """Whether it has a process."""
        return self._process is not None and self._process.poll() is None

    @property
    def unexpected_exit(self) -> str:
        """How it ended although nobody had stopped it; empty if it did not."""
        process = self._process
        if process is None or process.poll() is None:
            return ""
        return f"{self.name} ended with status {process.returncode}: {self._last_line()}"

    async def start(self) -> None:
        """Start it; returns when it says that it serves.

        Raises:
            NodeFailedError: it ended instead, or could not be started.
        """
        if self.runs:
            raise OutOfPlaceError(f"{self.name} runs already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._home.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._begun_at = output.tell()
            try:
                # Here and not in a thread: its death signal is that of the thread that made it.
                self._process = subprocess.Popen(  # noqa: ASYNC220
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self._home,
                    start_new_session=True,
                )
            except OSError as error:
                raise NodeFailedError(f"{self.name} does not start: {error.strerror}") from error
        await until(lambda: READY_WORDS in self._said() or not self.runs)
        if READY_WORDS not in self._said():
            raise NodeFailedError(
                f"{self.name} does not start: {self._last_line()} (its words: {self.log})"
            )

    async def stop(self) -> None:
        """End it kindly, or after a while by force; returns when it is gone."""
        self.signal(signal.SIGTERM)
        with trio.move_on_after(STOP_SECONDS_MAX):
            await until(lambda: not self.runs)
        await self._end()

    async def kill(self) -> None:
        """End it with SIGKILL; returns when it is gone.

        Raises:
            OutOfPlaceError: it does not run; that it has ended by itself is not covered up.
        """
        if not self.runs:
            raise OutOfPlaceError(self.unexpected_exit or f"{self.name} does not run")
        await self._end()

    async def _end(self) -> None:
        self.kill_now()
        with trio.move_on_after(GONE_SECONDS_MAX):
            await until(lambda: not self.runs)
        if self.runs:
            raise NodeFailedError(f"{self.name} is not gone {GONE_SECONDS_MAX:g} s after a kill")
        self._process = None

    def kill_now(self) -> None:
        """Send SIGKILL, if it runs."""
        if self._process is not None and self.runs:
            os.kill(self._process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for its end, after `kill_now`; one that a disk holds up is left to the system."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GONE_SECONDS_MAX)
            self._process = None

    def wake_if_frozen(self) -> None:
        """Let it go on, so that it can be stopped kindly."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; raises NodeFailedError if it does not run."""
        if self._process is None or not self.runs:
            raise OutOfPlaceError(f"{self.name} does not run")
        os.kill(self._process.pid, number)

    def _said(self) -> bytes:
        with self.log.open("rb") as file:
            file.seek(self._begun_at)
            return file.read()

    def _last_line(self) -> str:
        """Return the line that says most of why it ended: the last with an error, or the last."""
        lines = self._said()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
        lines = [line.strip() for line in lines if line.strip()]
        errors = [line for line in lines if "Exception" in line or "Error" in line]
        return (errors or lines or ["it said nothing"])[-1][:300]
