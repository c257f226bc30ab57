r"""The console's port: HTTP connections, their bounds, and the streams of events.

connection --> incoming (Host, Origin, ...) --> the page
\-> a route --> the nodes
\-> events: a snapshot each second
"""

import json
import logging
import ssl
from collections.abc import Callable
from contextlib import aclosing, nullcontext, suppress
from typing import Any, Final

import h11
import msgspec
import trio

from tandem.console.accounts import Account
from tandem.console.asking import Asked, Console, Reply, asked_of
from tandem.console.cluster_api import events, listening
from tandem.console.errors import APIError, too_many
from tandem.console.feed import event
from tandem.console.incoming import BODY_BYTES_MAX, Incoming, Places, incoming, wrong_method
from tandem.console.page import Page
from tandem.console.routes import EVENTS, answer, error_reply, internal
from tandem.console.sessions import Session
from tandem.http_port import (
    JSON,
    ConnectionPlace,
    ConnectionPlaces,
    HTTPConnection,
    HTTPLimits,
    NoPlaceError,
)

_log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 128
REQUESTS_MAX: Final = 16
"""At a time; each may be many requests to nodes."""

WAITING_MAX: Final = 64
BUSY_MS: Final = 1_000
HANDSHAKE_SECONDS_MAX: Final = 5.0
FAREWELL_SECONDS: Final = 0.5

LIMITS: Final = HTTPLimits(
    head_bytes=48 * 1024, body_bytes=BODY_BYTES_MAX, idle_seconds=75.0, request_seconds=10.0
)

API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"

HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
)

HTML: Final = "text/html; charset=utf-8"
EVENT_STREAM: Final = "text/event-stream"

TOO_LARGE: Final = 413

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)
"""The client went away, or is too slow."""


class Server:
    """Serves one console. `tls` makes the context of a connection; None: in clear."""

    def __init__(
        self,
        console: Console,
        page: Page,
        places: Places,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._console = console
        self._page = page
        self._places = places
        self._tls = tls
        self._connections = ConnectionPlaces(CONNECTIONS_MAX)
        self._turns = trio.CapacityLimiter(REQUESTS_MAX)

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._serve_connection, listeners)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        try:
            client = str(stream.socket.getpeername()[0])
            with self._connections.take() as place:
                await self.serve_stream(await self._secured(stream), client, place)
        except (*GONE, NoPlaceError, OSError):
            return
        except Exception:  # noqa: BLE001 - one connection must not end the console of all
            _log.exception("a connection to the console failed: a bug")
        finally:
            with trio.move_on_after(FAREWELL_SECONDS, shield=True):
                await stream.aclose()

    async def _secured(self, stream: trio.SocketStream) -> trio.abc.Stream:
        if self._tls is None:
            return stream
        secured: trio.SSLStream[trio.SocketStream] = trio.SSLStream(
            stream, self._tls(), server_side=True, https_compatible=True
        )
        with trio.fail_after(HANDSHAKE_SECONDS_MAX):
            await secured.do_handshake()
        return secured

    async def serve_stream(
        self, stream: trio.abc.Stream, client: str, place: ConnectionPlace | None = None
    ) -> None:
        """Answer what comes on one stream.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError: see `GONE`.
        """

        async def respond(connection: HTTPConnection, request: h11.Request, body: bytes) -> None:
            await self._respond(connection, request, body, client)

        http = HTTPConnection(stream, LIMITS, _unreadable, headers=HEADERS, place=place)
        await http.run(respond)

    async def _respond(
        self, connection: HTTPConnection, request: h11.Request, body: bytes, client: str
    ) -> None:
        try:
            came = incoming(
                request.method, request.target, dict(request.headers), body, self._places, client
            )
            if came.parts == ("",):
                if came.method != "GET":
                    raise wrong_method(came.method)
                policy = ("Content-Security-Policy", self._page.policy)
                await connection.send_reply(200, self._page.body, HTML, [policy])
                return
            asked = asked_of(self._console, came)
            accounts = self._console.accounts
            with nullcontext() if asked.session is None else accounts.using(asked.account):
                if came.parts == EVENTS:
                    if request.method == b"HEAD":
                        raise wrong_method("HEAD")  # a stream has no end to tell of
                    await self._stream(connection, asked)
                    return
                reply = await self._answer(asked)
        except APIError as error:
            reply = error_reply(error)
        await _send(connection, reply)

    async def _answer(self, asked: Asked) -> Reply:
        if self._turns.statistics().tasks_waiting >= WAITING_MAX:
            raise too_many("busy", "too many requests at a time", BUSY_MS)
        async with self._turns:
            return await answer(asked)

    async def _stream(self, connection: HTTPConnection, asked: Asked) -> None:
        came: Incoming = asked.incoming
        if came.method != "GET":
            raise wrong_method(came.method)
        asked.query().end()
        session = asked.logged_in
        with listening(self._console, session):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_wait_gone, connection, nursery.cancel_scope)
                # Within the nursery: an error that leaves it is in a group.
                with suppress(*GONE):
                    await self._send_events(connection, session, came.last_event_id)
                nursery.cancel_scope.cancel()
        connection.is_over = True

    async def _send_events(
        self, connection: HTTPConnection, session: Session[Account], last_event_id: str
    ) -> None:
        await connection.start_stream(EVENT_STREAM)
        try:
            async with aclosing(events(self._console, session, last_event_id)) as stream:
                async for data in stream:
                    await connection.send_chunk(data)
        except trio.Cancelled:
            # The console ends; whoever has gone away does not hear it.
            with trio.move_on_after(FAREWELL_SECONDS, shield=True), suppress(*GONE):
                await connection.send_chunk(event("over", {"reason": "ended"}))
            raise
        await connection.end_stream()


async def _wait_gone(connection: HTTPConnection, scope: trio.CancelScope) -> None:
    """Cancel `scope` once the client has ended the connection."""
    with suppress(*GONE):
        await connection.wait_end()
    scope.cancel()


async def _send(connection: HTTPConnection, reply: Reply) -> None:
    try:
        body = encoded(reply.document)
    except TypeError:
        _log.exception("an answer cannot be written as JSON: a bug")
        error = internal()
        reply, body = error_reply(error), encoded(error.document())
    headers = [("Set-Cookie", cookie) for cookie in reply.cookies]
    headers.append(("Content-Security-Policy", API_POLICY))
    await connection.send_reply(reply.status, body, JSON, headers)


def encoded(document: Any) -> bytes:  # noqa: ANN401  JSON
    """Return a document as JSON, also if half of a surrogate pair is somewhere in it."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(document, str_keys=True)).encode()


def _unreadable(status: int, why: str) -> bytes:
    code = "too_large" if status == TOO_LARGE else "bad_request"
    error = {"code": code, "message": why, "remedy": "send a smaller or a right request"}
    return encoded({"error": {**error, "details": {}}})
