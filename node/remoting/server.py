"""Listeners, and one task per connection, which handles requests in rounds.

One connection's failure never reaches another: what a peer breaks ends its own connection with one
line in the log. Connections have bounds, for each address and in all: places
(`Places`), memory (`ClientMemory`), and time (`Turns`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from node.remoting.client_memory import ClientMemory
from node.remoting.connection import Connection, Outbox
from node.remoting.gathering import Gathering, Part
from node.remoting.places import Places
from node.remoting.turns import TURN_SECONDS, Turns
from store.machine.network import ConnectionLost
from store.machine.read_loop import read_loop
from store.machine.signal import Signal
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.pull_run import PULL_HEADS
from tandem.wire.send_run import HOST_V4_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from trio.abc import Clock

    from node.remoting.dispatcher import Dispatch, TakeRun
    from store.machine.network import Listener, Taken

_log = logging.getLogger(__name__)

RECEIVE_BYTES_MAX: Final = 256 * 1024
"""One read: some 250 requests of 1 KiB, a couple of milliseconds of work."""

IDLE_SECONDS_MAX: Final = 120.0
"""A connection on which nothing moved for this long is closed. Source: NettyServerConfig."""

ALIVE_SECONDS: Final = IDLE_SECONDS_MAX / 2
"""After this its peer may be asked whether it is there, and has as long for an answer."""

IDLE_SCAN_SECONDS: Final = 10.0

SCANNED_AT_ONCE: Final = 256
"""Connections that are looked at before other tasks have their turn."""

PLACE_SECONDS: Final = 1.0
"""Between two looks for a connection that may give way, while there is no place."""

CLOSE_SECONDS_MAX: Final = 1.0
"""Closing a listener is a promise to the next user of the port, so it is shielded this long."""


class OtherProtocol(Protocol):
    """What a port takes beside remoting.

    Attributes:
        starts_with: The first bytes of its connections; a frame of remoting cannot have them.
    """

    starts_with: bytes

    async def serve(self, connection: Connection, first: bytes, turns: Turns) -> None:
        """Serve a connection that began with `first`, until the peer ends it.

        Raises:
            ConnectionLost: The stream broke.
        """

    def ask_alive(self, connection: Connection) -> None:
        """Nothing moves on a connection: its peer may be asked for a sign of life."""

    def say_goodbye(self, connection: Connection) -> None:
        """A connection is closed soon, on which nothing moves: its peer may be told why."""


class Server:
    """The connections of one node, over all of its listeners.

    `after_round` is described at `serve_requests`; `on_closed` is called when a connection has
    ended, so that what was known by it can be forgotten.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        connections_max: int,
        after_round: Callable[[], None],
        on_closed: Callable[[Connection], None],
        other: OtherProtocol | None = None,
    ) -> None:
        self._other = other
        self._outbox = outbox
        self._after_round = after_round
        self._on_closed = on_closed
        self._places = Places(connections_max)
        self._place_free = Signal()
        self._memory = ClientMemory()
        self._turns = Turns()
        self._gathering: Gathering | None = None

    async def listen(
        self, listener: Listener, dispatcher: Dispatch, connections: trio.Nursery
    ) -> None:
        """Accept until cancelled; each connection is a task in `connections`."""
        try:
            while True:
                await self._wait_for_place()
                stream = await listener.accept()
                connection = Connection(stream, self._outbox, self._memory.note)
                if self._places.take(connection):
                    connections.start_soon(self._serve, connection, dispatcher)
                else:
                    connection.close()
        finally:
            with trio.move_on_after(CLOSE_SECONDS_MAX, shield=True):
                await listener.aclose()

    @property
    def connections_count(self) -> int:
        """How many connections there are."""
        return len(self._places)

    @property
    def waiting_count(self) -> int:
        """How many of them wait for a turn."""
        return self._turns.waiting_count

    def stop_reading(self) -> None:
        """Take no more requests. Each connection ends once its answers are out."""
        for connection in self._places:
            connection.reading.cancel()

    def end_of_the_unknown(self) -> None:
        """Take no more requests of connections whose last caller is not known any more."""
        for connection in self._places:
            if not connection.caller.is_known:
                connection.reading.cancel()

    async def close_idle(self) -> None:
        """Close connections on which nothing moves any more, until cancelled."""
        while True:
            await trio.sleep(IDLE_SCAN_SECONDS)
            now = trio.current_time()
            for number, connection in enumerate(self._places, 1):
                if not number % SCANNED_AT_ONCE:
                    await trio.lowlevel.checkpoint()
                    now = trio.current_time()
                still_seconds = now - connection.last_active
                if still_seconds <= ALIVE_SECONDS:
                    continue
                is_over, other = still_seconds > IDLE_SECONDS_MAX, self._other
                if other is not None:
                    (other.say_goodbye if is_over else other.ask_alive)(connection)
                    connection.flush()
                if is_over:
                    connection.close()

    async def _wait_for_place(self) -> None:
        """Each listener may then accept one more, so the limit is kept up to their number."""
        if self._places.make_room():
            return
        _log.warning("all places are taken by connections that are in use; new ones wait")
        while not self._places.make_room():
            with trio.move_on_after(PLACE_SECONDS):
                await self._place_free.wait()

    async def _serve(self, connection: Connection, dispatcher: Dispatch) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.run_writer)
                await self._read_until_stopped(connection, dispatcher)
                await connection.wait_idle()
                nursery.cancel_scope.cancel()
        finally:
            connection.leave_unfinished()
            connection.close()
            self._places.leave(connection)
            self._on_closed(connection)
            self._place_free.notify()

    async def _read_until_stopped(self, connection: Connection, dispatcher: Dispatch) -> None:
        with connection.reading:
            try:
                frames = FrameBuffer()
                if self._other is not None:
                    starts_with = self._other.starts_with
                    first = await _first_bytes(connection, starts_with)
                    if first.startswith(starts_with):
                        await self._other.serve(connection, first, self._turns)
                        return
                    frames.receive_data(first)
                await serve_requests(
                    connection,
                    dispatcher,
                    self._after_round,
                    frames,
                    self._turns,
                    self._gathered(),
                )
            except ConnectionLost:
                connection.close()
            except WireError as error:
                _log.warning("connection from %s closed: %s", connection.peer, error)

    def _gathered(self) -> Gathering | None:
        """Return what handles together what comes on several connections; None: nothing does."""
        if self._gathering is None and (loop := read_loop()) is not None:
            self._gathering = Gathering(loop, self._turns, self._after_round)
        return self._gathering


