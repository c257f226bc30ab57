"""A network whose connections have TLS, over any other network.

    dialled   handshake first, then the stream is handed out
    accepted  handed out at once; whoever receives first does the handshake, in its own task:
              first byte 0x16 --> TLS
              any other       --> in clear, if that is allowed

One port takes both kinds, because routes say no more than an address. Source: TlsMode of RocketMQ.
"""

from __future__ import annotations

import logging
import math
import ssl
from functools import partial
from typing import Final, NamedTuple

import trio

from store.machine.errors import ConnectionLost
from store.machine.network import Listener, Member, Network, ReceivesSome, Stream, Take, TakeRest
from store.machine.tell_once import TellOnce
from store.machine.tls_stream import TLSStream
from tandem.handshake_turns import HandshakeTurns, TooManyHandshakesError
from tandem.wire.message import Host
from tandem.wire.tls_engine import TLSEngine, speaks_tls

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS_MAX: Final = 5.0
"""From the first byte. A peer that is slower is no client of ours."""

ACCEPTED_HANDSHAKE_BYTES_MAX: Final = 32 * 1024
"""Received from a client before it is trusted: a hello, and its chain of certificates."""

FIRST_READ_BYTES: Final = 4096

SILENT_SECONDS_MAX: Final = 0.5
"""A peer with TLS sends its hello as soon as it is connected."""


class TLSTerms(NamedTuple):
    """What connections are made with. Replaced as a whole when certificates are renewed.

    Attributes:
        accepting: What accepted connections are made with; None: none has TLS.
        dialling: What dialled ones are made with.
        takes_clear: Whether accepted connections may be in clear.
        dials_clear: Whether a peer that speaks no TLS is dialled once more, in clear.
    """

    accepting: ssl.SSLContext | None
    dialling: ssl.SSLContext
    takes_clear: bool
    dials_clear: bool


