"""What Ctrl-C does: it ends a command with status 130, and without a traceback, at any moment."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