async def _first_bytes(connection: Connection, starts_with: bytes) -> bytes:
    """Wait for so many bytes that it is known whether they start so; fewer if that is all.

    Raises:
        ConnectionLost: The stream broke.
    """
    first = b""
    while len(first) < len(starts_with) and starts_with.startswith(first):
        data = await connection.stream.receive_some(RECEIVE_BYTES_MAX)
        connection.last_active = trio.current_time()
        if not data:
            break
        first += data
    return first


def serve_requests(
    connection: Connection,
    dispatcher: Dispatch,
    after_round: Callable[[], None],
    frames: FrameBuffer,
    turns: Turns,
    gathering: Gathering | None = None,
) -> Coroutine[object, object, None]:
    """Handle the requests of one connection until the peer ends it. To be awaited.

    Args:
        connection: Where requests come from and answers go.
        dispatcher: Finds the handler of each request.
        after_round: Called once when all requests of a turn are handled: replication learns of the
            puts, and the answers are sent.
        frames: Splits the bytes; carries the limits, and what has come already.
        turns: Whose turn it is.
        gathering: Handles together what comes on several connections; None: nothing does.

    Raises:
        ConnectionLost: The stream broke.
        WireError: The peer sent what no correct peer sends.
    """
    return _Rounds(connection, dispatcher, after_round, frames, turns, gathering).run()


