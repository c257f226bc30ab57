"""asyncio and trio on virtual time: when every task waits, the time of the next one has come.

A test on them is as fast as what it computes, and a machine that does something else for seconds
changes nothing: no time passes meanwhile. What waits for a socket or a thread is not seen: time
goes on without it.
"""

import asyncio  # noqa: TID251 - both loops of the client
import selectors
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
from trio.testing import MockClock

T = TypeVar("T")

LOOPS: Final = ("trio", "asyncio")


class _JumpingSelector(selectors.DefaultSelector):
    """Looks at its files, and jumps where it would have waited for them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class VirtualAsyncioLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a clock that stands still while a task runs."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop began."""
        return self._jumping.now


def run_virtually(loop: str, function: Callable[[], Awaitable[T]]) -> T:
    """Run `function` in a loop of its own, "trio" or "asyncio"."""
    options: dict[str, object] = (
        {"clock": MockClock(autojump_threshold=0)}
        if loop == "trio"
        else {"loop_factory": VirtualAsyncioLoop}
    )
    return anyio.run(function, backend=loop, backend_options=options)
