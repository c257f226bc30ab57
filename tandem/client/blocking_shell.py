"""Runs the same flows over plain sockets, for Spark workers, scripts and the REPL.

One socket per address; several requests can be in flight on it (`CallMany`), but only one flow runs
at a time. An instance belongs to one thread and does not survive a fork.

The upkeep (routes, heartbeats) has no task of its own here: it is done before a flow when 30 s have
passed since the last time.
"""

import math
import socket
import time
from collections.abc import Callable
from typing import Final, TypeVar, assert_never

import msgspec

from tandem.client.broker_request import BrokerRequest
from tandem.client.core import UPKEEP_SECONDS, ClientCore, split_address
from tandem.client.errors import (
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
)
from tandem.client.flow import Call, CallMany, Effect, Flow, Pause, Shared
from tandem.client.home_process import HomeProcess
from tandem.client.lost_connection import cause_of, reason_of
from tandem.client.plain_socket import PlainSocket, SocketOpener, open_socket
from tandem.client.session import Session
from tandem.client.signer import Signer
from tandem.client.tls import TLSSocket
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import RemotingCommand

CONNECT_TIMEOUT_SECONDS: Final = 3.0
RECEIVE_BYTES: Final = 262_144

IN_FLIGHT_MAX: Final = 128
"""Requests sent before answers are read: all of their answers fit into the socket's buffer."""

T = TypeVar("T")

Answer = RemotingCommand | ClientError


class _Connection:
    """One open connection. The waiters of its session are places in the list of answers."""

    def __init__(
        self,
        address: str,
        opened: PlainSocket,
        on_request: Callable[[BrokerRequest], None],
        signer: Signer | None = None,
    ) -> None:
        self.address = address
        self._on_request = on_request
        self.is_open = True
        self._socket = opened
        self._session: Session[int] = Session(signer=signer)
        self._answers: dict[int, Answer] = {}

    @property
    def answered(self) -> bool:
        """True once the broker has answered anything."""
        return self._session.answered

    def ended_by_peer(self) -> bool:
        """True if the broker hung up while nobody was looking."""
        self._socket.settimeout(0)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def call_many(self, calls: list[Call]) -> list[Answer]:
        """Send all requests, then take answers until none is missing."""
        self._answers.clear()
        try:
            for index, call in enumerate(calls):
                self._session.request(call.code, call.ext, call.body, index, call.deadline)
            self._exchange(len(calls))
        except TimeoutError:
            self.close(ConnectionCause.ENDED, "sending took too long")
        except (OSError, WireError) as error:
            cause = cause_of(error, ConnectionCause.ENDED)
            self.close(cause, reason_of(error))
        except BaseException:
            # Ctrl-C, or what the handler of a signal raises: half a frame may be out, and the
            # answer that comes would be taken for that to the next call.
            self.close(ConnectionCause.CLOSED, "the call was interrupted")
            raise
        return [self._answers[index] for index in range(len(calls))]

    def _exchange(self, count: int) -> None:
        self._socket.settimeout(max(0.001, self._session.next_deadline() - time.monotonic()))
        self._socket.sendall(self._session.data_to_send())
        while len(self._answers) < count:
            self._socket.settimeout(max(0.001, self._session.next_deadline() - time.monotonic()))
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                self._expire()
                continue
            if not data:
                self.close(ConnectionCause.ENDED, "the broker ended it")
                return
            self._session.receive_data(data)
            while (answer := self._session.next_answer()) is not None:
                self._answers[answer[0]] = answer[1]
            self._serve_broker()

    def _serve_broker(self) -> None:
        requests, self._session.requests = self._session.requests, []
        for command in requests:
            self._on_request(BrokerRequest(self.address, command, self._session.respond))
        # Also what has waited for the answer to a question of the session's own.
        if self._session.has_to_send:
            self._socket.sendall(self._session.data_to_send())

    def _expire(self) -> None:
        for abandoned in self._session.expire(time.monotonic()):
            self._answers[abandoned.waiter] = RequestTimeoutError(
                self.address, outcome_unknown=abandoned.outcome_unknown
            )

    def close(self, cause: ConnectionCause, reason: str) -> None:
        """Close the socket; every waiting call gets a ConnectionLostError."""
        self.is_open = False
        self._socket.close()
        for abandoned in self._session.connection_lost():
            self._answers[abandoned.waiter] = ConnectionLostError(
                self.address, cause, reason, outcome_unknown=abandoned.outcome_unknown
            )


