"""Traces of a client under trio and asyncio: hooks gather them, a task of its own sends them."""

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from tandem.client.async_shell import AsyncShell
from tandem.client.core import ClientCore
from tandem.client.tracing import FLUSH_SECONDS, Tracer, TraceSender, trace_topic

LAST_FLUSH_SECONDS: Final = 2.0
"""How long a client that is closed waits for its last traces to be taken."""


class TraceTasks:
    """The traces of one client; without a topic there are none, and nothing is done.

    Attributes:
        hooks: What the client has to call.
    """

    def __init__(
        self,
        shell: AsyncShell,
        core: ClientCore,
        group: str,
        trace: bool | str,  # noqa: FBT001  an argument as users give it
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """Take a client's argument `trace`: whether, or where to."""
        topic = trace_topic(trace)
        self._shell = shell
        self._sender = None if topic is None else TraceSender(core, group, topic, wall_clock_ms)
        self.hooks: Sequence[Tracer] = () if self._sender is None else (self._sender.tracer,)

    def open(self) -> None:
        """Send from now on. The client is open."""
        if self._sender is not None:
            self._shell.tasks.start_soon(self._run, self._sender)

    async def _run(self, sender: TraceSender) -> None:
        while True:
            await anyio.sleep(FLUSH_SECONDS)
            await self._shell.run(sender.flush())

    async def close(self, error_type: type[BaseException] | None) -> None:
        """Send what is left, unless the client is being cancelled. It is still open."""
        if self._sender is None or not issubclass(error_type or Exception, Exception):
            return
        with anyio.move_on_after(LAST_FLUSH_SECONDS):
            await self._shell.run(self._sender.flush())
