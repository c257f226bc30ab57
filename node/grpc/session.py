"""One connection of gRPC clients: its calls, and what they ask of brokers.

    bytes --> Http2 --> Call --> a method --+--> answered at once
                                            +--> `ask`: a request to a broker, this one or another
                                                 --> its answer --> the call is answered

It has no task and never waits. Bytes come in `receive_data`, and are worked on in turns by
`handle_some`; answers of brokers come whenever they are there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import trio
from google.protobuf.message import DecodeError, Message

from node.errors import RequestError
from node.grpc.call import Call, MalformedCallError
from node.grpc.call_counts import CallCounts, outcome_name
from node.grpc.errors import (
    GRPC_INTERNAL,
    GRPC_INVALID_ARGUMENT,
    GRPC_UNIMPLEMENTED,
    CallError,
    error_of,
)
from node.grpc.frames import ENHANCE_YOUR_CALM, Http2Error
from node.grpc.http2 import Http2
from node.grpc.protocol import messages as pb
from node.grpc.side_connection import SideConnection
from node.grpc.streams import Ended, Event, Opened, Quiet, Received, WasReset
from node.remoting.caller import Caller
from node.remoting.connection import Connection, Outbox
from node.remoting.dispatcher import Dispatch
from node.tables.topic_attributes import NO_LITE
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import Ext, RemotingCommand

_log = logging.getLogger(__name__)

SERVICE_PATH: Final = "/apache.rocketmq.v2.MessagingService/"

CONTENT_TYPE: Final = "application/grpc"

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of messages of one connection that are not whole, or wait for windows of the client."""

LATE_SECONDS: Final = 60.0
"""After a call is over, an answer to what it has asked may come; then it is not waited for."""

Answered: TypeAlias = Callable[[RemotingCommand], None]
"""Gets the answer of a broker. It asks nothing more."""


_REMEDIES: Final = {
    "SyncLiteSubscription": f"; {NO_LITE}",
    **dict.fromkeys(
        ("PullMessage", "GetOffset", "UpdateOffset", "QueryOffset"),
        "; receive messages (ReceiveMessage), or pull them by remoting",
    ),
}
"""What to do instead, where that is known."""


class Method(msgspec.Struct, frozen=True):
    """What is done with calls of one name.

    Attributes:
        request: The class of the message that comes.
        answer: The class of what is answered; it has a `status`.
        handle: Called with each message of a call; returns what is left to do, piece by piece, if
            that takes long.
        is_stream: Whether more than one message may come.
        closing: Makes the message that comes last, also after an error; None: there is none.
    """

    request: type[Message]
    answer: type[Message]
    handle: Callable[[Session, Call, Any], Iterator[None] | None]
    is_stream: bool = False
    closing: Callable[[], bytes] | None = None


class Questions(Protocol):
    """Takes what brokers ask of clients."""

    def asked(self, session: Session, question: RemotingCommand) -> None:
        """Pass a question on to a client of this connection."""


