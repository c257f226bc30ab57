"""A connection to the embedded coordinator that has TLS: the server's end, over a socket of trio.

As `trio.SSLStream`, but for the handshake, whose steps are calculated when others say so.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from tandem.wire.tls_engine import why

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tandem.wire.tls_engine import TLSEngine

HANDSHAKE_BYTES_MAX: Final = 32 * 1024
"""Received before the handshake is through: a hello, and a chain of certificates."""

READ_BYTES: Final = 65_536

OWN_WORDS_MAX: Final = 65_536
"""What the protocol has to say by itself to a peer to which nothing is sent."""


class SecuredStream:
    """A stream of plain bytes. Do `handshake` first; the socket is the caller's to close."""

    def __init__(self, stream: trio.SocketStream, engine: TLSEngine) -> None:
        self._stream = stream
        self._engine = engine
        self._own_words = b""

    async def handshake(self, calculate: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
        """Agree with the client. `calculate` runs each step when it may.

        Raises:
            trio.BrokenResourceError: the client is not trusted, is gone, or speaks something else.
        """
        received, bytes_left = b"", HANDSHAKE_BYTES_MAX
        while not await self._has_agreed(calculate, received):
            await self._send_own_words()
            if bytes_left <= 0:
                raise trio.BrokenResourceError("too much before the handshake was through")
            received = bytes(await self._stream.receive_some(bytes_left))
            bytes_left -= len(received)
            if not received:
                raise trio.BrokenResourceError("ended before the handshake was through")
        await self._send_own_words()

    async def receive_some(self, bytes_max: int = READ_BYTES, /) -> bytes:
        """Wait for bytes, and return them; b"" is the end.

        At most `bytes_max` are read of the socket at a time.

        Raises:
            trio.BrokenResourceError: the client breaks the protocol, or is gone.
        """
        plain = self._decrypt(b"")
        while not plain and not self._engine.is_over:
            data = bytes(await self._stream.receive_some(bytes_max))
            if not data:
                return b""
            plain = self._decrypt(data)
        return plain

    async def send_all(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            trio.BrokenResourceError: the client is gone.
        """
        words, self._own_words = self._own_words, b""
        await self._stream.send_all(words + self._engine.encrypt(data))

    async def _has_agreed(
        self, calculate: Callable[[Callable[[], bool]], Awaitable[bool]], received: bytes
    ) -> bool:
        try:
            return await calculate(partial(self._engine.handshake, received))
        except ssl.SSLError as error:
            await self._send_own_words()  # why, for the client
            raise trio.BrokenResourceError(why(error)) from error

    async def _send_own_words(self) -> None:
        if words := self._engine.to_send():
            await self._stream.send_all(words)

    def _decrypt(self, data: bytes) -> bytes:
        try:
            plain = self._engine.decrypt(data)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(why(error)) from error
        # Kept for the next send: another task may be sending now.
        self._own_words += self._engine.to_send()
        if len(self._own_words) > OWN_WORDS_MAX:
            raise trio.BrokenResourceError("it has much asked for and takes nothing")
        return plain
