"""HTTP/1.1 on one stream, for whoever serves a few requests by it: bounded in bytes and in time.

    receive_request --> respond --> send_reply, or start_stream and send_chunk

The stream is trio's or one of a node's machine; nothing is assumed of it but that it receives and
sends bytes, and what it raises is for the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, NamedTuple, Protocol, TypeAlias

import h11
import msgspec
import trio


class ByteStream(Protocol):
    """What bytes come from and go to."""

    async def receive_some(self, bytes_max: int, /) -> bytes | bytearray:
        """Return some bytes, b"" at the end."""

    async def send_all(self, data: bytes, /) -> None:
        """Send all of it."""


class HTTPLimits(msgspec.Struct, frozen=True):
    """How much, and how long.

    Attributes:
        idle_seconds: How long a connection may be silent between requests.
        request_seconds: How long a request may take to arrive, and an answer to leave.
    """

    head_bytes: int = 16 * 1024
    body_bytes: int = 0
    idle_seconds: float = 300.0
    request_seconds: float = 10.0


JSON: Final = "application/json"

RECEIVE_BYTES_MAX: Final = 64 * 1024

Respond: TypeAlias = "Callable[[HTTPConnection, h11.Request, bytes], Awaitable[None]]"
"""Answers one request with its body, by methods of the connection."""

Headers: TypeAlias = Iterable[tuple[str, str]]

Refuse: TypeAlias = Callable[[int, str], bytes]
"""The body that says, by status and in words, why a request could not be read."""


class NoPlaceError(Exception):
    """There are as many clients as may be, and each is being answered."""


class ConnectionPlaces:
    """The clients of one port at a time: of too many, one that has asked nothing goes.

    Strangers who connect and say nothing push out each other, before anybody else.
    """

    def __init__(self, connections_max: int) -> None:
        self._max = connections_max
        self._count = 0
        self._silent: dict[trio.CancelScope, None] = {}
        """Those that have never asked anything, the oldest first."""
        self._quiet: dict[trio.CancelScope, None] = {}
        """Those that have been answered, the one that is so for longest first."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    @contextmanager
    def take(self) -> Iterator[ConnectionPlace]:
        """Have a place for a client; it ends at once when another one needs it more.

        Raises:
            NoPlaceError: there is none.
        """
        if self._count >= self._max:
            for those in (self._silent, self._quiet):
                if those:
                    longest = next(iter(those))
                    del those[longest]
                    longest.cancel()
                    break
            else:
                raise NoPlaceError
        self._count += 1
        scope = trio.CancelScope()
        self._silent[scope] = None
        try:
            with scope:
                yield ConnectionPlace(self, scope)
        finally:
            self._silent.pop(scope, None)
            self._quiet.pop(scope, None)
            self._count -= 1

    @contextmanager
    def kept(self, scope: trio.CancelScope) -> Iterator[None]:
        """Keep one meanwhile, and before those that are silent from then on."""
        self._silent.pop(scope, None)
        self._quiet.pop(scope, None)
        yield
        self._quiet[scope] = None


class ConnectionPlace(NamedTuple):
    """That of one client."""

    places: ConnectionPlaces
    scope: trio.CancelScope

    def answering(self) -> AbstractContextManager[None]:
        """Keep it while a request is answered."""
        return self.places.kept(self.scope)


class HTTPConnection:
    """Requests of one client, one after the other.

    Attributes:
        is_over: No request is read any more.
    """

    def __init__(
        self,
        stream: ByteStream,
        limits: HTTPLimits,
        refuse: Refuse,
        refusal_type: str = JSON,
        headers: Headers = (),
        place: ConnectionPlace | None = None,
    ) -> None:
        """`refusal_type` is that of what `refuse` returns; `headers` are in every answer.

        `place` is kept while a request is answered.
        """
        self._answering = nullcontext if place is None else place.answering
        self._stream = stream
        self._refusal_type = refusal_type
        self._headers = list(headers)
        self._limits = limits
        self._refuse = refuse
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._wants_body = True
        self.is_over = False

    async def run(self, respond: Respond) -> None:
        """Have requests answered until the client ends, or says what is no HTTP.

        Raises:
            trio.TooSlowError: the client is slower than the limits.
        """
        while not self.is_over:
            # What cannot be read after a HEAD is answered like anything else that cannot be read.
            self._wants_body = True
            try:
                request = await self._receive_request()
                if request is None:
                    return
                self._wants_body = request.method != b"HEAD"
                body = await self._receive_body()
            except h11.RemoteProtocolError as error:
                await self._send_last_reply(error)
                return
            with self._answering():
                await respond(self, request, body)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def send_reply(
        self, status: int, body: bytes, content_type: str = JSON, headers: Headers = ()
    ) -> None:
        """Send a whole answer."""
        headers = [
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            *self._headers,
            *headers,
        ]
        head = self._http.send(h11.Response(status_code=status, headers=headers))
        data = self._http.send(h11.Data(data=body)) if self._wants_body else b""
        end = self._http.send(h11.EndOfMessage())
        if len(body) > RECEIVE_BYTES_MAX:
            # A long body is not copied: several clients may be sent the same.
            await self._send(head)
            head = b""
        await self._send(head, data, end)

    async def start_stream(self, content_type: str = JSON) -> None:
        """Begin an answer of unknown length."""
        headers = [
            ("Content-Type", content_type),
            ("Transfer-Encoding", "chunked"),
            *self._headers,
        ]
        await self._send(self._http.send(h11.Response(status_code=200, headers=headers)))

    async def send_chunk(self, data: bytes) -> None:
        """Send a part of it."""
        await self._send(self._http.send(h11.Data(data=data)))

    async def end_stream(self) -> None:
        """End an answer of unknown length: it is whole."""
        await self._send(self._http.send(h11.EndOfMessage()))

    async def wait_end(self) -> None:
        """Wait until the client has ended the connection; what it says is ignored."""
        while await self._stream.receive_some(RECEIVE_BYTES_MAX):
            pass

    async def _receive_request(self) -> h11.Request | None:
        limits = self._limits
        with trio.fail_after(limits.idle_seconds) as waiting:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._stream.receive_some(RECEIVE_BYTES_MAX)
                self._http.receive_data(bytes(data))
                # Silence is fine between requests, not within one.
                limit = trio.current_time() + limits.request_seconds
                waiting.deadline = min(waiting.deadline, limit)
        return event if isinstance(event, h11.Request) else None

    async def _receive_body(self) -> bytes:
        body, most = bytearray(), self._limits.body_bytes
        with trio.fail_after(self._limits.request_seconds):
            while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        go_on = h11.InformationalResponse(status_code=100, headers=[])
                        await self._send(self._http.send(go_on))
                    data = await self._stream.receive_some(RECEIVE_BYTES_MAX)
                    self._http.receive_data(bytes(data))
                elif not isinstance(event, h11.Data):
                    raise h11.RemoteProtocolError(f"{event} within a request")
                else:
                    body += event.data
                    if len(body) > most:
                        raise h11.RemoteProtocolError(
                            f"the request is longer than {most} bytes", 413
                        )
        return bytes(body)

    async def _send_last_reply(self, error: h11.RemoteProtocolError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = error.error_status_hint
            await self.send_reply(status, self._refuse(status, str(error)), self._refusal_type)

    async def _send(self, *parts: bytes | None) -> None:
        with trio.fail_after(self._limits.request_seconds):
            await self._stream.send_all(b"".join(part for part in parts if part))
