"""The process of a node, as its supervisor needs it, and how it is started."""

import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Protocol

import trio


class NodeProcess(Protocol):
    """The process of a node, as its supervisor needs it; a `trio.Process` is one."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None until it has been reaped."""

    @property
    def stdin(self) -> trio.abc.SendStream | None:
        """Its lifeline."""

    @property
    def stdout(self) -> trio.abc.ReceiveStream | None:
        """Where it says that it is ready."""

    async def wait(self) -> int:
        """Wait until it has ended, and reap it."""

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it. Nothing happens if it has ended."""


OpenProcess = Callable[[Sequence[str], IO[bytes], dict[str, str]], Awaitable[NodeProcess]]
"""Starts a command line: its log, which gets its standard error, and its environment. Standard
input and output are pipes; it leads a process group of its own. Not to be cancelled."""


async def open_process(
    command: Sequence[str], log: IO[bytes], environment: dict[str, str]
) -> NodeProcess:
    """Start a command line as any program is started."""
    return await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        process_group=0,
    )
