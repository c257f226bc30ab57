"""Which event loop runs the present task. Only that one is imported."""

import sys

from tandem.client.event_loop import EventLoop


def running_event_loop() -> EventLoop:
    """Return it.

    Raises:
        RuntimeError: none is running.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        from tandem.client.trio_loop import TrioLoop  # noqa: PLC0415  see above

        return TrioLoop()
    from tandem.client.asyncio_loop import AsyncioLoop  # noqa: PLC0415

    return AsyncioLoop()