class Session:
    """One connection.

    Attributes:
        connection: To the client or its proxy.
        side: The connection that brokers' handlers see.
        is_ending: Whether no new calls are taken.
        is_in_turn: Whether requests are handled: their round ends soon.
    """

    def __init__(
        self,
        connection: Connection,
        outbox: Outbox,
        methods: Mapping[str, Method],
        questions: Questions,
        counts: CallCounts,
        on_closed: Callable[[Connection], None],
        on_late: Callable[[SideConnection], None],
    ) -> None:
        """Serve `methods`.

        `on_closed` hears of each connection that handlers know, when it is over; `on_late` of those
        by which something was asked beyond a turn.
        """
        self.connection = connection
        self.is_in_turn = False
        self._outbox = outbox
        self._on_closed = on_closed
        self._on_late = on_late
        self.side = SideConnection(connection, outbox, self._take)
        self.is_ending = False
        self.now = 0.0
        """When the turn began that is under way, or the last one."""
        self._was_asked = False
        """Whether a sign of life was asked for that has not come."""
        self._http2 = Http2()
        self._methods = methods
        self._questions = questions
        self._counts = counts
        counts.connections_count += 1
        self._calls: dict[int, Call] = {}
        self._partial: dict[int, Call] = {}
        """Those of which a part of a message has come."""
        self._dropped: dict[int, Callable[[int], None]] = {}
        """By stream whose call is answered: what hears of it if the client does not get all."""
        self._header_bytes = 0
        self._rest: tuple[Call, Iterator[None]] | None = None
        """Of a call that takes long: nothing else is done before it."""
        self._asked: dict[int, Answered] = {}
        self._left_alone: deque[tuple[float, int]] = deque()
        """Requests of calls that were over before the answer, which may not come any more."""
        self._opaque = 0

    @property
    def may_read(self) -> bool:
        """Whether the client takes its answers."""
        return self.connection.may_read

    @property
    def kept_bytes(self) -> int:
        """Kept for the client in memory, but what the connection itself keeps."""
        kept = self._http2.buffered_bytes + self._http2.pending_bytes + self._header_bytes
        for call in self._partial.values():
            kept += call.buffered_bytes
        return kept

    def receive_data(self, data: bytes, now: float) -> None:
        """Take in what came."""
        self.now = now
        self._was_asked = False
        while self._left_alone and self._left_alone[0][0] < now - LATE_SECONDS:
            self._asked.pop(self._left_alone.popleft()[1], None)
        self._http2.receive_data(data, now)

    def handle_some(self, is_enough: Callable[[], bool]) -> bool:
        """Handle events until `is_enough`; return whether there may be more.

        Raises:
            Http2Error: the connection has to end; say so with `give_up`.
        """
        while True:
            if self._rest is not None:
                self._go_on(*self._rest)
            elif (event := self._http2.next_event()) is not None:
                self._take_event(event)
            else:
                break
            if is_enough():
                return True
        if self.kept_bytes > KEPT_BYTES_MAX:
            raise Http2Error(ENHANCE_YOUR_CALM, f"more than {KEPT_BYTES_MAX} bytes are kept for it")
        return False

    def note_kept(self) -> None:
        """Say how much is kept for the client in memory, which may end its connection."""
        if self._dropped:
            self._forget_sent()
        connection, kept = self.connection, self.kept_bytes
        if kept or connection.unfinished_bytes:
            connection.unfinished_bytes = kept
            connection.note_kept()

    def end_round(self) -> None:
        """Do what handlers have put off until the end of a turn."""
        self.side.end_round()

    def give_up(self, error: Http2Error) -> None:
        """Say why the connection ends. Nothing is done for its calls any more."""
        self._http2.give_up(error)
        self.write()
        self._end_calls()

    def ask_alive(self) -> None:
        """Have a client that has calls open show that it is there."""
        if self._calls and not self.is_ending and not self._was_asked:
            self._was_asked = True
            self._http2.ping()
            self.write()

    def say_goodbye(self) -> None:
        """Take no new calls, and end those that have no end: their clients go elsewhere."""
        self.is_ending = True
        for call in list(self._calls.values()):
            if self._methods[call.method].is_stream:
                call.end()
        self._http2.say_goodbye()
        self.write()

    def close(self) -> None:
        """The connection is over, and all of its calls."""
        self._end_calls()
        for stream_id, dropped in self._dropped.items():
            if count := self._http2.unsent_count(stream_id):
                dropped(count)
        self._dropped.clear()
        self.side.close()
        self._on_closed(self.side)
        self._counts.connections_count -= 1

    def _end_calls(self) -> None:
        self._rest = None
        for call in list(self._calls.values()):
            call.gone()

    def write(self) -> None:
        """Hand what is to be sent to the connection."""
        if out := self._http2.take_output():
            self.connection.write(out)

    # -- calls -----------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._open(event)
            return
        if isinstance(event, Quiet):
            return
        call = self._calls.get(event.stream_id)
        if call is None:
            dropped = self._dropped.pop(event.stream_id, None)
            if dropped is not None and isinstance(event, WasReset) and event.unsent_count:
                dropped(event.unsent_count)
            return
        if isinstance(event, Received):
            call.receive_data(event.data)
            self._partial[event.stream_id] = call
            if self._methods[call.method].is_stream:
                self._do(call, self._take_messages)
        elif isinstance(event, Ended):
            self._partial.pop(event.stream_id, None)
            self._do(call, self._take_end)
        else:
            call.gone()

    def _open(self, event: Opened) -> None:
        self.connection.has_asked = True
        headers, stream_id = event.headers, event.stream_id
        name = headers.get(":path", "").removeprefix(SERVICE_PATH)
        call = Call(self._http2, stream_id, name, headers, self.now)
        if headers.get(":method") != "POST" or not headers.get("content-type", "").startswith(
            CONTENT_TYPE
        ):
            call.end(GRPC_INVALID_ARGUMENT, "this is no call of gRPC")
            self._counts.refused(outcome_name(call.status, call.code))
        elif name not in self._methods:
            path = headers.get(":path", "").lstrip("/")
            call.end(GRPC_UNIMPLEMENTED, f"Method not found: {path}{_REMEDIES.get(name, '')}")
            self._counts.refused(outcome_name(call.status, call.code))
        else:
            self._calls[stream_id] = call
            self._header_bytes += call.header_bytes
            self._counts.began(name)
            is_owed = not self._methods[name].is_stream
            self.connection.owed_count += is_owed
            call.when_over(lambda: self._over(stream_id, is_owed=is_owed))

    def _over(self, stream_id: int, *, is_owed: bool) -> None:
        call = self._calls.pop(stream_id)
        self._header_bytes -= call.header_bytes
        seconds = trio.current_time() - call.began
        self._counts.ended(call.method, outcome_name(call.status, call.code), seconds)
        self._partial.pop(stream_id, None)
        if is_owed:
            self.connection.answered(1)

    def if_dropped(self, call: Call, do: Callable[[int], None]) -> None:
        """Have something done if an answered call ends before its client has got all of it.

        `do` is called once, with how many messages it has not got.
        """
        if self._http2.is_open(call.stream_id):
            self._dropped[call.stream_id] = do

    def _forget_sent(self) -> None:
        is_open = self._http2.is_open
        self._dropped = {number: do for number, do in self._dropped.items() if is_open(number)}

    def _take_messages(self, call: Call) -> None:
        method = self._methods[call.method]
        while not call.is_over and (message := call.next_message()) is not None:
            self._handle(method, call, message)

    def _take_end(self, call: Call) -> None:
        method = self._methods[call.method]
        if method.is_stream:
            call.end()
        else:
            self._handle(method, call, call.only_message())

    def _handle(self, method: Method, call: Call, data: bytes) -> None:
        if not call.client_id:
            raise CallError(pb.CLIENT_ID_REQUIRED, "client id cannot be empty")
        try:
            message = method.request.FromString(data)
        except DecodeError as error:
            raise MalformedCallError(GRPC_INTERNAL, str(error)) from error
        rest = method.handle(self, call, message)
        if rest is not None:
            self._rest = call, rest

    def _go_on(self, call: Call, rest: Iterator[None]) -> None:
        """Do the next piece of a call that takes long."""
        self._rest = None

        def piece(call: Call) -> None:
            for _ in rest:
                self._rest = call, rest
                return

        if not call.is_over:
            self._do(call, piece)

    def _do(self, call: Call, work: Callable[[Call], None]) -> None:
        """Do something for a call; whatever goes wrong becomes its answer."""
        try:
            work(call)
        except MalformedCallError as error:
            call.end(error.status, str(error))
        except CallError as error:
            self.refuse(call, error)
        except RequestError as error:
            answer = RemotingCommand(error.code, remark=error.remark)
            self.refuse(call, error_of(answer) or CallError(pb.INTERNAL_ERROR, error.remark))
        except WireError as error:
            self.refuse(call, CallError(pb.BAD_REQUEST, str(error)))
        except Exception as error:  # noqa: BLE001 - the client must get its answer
            _log.error(
                "call %s from %s failed: a bug", call.method, self.connection.peer, exc_info=error
            )
            self.refuse(call, CallError(pb.INTERNAL_ERROR, type(error).__name__))

    def refuse(self, call: Call, error: CallError) -> None:
        """Answer a call with an error."""
        method = self._methods[call.method]
        answer: Any = method.answer()
        answer.status.code = error.code
        answer.status.message = str(error)
        call.code = error.code
        call.send(answer.SerializeToString())
        if method.closing is not None:
            call.send(method.closing())
        call.end()

    # -- what is asked of brokers ----------------------------------------------------------------

    def ask(
        self,
        call: Call,
        way: Dispatch,
        code: int,
        ext: Ext,
        done: Answered,
        *,
        body: bytes = b"",
        lost: Answered | None = None,
        alone: bool = False,
    ) -> Caller:
        """Send a request of a call to a broker; `done` gets the answer.

        What `done` raises becomes the answer to the call. If the call is over by then, `lost` gets
        the answer. With `alone` the request is held for this call and no longer.

        Returns who asks. That counts in `done`, if the answer is no refusal.
        """

        def answered(answer: RemotingCommand) -> None:
            if not call.is_over:
                self._do(call, lambda _: done(answer))
            elif lost is not None:
                self._do(call, lambda _: lost(answer))

        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        opaque = self._opaque
        side = self._side_of(call, opaque) if alone else self.side
        if not side.is_closed:  # else nobody hears the answer: of what is renewed for a client
            self._asked[opaque] = answered  # that has another connection now
        side.call_signature = call.signature
        way.dispatch(side, RemotingCommand(code, opaque, ext=ext, body=body))
        while side.unfinished is not None:  # what a call asks for has no long pieces
            side.go_on()
        if not self.is_in_turn:
            self._on_late(side)
        return side.caller

    def _side_of(self, call: Call, opaque: int) -> SideConnection:
        """Return a connection that handlers know as long as a call is not over."""
        side = SideConnection(self.connection, self._outbox, self._take)

        def over() -> None:
            if opaque in self._asked:
                self._left_alone.append((self.now, opaque))
            self._on_closed(side)

        call.when_over(over)
        return side

    def _take(self, command: RemotingCommand) -> None:
        """Take what a handler has written."""
        if command.is_response:
            answered = self._asked.pop(command.opaque, None)
            if answered is not None:
                answered(command)
        else:
            self._questions.asked(self, command)
        self.write()
        if not self.is_in_turn:
            self.note_kept()
            if self.kept_bytes > KEPT_BYTES_MAX:  # a peer that takes nothing
                self.connection.close()
