"""What comes on several connections at once is handled as one.

    read, read, read, ... --> one run of all that is usual, announced once, sent once
                          --> what else there is, connection by connection

Most applications have one request in flight on each connection. Then nothing comes together on one
of them, but much on all. So connections are a crowd (`Crowd`): what came over them at once is
received with one call, and `take_together` takes requests out of it. What it leaves is handled as
if it had come alone, so the order of a connection stays as it is. What has to be decrypted is read
one by one, and kept to the end of the round of the `ReadLoop` (`add`, `end`).

It has its turn like others (`Turns`). When the time between two passes over all tasks is used up,
it has the tasks run, and goes on after it; no task has to be woken for that.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import trio

from node.remoting.connection import overfull
from tandem.wire.read_together import ReadTogether

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.remoting.connection import Connection
    from node.remoting.turns import Turns

PART_BYTES_MAX: Final = 16 * 1024
"""More than this of one connection has its own turn, in which much comes together anyway."""

ALONE_MAX: Final = 64
"""Reads that are handled alone before the next look, after nothing was found again and again."""


# Loops without a step of Python for each.
_connection_of = attrgetter("connection")
_dispatcher_of = attrgetter("dispatcher")


class Reads(Protocol):
    """Reads sockets in rounds; see `ReadLoop`."""

    @property
    def reads_several(self) -> bool:
        """Whether several things have come in this round."""

    @property
    def passes(self) -> int:
        """How often all tasks have had their turn."""

    def let_trio_go_on(self) -> None:
        """Have them run after this round."""


class TakesTogether(Protocol):
    """The part of a dispatcher that counts here; see `Dispatch`."""

    @property
    def take_together(self) -> TakeTogether | None:
        """Has requests of several connections handled as one; None: it never can."""


class Part:
    """What comes over one connection, as a member of the crowd of its server.

    Attributes:
        connection: By which it comes.
        dispatcher: What has it handled.
        data: What was kept to the end of this round; what nobody has taken is left.
        alone: How many reads are to be handled alone, because its requests cannot be joined.
        misses: How far apart looks for what can be joined are by now; 0 after one that was.
        joins: Whether what comes next may be taken with what has come over others.
        crowd: The others; None: it never joins them.
    """

    __slots__ = ("alone", "connection", "crowd", "data", "dispatcher", "joins", "misses")

    def __init__(self, connection: Connection, dispatcher: TakesTogether) -> None:
        """Join no crowd yet."""
        self.connection = connection
        self.dispatcher = dispatcher
        self.data = b""
        self.alone = self.misses = 0
        self.joins = False
        self.crowd: Gathering | None = None

    def note_odd(self) -> None:
        """Its requests are usual, but not to be joined: as those for a topic that is not known."""
        self.alone = self.misses = min(2 * self.misses + 1, ALONE_MAX)


TakeTogether: TypeAlias = "Callable[[list[Part], ReadTogether], bool]"
"""Handles what can be handled together of what came on several connections, and takes it from what
has come; False: nothing.

No two parts are of one connection, and all hosts are of one size.
"""


class Gathering:
    """The rounds of one server. `after_round` is that of `serve_requests`."""

    def __init__(self, reads: Reads, turns: Turns, after_round: Callable[[], None]) -> None:
        self._reads = reads
        self._turns = turns
        self._after_round = after_round
        self._parts: list[Part] = []
        self._take: TakeTogether | None = None
        self._passes = 0
        self._misses = self._alone = 0

    def add(self, part: Part, data: bytes, take: TakeTogether | None) -> bool:
        """Keep what has come to the end of the round; return False if it is better handled now."""
        if take is None or not self._reads.reads_several or len(data) > PART_BYTES_MAX:
            return False
        if self._alone:
            self._alone -= 1
            return False
        if take is not self._take:
            if self._parts:
                return False
            self._take = take
        part.data = data
        self._parts.append(part)
        return True

    def end(self) -> None:
        """Handle what can be handled together. The first of a round does it for all of them."""
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        if len(parts) < 2 or self._take is None or not self._has_time():
            return
        came = ReadTogether.of([part.data for part in parts])
        try:
            self._take_some(self._take, parts, came)
        finally:
            for number, part in enumerate(parts):
                part.data = came.rest(number)

    def take(self, members: list[Part], came: ReadTogether) -> list[int]:
        """See `Crowd`."""
        dispatchers = set(map(_dispatcher_of, members))
        takes = {dispatcher.take_together for dispatcher in dispatchers}
        take = takes.pop()
        if self._alone:
            self._alone = max(0, self._alone - len(members))
        elif take is not None and not takes and self._has_time():
            self._take_some(take, members, came)
            return overfull(list(map(_connection_of, members)))
        return []

    def _has_time(self) -> bool:
        reads, turns = self._reads, self._turns
        if reads.passes != self._passes:
            self._passes = reads.passes
            turns.passed()
        # Also while tasks wait in the row: it would never end if all that comes had to join it.
        return turns.has_time

    def _take_some(self, take: TakeTogether, parts: list[Part], came: ReadTogether) -> None:
        started = trio.current_time()
        for part in parts:
            part.connection.last_active = started
        try:
            is_some = take(parts, came)
        finally:
            self._after_round()
            self._turns.give(trio.current_time() - started)
        self._misses = self._alone = 0 if is_some else min(2 * self._misses + 1, ALONE_MAX)
        if not self._turns.is_free:
            self._reads.let_trio_go_on()
