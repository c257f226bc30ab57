"""The client's event loop under trio. A parked task costs one reschedule."""

from collections.abc import Callable
from typing import Any

import anyio
import outcome
import trio
from anyio.abc import TaskGroup, TaskStatus

from tandem.client.event_loop import ByteStream
from tandem.client.tcp_stream import open_tcp


class TrioParked:
    """See `Parked`."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()

    def wake(self, value: Any) -> None:  # noqa: ANN401
        """See `Parked.wake`."""
        trio.lowlevel.reschedule(self._task, outcome.Value(value))

    async def wait(self, forget: Callable[[], object]) -> Any:  # noqa: ANN401
        """See `Parked.wait`."""

        def abort(_: object) -> trio.lowlevel.Abort:
            forget()
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)


class TrioBackground:
    """Tasks in the nursery of the task that opens the client, as trio's users expect.

    A task that fails cancels what that task is doing. What cancels that task leaves the others
    alone until `close`: what a client says last, an offset or a rollback, needs its connections.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()
        self._scope = anyio.CancelScope(shield=True)

    async def open(self) -> TaskGroup:
        """See `Background.open`."""
        await self._group.__aenter__()
        try:
            opened: TaskGroup = await self._group.start(self._hold_open)
        except BaseException:
            await self.close()
            raise
        return opened

    async def _hold_open(self, *, task_status: TaskStatus[TaskGroup]) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()  # `open` was, and does not wait for this
        with self._scope:
            async with anyio.create_task_group() as group:
                task_status.started(group)
                await anyio.sleep_forever()

    async def close(self) -> None:
        """See `Background.close`."""
        self._scope.cancel()
        # The body's own exception stays as it is: only what went wrong in the background comes
        # out of the nursery as a group.
        await self._group.__aexit__(None, None, None)


class TrioLoop:
    """See `EventLoop`."""

    current_time = staticmethod(trio.current_time)
    stream_errors = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
    parked = TrioParked
    background = TrioBackground

    async def open_tcp(self, host: str, port: int) -> ByteStream:
        """See `EventLoop.open_tcp`."""
        return await open_tcp(host, port)
