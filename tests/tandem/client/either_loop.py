"""Tests that run under trio and under asyncio, and fake brokers that are reached from both."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tests.support.patience import PATIENCE_SECONDS
from tests.support.virtual_loops import LOOPS, run_virtually
from tests.tandem.client.fake_broker import FakeBroker

NOTHING_NEW_SECONDS = 0.002
"""A broker holds a pull that finds nothing; here only as long as it takes to let others run."""


def under_either_loop(test: Callable[[], Awaitable[None]]) -> Callable[[str], None]:
    """Run an async test twice, on virtual time: one that waits in vain ends at once."""
    return _under_either(test, run_virtually)


def under_either_loop_with_threads(test: Callable[[], Awaitable[None]]) -> Callable[[str], None]:
    """Run an async test twice. Its time is real, for threads that it waits for are."""
    return _under_either(test, lambda loop, function: anyio.run(function, backend=loop))


def _under_either(
    test: Callable[[], Awaitable[None]],
    run: Callable[[str, Callable[[], Awaitable[None]]], None],
) -> Callable[[str], None]:
    @pytest.mark.parametrize("loop", LOOPS)
    def run_test(loop: str) -> None:
        async def bounded() -> None:
            with anyio.fail_after(PATIENCE_SECONDS):
                await test()

        run(loop, bounded)

    # Not functools.wraps: pytest would see a coroutine function through __wrapped__.
    run_test.__name__ = run_test.__qualname__ = test.__name__
    run_test.__module__ = test.__module__
    return run_test


class MemoryStream:
    """One end of a connection in memory; a `ByteStream`."""

    def __init__(
        self, received: MemoryObjectReceiveStream[bytes], sent: MemoryObjectSendStream[bytes]
    ) -> None:
        self._received = received
        self._sent = sent

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return what came with one send of the other end."""
        try:
            return await self._received.receive()
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionResetError(str(error)) from error

    async def send_all(self, data: bytes, /) -> None:
        """Hand `data` to the other end."""
        try:
            await self._sent.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise BrokenPipeError(str(error)) from error

    async def aclose(self) -> None:
        """Close both ways."""
        self._received.close()
        self._sent.close()


class EitherNetwork:
    """Brokers by address. An address without a broker refuses connections."""

    def __init__(self, tasks: anyio.abc.TaskGroup, brokers: dict[str, FakeBroker]) -> None:
        self.brokers = brokers
        self._tasks = tasks
        self._ends: dict[str, list[MemoryStream]] = {}

    async def open_stream(self, host: str, port: int) -> MemoryStream:
        """Connect; a `StreamOpener`."""
        address = f"{host}:{port}"
        await anyio.lowlevel.checkpoint()
        broker = self.brokers.get(address)
        if broker is None:
            raise ConnectionRefusedError(f"{address} refuses")
        to_server, at_server = anyio.create_memory_object_stream[bytes](1000)
        to_client, at_client = anyio.create_memory_object_stream[bytes](1000)
        server = MemoryStream(at_server, to_client)
        self._ends.setdefault(address, []).append(server)
        self._tasks.start_soon(self._serve, broker, server)
        return MemoryStream(at_client, to_server)

    async def _serve(self, broker: FakeBroker, stream: MemoryStream) -> None:
        frames = FrameBuffer()
        try:
            while data := await stream.receive_some(100_000):
                frames.receive_data(data)
                while (request := frames.next_command()) is not None:
                    frame = broker.answer(request)
                    if request.code == RequestCode.PULL_MESSAGE and len(frame) < 200:
                        await anyio.sleep(NOTHING_NEW_SECONDS)
                    if frame:
                        await stream.send_all(frame)
        except OSError:
            pass
        finally:
            await stream.aclose()

    async def say(self, address: str, command: RemotingCommand) -> None:
        """Send a command to every client of a broker."""
        for end in self._ends.get(address, []):
            try:
                await end.send_all(encode_frame(command))
            except OSError:
                continue

    async def cut(self, address: str) -> None:
        """End the connections to a broker."""
        for end in self._ends.pop(address, []):
            await end.aclose()