class _Rounds:
    """The rounds of one connection; see `serve_requests`."""

    def __init__(
        self,
        connection: Connection,
        dispatcher: Dispatch,
        after_round: Callable[[], None],
        frames: FrameBuffer,
        turns: Turns,
        gathering: Gathering | None,
    ) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._after_round = after_round
        self._frames = frames
        self._turns = turns
        self._clock = trio.lowlevel.current_clock()
        self._gathering = gathering
        self._part = Part(connection, dispatcher)
        self._may_have_more = self._again = False
        self._part.joins = frames.is_used_up()

    async def run(self) -> None:
        """Go on until the peer ends the connection."""
        if self._frames.unfinished_bytes and not self._take_rest(b""):
            await self._finish()
        while await self._receive():
            await self._finish()

    def _receive(self) -> Awaitable[bool]:
        """Receive until no more is wanted, or the end has come; see `Stream.receive_while`."""
        stream, part, gathering = self._connection.stream, self._part, self._gathering
        # What is handled together has hosts of one size.
        if gathering is None or len(self._connection.born_host) != HOST_V4_BYTES:
            return stream.receive_while(RECEIVE_BYTES_MAX, self._take_alone)
        if stream.plain_fd < 0:
            return stream.receive_while(RECEIVE_BYTES_MAX, partial(self._take, gathering))
        part.crowd = gathering
        return stream.receive_together(RECEIVE_BYTES_MAX, self._take_alone, part, self._take_rest)

    def _take(self, gathering: Gathering, data: bytes) -> Taken:
        """Leave to the end of the round what has come beside others; else have a turn at once."""
        if self._part.joins and gathering.add(self._part, data, self._dispatcher.take_together):
            return self._end_gathering
        return self._take_alone(data)

    def _end_gathering(self) -> bool:
        assert self._gathering is not None, "a part of it was added"
        self._gathering.end()
        rest = self._part.data
        if not rest:
            return self._connection.may_read
        self._part.data = b""
        return self._take_rest(rest)

    def _take_rest(self, data: bytes) -> bool:
        """Handle what the others have left, which does not count as a read that came alone."""
        if self._part.alone:
            self._part.alone += 1
        return self._take_alone(data)

    def _take_alone(self, data: bytes) -> bool:
        """Have a turn at once, if there is one; return whether that was all there is to do."""
        connection, part = self._connection, self._part
        if part.alone:
            part.alone -= 1
        connection.last_active = self._clock.current_time()
        self._frames.receive_data(data)
        self._may_have_more, part.joins = True, False
        if self._turns.is_free:
            self._turn()
        return not self._may_have_more and connection.may_read

    def _turn(self) -> None:
        connection, frames, clock = self._connection, self._frames, self._clock
        started = clock.current_time()
        try:
            self._may_have_more = self._again = _handle_some(
                connection, self._dispatcher, frames, clock
            )
        finally:
            # Also after a bad frame: the good ones before it get their answers.
            connection.end_round()
            self._after_round()
            self._turns.give(clock.current_time() - started)
        unfinished_bytes = frames.unfinished_bytes
        # A half of a request waits for its other half, and is not joined.
        self._part.joins = not unfinished_bytes and not self._part.alone
        if unfinished_bytes or connection.unfinished_bytes:
            connection.unfinished_bytes = unfinished_bytes
            connection.note_kept()

    async def _finish(self) -> None:
        connection, turns = self._connection, self._turns
        await connection.wait_ready()
        while self._may_have_more and not connection.is_closed:
            if self._again or not turns.is_free:
                await turns.take(again=self._again)
            self._turn()
            await connection.wait_ready()


def _handle_some(
    connection: Connection, dispatcher: Dispatch, frames: FrameBuffer, clock: Clock
) -> bool:
    """Handle requests for one turn; return whether there may be more."""
    now = clock.current_time  # asked after every request, as one may take a thousand times another
    end = now() + TURN_SECONDS
    take = _taker(dispatcher, frames)
    while True:
        while connection.unfinished is not None:
            connection.go_on()
            if now() >= end:
                return True
        if take is None or not take(connection, frames):
            command = frames.next_command()
            if command is None:
                return False
            if frames.is_sealed:
                connection.sealed_frame = frames.sealed_frame()
            dispatcher.dispatch(connection, command)
            connection.sealed_frame = b""
        connection.has_asked = True
        is_through = connection.unfinished is None
        if is_through and frames.is_used_up():
            return False
        if not connection.may_read or now() >= end:
            return True


def _taker(dispatcher: Dispatch, frames: FrameBuffer) -> TakeRun | None:
    """Return what takes those together that come next: pulls, or at least two other requests."""
    if frames.starts_with(PULL_HEADS):
        return dispatcher.take_pulls
    return dispatcher.take_run if frames.several_frames() is not None else None
