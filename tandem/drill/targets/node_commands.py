"""Runs the commands of a file in a shell: with a time limit, and an error that says all there is.

A command gets NODE, ADDRESS and PORT in its environment, and what else is given. What it prints
goes to a file and not into a pipe: what it leaves running may keep that open for ever.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

import msgspec
import trio

from tandem.drill.errors import TargetError
from tandem.drill.targets.process_file import ProcessNode

SHELL: Final = "/bin/sh"
SHOWN_CHARACTERS_MAX: Final = 300
_OUTPUT_BYTES_MAX: Final = 65_536
_PID: Final = re.compile("[0-9]{1,10}")


class TargetCommandError(TargetError):
    """A command of the file failed. It says nothing about the cluster.

    Attributes:
        node: whose it is.
        name: which: `find`, `start`, and so on.
        status: its exit status; negative for a signal; None if it did not end in time.
    """

    def __init__(self, text: str, node: str, name: str, status: int | None) -> None:
        super().__init__(text, node, name, status)
        self.node = node
        self.name = name
        self.status = status


class Ended(msgspec.Struct, frozen=True):
    """How a command ended, and what it printed: on its output, and the end of both outputs."""

    status: int
    printed: str
    output: str

    @property
    def last_line(self) -> str:
        """The last line that is not empty."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return (lines or ["it said nothing"])[-1][:SHOWN_CHARACTERS_MAX]


class NodeCommands:
    """The commands of one node. `base` is where they run, `log` takes what they print."""

    def __init__(self, node: ProcessNode, base: Path, log: Path, seconds_max: float) -> None:
        self.node = node
        self._base = base
        self._log = log
        self._seconds_max = seconds_max

    def has(self, name: str) -> bool:
        """Whether there is such a command."""
        return bool(getattr(self.node.commands, name, ""))

    async def run(
        self,
        name: str,
        given: Mapping[str, str] | None = None,
        *,
        seconds_max: float | None = None,
    ) -> str:
        """Run a command; return what it printed.

        Raises:
            TargetCommandError: there is none, or it did not end with status 0, or not in time.
        """
        ended = await self.end_of(name, given, seconds_max=seconds_max)
        if ended.status:
            raise self.failed(name, ended)
        return ended.output

    async def find(self) -> int:
        """Return the process id of the node; 0 if it does not run.

        Raises:
            TargetCommandError: the command does not print one process id, or nothing.
        """
        ended = await self.end_of("find")
        words = ended.printed.split()
        if not words and ended.status in (0, 1):
            return 0  # as pgrep ends that has found nothing
        if ended.status == 0 and len(words) == 1 and _PID.fullmatch(words[0]):
            return int(words[0])
        if ended.status:
            raise self.failed("find", ended)
        raise TargetCommandError(
            f"{self.node.name}: `find` has to print one process id, or nothing, and printed"
            f" {' '.join(words)[:SHOWN_CHARACTERS_MAX]!r}: {self._command('find')}",
            self.node.name,
            "find",
            0,
        )

    async def end_of(
        self,
        name: str,
        given: Mapping[str, str] | None = None,
        *,
        seconds_max: float | None = None,
    ) -> Ended:
        """Run a command; return how it ended.

        Raises:
            TargetCommandError: there is none, or it did not end in time.
        """
        command = self._command(name)
        if not command:
            raise TargetCommandError(
                f"{self.node.name} has no command `{name}`; add it to the file",
                self.node.name,
                name,
                None,
            )
        limit = self._seconds_max if seconds_max is None else seconds_max
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = await trio.lowlevel.open_process(
                [SHELL, "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=self._base,
                env=self._environment(given or {}),
                start_new_session=True,
            )
            status = None
            try:
                with trio.move_on_after(limit):
                    status = await process.wait()
            finally:
                if status is None:
                    await _end(process)
            printed, said = _end_of(output), _end_of(errors)
            ended = Ended(0 if status is None else status, printed, printed + said)
        if name != "find" or status != 0:
            self._note(name, command, status, ended.output)
        if status is None:
            raise TargetCommandError(
                f"{self.node.name}: `{name}` did not end within {limit:g} s and was ended:"
                f" {command}; its last line: {ended.last_line}",
                self.node.name,
                name,
                None,
            )
        return ended

    def failed(self, name: str, ended: Ended) -> TargetCommandError:
        """Return the error of a command that ended with another status than 0."""
        how = f"status {ended.status}" if ended.status > 0 else f"signal {-ended.status}"
        return TargetCommandError(
            f"{self.node.name}: `{name}` ended with {how}: {self._command(name)}; its last line:"
            f" {ended.last_line}",
            self.node.name,
            name,
            ended.status,
        )

    def _command(self, name: str) -> str:
        command: str = getattr(self.node.commands, name)
        return command

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        node = self.node
        own = {"NODE": node.name, "ADDRESS": node.address, "PORT": str(node.port)}
        return {**os.environ, **own, **given}

    def _note(self, name: str, command: str, status: int | None, output: str) -> None:
        how = "not in time" if status is None else f"status {status}"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"{name}: {SHELL} -c {shlex.quote(command)} ({how})\n{output}")
            if output and not output.endswith("\n"):
                log.write("\n")


def _end_of(file: IO[bytes]) -> str:
    """The last of what was written to a file."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES_MAX))
    return file.read().decode(errors="replace")


async def _end(process: trio.Process) -> None:
    """Kill a command and what it has started, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with trio.CancelScope(shield=True):
        await process.wait()
