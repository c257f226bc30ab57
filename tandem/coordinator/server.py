"""The embedded coordinator: etcd's JSON gateway over a journaled store, for local clusters.

One task per connection; each request is done at once in memory and answered when the journal has
it. A batch is written by a thread while the next one collects. So what was answered is on the
disk, and what is on the disk but was never answered is an unknown outcome, as with any coordinator.

Keep-alives change nothing in the journal, and do not wait for the disk.

While the disk takes no write, as a full one does not, what would change something and what reads is
answered 503 and not done; what was under way then is an unknown outcome. Leases are kept alive. The
write is tried again until the disk takes it.

A failed sync is final: nobody knows what the disk holds. Every request is answered 503, and `serve`
ends; a new life reads the journal, and writes it anew.

Leases end later rather than earlier: if this process did not run, or was paused, for longer than a
second, every lease gets that time back, for nobody could have renewed it.
"""

from __future__ import annotations

import logging
import secrets
import socket
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from tandem.coordinator.etcd_v3 import AUTHENTICATE, KEEP_ALIVE, WATCH
from tandem.coordinator.gateway import STATUS, Gateway, Reply, WatchOrder, error_reply, refusal
from tandem.coordinator.journal import JournalError, JournalFault, NotWrittenError
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import Change, CompactedError, KeyValueError
from tandem.coordinator.secured_stream import SecuredStream
from tandem.coordinator.tokens import Tokens
from tandem.handshake_turns import HandshakeTurns, TooManyHandshakesError
from tandem.http_port import ConnectionPlaces, HTTPConnection, HTTPLimits, NoPlaceError
from tandem.wire.tls_engine import TLSEngine, speaks_tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    import h11

    from tandem.coordinator.journal import Journal

_log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 512
"""Of more, one that has asked nothing is closed. A local cluster has a handful per node."""

BODY_BYTES_MAX: Final = 1536 * 1024
"""Source: etcd, --max-request-bytes."""

LIMITS: Final = HTTPLimits(body_bytes=BODY_BYTES_MAX)

HANDSHAKE_SECONDS_MAX: Final = 5.0

HANDSHAKE_PAUSE_TIMES: Final = 0.0
"""Between two steps of handshakes all requests that are there are served, and no more time is left:
all nodes of a cluster come at once, from the address of a stranger, and have a second to connect.
"""

AnyStream = trio.SocketStream | SecuredStream

TOKEN_BYTES: Final = 16

SWEEP_SECONDS: Final = 0.1
"""How often to look for leases whose time is up."""

RETRY_SECONDS: Final = 0.5
"""How often a write that the disk did not take is tried again."""

FAREWELL_SECONDS: Final = 0.2
"""How long requests are still answered with the reason, after the journal has failed."""

STALL_SECONDS_MIN: Final = 1.0
"""Standing still for less is not given back: keep-alives come in many times per lease."""

_INVALID_ARGUMENT: Final = 3
_UNAVAILABLE: Final = 14


def random_lease_id() -> int:
    """A positive id that nobody had before."""
    return secrets.randbelow(2**62) + 1


