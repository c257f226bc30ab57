"""Run trio so that one seed decides everything: order of tasks, ties of deadlines, chance.

trio shuffles ready tasks on purpose and breaks ties of equal deadlines by object address. Both
are pinned here, through private names of trio: this is the one file that touches them, and
`tests/node/simulated/test_deterministic_trio.py` fails when they change their meaning.

- `trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING`: sort ready tasks by age before shuffling;
- `trio._core._run._r`: the generator that shuffles;
- `runner.deadlines`: the heap whose ties are broken by `id`, replaced by one that counts;
- `MockClock._autojump` and `current_time`: the same as before, in a fraction of the time;
- `Runner.reschedule`: puts a task into the queue of those that run next; `Hold` keeps some back;
- `Deadlines`: what it asks of a scope, `Alarm` has too, and wakes one task without being a scope;
- `THREAD_CACHE`: threads that idle since before are put aside, so that work for one starts one.

The module-level generator of `random` is seeded too, and `uuid.uuid4` and `os.urandom` draw from
it, for what the code under test makes up by itself (message ids, first opaque ids). The garbage
collector is off meanwhile: when it runs depends on what ran before in the same process.
"""

import contextvars
import gc
import heapq
import os
import random
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeVar

import trio
from trio._core import _run, _thread_cache
from trio.testing import MockClock

T = TypeVar("T")

SCHEDULING_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
SCHEDULER_RANDOM: Final = "_r"
BYTE_SOURCES: Final = ((os, "urandom"), (secrets, "token_bytes"), (uuid, "uuid4"))
RESCHEDULE: Final = (_run.Runner, "reschedule")


class CountedDeadlines(_run.Deadlines):
    """Deadlines that fall due together do so in the order in which they were set."""

    def __init__(self) -> None:
        super().__init__()
        self._counter = count()

    def add(self, deadline: float, cancel_scope: trio.CancelScope) -> None:
        """Register a scope, with a counter where trio puts the address of the scope."""
        heapq.heappush(self._heap, (deadline, next(self._counter), cancel_scope))
        self._active += 1


