"""Where the connections of the coordinator's client come from: trio's, closed whatever happens.

httpcore closes a socket whose TLS handshake fails, but not one whose handshake is cancelled: as
when the limit of a call has passed. It would stay open until Python collects it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpcore
import trio

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable


class NetworkBackend(httpcore.AsyncNetworkBackend):
    """Connections of httpcore's backend for trio."""

    def __init__(self) -> None:
        self._trio = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection; raises httpcore.ConnectError, httpcore.ConnectTimeout."""
        stream = await self._trio.connect_tcp(host, port, timeout, local_address, socket_options)
        return ClearStream(stream)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._trio.sleep(seconds)


class ClearStream(httpcore.AsyncNetworkStream):
    """A connection before it has TLS. It is closed if it does not get it."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
    ) -> bytes:
        """Return what came; raises httpcore.ReadError, httpcore.ReadTimeout."""
        return await self._stream.read(max_bytes, timeout)

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
    ) -> None:
        """Send all of it; raises httpcore.WriteError, httpcore.WriteTimeout."""
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
    ) -> httpcore.AsyncNetworkStream:
        """Return the same with TLS; raises httpcore.ConnectError, httpcore.ConnectTimeout."""
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's interface
        """Return what is known of it, by name."""
        return self._stream.get_extra_info(info)
