"""Threads for system calls that wait: they stay once they are there.

To start a thread, Python waits until it runs, which on a busy machine takes as long as a turn of
somebody else: 25 ms have been seen. Trio's own threads end when they were idle for ten seconds, and
so one is started again and again; in these milliseconds a node serves nobody. Here a thread is
started only when more calls are under way than ever before, and whoever makes them has a limit. A
node has as many as it can need before it serves (`have`).

What has to be done some time, and nobody waits for, is done by one thread, one by one.

A thread runs one system call, or a few, and touches no object of ours.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import outcome
import trio

ResultT = TypeVar("ResultT")

_Job = tuple[Callable[[], Any], Callable[[outcome.Outcome[Any]], object]]


class _KeptThread:
    """One thread. While it is idle it waits for its lock, which whoever has a job releases."""

    def __init__(self) -> None:
        self._has_job = threading.Lock()
        self._has_job.acquire()
        self._job: _Job | None = None
        threading.Thread(target=self._work, name="disk", daemon=True).start()

    def begin(self, job: _Job) -> None:
        """Do this. Only while it is idle."""
        self._job = job
        self._has_job.release()

    def _work(self) -> None:
        while True:
            self._has_job.acquire()
            assert self._job is not None
            (call, deliver), self._job = self._job, None
            result = outcome.capture(call)
            # Before the result is there: else who waits for it would find no idle thread.
            _idle.append(self)
            deliver(result)
            del call, deliver, result


_idle: Final[list[_KeptThread]] = []
"""Those of this process that have nothing to do."""


class _Later:
    """Calls that wait for their turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], object]] = deque()
        self._is_at_work = False

    def add(self, call: Callable[[], object]) -> None:
        with self._lock:
            self._calls.append(call)
            if self._is_at_work:
                return
            self._is_at_work = True
        try:
            start_soon(self._do_all, _nothing)
        except RuntimeError:  # the system gives this process no more threads
            self._do_all()

    def _do_all(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._is_at_work = False
                    return
                call = self._calls.popleft()
            outcome.capture(call)


def _nothing(_: object) -> None:
    """Nobody waits for it."""


_later = _Later()


def do_later(call: Callable[[], object]) -> None:
    """Have this called some time, after all that were given here before. Nobody hears of errors."""
    _later.add(call)


def finish() -> None:
    """Block until all that `do_later` was given by now is done."""
    is_done = threading.Event()
    do_later(is_done.set)
    is_done.wait()


def _have_none() -> None:
    """A child has none of the threads of its parent, and not what they have to do."""
    global _later  # noqa: PLW0603 -- its lock may have been taken
    _idle.clear()
    _later = _Later()


os.register_at_fork(after_in_child=_have_none)


def start_soon(
    call: Callable[[], ResultT], deliver: Callable[[outcome.Outcome[ResultT]], object]
) -> None:
    """Have a thread call this, and then `deliver` with what came of it, which must not raise."""
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _KeptThread()
    thread.begin((call, deliver))


def have(count: int) -> None:
    """Start threads until this many are idle; for a time at which nobody is to be served."""
    while len(_idle) < count:
        _idle.append(_KeptThread())


async def run_sync(
    call: Callable[..., ResultT],
    *arguments: Any,  # noqa: ANN401 -- whatever the call takes
    limiter: trio.CapacityLimiter,
) -> ResultT:
    """Return what this call returns, or raise what it raises; other tasks go on meanwhile.

    As `trio.to_thread.run_sync`: not to be cancelled once the call has begun.
    """
    task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()

    def deliver(result: outcome.Outcome[ResultT]) -> None:
        try:
            token.run_sync_soon(trio.lowlevel.reschedule, task, result)
        except trio.RunFinishedError:
            return  # nobody waits for it any more

    async with limiter:
        start_soon(partial(call, *arguments), deliver)
        result: ResultT = await trio.lowlevel.wait_task_rescheduled(_not_now)
        return result


def _not_now(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
