"""A fake broker and name server on a real port, for clients of every kind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.from_thread import start_blocking_portal

from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.system_topics import retry_topic
from tests.tandem.client.either_loop import NOTHING_NEW_SECONDS
from tests.tandem.client.fake_broker import route_of
from tests.tandem.client.group_broker import GROUP, NOTICE, GroupBroker


class TcpBroker(GroupBroker):
    """See `GroupBroker`; `address` is where it listens."""

    def __init__(self) -> None:
        super().__init__()
        self.address = ""
        self.notifies = True
        self._writers: set[asyncio.StreamWriter] = set()

    def listens_at(self, address: str) -> None:
        """Have routes name this address."""
        self.address = address
        self.routes = {
            "orders": route_of(("broker-a", {0: address})),
            retry_topic(GROUP): route_of(("broker-a", {0: address}), queue_nums=1),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        frames = FrameBuffer()
        self._writers.add(writer)
        try:
            while data := await reader.read(100_000):
                frames.receive_data(data)
                while (request := frames.next_command()) is not None:
                    await self._serve_one(request, writer)
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(self, request: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        before = list(self.members)
        frame = self.answer(request)
        if request.code == RequestCode.PULL_MESSAGE and len(frame) < 200:
            await anyio.sleep(NOTHING_NEW_SECONDS)
        writer.write(frame)
        if self.notifies and self.members != before:
            for each in self._writers:
                each.write(encode_frame(NOTICE))


@contextmanager
def a_tcp_broker() -> Iterator[TcpBroker]:
    """Have one that listens, in a thread of its own."""
    broker = TcpBroker()

    @asynccontextmanager
    async def listening() -> AsyncIterator[None]:
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        broker.listens_at(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            yield
        finally:
            server.close()
            for writer in list(broker._writers):
                writer.transport.abort()
            await asyncio.sleep(0.01)

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(listening()):
        yield broker
