"""From request codes to handlers, and from errors to answers.

Every request gets an answer, unless it is one-way: a client that waits in vain closes the whole
connection, and with it all its other requests. So also a bug in a handler becomes an answer here,
with its traceback in the log; it is the one place that may catch everything.

A request that takes long is handled in pieces; see `in_pieces`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Generator, Mapping
from functools import wraps
from typing import Protocol, TypeAlias, TypeVar

from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.gathering import TakeTogether
from node.remoting.unsupported import UnsupportedRequests
from store.machine.errors import RecordDamagedError
from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.errors import IllegalPropertyError, WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import ONEWAY_FLAG, RESPONSE_FLAG, Ext, RemotingCommand
from tandem.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

Answer: TypeAlias = RemotingCommand | bytes
"""An answer, or its frame."""

Handler: TypeAlias = "Callable[[Connection, RemotingCommand], Answer | None]"
"""Handles one request and returns the answer; None if there is none yet (parked) or ever.

Raises:
    RequestError: The answer is this code and remark.
    RecordDamagedError: The answer says to try again, and which record it is.
    IllegalPropertyError: A message cannot be as it says; answered with MESSAGE_ILLEGAL.
    WireError: The header or body is malformed; answered with code 1 and the text.
"""

Pieces: TypeAlias = "Generator[None, None, Answer | None]"
"""The work on one request, in pieces of a few milliseconds; returns what a `Handler` returns."""

OwnerT = TypeVar("OwnerT")

TakeRun: TypeAlias = "Callable[[Connection, FrameBuffer], bool]"
"""Handles requests that came together, and takes them from the buffer; False: none."""


def response_to(
    request: RemotingCommand,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    *,
    ext: Ext = None,
    body: bytes = b"",
) -> RemotingCommand:
    """An answer in the request's encoding."""
    return RemotingCommand(
        code,
        request.opaque,
        RESPONSE_FLAG,
        remark,
        ext,
        body,
        serialize_type=request.serialize_type,
    )


def damaged_answer(command: RemotingCommand, error: RecordDamagedError) -> RemotingCommand:
    """Return the answer to a request that needs a damaged record: try again, and which it is.

    RocketMQ's consumers wait three seconds after any error of a pull, and ask again from the same
    offset. Ours ask another node at once.
    """
    return response_to(
        command,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        str(error),
        ext=DamagedMessageHeader(error.queue_offset, error.physical_offset),
    )


def in_pieces(
    handle: Callable[[OwnerT, Connection, RemotingCommand], Pieces],
) -> Callable[[OwnerT, Connection, RemotingCommand], None]:
    """Make a `Handler` of a method that gives way after each few milliseconds of its work.

    The first piece is done at once, the others in the turns of the connection, whose next requests
    wait until it is through. Anything else may happen between two pieces: each looks again at what
    it goes on with. Nobody goes on once the connection has ended or takes no more requests: the
    client asks again, here or elsewhere.
    """

    @wraps(handle)
    def begin(owner: OwnerT, connection: Connection, command: RemotingCommand) -> None:
        connection.unfinished = _answered(handle(owner, connection, command), connection, command)
        connection.go_on()

    return begin


def _answered(
    work: Pieces, connection: Connection, command: RemotingCommand
) -> Generator[None, None, None]:
    """Do the work on a request, and answer it."""
    try:
        answer = yield from work
    except Exception as error:  # noqa: BLE001 - the client must get its answer
        answer = _answer_to_error(error, connection, command)
    if isinstance(answer, RemotingCommand):
        connection.respond(command, answer)
    elif answer is not None and not command.flag & ONEWAY_FLAG:
        connection.write(answer)


def _answer_to_error(
    error: Exception, connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    answer = _answer_in_words(error, connection, command)
    connection.note_refused(answer.code)
    return answer


def _answer_in_words(
    error: Exception, connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    if isinstance(error, RequestError):
        return response_to(command, error.code, error.remark)
    if isinstance(error, RecordDamagedError):
        return damaged_answer(command, error)
    if isinstance(error, IllegalPropertyError):
        return response_to(command, ResponseCode.MESSAGE_ILLEGAL, str(error))
    if isinstance(error, WireError):
        return response_to(command, ResponseCode.SYSTEM_ERROR, str(error))
    _log.error("request %d from %s failed: a bug", command.code, connection.peer, exc_info=error)
    remark = f"{type(error).__name__}: {error}"
    return response_to(command, ResponseCode.SYSTEM_ERROR, remark)


class Dispatch(Protocol):
    """What a listener does with requests."""

    @property
    def take_run(self) -> TakeRun | None:
        """Has requests that came together handled as one, where it can; None: it never can."""

    @property
    def take_pulls(self) -> TakeRun | None:
        """The same for pulls, and for one alone, too."""

    @property
    def take_together(self) -> TakeTogether | None:
        """Has requests of several connections handled as one, where it can; None: it never can."""

    def dispatch(self, connection: Connection, command: RemotingCommand) -> None:
        """Have a request handled and answer it on its connection."""


class Dispatcher:
    """The handlers of one listener."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        on_answer: Callable[[Connection, RemotingCommand], None] | None = None,
        unsupported: UnsupportedRequests | None = None,
        take_run: TakeRun | None = None,
        take_pulls: TakeRun | None = None,
        take_together: TakeTogether | None = None,
    ) -> None:
        """Serve these; `on_answer` gets what clients answer to requests of ours.

        `take_run`, `take_pulls` and `take_together` handle requests that came together, where they
        can.
        """
        self._handlers = handlers
        self._not_supported = (unsupported or UnsupportedRequests()).refuse
        self._on_answer = on_answer
        self.take_run = take_run
        """See `Dispatch`."""
        self.take_pulls = take_pulls
        """See `Dispatch`."""
        self.take_together = take_together
        """See `Dispatch`."""
        self._why_refused: Callable[[], str] | None = None
        self._served_always: Container[int] = ()

    def refuse_all(self, why: Callable[[], str], *, but: Container[int]) -> None:
        """From now on answer every request with SERVICE_NOT_AVAILABLE, but those with such codes.

        `why` says in words why this node serves nobody. There is no way back.
        """
        self._why_refused, self._served_always = why, but
        self.take_run = self.take_pulls = self.take_together = None

    def dispatch(self, connection: Connection, command: RemotingCommand) -> None:
        """Have a request handled and answer it on its connection."""
        if command.flag & RESPONSE_FLAG:
            if self._on_answer is not None:
                self._on_answer(connection, command)
            return
        handler = self._handlers.get(command.code, self._not_supported)
        if self._why_refused is not None and command.code not in self._served_always:
            handler = self._refuse
        answer = self._answer_of(handler, connection, command)
        if isinstance(answer, bytes):
            if not command.flag & ONEWAY_FLAG:
                connection.write(answer)
        elif answer is not None:
            connection.respond(command, answer)

    @staticmethod
    def _answer_of(
        handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        try:
            return handler(connection, command)
        except Exception as error:  # noqa: BLE001 - the client must get its answer
            return _answer_to_error(error, connection, command)

    def _refuse(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        assert self._why_refused is not None, "asked for by `dispatch` alone"
        return response_to(command, ResponseCode.SERVICE_NOT_AVAILABLE, self._why_refused())
