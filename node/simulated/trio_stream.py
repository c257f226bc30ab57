"""A simulated connection as the client library wants it: trio's interface, trio's errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from node.simulated.network import STREAM_BYTES_MAX, SimulatedStream
from store.machine.network import ConnectionLost


@contextmanager
def _translated_for_trio() -> Iterator[None]:
    try:
        yield
    except ConnectionLost as error:
        raise trio.BrokenResourceError(str(error)) from error


class TrioStream(trio.abc.Stream):
    """The same stream for users of trio's own interface: the client library."""

    def __init__(self, stream: SimulatedStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return some bytes, b"" at the end."""
        with _translated_for_trio():
            return await self._stream.receive_some(max_bytes or STREAM_BYTES_MAX)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`."""
        with _translated_for_trio():
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Yield; the simulation has no use for it."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close."""
        await self._stream.aclose()
