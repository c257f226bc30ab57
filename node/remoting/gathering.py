"""What comes on several connections at once is handled as one.

    read, read, read, ... --> one run of all that is usual, announced once, sent once
                          --> what else there is, connection by connection

Most applications have one request in flight on each connection. Then nothing comes together on one
of them, but much on all: what is read in one round of the `ReadLoop` is kept to the end of the
round, and `take_together` takes requests out of it. What it leaves is handled as if it had come
alone, so the order of a connection stays as it is.

It has its turn like others (`Turns`). When the time between two passes over all tasks is used up,
it has the tasks run, and goes on after it; no task has to be woken for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.remoting.connection import Connection
    from node.remoting.turns import Turns

PART_BYTES_MAX: Final = 16 * 1024
"""More than this of one connection has its own turn, in which much comes together anyway."""

ALONE_MAX: Final = 64
"""Reads that are handled alone before the next look, after nothing was found again and again."""


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


class Part:
    """What has come over one connection in one round.

    Attributes:
        connection: By which it has come.
        data: Whole requests, or not. Whoever takes some from its start leaves the rest.
        alone: How many reads are to be handled alone, because its requests cannot be joined.
    """

    __slots__ = ("_misses", "alone", "connection", "data")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data = b""
        self.alone = self._misses = 0

    def note_odd(self) -> None:
        """Its requests are usual, but not to be joined: as those for a topic that is not known."""
        self.alone = self._misses = min(2 * self._misses + 1, ALONE_MAX)

    def take(self, count: int) -> None:
        """Take whole requests from the start: that many bytes."""
        self.data = self.data[count:]
        self._misses = 0


TakeTogether: TypeAlias = "Callable[[list[Part]], bool]"
"""Handles what can be handled together of what came on several connections; False: nothing.

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
        if part.alone:
            part.alone -= 1
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
        if len(parts) < 2 or self._take is None:
            return
        reads, turns = self._reads, self._turns
        if reads.passes != self._passes:
            self._passes = reads.passes
            turns.passed()
        # Also while tasks wait in the row: it would never end if all that comes had to join it.
        if not turns.has_time:
            return
        started = trio.current_time()
        for part in parts:
            part.connection.last_active = started
        try:
            is_some = self._take(parts)
        finally:
            self._after_round()
            turns.give(trio.current_time() - started)
        self._misses = self._alone = 0 if is_some else min(2 * self._misses + 1, ALONE_MAX)
        if not self._turns.is_free:
            reads.let_trio_go_on()
