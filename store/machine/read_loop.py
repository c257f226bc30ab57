"""ReadLoop: what comes over sockets goes to plain functions, with no pass of trio for each of them.

    sockets ----------+                       +--> the socket's function     most of the time
                      +--> poll, as long as --+
    trio's own epoll -+    trio would wait    +--> trio                      its turn has come

Waking a task by trio takes a pass over its deadlines and queues, a step through all frames of the
task, and two calls of the system: as much as handling a small request. Streams whose reader is a
function that never waits (`Stream.receive_while`) do without: their sockets are polled where trio
polls its own, and their functions run there, between two passes. Nothing waits longer for that.
Trio goes on after each round of those functions in which a task has become runnable, a deadline has
passed, or something has come that trio itself waits for.

A function may leave what it does about what has come to the end of its round, when all sockets that
had something are read. So things that came together can be done together.

For this, trio's I/O manager is wrapped, which trio has no public way for. Where its parts are not
as expected (see `_begin`) there is no loop, and streams are read by their tasks, with the same
result. A test fails when a release of trio moves them.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import outcome
import trio

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS_MAX: Final = 256
"""Functions that are called between two looks at what trio has to do, at most."""

WAIT_SECONDS_MAX: Final = 3600.0

_Events = list[tuple[int, int]]


class _Busy(_Events):
    """No events of trio's, but it is not idle: what it tells by whether events are true."""

    def __bool__(self) -> bool:
        return True


_Read: TypeAlias = "Callable[[], bool | Callable[[], bool] | None]"
"""Receives and does something about it. None: it wants more; True: it does not; False: the end has
come. A function: to be called at the end of the round, and says whether more is wanted."""

_Reader: TypeAlias = "tuple[trio.lowlevel.Task, _Read]"


class ReadLoop:
    """The sockets of one run of trio that are read by functions.

    In the place of trio's I/O manager it has the methods of that one, but its own `get_events`.

    Attributes:
        reads_several: Whether several things have come in this round.
        passes: How often trio has had its turn.
    """

    def __init__(self, running: Any) -> None:  # noqa: ANN401 -- trio's Runner has no public type
        self._runner = running
        self._waits = running.io_manager
        self._trio_fd: int = self._waits._epoll.fileno()  # noqa: SLF001
        self._epoll = select.epoll()
        self._epoll.register(self._trio_fd, select.EPOLLIN)
        self._readers: dict[int, _Reader] = {}
        self._at_round_end: list[tuple[int, _Reader, Callable[[], bool]]] = []
        self._is_trio_next = False
        self.reads_several = False
        self.passes = 0
        for name in _MANAGER_METHODS:
            setattr(self, name, getattr(self._waits, name))

    async def run_reader(self, fd: int, read: _Read) -> bool:
        """Call `read` whenever there is something to receive, until it wants no more.

        It runs in no task and must not wait. Its errors are raised here.

        Raises:
            trio.ClosedResourceError: see `forget`.
        """
        if fd in self._readers:
            raise trio.BusyResourceError("another task is already reading this socket")
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = (trio.lowlevel.current_task(), read)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._remove(fd)
            return trio.lowlevel.Abort.SUCCEEDED

        result: bool = await trio.lowlevel.wait_task_rescheduled(abort)
        return result

    def let_trio_go_on(self) -> None:
        """Have all tasks run that can, after this round."""
        self._is_trio_next = True

    def forget(self, fd: int) -> None:
        """A socket is about to be closed: its reader gets ClosedResourceError."""
        if fd in self._readers:
            self._end(fd, outcome.Error(trio.ClosedResourceError("the socket was closed")))

    @trio.lowlevel.enable_ki_protection
    def get_events(self, timeout_seconds: float) -> _Events:
        """Call functions whose sockets have something, until trio has its turn.

        Returns events of trio's own; nothing and False only if there was nothing at all.
        """
        if not self._readers:
            events: _Events = self._waits.get_events(timeout_seconds)
            return events
        runner = self._runner
        self.passes += 1
        self._is_trio_next = False
        while True:
            ready = self._epoll.poll(timeout_seconds, EVENTS_MAX)
            if not ready:
                return []
            is_trio_ready = False
            self.reads_several = len(ready) > 1
            for fd, _ in ready:
                if fd == self._trio_fd:
                    is_trio_ready = True
                else:
                    self._read(fd)
            if self._at_round_end:
                self._end_round()
            if is_trio_ready:
                return _Busy(self._waits.get_events(0))
            if runner.runq or runner.waiting_for_idle or self._is_trio_next:
                return _Busy()
            timeout_seconds = runner.deadlines.next_deadline() - trio.current_time()
            if timeout_seconds <= 0:
                return _Busy()
            timeout_seconds = min(timeout_seconds, WAIT_SECONDS_MAX)

    def close(self) -> None:
        """Close what trio closes, and our own."""
        self._epoll.close()
        self._waits.close()

    def _read(self, fd: int) -> None:
        reader = self._readers.get(fd)
        if reader is None:  # another one's function has closed it
            return
        try:
            result = reader[1]()
        except BaseException as error:  # noqa: BLE001 -- belongs to the task that waits
            end: outcome.Outcome[bool] = outcome.Error(error)
        else:
            if result is None:
                return
            if not isinstance(result, bool):
                self._at_round_end.append((fd, reader, result))
                return
            end = outcome.Value(result)
        try:
            if self._readers.get(fd) is reader:
                self._end(fd, end)
        finally:
            del end  # its error knows this frame: that would be a cycle for the collector

    def _end_round(self) -> None:
        """Call what was left to the end of the round, also if its socket was closed meanwhile."""
        calls, self._at_round_end = self._at_round_end, []
        for fd, reader, call in calls:
            try:
                if call():
                    continue
                end: outcome.Outcome[bool] = outcome.Value(True)  # noqa: FBT003 -- it wants no more
            except BaseException as error:  # noqa: BLE001 -- belongs to the task that waits
                end = outcome.Error(error)
            try:
                if self._readers.get(fd) is reader:
                    self._end(fd, end)
            finally:
                del end  # as above

    def _end(self, fd: int, end: outcome.Outcome[bool]) -> None:
        task = self._readers[fd][0]
        self._remove(fd)
        trio.lowlevel.reschedule(task, end)

    def _remove(self, fd: int) -> None:
        del self._readers[fd]
        self._epoll.unregister(fd)


_MANAGER_METHODS: Final = (
    "process_events",
    "force_wakeup",
    "statistics",
    "wait_readable",
    "wait_writable",
    "notify_closing",
)

_loops: trio.lowlevel.RunVar[ReadLoop | None] = trio.lowlevel.RunVar("read_loop")


def read_loop() -> ReadLoop | None:
    """Return the loop of this run of trio; None if it can have none, as with a clock of tests."""
    try:
        return _loops.get()
    except LookupError:
        loop = _begin()
        _loops.set(loop)
        return loop


def _begin() -> ReadLoop | None:
    from trio._core import _run  # noqa: PLC0415 -- in one place, and only if asked for

    runner: Any = _run.GLOBAL_RUN_CONTEXT.runner
    try:
        has_parts = (
            type(runner.clock) is _run.SystemClock
            and type(runner.io_manager).__name__ == "EpollIOManager"
            and not runner.is_guest
            and None not in (runner.runq, runner.waiting_for_idle)
            and callable(runner.deadlines.next_deadline)
        )
        if not has_parts:
            return None
        loop = ReadLoop(runner)
    except AttributeError:
        return None
    runner.io_manager = loop
    return loop
