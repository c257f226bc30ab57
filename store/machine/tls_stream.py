"""A stream with TLS over any other stream: over a socket, or over the simulated network.

What comes is decrypted where it comes, in the function that `receive_while` of the stream below
calls, so no task runs for it. What is sent is encrypted at once, and the kernel may then take less:

    send_nowait(data) --> encrypt a piece --> the stream below takes all   --> taken
                                          --> it takes a part: the rest is kept, and all but the
                                              last byte of the piece counts as taken

The caller offers again what was not taken, as of any stream. That is when the rest is sent first;
then the byte that was held back counts as taken, without being encrypted twice. OpenSSL asks the
same of its users.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from store.machine.errors import ConnectionLost
from store.machine.network import ReceivesSome, Stream, Take, Taken
from tandem.wire.message import Host
from tandem.wire.tls_engine import TLSEngine, why

PIECE_BYTES_MAX: Final = 64 * 1024
"""Encrypted at a time, and so what is kept at most for a peer that takes nothing."""

HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""Received before the handshake is through. A chain of certificates takes some 10 KB."""

OWN_WORDS_MAX: Final = 64 * 1024
"""Of what the protocol has to say by itself to a peer that takes nothing."""


async def _at_once(step: Callable[[], bool]) -> bool:
    return step()