class BlockingShell:
    """Runs the flows of one client, one after the other, until `close`."""

    def __init__(self, core: ClientCore, opener: SocketOpener = open_socket) -> None:
        self._core = core
        self._open_socket = opener
        self._connections: dict[str, _Connection] = {}
        self._next_upkeep = time.monotonic() + UPKEEP_SECONDS
        self._home = HomeProcess()

    def close(self) -> None:
        """Tell the brokers, as far as they listen, and close all sockets.

        In a fork nobody is told: the client and its connections are the other process's.
        """
        try:
            if self._home.is_here:
                self._run(self._core.goodbye())
        finally:
            for connection in self._connections.values():
                connection.close(ConnectionCause.CLOSED, "the client was closed")
            self._connections.clear()

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end.

        Raises:
            ClientError: as the flow says.
            NotOpenError: this is a fork of the client's process.
        """
        self._home.check()
        if time.monotonic() >= self._next_upkeep:
            self._next_upkeep = time.monotonic() + UPKEEP_SECONDS
            self._run(self._core.upkeep())
        return self._run(flow)

    def _run(self, flow: Flow[T], until: float = math.inf) -> T:
        """Run a flow to its end; nothing that it waits for takes longer than `until`."""
        try:
            effect = next(flow)
            while True:
                answer = self._carry_out(effect if until == math.inf else _ending(effect, until))
                if isinstance(answer, ClientError):
                    effect = flow.throw(answer)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _carry_out(self, effect: Effect) -> object:
        match effect:
            case Call():
                return self._call_many([effect])[0]
            case CallMany():
                return self._call_many(effect.calls)
            case Pause():
                _sleep(effect.seconds)
                return None
            case Shared():
                try:
                    self._run(effect.flow(), effect.deadline)
                except ClientError as error:
                    return error if time.monotonic() < effect.deadline else None
                return None
            case _:
                assert_never(effect)

    def _call_many(self, calls: list[Call]) -> list[Answer]:
        by_address: dict[str, list[int]] = {}
        for index, call in enumerate(calls):
            by_address.setdefault(call.address, []).append(index)
        answers: dict[int, Answer] = {}
        for address, indexes in by_address.items():
            for start in range(0, len(indexes), IN_FLIGHT_MAX):
                part = indexes[start : start + IN_FLIGHT_MAX]
                part_answers = self._call_address(address, [calls[index] for index in part])
                answers.update(zip(part, part_answers, strict=True))
        return [answers[index] for index in range(len(calls))]

    def _call_address(self, address: str, calls: list[Call]) -> list[Answer]:
        if max(call.deadline for call in calls) <= time.monotonic():
            return [RequestTimeoutError(address, outcome_unknown=False)] * len(calls)
        try:
            connection = self._connection(address, calls[0].deadline)
        except ClientError as error:
            return [error] * len(calls)
        answers = connection.call_many(calls)
        if connection.answered:
            self._core.backoff.succeeded(address)
        if not connection.is_open:
            del self._connections[address]
            if not connection.answered:
                self._core.backoff.failed(address, time.monotonic())
        return answers

    def _connection(self, address: str, deadline: float) -> _Connection:
        connection = self._connections.get(address)
        if connection is not None:
            if connection.is_open and not connection.ended_by_peer():
                return connection
            ended = self._connections.pop(address)
            ended.close(ConnectionCause.ENDED, "the broker ended it")
        backoff = self._core.backoff
        now = time.monotonic()
        _sleep(min(backoff.seconds_left(address, now), deadline - now))
        left = deadline - time.monotonic()
        if left <= 0:
            raise RequestTimeoutError(address, outcome_unknown=False)
        try:
            opened = self._open(address, min(left, CONNECT_TIMEOUT_SECONDS))
        except (OSError, ValueError) as error:
            # ValueError: a route can hold an address that is none.
            backoff.failed(address, time.monotonic())
            if isinstance(error, TimeoutError):
                backoff.fell_silent(address, time.monotonic())
            cause = cause_of(error, ConnectionCause.UNREACHABLE)
            reason = reason_of(error)
            raise ConnectionLostError(address, cause, reason, outcome_unknown=False) from error
        connection = self._connections[address] = _Connection(
            address, opened, self._core.broker_requests.serve, self._core.signer(address)
        )
        return connection

    def _open(self, address: str, timeout_seconds: float) -> PlainSocket:
        return open_connection(self._core, self._open_socket, address, timeout_seconds)


def open_connection(
    core: ClientCore, opener: SocketOpener, address: str, timeout_seconds: float
) -> PlainSocket:
    """Open a connection to `address`, with TLS if the cluster has it.

    Raises:
        OSError: it cannot be opened, or one end does not trust the other.
        ArgumentError: that is no address.
    """
    host, port = split_address(address)
    opened = opener(host, port, timeout_seconds)
    if core.tls is None:
        return opened
    opened.settimeout(timeout_seconds)
    return TLSSocket.open(opened, core.tls(), host)


def _ending(effect: Effect, until: float) -> Effect:
    """Return the same effect, which does not take longer than `until`."""
    match effect:
        case Call() | Shared():
            return msgspec.structs.replace(effect, deadline=min(effect.deadline, until))
        case CallMany():
            calls = [
                msgspec.structs.replace(call, deadline=min(call.deadline, until))
                for call in effect.calls
            ]
            return msgspec.structs.replace(effect, calls=calls)
        case Pause():
            return Pause(min(effect.seconds, max(0.0, until - time.monotonic())))
        case _:
            assert_never(effect)


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)  # noqa: TID251  plain code, no trio here
