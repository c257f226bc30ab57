"""What Ctrl-C does: it ends a command with status 130, and without a traceback, at any moment."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""Exit status of a command that Ctrl-C has ended, as shells count it."""


def end_at_interrupts() -> None:
    """Let Ctrl-C end this process at once, for while modules are loaded and when all is done.

    Where it is ignored, as in a process that a shell has put into the background, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt within, so that what has been begun is put in order."""
    if signal.getsignal(signal.SIGINT) is not _end:
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        end_at_interrupts()


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


@asynccontextmanager
async def stopped_by_signals() -> AsyncIterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the block; the list has the number of the one that did.

    For commands that have to store or say something after the block, so this is no
    KeyboardInterrupt: it comes where a task waits, and nowhere else. A second signal is one.
    """
    import trio

    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    stopped: list[int] = []
    async with trio.open_nursery() as nursery:

        async def wait(task_status: trio.TaskStatus[None]) -> None:
            with trio.open_signal_receiver(*numbers) as signals:
                task_status.started()
                async for number in signals:
                    stopped.append(number)
                    nursery.cancel_scope.cancel()
                    return

        await nursery.start(wait)
        yield stopped
        nursery.cancel_scope.cancel()
