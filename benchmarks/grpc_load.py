"""Loads on a server of RocketMQ's gRPC, by frames that are made before: N clients, one task.

A client is a connection with an id of its own, which has opened its telemetry stream as all clients
do. What it sends is what Java's client sends after its first calls: a block of headers that is
nearly all indices of the table of headers, and a request id and a date as they are. So a call costs
the load some ten microseconds, whoever serves it.

    sends       each client has one SendMessage of 1 KB under way
    receives    each client receives up to N messages, acknowledges each by a call of its own, all
                of them at a time, and receives again when all are acknowledged

Of every answer the status is looked at; one that is not OK does not count.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple

from benchmarks.pipelined import Answered, LoadError
from benchmarks.side_by_side import say
from benchmarks.stopwatch import Stopwatch
from node.grpc.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEAD_BYTES,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    number_frame,
    settings_frame,
)
from node.grpc.protocol import messages as pb

BODY: Final = b"x" * 1024
RING: Final = 256
"""Frames that are made before, each with ids of its own."""

SETUP_SECONDS_MAX: Final = 60.0
STILL_SECONDS_MAX: Final = 30.0
BEGIN_SECONDS: Final = 5
BROKER: Final = "broker-a"

_OK: Final = b"\x08\xa0\x9c\x01"
"""The status OK (20000), as it begins in every answer."""

_HEAD: Final = struct.Struct(">HBBBI")
_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
_WINDOW: Final = 2**31 - 1
_INITIAL_WINDOW_SIZE: Final = 4


def _fields(client_id: str, method: str, timeout: str, number: int) -> list[HeaderTuple]:
    """Headers as Java's client has them; the last two are never indexed."""
    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _SERVICE + method,
        ":authority": "127.0.0.1:8081",
        "content-type": "application/grpc",
        "te": "trailers",
        "grpc-timeout": timeout,
        "user-agent": "grpc-java-netty/1.50.0",
        "x-mq-client-id": client_id,
        "x-mq-language": "JAVA",
        "x-mq-client-version": "5.2.0",
        "x-mq-protocol": "v2",
        "x-mq-namespace": "",
    }
    request_id = f"{number:08x}-1111-2222-3333-444444444444"
    return [
        *(HeaderTuple(*pair) for pair in pairs.items()),
        NeverIndexedHeaderTuple("x-mq-date-time", "20261128T103411Z"),
        NeverIndexedHeaderTuple("x-mq-request-id", request_id),
    ]