class AcceptedStream(ReceivesSome):
    """A connection that was accepted; what it is its first byte says."""

    def __init__(self, stream: Stream, network: TLSNetwork) -> None:
        self._stream = stream
        self._network = network
        self._settled: Stream | None = None
        self._first = b""
        self._is_over = False
        """Whether a handshake was begun, which cannot be begun again."""
        self._settling = trio.Lock()
        self._waiting = trio.CancelScope()
        """For the first bytes, until `_silent_until`."""
        self._silent_until = math.inf

    @property
    def peer(self) -> Host:
        """See `Stream.peer`."""
        return self._stream.peer

    @property
    def peer_name(self) -> str | None:
        """The name in the certificate of the peer; None if it has shown none."""
        return self._settled.peer_name if isinstance(self._settled, TLSStream) else None

    @property
    def has_tls(self) -> bool:
        """Whether it has, once the peer has sent something."""
        return isinstance(self._settled, TLSStream)

    @property
    def plain_fd(self) -> int:
        """See `Stream.plain_fd`."""
        return -1 if self._settled is None else self._settled.plain_fd

    async def receive_some(self, bytes_max: int) -> bytes:
        """See `Stream.receive_some`."""
        settled = self._settled or await self.settle()
        if self._first:
            data, self._first = self._first[:bytes_max], self._first[bytes_max:]
            return data
        return await settled.receive_some(bytes_max)

    async def receive_while(self, bytes_max: int, take: Take) -> bool:
        """See `Stream.receive_while`."""
        settled = self._settled or await self.settle()
        if not self._take_first(bytes_max, take):
            return True
        return await settled.receive_while(bytes_max, take)

    async def receive_together(
        self, bytes_max: int, take: Take, member: Member, take_rest: TakeRest
    ) -> bool:
        """See `Stream.receive_together`."""
        settled = self._settled or await self.settle()
        if not self._take_first(bytes_max, take):
            return True
        return await settled.receive_together(bytes_max, take, member, take_rest)

    def _take_first(self, bytes_max: int, take: Take) -> bool:
        """Have taken what has come already; return whether more is wanted."""
        while self._first:
            data, self._first = self._first[:bytes_max], self._first[bytes_max:]
            taken = take(data)
            if not (taken if isinstance(taken, bool) else taken()):
                return False
        return True

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """See `Stream.send_nowait`. Nothing is taken before the peer has said what it speaks."""
        return 0 if self._settled is None else self._settled.send_nowait(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `Stream.send_all`."""
        settled = self._settled or await self.settle(speaks_first=True)
        await settled.send_all(data)

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        await (self._settled or self._stream).aclose()

    def close_nowait(self) -> None:
        """See `Stream.close_nowait`."""
        (self._settled or self._stream).close_nowait()

    async def settle(self, *, speaks_first: bool = False) -> Stream:
        """Wait for the first bytes, and do the handshake if they begin one.

        With `speaks_first`, for a protocol in which this end does, a peer that is silent for a
        moment speaks no TLS: it would have begun.

        Raises:
            ConnectionLost: the handshake failed, or the peer speaks no TLS and has to.
        """
        if speaks_first and self._network.terms.takes_clear:
            self._silent_until = trio.current_time() + SILENT_SECONDS_MAX
            self._waiting.deadline = self._silent_until
        async with self._settling:
            if self._settled is None:
                if not self._first:
                    with trio.CancelScope(deadline=self._silent_until) as self._waiting:
                        self._first = await self._stream.receive_some(FIRST_READ_BYTES)
                if speaks_tls(self._first):
                    self._settled = await self._agreed()
                else:
                    self._network.accepted_in_clear(self._stream, self._first)
                    self._settled = self._stream
            return self._settled

    async def _agreed(self) -> Stream:
        """Do the handshake. It is tried once: when it fails, or is cancelled, all is over."""
        if self._is_over:
            raise ConnectionLost("the TLS handshake was not finished")
        self._is_over = True
        try:
            settled = await self._network.accepted(self._stream, self._first)
        except BaseException:
            self._stream.close_nowait()
            raise
        self._first = b""
        return settled


class TLSListener:
    """A listening port."""

    def __init__(self, listener: Listener, network: TLSNetwork) -> None:
        self._listener = listener
        self._network = network

    @property
    def port(self) -> int:
        """See `Listener.port`."""
        return self._listener.port

    async def accept(self) -> Stream:
        """See `Listener.accept`."""
        return AcceptedStream(await self._listener.accept(), self._network)

    async def aclose(self) -> None:
        """See `Listener.aclose`."""
        await self._listener.aclose()


class TLSNetwork:
    """See `store.machine.network.Network`.

    Attributes:
        terms: With what connections are made from now on; those that are open keep theirs.
    """

    def __init__(self, network: Network, terms: TLSTerms) -> None:
        self.terms = terms
        self._network = network
        self._turns = HandshakeTurns()
        self._told: TellOnce[str] = TellOnce()

    async def connect(self, host: str, port: int, *, source: str | None) -> Stream:
        """See `Network.connect`.

        Raises:
            ConnectionLost: as there; or one end does not trust the other.
        """
        stream = await self._network.connect(host, port, source=source)
        tls = TLSStream(stream, TLSEngine(self.terms.dialling, server_name=host))
        try:
            await tls.handshake()
        except ConnectionLost as error:
            stream.close_nowait()
            if not self.terms.dials_clear:
                raise
            if self._told.is_news(str(error), about=f"{host}:{port}"):
                _log.warning("%s:%d is dialled in clear: %s", host, port, error)
            return await self._network.connect(host, port, source=source)
        except BaseException:
            stream.close_nowait()
            raise
        return tls

    async def listen(self, host: str, port: int) -> Listener:
        """See `Network.listen`."""
        return TLSListener(await self._network.listen(host, port), self)

    async def accepted(self, stream: Stream, first: bytes) -> Stream:
        """Do the handshake of a connection that begins with `first`.

        Raises:
            ConnectionLost: it failed, or took too long, or too many wait for theirs.
        """
        context = self.terms.accepting
        if context is None:
            raise self._refused(stream, "it speaks TLS, and this node has no certificate")
        tls = TLSStream(stream, TLSEngine(context))

        calculate = partial(self._turns.run, stream.peer.ip)
        with trio.move_on_after(HANDSHAKE_SECONDS_MAX):
            try:
                await tls.handshake(first, ACCEPTED_HANDSHAKE_BYTES_MAX, calculate)
            except (ConnectionLost, TooManyHandshakesError) as error:
                raise self._refused(stream, str(error)) from error
            else:
                return tls
        raise self._refused(stream, f"no TLS handshake within {HANDSHAKE_SECONDS_MAX:g} seconds")

    def accepted_in_clear(self, stream: Stream, first: bytes) -> None:
        """Let a connection pass that speaks no TLS.

        Raises:
            ConnectionLost: that is not allowed.
        """
        if first and not self.terms.takes_clear:
            raise self._refused(
                stream,
                "it speaks no TLS, and tls.mode is enforcing: a client of RocketMQ needs"
                " -Dtls.enable=true",
            )

    def _refused(self, stream: Stream, reason: str) -> ConnectionLost:
        if self._told.is_news(reason, about=stream.peer.ip):
            _log.warning("a connection from %s is refused: %s", stream.peer, reason)
        return ConnectionLost(reason)
