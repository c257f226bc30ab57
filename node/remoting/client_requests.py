"""Requests that a broker sends to its clients, the other way round on their own connections.

    tell    one-way: NOTIFY_CONSUMER_IDS_CHANGED, CHECK_TRANSACTION_STATE, ...
    ask     answered by the client, or not in time: GET_CONSUMER_RUNNING_INFO, PUSH_REPLY_..., ...

They have a numbering of their own: an `opaque` says nothing without its direction.

Source: RocketMQ 5.3.3, Broker2Client; NettyRemotingAbstract.invokeSyncImpl.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

import msgspec

from node.errors import RequestError
from node.remoting.connection import Connection
from tandem.wire.remoting_command import ONEWAY_FLAG, Ext, RemotingCommand, encode_frame
from tandem.wire.response_code import ResponseCode

ASKED_MAX: Final = 4_096
"""Requests to clients that wait for their answers; strangers may bring some about."""

Answered: TypeAlias = Callable[[RemotingCommand | None, str], None]
"""Called once: with the client's answer and "", or with None and why there is none."""


class _Asked(msgspec.Struct, frozen=True):
    deadline: float
    done: Answered


class ClientRequests:
    """What one broker has asked its clients. Time is passed in, in seconds.

    Invariant: every `done` is called exactly once, by the answer, the end of the connection, or the
    first `expire` after the deadline.
    """

    def __init__(self) -> None:
        self._opaques = count()
        self._asked: dict[Connection, dict[int, _Asked]] = {}
        self._count = 0

    def tell(self, connection: Connection, code: int, ext: Ext = None, body: bytes = b"") -> None:
        """Write a request that gets no answer."""
        connection.write(encode_frame(self._request(code, ONEWAY_FLAG, ext, body)))

    def ask(
        self,
        connection: Connection,
        code: int,
        ext: Ext = None,
        body: bytes = b"",
        *,
        deadline: float,
        done: Answered,
    ) -> None:
        """Write a request; `done` gets the answer. It is sent with the next flush of the outbox.

        Raises:
            RequestError: Too many wait already (SYSTEM_BUSY); nothing was sent.
        """
        if self._count >= ASKED_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{self._count} requests to clients wait for their answers; try again",
            )
        if connection.is_closed:
            done(None, f"the connection to {connection.peer} is closed")
            return
        request = self._request(code, 0, ext, body)
        self._asked.setdefault(connection, {})[request.opaque] = _Asked(deadline, done)
        self._count += 1
        connection.write(encode_frame(request))

    def answered(self, connection: Connection, answer: RemotingCommand) -> None:
        """Take in a response. One that nobody waits for, any more or ever, is dropped."""
        asked = self._take(connection, answer.opaque)
        if asked is not None:
            asked.done(answer, "")

    def connection_closed(self, connection: Connection) -> None:
        """Nothing comes from there any more."""
        for opaque in list(self._asked.get(connection, ())):
            asked = self._take(connection, opaque)
            assert asked is not None, "listed a moment ago, and nothing else ran"
            asked.done(None, f"the connection to {connection.peer} was closed")

    def expire(self, now: float) -> None:
        """Give up waiting where the time is over."""
        late = [
            (connection, opaque)
            for connection, of_one in self._asked.items()
            for opaque, asked in of_one.items()
            if now >= asked.deadline
        ]
        for connection, opaque in late:
            asked = self._take(connection, opaque)
            if asked is not None:
                asked.done(None, f"the client at {connection.peer} did not answer in time")

    def _request(self, code: int, flag: int, ext: Ext, body: bytes) -> RemotingCommand:
        return RemotingCommand(code, next(self._opaques) & 0x7FFFFFFF, flag, ext=ext, body=body)

    def _take(self, connection: Connection, opaque: int) -> _Asked | None:
        of_one = self._asked.get(connection, {})
        asked = of_one.pop(opaque, None)
        if asked is None:
            return None
        self._count -= 1
        if not of_one:
            del self._asked[connection]
        return asked
