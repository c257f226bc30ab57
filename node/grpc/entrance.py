"""Where connections of gRPC come in: beside remoting, on the same port, by their first bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import trio

from node.grpc.call_counts import CallCounts
from node.grpc.frames import PREFACE, Http2Error
from node.grpc.session import Method, Questions, Session
from node.grpc.side_connection import SideConnection
from node.remoting.connection import Connection, Outbox
from node.remoting.turns import TURN_SECONDS, Turns
from store.machine.signal import Signal

_log = logging.getLogger(__name__)

RECEIVE_BYTES_MAX: Final = 256 * 1024


class Entrance:
    """Serves the connections of gRPC clients of one broker.

    Attributes:
        starts_with: How their first bytes begin.
        sessions: Those that there are.
    """

    starts_with = PREFACE[:4]

    def __init__(
        self,
        outbox: Outbox,
        methods: Mapping[str, Method],
        questions: Questions,
        counts: CallCounts,
        *,
        after_round: Callable[[], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        """Serve `methods`; the last two are those of `Server`."""
        self._on_closed = on_closed
        self._late: set[SideConnection] = set()
        self._is_late = Signal()
        self.sessions: dict[Connection, Session] = {}
        self._outbox = outbox
        self._methods = methods
        self._questions = questions
        self._counts = counts
        self._after_round = after_round

    async def serve(self, connection: Connection, first: bytes, turns: Turns) -> None:
        """Handle calls until the peer ends the connection, or breaks the protocol.

        Its answers that are owed may come after that, until `connection_closed`.

        Raises:
            ConnectionLost: The stream broke.
        """
        session = Session(
            connection,
            self._outbox,
            self._methods,
            self._questions,
            self._counts,
            self._on_closed,
            self._on_late,
        )
        self.sessions[connection] = session
        try:
            await _Turns(session, turns, self._after_round).serve(first)
        except Http2Error as error:
            _log.warning("connection from %s closed: %s", connection.peer, error)
            session.give_up(error)
        finally:
            session.say_goodbye()
            self._outbox.flush()

    def ask_alive(self, connection: Connection) -> None:
        """See `OtherProtocol`."""
        session = self.sessions.get(connection)
        if session is not None:
            session.ask_alive()

    def say_goodbye(self, connection: Connection) -> None:
        """See `OtherProtocol`."""
        session = self.sessions.get(connection)
        if session is not None:
            session.say_goodbye()

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection, and those that handlers knew of it."""
        session = self.sessions.pop(connection, None)
        if session is not None:
            session.close()

    async def run(self) -> None:
        """End rounds of what was asked beyond turns, until cancelled."""
        while True:
            while not self._late:
                await self._is_late.wait()
            late, self._late = self._late, set()
            for side in late:
                side.end_round()
            self._after_round()

    def _on_late(self, side: SideConnection) -> None:
        self._late.add(side)
        self._is_late.notify()


class _Turns:
    """The rounds of one session; see `serve_requests`."""

    def __init__(self, session: Session, turns: Turns, after_round: Callable[[], None]) -> None:
        self._session = session
        self._turns = turns
        self._after_round = after_round
        self._clock = trio.lowlevel.current_clock()
        self._may_have_more = False

    async def serve(self, first: bytes) -> None:
        stream = self._session.connection.stream
        if not self._take(first):
            await self._finish()
        while await stream.receive_while(RECEIVE_BYTES_MAX, self._take):
            await self._finish()

    async def _finish(self) -> None:
        connection = self._session.connection
        await connection.wait_ready()
        again = False
        while self._may_have_more and not connection.is_closed:
            if again or not self._turns.is_free:
                await self._turns.take(again=again)
            self._turn()
            again = True
            await connection.wait_ready()

    def _take(self, data: bytes) -> bool:
        """Have a turn at once, if there is one; return whether that was all there is to do."""
        session = self._session
        now = session.connection.last_active = self._clock.current_time()
        session.receive_data(data, now)
        self._may_have_more = True
        if self._turns.is_free:
            self._turn()
        return not self._may_have_more and session.may_read

    def _turn(self) -> None:
        session, clock = self._session, self._clock
        started = clock.current_time()
        end = started + TURN_SECONDS

        def is_enough() -> bool:
            return clock.current_time() >= end or not session.may_read

        session.is_in_turn = True
        try:
            self._may_have_more = session.handle_some(is_enough)
        finally:
            session.is_in_turn = False
            session.end_round()
            session.write()
            self._after_round()
            self._turns.give(clock.current_time() - started)
        self._session.note_kept()