class CoordinatorServer:
    """One coordinator, for one life: `listen`, then `serve`.

    Every request but `GET /version` and that for a token needs a token, and so the password.
    `pause` makes it accept connections and answer nothing, as a frozen process does.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        password: str,
        lease_id: Callable[[], int] = random_lease_id,
        tls: Callable[[], ssl.SSLContext] | None = None,
        takes_clear: bool = True,
    ) -> None:
        """Serve what `journal` has. With `tls` connections may be encrypted.

        They have to, unless `takes_clear`.
        """
        self.failure = ""
        """Why this life has ended, in words; empty if it goes on."""
        self._journal = journal
        self._store = KeyValueStore(on_change=self._changed)
        self._tokens = Tokens(password, lambda: secrets.token_hex(TOKEN_BYTES))
        self._gateway = Gateway(self._store, lease_id, self._tokens)
        self._synced_count = 0
        self._synced_revision = 0
        self._progress = trio.Event()
        self._change = trio.Event()
        self._going = trio.Event()
        self._going.set()
        self._last_tick = 0.0
        self._connections = ConnectionPlaces(CONNECTIONS_MAX)
        self._tls = tls
        self._turns = HandshakeTurns(HANDSHAKE_PAUSE_TIMES)
        self._takes_clear = takes_clear
        self._listeners: list[trio.SocketListener] = []

    async def listen(self, address: str, port: int) -> int:
        """Read the journal, then listen; return the port. `serve` has to follow.

        Raises:
            JournalError: The journal is damaged, or cannot be read or written.
            NotWrittenError: The disk has no room for what a start has to write.
            OSError: The address cannot be listened on.
        """
        try:
            self._last_tick = trio.current_time()
            self._restore()
            self._synced_revision = self._store.revision
            self._listeners = await trio.open_tcp_listeners(port, host=address)
        except BaseException:
            self._journal.close()
            raise
        own_port: int = self._listeners[0].socket.getsockname()[1]
        return own_port

    def _restore(self) -> None:
        try:
            self._journal.restore(self._store, self._last_tick)
        except OSError as error:
            raise JournalError(
                f"the coordinator's journal cannot be read or written: {error}; check the disk and"
                " who may write to it",
                JournalFault.DISK,
            ) from error

    async def serve(self) -> None:
        """Answer until cancelled, or until the journal fails; then nothing is open any more."""
        try:
            async with trio.open_nursery() as services:
                services.start_soon(self._sweep)
                services.start_soon(trio.serve_listeners, self._serve_connection, self._listeners)
                await self._write_journal()
                await trio.sleep(FAREWELL_SECONDS)
                services.cancel_scope.cancel()
        finally:
            self._journal.close()

    def pause(self) -> None:
        """Answer nothing until `resume`."""
        if self._going.is_set():
            self._going = trio.Event()

    def resume(self) -> None:
        """Go on after `pause`; leases get the time back."""
        self._going.set()

    @property
    def trouble(self) -> str:
        """Why requests are refused, in words; empty if they are not."""
        return self.failure or self._gateway.trouble

    # --- state ---------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        self._journal.record(change)
        self._change.set()

    def _tick(self) -> float:
        """The time, after leases were given back what nobody could use."""
        now = trio.current_time()
        stalled = now - self._last_tick
        self._last_tick = now
        if stalled > STALL_SECONDS_MIN:
            self._store.postpone(stalled)
        return now

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            await self._going.wait()
            self._store.expire(self._tick())

    async def _write_journal(self) -> None:
        """Bring changes to the disk, until its journal has failed for good."""
        while not self.failure:
            await self._change.wait()
            self._change = trio.Event()
            goal, revision = self._journal.recorded_count, self._store.revision
            write = self._journal.take(self._store)
            try:
                await trio.to_thread.run_sync(write.to_disk)
            except NotWrittenError as error:
                self._journal.take_back(write)
                self._change.set()
                self._note_trouble(str(error))
                await trio.sleep(RETRY_SECONDS)
            except OSError as error:
                self.failure = f"the coordinator's journal failed: {error}; it starts again"
                self._tell_progress()
            else:
                self._journal.settle(write)
                self._synced_count, self._synced_revision = goal, revision
                self._note_trouble("")

    def _note_trouble(self, trouble: str) -> None:
        if trouble and not self._gateway.trouble:
            _log.error("%s", trouble)
        elif self._gateway.trouble and not trouble:
            _log.warning("the coordinator's journal is written again; it answers")
        self._gateway.trouble = trouble
        self._tell_progress()

    def _tell_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    async def _wait_synced(self) -> bool:
        """Wait until everything done so far is on the disk; False if it cannot be waited for."""
        goal = self._journal.recorded_count
        while self._synced_count < goal and not self.trouble:
            await self._progress.wait()
        return self._synced_count >= goal

    # --- requests ------------------------------------------------------------------------------

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                with self._connections.take() as place:
                    secured = await self._secured(stream)
                    if secured is not None:
                        http = HTTPConnection(secured, LIMITS, _unreadable, place=place)
                        await http.run(self._respond)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            # The client's affair: it went away, or was too slow.
            return
        except (NoPlaceError, TooManyHandshakesError):
            return
        except Exception:  # noqa: BLE001 - one connection must not end the elector of all groups
            _log.exception("a connection to the coordinator failed: a bug")

    async def _secured(self, stream: trio.SocketStream) -> AnyStream | None:
        """The stream that a client speaks through, by its first byte; None: it may not."""
        if self._tls is None:
            return stream
        with trio.fail_after(HANDSHAKE_SECONDS_MAX):
            try:
                first = await stream.socket.recv(1, socket.MSG_PEEK)
                address = stream.socket.getpeername()[0]
            except OSError as error:
                raise trio.BrokenResourceError from error
            if not speaks_tls(first):
                return stream if self._takes_clear else None
            secured = SecuredStream(stream, TLSEngine(self._tls()))
            await secured.handshake(partial(self._turns.run, address))
        return secured

    async def _respond(self, connection: HTTPConnection, request: h11.Request, body: bytes) -> None:
        await self._going.wait()
        path, method = request.target.decode("ascii", "replace").partition("?")[0], request.method
        if method == b"GET" and path == "/version":
            await connection.send_reply(200, self._gateway.version())
        elif method != b"POST":
            await connection.send_reply(405, b"Method Not Allowed\n")
        elif path != AUTHENTICATE and (reply := self._unauthenticated(request)) is not None:
            await _send(connection, reply)
        elif path == WATCH:
            await self._watch(connection, body)
        else:
            await _send(connection, await self._answer(path, body))

    def _unauthenticated(self, request: h11.Request) -> Reply | None:
        """What to answer to a request without a good token; None if its token is good."""
        tokens = [value for name, value in request.headers if name == b"authorization"]
        try:
            self._tokens.check(
                tokens[0].decode("ascii", "replace") if tokens else "", trio.current_time()
            )
        except KeyValueError as error:
            return error_reply(error)
        return None

    async def _answer(self, path: str, body: bytes) -> Reply:
        # A range waits too: it may have seen what is not on the disk yet. A lease that was renewed
        # has been there since it was granted, and the others are on no disk.
        if path in (KEEP_ALIVE, AUTHENTICATE, STATUS):
            reply = self._gateway.answer(path, body, self._tick())
            return refusal(_UNAVAILABLE, self.failure) if self.failure else reply
        # Not done either: what cannot be written is not to heap up.
        if not self.trouble:
            reply = self._gateway.answer(path, body, self._tick())
            if await self._wait_synced():
                return reply
        return refusal(_UNAVAILABLE, self.trouble)

    async def _watch(self, connection: HTTPConnection, body: bytes) -> None:
        try:
            order = self._gateway.watch_order(body)
        except KeyValueError as error:
            await _send(connection, error_reply(error))
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_gone, connection, nursery.cancel_scope)
            with _ending(nursery.cancel_scope):
                await connection.start_stream()
                await connection.send_chunk(self._gateway.created_line())
                await self._send_events(connection, order)
        connection.is_over = True

    async def _send_events(self, connection: HTTPConnection, order: WatchOrder) -> None:
        """Tell what is on the disk, as it gets there, until the client is gone.

        A slow client hears of it later, and of more at a time, as far as the history reaches.
        """
        while not self.failure:
            await self._going.wait()
            progress, end = self._progress, self._synced_revision + 1
            if end > order.start_revision:
                try:
                    line = self._gateway.watch_line(order, end)
                except CompactedError as error:
                    await connection.send_chunk(self._gateway.cancelled_line(error))
                    return
                order = WatchOrder(order.key, order.range_end, end)
                if line:
                    await connection.send_chunk(line)
            if self._progress is progress:
                await progress.wait()


async def _send(connection: HTTPConnection, reply: Reply) -> None:
    await connection.send_reply(reply.status, reply.body)


def _unreadable(_status: int, why: str) -> bytes:
    return refusal(_INVALID_ARGUMENT, why).body


async def _wait_gone(connection: HTTPConnection, scope: trio.CancelScope) -> None:
    """Cancel `scope` once the client has ended the connection."""
    with _ending(scope):
        await connection.wait_end()


@contextmanager
def _ending(scope: trio.CancelScope) -> Iterator[None]:
    """End `scope` with the block, also if that ends because the client is gone."""
    try:
        yield
    except (trio.BrokenResourceError, trio.TooSlowError):
        pass
    finally:
        scope.cancel()