class Alarm:
    """Wakes the task that waits for it at a time that others may move meanwhile.

    In the heap of deadlines it stands for a scope, but there is nothing to enter, to cancel and to
    leave: a fifth of what it costs to wait in a scope with a deadline.
    """

    def __init__(self) -> None:
        self._registered_deadline = float("inf")
        self._task: _run.Task | None = None

    async def wait_until(self, deadline: float) -> None:
        """Wait until this time on trio's clock, or the one that `move` says. One task at a time."""
        assert self._task is None

        def give_up(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            self._register(float("inf"))
            return trio.lowlevel.Abort.SUCCEEDED

        self._task = trio.lowlevel.current_task()
        self._register(deadline)
        await trio.lowlevel.wait_task_rescheduled(give_up)

    def move(self, deadline: float) -> None:
        """Wake whoever waits at this time instead; nothing if nobody does."""
        if self._task is not None:
            self._register(deadline)

    def _register(self, deadline: float) -> None:
        before = self._registered_deadline
        if deadline == before:
            return
        self._registered_deadline = deadline
        deadlines = _run.GLOBAL_RUN_CONTEXT.runner.deadlines
        if before != float("inf"):
            deadlines.remove(before, self)  # type: ignore[arg-type]
        if deadline != float("inf"):
            deadlines.add(deadline, self)  # type: ignore[arg-type]

    def _cancel(self, _reason: object = None) -> None:
        """What `Deadlines.expire` does with whatever has fallen due."""
        task, self._task = self._task, None
        self._register(float("inf"))
        assert task is not None
        trio.lowlevel.reschedule(task)


class Hold:
    """Some tasks stand still, as those of a process do that got SIGSTOP.

    Time goes on for everybody else. What would have woken them (bytes, deadlines, cancellation)
    wakes them when they are released, all at once. A task that was about to run when the hold
    began still makes one step, as a signal does not arrive in no time either.
    """

    def __init__(self, is_held: Callable[[contextvars.Context], bool]) -> None:
        self._is_held = is_held
        self._tasks: list[_run.Task] = []

    @property
    def is_active(self) -> bool:
        """True between `begin` and `release`."""
        return self in _holds

    def begin(self) -> None:
        """Take the tasks out of the queue, and keep them out; harmless when repeated."""
        if self in _holds:
            return
        if not _holds:
            setattr(*RESCHEDULE, _holding_reschedule)
        queue = _run.GLOBAL_RUN_CONTEXT.runner.runq
        waiting = list(queue)
        queue.clear()
        for task in waiting:
            (self._tasks if self._is_held(task.context) else queue).append(task)
        _holds.append(self)

    def release(self) -> None:
        """Let them run again; harmless when repeated."""
        if self in _holds:
            _holds.remove(self)
            if not _holds:
                setattr(*RESCHEDULE, _reschedule)
            _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(self._tasks)
            self._tasks.clear()

    def take(self, task: _run.Task) -> bool:
        """Keep a task that is about to be queued; False if it is none of these."""
        if not self._is_held(task.context):
            return False
        self._tasks.append(task)
        return True


_holds: list[Hold] = []


_reschedule = _run.Runner.reschedule


def _holding_reschedule(runner: _run.Runner, task: _run.Task, *outcome: Any) -> None:  # noqa: ANN401
    """Do what `Runner.reschedule` does, and take out again what is held."""
    _reschedule(runner, task, *outcome)
    if any(hold.take(task) for hold in _holds):
        runner.runq.pop()


def run(seed: int, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:  # noqa: ANN401
    """Run `function` in a trio loop of its own on virtual time; same seed, same run.

    Time starts at 0 and jumps to the next deadline whenever every task waits. Nothing inside
    may use threads, sockets or files.
    """

    async def main() -> T:
        _run.GLOBAL_RUN_CONTEXT.runner.deadlines = CountedDeadlines()
        return await function(*arguments)

    with _seeded(seed):
        return trio.run(main, clock=_clock())


def _clock() -> MockClock:
    """Return a clock that stands still between jumps, and does not compute that each time.

    It wakes those whose time has come with the jump, and not a turn of the scheduler later.
    """
    clock = MockClock(autojump_threshold=0)

    def autojump() -> None:
        deadlines = _run.GLOBAL_RUN_CONTEXT.runner.deadlines
        deadline = deadlines.next_deadline()
        if clock._virtual_base < deadline < float("inf"):
            clock._virtual_base = deadline
            deadlines.expire(deadline)

    vars(clock).update(current_time=lambda: clock._virtual_base, _autojump=autojump)
    return clock


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    scheduler: random.Random = getattr(_run, SCHEDULER_RANDOM)
    kept = (getattr(_run, SCHEDULING_SWITCH), scheduler.getstate(), random.getstate())
    patched = {(m, name): getattr(m, name) for m, name in BYTE_SOURCES}
    idle = _thread_cache.THREAD_CACHE._idle_workers
    kept_idle = dict(idle)
    idle.clear()
    collecting = gc.isenabled()
    setattr(_run, SCHEDULING_SWITCH, True)
    scheduler.seed(seed)
    random.seed(seed)
    _draw_bytes_from_random()
    gc.disable()
    try:
        yield
    finally:
        _holds.clear()
        setattr(*RESCHEDULE, _reschedule)
        idle.update(kept_idle)
        if collecting:
            gc.enable()
        for (module, name), function in patched.items():
            setattr(module, name, function)
        setattr(_run, SCHEDULING_SWITCH, kept[0])
        scheduler.setstate(kept[1])
        random.setstate(kept[2])


def _draw_bytes_from_random() -> None:
    def token_bytes(size: int | None = None) -> bytes:
        return random.randbytes(32 if size is None else size)

    def uuid4() -> uuid.UUID:
        return uuid.UUID(bytes=random.randbytes(16), version=4)

    for (module, name), function in zip(
        BYTE_SOURCES, (random.randbytes, token_bytes, uuid4), strict=True
    ):
        setattr(module, name, function)