def _prefixed(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


class Call:
    """The blocks of headers of one method, and messages, as far as they are made before."""

    def __init__(self, method: str, timeout: str, messages: list[bytes]) -> None:
        self.method = method
        self.timeout = timeout
        self.messages = [_prefixed(each) for each in messages]
        self.blocks: list[bytes] = []
        """Of a connection that has made this call before."""
        self._next = 0

    def first_block(self, encoder: Encoder, client_id: str) -> bytes:
        """Return the block of the first call of a client; those after it are all alike."""
        block = encoder.encode(_fields(client_id, self.method, self.timeout, 0), huffman=True)
        return bytes(block)

    def make_blocks(self, encoder: Encoder, client_id: str) -> None:
        """Make all others, by the encoder of a client that has made all its first calls."""
        if not self.blocks:
            fields = (_fields(client_id, self.method, self.timeout, n) for n in range(RING))
            self.blocks = [bytes(encoder.encode(each, huffman=True)) for each in fields]

    def take(self) -> tuple[bytes, bytes]:
        """Return the next block and message."""
        at, self._next = self._next, self._next + 1
        message = self.messages[at % len(self.messages)] if self.messages else b""
        return self.blocks[at % RING], message


class Client:
    """One connection."""

    def __init__(
        self, address: tuple[str, int], client_id: str, settings: pb.TelemetryCommand
    ) -> None:
        self.socket = socket.create_connection(address, SETUP_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self.encoder = Encoder()
        self.answers: dict[int, bytearray] = {}
        self.buffer = b""
        self.out = bytearray(
            PREFACE
            + settings_frame({_INITIAL_WINDOW_SIZE: _WINDOW})
            + number_frame(WINDOW_UPDATE, 0, _WINDOW - 65_535)
        )
        self.next_id = 1
        self.left = 0
        """Acknowledgements that are not answered."""
        self.has_settings = False
        telemetry = Call("Telemetry", "99999999S", [])
        block = telemetry.first_block(self.encoder, client_id)
        self.begin(block, _prefixed(settings.SerializeToString()), is_end=False)

    def begin(self, block: bytes, message: bytes, *, is_end: bool = True) -> int:
        """Add a call to what is to be sent."""
        stream_id = self.next_id
        self.next_id += 2
        self.answers[stream_id] = bytearray()
        out = self.out
        size = len(block)
        out += _HEAD.pack(size >> 8, size & 0xFF, HEADERS, END_HEADERS, stream_id)
        out += block
        size = len(message)
        flags = END_STREAM if is_end else 0
        out += _HEAD.pack(size >> 8, size & 0xFF, DATA, flags, stream_id)
        out += message
        return stream_id

    def flush(self) -> None:
        """Send what there is."""
        if self.out:
            self.socket.sendall(self.out)
            self.out = bytearray()

    def take(self) -> Iterator[tuple[int, bytearray]]:
        """Receive once; yield streams that are over, with the data of each.

        Raises:
            LoadError: the server ends a stream, or the connection.
        """
        data = self.socket.recv(1 << 18)
        if not data:
            raise LoadError("the server has closed the connection")
        data = self.buffer + data if self.buffer else data
        at, size, view = 0, len(data), memoryview(data)
        answers = self.answers
        while size - at >= HEAD_BYTES:
            high, low, kind, flags, stream_id = _HEAD.unpack_from(data, at)
            end = at + HEAD_BYTES + ((high << 8) | low)
            if end > size:
                break
            if kind == DATA:
                answers[stream_id] += view[at + HEAD_BYTES : end]
                self.has_settings = True
            elif kind in (RST_STREAM, GOAWAY):
                raise LoadError(f"a frame of kind {kind}: {bytes(view[at:end])!r}")
            elif kind == SETTINGS and not flags & ACK:
                self.out += frame(SETTINGS, ACK, 0)
            elif kind == PING and not flags & ACK:
                self.out += frame(PING, ACK, 0, view[at + HEAD_BYTES : end])
            if flags & END_STREAM and kind in (DATA, HEADERS):
                yield stream_id, answers.pop(stream_id)
            at = end
        self.buffer = data[at:]


class Clients:
    """Some clients of one server, from `open_clients`."""

    def __init__(self, stack: ExitStack, address: tuple[str, int], count: int, group: str) -> None:
        """Connect, and have all settings answered."""
        settings = _settings(group)
        self.all = [
            Client(address, f"vm@{number}@{count}@{time.time_ns():x}", settings)
            for number in range(count)
        ]
        self._selector = stack.enter_context(selectors.DefaultSelector())
        for each in self.all:
            stack.callback(each.socket.close)
            self._selector.register(each.socket, selectors.EVENT_READ, each)
            each.flush()
        self._until(lambda: all(each.has_settings for each in self.all))

    def _until(self, is_done: Callable[[], bool]) -> None:
        end = time.monotonic() + SETUP_SECONDS_MAX
        while not is_done():
            for client in self.ready():
                for _ in client.take():
                    raise LoadError("a telemetry stream is over")
                client.flush()
            if time.monotonic() > end:
                raise LoadError("settings are not answered")

    def ready(self) -> list[Client]:
        """Return those that can be read."""
        found = self._selector.select(1.0)
        return [key.data for key, _ in found]

    def prepare(self, *calls: Call) -> None:
        """Make the first of these calls on each connection, whatever it is answered."""
        waiting = 0
        for client in self.all:
            for call in calls:
                block = call.first_block(client.encoder, client.client_id)
                # What it asks for is nothing, so it is refused at once.
                client.begin(block, _prefixed(b""))
                waiting += 1
            client.flush()
        for call in calls:
            call.make_blocks(self.all[0].encoder, self.all[0].client_id)
        end = time.monotonic() + SETUP_SECONDS_MAX
        while waiting:
            for client in self.ready():
                waiting -= sum(1 for _ in client.take())
                client.flush()
            if time.monotonic() > end:
                raise LoadError("the first calls are not answered")


def _settings(group: str) -> pb.TelemetryCommand:
    command = pb.TelemetryCommand()
    settings = command.settings
    settings.client_type = pb.PUSH_CONSUMER
    settings.request_timeout.seconds = 3
    settings.user_agent.language = pb.JAVA
    settings.user_agent.version = "5.2.0"
    settings.subscription.group.name = group
    return command


def sends(address: tuple[str, int], topic: str, count: int, seconds: float) -> Answered:
    """Send from `count` clients, each one message at a time.

    Raises:
        LoadError: a message is not stored.
    """
    call = Call("SendMessage", "60S", [_send(topic, number) for number in range(RING)])
    with ExitStack() as stack:
        clients = Clients(stack, address, count, "bench")
        clients.prepare(call)
        stopwatch = Stopwatch(seconds)
        for client in clients.all:
            client.begin(*call.take())
            client.flush()
        left = count
        while left:
            for client in clients.ready():
                for _, data in client.take():
                    _count(stopwatch, data)
                    if stopwatch.is_over():
                        left -= 1
                    else:
                        client.begin(*call.take())
                client.flush()
        return stopwatch.answered()


def receives(
    address: tuple[str, int], topic: str, group: str, count: int, batch: int, seconds: float
) -> Answered:
    """Receive at `count` clients up to `batch` messages at a time, and acknowledge each.

    Raises:
        LoadError: a call fails, or there are no messages.
    """
    call = Call("ReceiveMessage", "60S", [_receive(topic, group, batch)])
    ack = Call("AckMessage", "60S", [])
    with ExitStack() as stack:
        clients = Clients(stack, address, count, group)
        clients.prepare(call, ack)
        stopwatch = Stopwatch(seconds)
        for client in clients.all:
            client.begin(*call.take())
            client.flush()
        busy, still_at = count, time.monotonic() + STILL_SECONDS_MAX
        while busy:
            for client in clients.ready():
                for _, data in client.take():
                    is_over = stopwatch.is_over()
                    if client.left:
                        _count(stopwatch, data)
                        client.left -= 1
                    else:
                        handles = _handles(data)
                        client.left = len(handles)
                        for message_id, handle in handles:
                            block, _ = ack.take()
                            client.begin(block, _prefixed(_ack(topic, group, message_id, handle)))
                    if not client.left:
                        if is_over:
                            busy -= 1
                        else:
                            client.begin(*call.take())
                    still_at = time.monotonic() + STILL_SECONDS_MAX
                client.flush()
            if time.monotonic() > still_at:
                raise LoadError("nothing moves any more")
        return stopwatch.answered()


def begin_group(address: tuple[str, int], topic: str, group: str) -> None:
    """Have a group begin at the end of a topic: receive until nothing comes."""
    while receives(address, topic, group, 1, 32, 0.0).messages_in_all:
        pass


def _count(stopwatch: Stopwatch, data: bytearray) -> None:
    if data.find(_OK, 0, 24) >= 0:
        stopwatch.done += 1
        return
    stopwatch.failed += 1
    if stopwatch.failed == 1:
        say(f"an answer is not OK: {bytes(data[:300])!r}")


def _handles(data: bytearray) -> list[tuple[str, str]]:
    """Return message id and handle of each message of an answer."""
    found, at = [], 0
    while at < len(data):
        end = at + 5 + struct.unpack_from(">I", data, at + 1)[0]
        part = pb.ReceiveMessageResponse.FromString(bytes(memoryview(data)[at + 5 : end]))
        at = end
        if part.HasField("message"):
            system = part.message.system_properties
            found.append((system.message_id, system.receipt_handle))
        elif part.HasField("status") and part.status.code not in (pb.OK, pb.MESSAGE_NOT_FOUND):
            raise LoadError(f"a receive is answered {part.status.code}: {part.status.message}")
    return found


def _send(topic: str, number: int) -> bytes:
    message = pb.Message(body=BODY)
    message.topic.name = topic
    system = message.system_properties
    system.message_id = f"01FB6B2E0635F06D770B18C6{number:010X}"
    system.message_type = pb.NORMAL
    system.body_encoding = pb.IDENTITY
    system.keys.append(f"order-{number:06d}")
    system.born_host = "vm"
    system.born_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
    return pb.SendMessageRequest(messages=[message]).SerializeToString()


def _receive(topic: str, group: str, batch: int) -> bytes:
    request = pb.ReceiveMessageRequest(batch_size=batch, auto_renew=True)
    request.group.name, request.message_queue.topic.name = group, topic
    request.message_queue.id, request.message_queue.broker.name = -1, BROKER
    request.filter_expression.type, request.filter_expression.expression = pb.TAG, "*"
    request.long_polling_timeout.seconds = BEGIN_SECONDS
    return request.SerializeToString()


def _ack(topic: str, group: str, message_id: str, handle: str) -> bytes:
    request = pb.AckMessageRequest()
    request.group.name, request.topic.name = group, topic
    request.entries.add(message_id=message_id, receipt_handle=handle)
    return request.SerializeToString()
