"""A client of gRPC by the package `h2`, which has nothing of ours: over a stream or alone."""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import h2.config
import h2.connection
import h2.events
import msgspec
import trio

from node.grpc.protocol import messages as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.message import Message

    from store.machine.network import Network, Stream

PATH: Final = "/apache.rocketmq.v2.MessagingService/"
PATIENCE_SECONDS: Final = 300.0


class Reply(msgspec.Struct):
    """What has come on a stream."""

    headers: dict[str, str] = {}
    data: bytes = b""
    is_over: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers["grpc-status"])

    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.data):
            size = struct.unpack_from(">I", self.data, at + 1)[0]
            found.append(self.data[at + 5 : at + 5 + size])
            at += 5 + size
        return found


def prefixed(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


class Engine:
    """The client's end; bytes in and out."""

    def __init__(self) -> None:
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.replies: dict[int, Reply] = {}
        self.went_away: int | None = None

    def begin(self, method: str, **headers: str) -> int:
        stream_id = int(self.h2.get_next_available_stream_id())
        fields = {"content-type": "application/grpc", "te": "trailers", "x-mq-client-id": "c@1"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        path = method if method.startswith("/") else PATH + method
        pseudo = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a"}
        self.h2.send_headers(stream_id, list((pseudo | fields).items()))
        self.replies[stream_id] = Reply()
        return stream_id

    def send(self, stream_id: int, message: bytes, *, is_end: bool = True) -> None:
        data = prefixed(message)
        size = self.h2.max_outbound_frame_size
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        for index, piece in enumerate(pieces):
            last = is_end and index == len(pieces) - 1
            self.h2.send_data(stream_id, piece, end_stream=last)

    def receive(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            self._take(event)

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.went_away = int(event.error_code or 0)
            return
        stream_id = getattr(event, "stream_id", None)
        reply = self.replies.get(stream_id or 0)
        if reply is None:
            return
        if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            reply.headers = reply.headers | {str(k): str(v) for k, v in event.headers or ()}
        elif isinstance(event, h2.events.DataReceived):
            reply.data += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream_id or 0)
        elif isinstance(event, h2.events.StreamEnded):
            reply.is_over = True
        elif isinstance(event, h2.events.StreamReset):
            reply.is_over, reply.reset = True, int(event.error_code)


class Client:
    """Calls over a stream."""

    def __init__(self, stream: Stream, headers: dict[str, str]) -> None:
        self.engine = Engine()
        self.stream = stream
        self.headers = headers
        self._changed = trio.Condition()

    async def run(self) -> None:
        await self.flush()
        while data := await self.stream.receive_some(65_536):
            self.engine.receive(data)
            await self.flush()
            async with self._changed:
                self._changed.notify_all()

    async def flush(self) -> None:
        if data := self.engine.h2.data_to_send():
            await self.stream.send_all(data)

    async def begin(self, method: str, message: Message, *, is_end: bool = True) -> int:
        stream_id = self.engine.begin(method, **self.headers)
        self.engine.send(stream_id, message.SerializeToString(), is_end=is_end)
        await self.flush()
        return stream_id

    async def until(self, stream_id: int, count: int = 0) -> Reply:
        """Wait until a call is over, or for so many messages of it."""
        reply = self.engine.replies[stream_id]
        with trio.fail_after(PATIENCE_SECONDS):
            async with self._changed:
                while not reply.is_over and not (count and len(reply.messages()) >= count):
                    await self._changed.wait()
        return reply

    async def call(self, method: str, message: Message) -> Any:  # noqa: ANN401 - one class for each method
        """Return the answer to a call with one."""
        reply = await self.until(await self.begin(method, message))
        assert (reply.status, reply.reset) == (0, None), reply.headers
        (data,) = reply.messages()
        return getattr(pb, f"{method}Response").FromString(data)


@asynccontextmanager
async def open_client(
    network: Network, host: str, headers: dict[str, str] | None = None
) -> AsyncIterator[Client]:
    stream = await network.connect(host, 10911, source=None)
    client = Client(stream, headers or {})
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            try:
                yield client
            finally:
                nursery.cancel_scope.cancel()
    finally:
        # After the reader has ended: one that was just woken would find the stream closed.
        stream.close_nowait()
