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

Several sockets whose readers have joined one crowd (`Member`) are received from with one call, and
what came over them is taken together; what is left of it comes to the one it is of.

A function may leave what it does about what has come to the end of its round, when all sockets that
had something are read. So things that came together can be done together.

For this, trio's I/O manager is wrapped, which trio has no public way for. Where its parts are not
as expected (see `_begin`) there is no loop, and streams are read by their tasks, with the same
result. A test fails when a release of trio moves them.
"""

from __future__ import annotations

import select
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import outcome
import trio

from store.machine.many_sockets import END, SOCKETS_MAX, many_sockets

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.machine.network import Member, TakeRest

EVENTS_MAX: Final = SOCKETS_MAX
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


class _Reader(NamedTuple):
    task: trio.lowlevel.Task
    read: _Read
    take_rest: TakeRest | None


class BrokenSocketError(Exception):
    """A socket could not be received from together with others.

    Attributes:
        number: What the system said, as errno.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"a socket is broken: errno {number}")
        self.number = number


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
        self._members: dict[int, Member] = {}
        self._many = many_sockets()
        self._at_round_end: list[tuple[int, _Reader, Callable[[], bool]]] = []
        self._is_trio_next = False
        self.reads_several = False
        self.passes = 0
        for name in _MANAGER_METHODS:
            setattr(self, name, getattr(self._waits, name))

    async def run_reader(
        self, fd: int, read: _Read, joining: tuple[Member, TakeRest] | None = None
    ) -> bool:
        """Call `read` whenever there is something to receive, until it wants no more.

        It runs in no task and must not wait. Its errors are raised here. What has come beside
        others of its crowd goes to the crowd, while the member joins them; its rest comes back.

        Raises:
            BrokenSocketError: it could not be received from beside others.
            trio.ClosedResourceError: see `forget`.
        """
        if fd in self._readers:
            raise trio.BusyResourceError("another task is already reading this socket")
        self._epoll.register(fd, select.EPOLLIN)
        member, take_rest = joining or (None, None)
        self._readers[fd] = _Reader(trio.lowlevel.current_task(), read, take_rest)
        if member is not None and self._many is not None:
            self._members[fd] = member

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
            is_trio_ready = self._handle(ready)
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

    def _handle(self, ready: _Events) -> bool:
        """Call the functions of a round; return whether there is something that trio waits for."""
        is_trio_ready = False
        self.reads_several = len(ready) > 1
        if self._members and self.reads_several:
            ready = self._read_together(ready)
        for fd, _ in ready:
            if fd == self._trio_fd:
                is_trio_ready = True
            elif (reader := self._readers.get(fd)) is not None:  # else it was closed meanwhile
                self._ask(fd, reader, reader.read)
        if self._at_round_end:
            self._end_round()
        return is_trio_ready

    def _read_together(self, ready: _Events) -> _Events:
        """Receive what is for a crowd, and have it take that; return the other events."""
        members = self._members
        fds = [fd for fd, _ in ready if fd in members and members[fd].joins]
        if len(fds) < 2 or self._many is None:
            return ready
        joined, readers = [*map(members.__getitem__, fds)], [*map(self._readers.__getitem__, fds)]
        crowds = set(map(_crowd_of, joined))
        crowd = crowds.pop()
        if crowd is None or crowds:
            return ready  # no run of trio has two of them for long
        came, broken = self._many.receive(fds)
        for number, error in broken:
            self._end_broken(fds[number], error)
        asked: list[int] = []
        if came.data:
            try:
                asked = crowd.take(joined, came)
            except BaseException as error:  # noqa: BLE001 -- belongs to a task that waits
                self._end_if(fds, readers, outcome.Error(error))
        if asked or not came.is_used_up:
            for number, (fd, reader) in enumerate(zip(fds, readers, strict=True)):
                rest = came.rest(number)
                # Who had a turn meanwhile may have closed some.
                if (rest or number in asked) and self._readers.get(fd) is reader:
                    assert reader.take_rest is not None, "every member has it"
                    self._ask(fd, reader, partial(_wants_no_more, reader.take_rest, rest))
        if len(fds) == len(ready):
            return []
        done = set(fds)
        return [event for event in ready if event[0] not in done]

    def _end_broken(self, fd: int, error: int) -> None:
        if error == END:
            self._end(fd, outcome.Value(False))  # noqa: FBT003 -- the end has come
        else:
            self._end(fd, outcome.Error(BrokenSocketError(error)))

    def _end_if(self, fds: list[int], readers: list[_Reader], end: outcome.Outcome[bool]) -> None:
        """End the first of them that is still there."""
        for fd, reader in zip(fds, readers, strict=True):
            if self._readers.get(fd) is reader:
                self._end(fd, end)
                return

    def _ask(self, fd: int, reader: _Reader, call: _Read) -> None:
        """Call a reader's function, and end the reader if it says so."""
        try:
            result = call()
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
        task = self._readers[fd].task
        self._remove(fd)
        trio.lowlevel.reschedule(task, end)

    def _remove(self, fd: int) -> None:
        del self._readers[fd]
        self._members.pop(fd, None)
        self._epoll.unregister(fd)


_crowd_of: Final = attrgetter("crowd")


def _wants_no_more(take_rest: TakeRest, rest: bytes) -> bool | None:
    return None if take_rest(rest) else True


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
