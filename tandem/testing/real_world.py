"""What of the world outside is replaced in a simulated run, and what is refused at once.

The clocks of `time` show the time of the run. What would wait for something real (a socket, a
thread, a process, `time.sleep`, asyncio's loop) raises, and is remembered, in case the code under
test swallows the error. Other threads of this process see nothing of it.

Not noticed: sockets that a library in C opens by itself, and clocks read in C, such as
`datetime.now()`.
"""

import socket
import subprocess
import sys
import threading  # noqa: TID251 - what is refused
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeVar

from tandem.testing.errors import NotSimulatedError, RealThing

T = TypeVar("T")
Anything = Callable[..., Any]

_SLEEP: Final = time.sleep  # noqa: TID251
"""Somebody who has `from time import sleep` has this one."""


class RealWorld:
    """Keeps the real world out of the runs of one thread."""

    def __init__(self) -> None:
        self.refused: list[NotSimulatedError] = []
        """Of the run under way."""
        self._thread_id = threading.get_ident()
        self._is_inside = False
        self._wall_clock_ms: Callable[[], int] = _no_time

    @contextmanager
    def kept_out(self) -> Iterator[None]:
        """Put our own in the places of all that is real, while the block runs."""
        places = [*self._clocks(), *self._refusals()]
        kept = [(where, name, getattr(where, name)) for where, name, _ in places]
        for where, name, ours in places:
            setattr(where, name, ours)
        try:
            yield
        finally:
            for where, name, real in kept:
                setattr(where, name, real)

    @contextmanager
    def run(self, wall_clock_ms: Callable[[], int]) -> Iterator[None]:
        """One run: clocks show its time, and what is real is refused.

        Raises:
            NotSimulatedError: something was refused, and the code under test went on regardless.
        """
        self.refused.clear()
        self._wall_clock_ms = wall_clock_ms
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False
        if self.refused:
            raise self.refused[0]

    def _is_meant(self) -> bool:
        return self._is_inside and threading.get_ident() == self._thread_id

    def _clocks(self) -> list[tuple[Any, str, Anything]]:
        shown: dict[str, Callable[[], float]] = {
            "time": lambda: self._wall_clock_ms() / 1000,
            "time_ns": lambda: self._wall_clock_ms() * 1_000_000,
            "monotonic": lambda: self._wall_clock_ms() / 1000,
            "monotonic_ns": lambda: self._wall_clock_ms() * 1_000_000,
        }
        return [(time, name, self._clock(name, read)) for name, read in shown.items()]

    def _clock(self, name: str, read: Callable[[], float]) -> Anything:
        real = getattr(time, name)
        return lambda: read() if self._is_meant() else real()

    def _refusals(self) -> list[tuple[Any, str, Anything]]:
        things: list[tuple[Any, str, RealThing]] = [
            (threading.Thread, "start", RealThing.THREAD),
            (subprocess.Popen, "__init__", RealThing.PROCESS),
            (socket.socket, "__init__", RealThing.SOCKET),
            (socket, "socketpair", RealThing.SOCKET),
            (socket, "getaddrinfo", RealThing.SOCKET),
            *((where, name, RealThing.SLEEP) for where, name in _sleeps()),
        ]
        loaded = filter(sys.modules.get, ("asyncio", "asyncio.events"))
        things += [(sys.modules[name], "new_event_loop", RealThing.ASYNCIO) for name in loaded]
        return [(where, name, self._refusal(where, name, thing)) for where, name, thing in things]

    def _refusal(self, where: Any, name: str, thing: RealThing) -> Anything:  # noqa: ANN401
        real = getattr(where, name)

        @wraps(real)
        def refuse(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if not self._is_meant():
                return real(*arguments, **options)
            error = NotSimulatedError(thing)
            self.refused.append(error)
            raise error

        return refuse


def _sleeps() -> list[tuple[Any, str]]:
    """Where `time.sleep` is, also by another name and in another module."""
    return [
        (module, name)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is _SLEEP and module is not sys.modules[__name__]
    ]


def _no_time() -> int:
    raise AssertionError("no run is under way")
