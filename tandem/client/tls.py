"""Connections of a client with TLS, over those that it opens without.

TLSByteStream   over a stream of trio or asyncio
TLSSocket       over a plain socket
"""

import ssl
from typing import Final

from tandem.client.event_loop import ByteStream
from tandem.client.plain_socket import PlainSocket
from tandem.wire.tls_engine import TLSEngine, why

HANDSHAKE_BYTES_MAX: Final = 65_536


class TLSFailedError(ConnectionError):
    """One end does not trust the other, or what came is not TLS; the text says which."""


class _Engine(TLSEngine):
    """Raises what clients know: a connection that broke."""

    def handshake(self, received: bytes) -> bool:
        try:
            return super().handshake(received)
        except ssl.SSLError as error:
            raise TLSFailedError(f"no TLS connection: {why(error)}") from None

    def decrypt(self, received: bytes) -> bytes:
        try:
            return super().decrypt(received)
        except ssl.SSLError as error:
            raise TLSFailedError(f"the TLS connection ended: {why(error)}") from None


def _expect_some(received: bytes) -> None:
    if not received:
        raise TLSFailedError("no TLS connection: the other end closed it during the handshake")


class TLSByteStream:
    """See `ByteStream`. Made by `open`."""

    def __init__(self, stream: ByteStream, engine: TLSEngine) -> None:
        self._stream = stream
        self._engine = engine
        self._plain = b""

    @classmethod
    async def open(cls, stream: ByteStream, context: ssl.SSLContext, host: str) -> "TLSByteStream":
        """Do the handshake with `host` over a connection that has just been opened.

        Raises:
            OSError: the other end is not trusted, or does not trust us, or speaks no TLS.
        """
        engine = _Engine(context, server_name=host)
        received = b""
        try:
            while not engine.handshake(received):
                await stream.send_all(engine.to_send())
                received = bytes(await stream.receive_some(HANDSHAKE_BYTES_MAX))
                _expect_some(received)
            if engine.has_to_send:
                await stream.send_all(engine.to_send())
        except BaseException:
            await stream.aclose()
            raise
        return cls(stream, engine)

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """See `ByteStream.receive_some`."""
        plain = self._plain or self._engine.decrypt(b"")
        while not plain and not self._engine.is_over:
            data = await self._stream.receive_some(max_bytes)
            if not data:
                return b""
            plain = self._engine.decrypt(bytes(data))
        self._plain = plain[max_bytes:]
        return plain[:max_bytes]

    async def send_all(self, data: bytes, /) -> None:
        """See `ByteStream.send_all`."""
        await self._stream.send_all(self._engine.encrypt(data))

    async def aclose(self) -> None:
        """See `ByteStream.aclose`."""
        await self._stream.aclose()


class TLSSocket:
    """See `PlainSocket`. Made by `open`."""

    def __init__(self, opened: PlainSocket, engine: TLSEngine) -> None:
        self._socket = opened
        self._engine = engine
        self._plain = b""

    @classmethod
    def open(cls, opened: PlainSocket, context: ssl.SSLContext, host: str) -> "TLSSocket":
        """Do the handshake with `host` over a connection that has just been opened.

        Raises:
            OSError: the other end is not trusted, or does not trust us, or speaks no TLS.
        """
        engine = _Engine(context, server_name=host)
        received = b""
        try:
            while not engine.handshake(received):
                opened.sendall(engine.to_send())
                received = opened.recv(HANDSHAKE_BYTES_MAX)
                _expect_some(received)
            if engine.has_to_send:
                opened.sendall(engine.to_send())
        except BaseException:
            opened.close()
            raise
        return cls(opened, engine)

    def settimeout(self, seconds: float, /) -> None:
        """See `PlainSocket.settimeout`."""
        self._socket.settimeout(seconds)

    def sendall(self, data: bytes, /) -> None:
        """See `PlainSocket.sendall`."""
        self._socket.sendall(self._engine.encrypt(data))

    def recv(self, bytes_max: int, flags: int = 0, /) -> bytes:
        """See `PlainSocket.recv`. With `flags`, as MSG_PEEK, what is received stays encrypted."""
        if flags:
            return self._plain[:bytes_max] or self._socket.recv(bytes_max, flags)
        plain = self._plain or self._engine.decrypt(b"")
        while not plain and not self._engine.is_over:
            data = self._socket.recv(bytes_max)
            if not data:
                return b""
            plain = self._engine.decrypt(data)
        self._plain = plain[bytes_max:]
        return plain[:bytes_max]

    def close(self) -> None:
        """See `PlainSocket.close`."""
        self._socket.close()