class TLSStream(ReceivesSome):
    """One end of a TLS connection; implements `store.machine.network.Stream`.

    Do `handshake` first.
    """

    def __init__(self, stream: Stream, engine: TLSEngine) -> None:
        self._stream = stream
        self._engine = engine
        self._rest = bytearray()
        """Encrypted, and not taken by the stream below."""
        self._owed = 0
        """1 if the last byte of what was encrypted was not counted as taken."""
        self._is_sending = False
        """Whether `send_all` is waiting: then nobody else sends."""
        self._may_close = False
        self._plain = b""
        """Decrypted, and not asked for yet."""

    @property
    def peer(self) -> Host:
        """See `Stream.peer`."""
        return self._stream.peer

    @property
    def peer_name(self) -> str | None:
        """See `TLSEngine.peer_name`."""
        return self._engine.peer_name

    @property
    def has_tls(self) -> bool:
        """See `Stream.has_tls`."""
        return True

    async def handshake(
        self,
        received: bytes = b"",
        bytes_max: int = HANDSHAKE_BYTES_MAX,
        calculate: Callable[[Callable[[], bool]], Awaitable[bool]] = _at_once,
    ) -> None:
        """Agree with the peer. `received` is what has come already.

        `calculate` runs each step when it may. Which of them is the dear one the peer decides: it
        cuts its hello into as many pieces as it likes.

        Raises:
            ConnectionLost: one does not trust the other, or the peer speaks something else.
        """
        bytes_left = bytes_max - len(received)
        while not await calculate(partial(self._has_agreed, received)):
            await self._send_own_words()
            if bytes_left <= 0:
                raise self._failed("it sends too much before the handshake was through")
            # No more than is left: what a peer sends right behind its last word stays below.
            received = await self._stream.receive_some(bytes_left)
            bytes_left -= len(received)
            if not received:
                raise self._failed("it ended the connection before the handshake was through")
        await self._send_own_words()
        self._may_close = True

    def _has_agreed(self, received: bytes) -> bool:
        """Calculate one step of the handshake; return whether it was the last."""
        try:
            return self._engine.handshake(received)
        except ssl.SSLError as error:
            self._send_alert()
            raise self._failed(why(error)) from error

    async def _send_own_words(self) -> None:
        if self._engine.has_to_send:
            await self._stream.send_all(self._engine.to_send())

    async def receive_some(self, bytes_max: int) -> bytes:
        """See `Stream.receive_some`."""
        plain = self._plain or self._decrypt(b"")
        while not plain and not self._engine.is_over:
            data = await self._stream.receive_some(bytes_max)
            if not data:
                # No close_notify, as Java closes. Frames have lengths, so what is missing is seen.
                return b""
            plain = self._decrypt(data)
        self._plain = plain[bytes_max:]
        return plain[:bytes_max]

    async def receive_while(self, bytes_max: int, take: Take) -> bool:
        """See `Stream.receive_while`."""
        engine = self._engine
        while plain := self._plain or self._decrypt(b""):
            self._plain = plain[bytes_max:]
            taken = take(plain[:bytes_max])
            if not (taken if isinstance(taken, bool) else taken()):
                return True
        if engine.is_over:
            return False

        def take_encrypted(data: bytes) -> Taken:
            plain = self._decrypt(data)
            taken = take(plain) if plain else True
            if isinstance(taken, bool):
                return taken and not engine.is_over
            return lambda: taken() and not engine.is_over

        wants_no_more = await self._stream.receive_while(bytes_max, take_encrypted)
        return wants_no_more and not engine.is_over

    def _decrypt(self, data: bytes) -> bytes:
        try:
            plain = self._engine.decrypt(data)
        except ssl.SSLError as error:
            self._send_alert()
            raise self._failed(why(error)) from error
        if self._engine.has_to_send:
            self._rest += self._engine.to_send()
            if not self._is_sending:
                self._send_rest()
            if len(self._rest) > PIECE_BYTES_MAX + OWN_WORDS_MAX:
                raise self._failed("it asks for new keys and takes none")
        return plain

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """See `Stream.send_nowait`. What was not taken has to be offered again."""
        size = len(data)
        if not size or (self._rest and not self._send_rest()):
            return 0
        taken, self._owed = self._owed, 0
        with memoryview(data) as view:
            while taken < size:
                with view[taken : taken + PIECE_BYTES_MAX] as piece:
                    encrypted = self._encrypt(piece)
                    taken += len(piece)
                sent = self._stream.send_nowait(encrypted)
                if sent < len(encrypted):
                    self._rest += memoryview(encrypted)[sent:]
                    # One byte cannot be held back: who sees that none was taken may send others.
                    self._owed = int(taken > 1)
                    return taken - self._owed
        return taken

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `Stream.send_all`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        with memoryview(data) as view:
            sent = self.send_nowait(view)
            while sent < len(view) or self._rest:
                await self._wait_for_rest()
                with view[sent:] as left:
                    sent += self.send_nowait(left)

    async def _wait_for_rest(self) -> None:
        self._is_sending = True
        try:
            while self._rest:
                rest, self._rest = self._rest, bytearray()
                await self._stream.send_all(rest)
        finally:
            self._is_sending = False

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        self._say_goodbye()
        await self._stream.aclose()

    def close_nowait(self) -> None:
        """See `Stream.close_nowait`. Without a farewell: whoever closes so is not interested."""
        self._stream.close_nowait()

    def _say_goodbye(self) -> None:
        if not self._may_close:
            return
        self._may_close = False
        if not self._rest and not self._is_sending:
            with suppress(ConnectionLost):
                self._stream.send_nowait(self._engine.close())

    def _encrypt(self, piece: memoryview) -> bytes:
        try:
            return self._engine.encrypt(piece)
        except ssl.SSLError as error:
            raise self._failed(why(error)) from error

    def _send_rest(self) -> bool:
        """Send what is kept; return whether nothing is left."""
        sent = self._stream.send_nowait(self._rest)
        del self._rest[:sent]
        return not self._rest

    def _send_alert(self) -> None:
        self._may_close = False
        if self._engine.has_to_send and not self._rest and not self._is_sending:
            with suppress(ConnectionLost):
                self._stream.send_nowait(self._engine.to_send())

    def _failed(self, reason: str) -> ConnectionLost:
        # Without the port: the same trouble with the same peer is logged once.
        return ConnectionLost(f"the TLS connection with {self.peer.ip} ended: {reason}")
