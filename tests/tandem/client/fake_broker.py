"""A broker and name server that answers as it is told to, and the two ways to reach it."""

from collections.abc import Callable
from typing import TypeVar, assert_never

import msgspec
import trio
import trio.testing

from tandem.client.errors import (
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
)
from tandem.client.flow import Call, CallMany, Effect, Flow, Pause, Shared
from tandem.client.identity import ClientIdentity
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import Host, MessageExt, encode_record, offset_msg_id
from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    GetRouteInfoRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueueRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import BrokerData, QueueData, TopicRouteData, encode_json_body

IDENTITY = ClientIdentity("10.0.0.9", 4711, 8)
NAME_SERVER = "10.0.0.1:9876"
MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
OTHER_MASTER = "10.0.0.3:10911"

T = TypeVar("T")

Handler = Callable[[RemotingCommand], RemotingCommand | None]


def route_of(
    *brokers: tuple[str, dict[int, str]], queue_nums: int = 2, perm: int = 6
) -> TopicRouteData:
    """Return a route with these broker names and addresses."""
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs=addresses) for name, addresses in brokers
        ],
        queue_datas=[
            QueueData(
                broker_name=name, perm=perm, read_queue_nums=queue_nums, write_queue_nums=queue_nums
            )
            for name, _ in brokers
        ],
    )


ONE_BROKER = route_of(("broker-a", {0: MASTER, 1: SLAVE}))


def answer_to(
    request: RemotingCommand,
    code: int = 0,
    ext: msgspec.Struct | None = None,
    body: bytes = b"",
    remark: str | None = None,
) -> RemotingCommand:
    """Return a response to `request`, in its encoding."""
    return RemotingCommand(
        code,
        request.opaque,
        RESPONSE_FLAG,
        remark,
        ext,
        body,
        serialize_type=request.serialize_type,
    )


def message_ext(
    body: bytes = b"body",
    *,
    topic: str = "orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    sys_flag: int = 0,
    properties: dict[str, str] | None = None,
) -> MessageExt:
    """Return a stored message."""
    return MessageExt(
        topic=topic,
        body=body,
        properties=properties or {},
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=1000 * queue_offset,
        store_size=0,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1_700_000_000_000,
        born_host=Host("10.0.0.9", 50_000),
        store_timestamp_ms=1_700_000_000_001,
        store_host=Host("10.0.0.1", 10_911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
    )


class FakeBroker:
    """Stores sends in memory and answers pulls; `handlers` overrule it code by code.

    A handler that returns None leaves the request without an answer.
    """

    def __init__(self, *, language: str = "PYTHON") -> None:
        self.language = language
        self.routes: dict[str, TopicRouteData] = {"orders": ONE_BROKER}
        self.queues: dict[tuple[str, int], list[MessageExt]] = {}
        self.requests: list[RemotingCommand] = []
        self.handlers: dict[int, Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: lambda request: answer_to(
                request, ext=OffsetResponseHeader(0)
            ),
            RequestCode.HEART_BEAT: answer_to,
            RequestCode.UNREGISTER_CLIENT: answer_to,
        }

    def codes(self) -> list[int]:
        """Return the codes of all requests so far."""
        return [request.code for request in self.requests]

    def store(self, topic: str, queue_id: int, *bodies: bytes) -> None:
        """Put messages into a queue."""
        queue = self.queues.setdefault((topic, queue_id), [])
        for body in bodies:
            queue.append(message_ext(body, topic=topic, queue_id=queue_id, queue_offset=len(queue)))

    def answer(self, request: RemotingCommand) -> bytes:
        """Return the frame that answers `request`, nothing if it gets no answer."""
        self.requests.append(request)
        handler = self.handlers.get(request.code)
        answer = (
            handler(request)
            if handler
            else answer_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        )
        if answer is None:
            return b""
        return encode_frame(msgspec.structs.replace(answer, language=self.language))

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        route = self.routes.get(request.decode_header(GetRouteInfoRequestHeader).topic)
        if route is None:
            return answer_to(request, ResponseCode.TOPIC_NOT_EXIST)
        return answer_to(request, body=encode_json_body(route))

    def _send(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(SendMessageRequestHeaderV2)
        self.store(header.topic, header.queue_id, request.body)
        offset = len(self.queues[header.topic, header.queue_id]) - 1
        msg_id = offset_msg_id(Host("10.0.0.1", 10_911), 1000 * offset)
        return answer_to(request, ext=SendMessageResponseHeader(msg_id, header.queue_id, offset))

    def _send_batch(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(SendMessageRequestHeaderV2)
        bodies = [entry.body for entry in decode_batch_body(request.body)]
        first = len(self.queues.get((header.topic, header.queue_id), []))
        self.store(header.topic, header.queue_id, *bodies)
        host = Host("10.0.0.1", 10_911)
        ids = [offset_msg_id(host, 1000 * (first + index)) for index in range(len(bodies))]
        ext = SendMessageResponseHeader(",".join(ids), header.queue_id, first)
        return answer_to(request, ext=ext)

    def _pull(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(PullMessageRequestHeader)
        queue = self.queues.get((header.topic, header.queue_id), [])
        found = queue[header.queue_offset : header.queue_offset + header.max_msg_nums]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        next_offset = header.queue_offset + len(found)
        ext = PullMessageResponseHeader(0, next_offset, 0, len(queue))
        return answer_to(request, code, ext, b"".join(map(encode_record, found)))

    def _max_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(QueueRequestHeader)
        size = len(self.queues.get((header.topic, header.queue_id), []))
        return answer_to(request, ext=OffsetResponseHeader(size))


class FakeNetwork:
    """Brokers by address, for trio clients. An address without a broker refuses connections."""

    def __init__(self, nursery: trio.Nursery, brokers: dict[str, FakeBroker]) -> None:
        self.brokers = brokers
        self.dials: list[str] = []
        self._nursery = nursery
        self._ends: list[trio.abc.Stream] = []

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Connect; a `StreamOpener`."""
        address = f"{host}:{port}"
        self.dials.append(address)
        await trio.lowlevel.checkpoint()
        broker = self.brokers.get(address)
        if broker is None:
            raise ConnectionRefusedError(f"{address} refuses")
        client, server = trio.testing.memory_stream_pair()
        self._ends.append(server)
        self._nursery.start_soon(self._serve, broker, server)
        return client

    async def _serve(self, broker: FakeBroker, stream: trio.abc.Stream) -> None:
        frames = FrameBuffer()
        try:
            while data := await stream.receive_some():
                frames.receive_data(bytes(data))
                while (request := frames.next_command()) is not None:
                    await stream.send_all(broker.answer(request))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def say(self, answer: RemotingCommand) -> None:
        """Send an answer over the newest connection, whoever may still wait for it."""
        await self._ends[-1].send_all(encode_frame(answer))

    async def cut(self) -> None:
        """End all connections."""
        ends, self._ends = self._ends, []
        for end in ends:
            await end.aclose()


class FakeSocket:
    """A connection to a broker for blocking clients; a read that would wait times out at once."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker: FakeBroker | None = broker
        self.closed = False
        self.break_on_send = False
        self._frames = FrameBuffer()
        self._answers = b""

    def settimeout(self, seconds: float, /) -> None:
        """Waiting is impossible here."""

    def sendall(self, data: bytes, /) -> None:
        """Hand all of `data` to the broker."""
        if self.break_on_send:
            raise BrokenPipeError("broken pipe")
        self._frames.receive_data(data)
        while self.broker and (request := self._frames.next_command()) is not None:
            answer = self.broker.answer(request)
            self._answers += answer

    def recv(self, bytes_max: int, flags: int = 0, /) -> bytes:
        """Return what was answered."""
        if self.broker is None:
            return b""
        if not self._answers:
            raise BlockingIOError if flags else TimeoutError
        data = self._answers[:bytes_max]
        if not flags:
            self._answers = self._answers[bytes_max:]
        return data

    def close(self) -> None:
        """Close."""
        self.closed = True


class FakeSockets:
    """Brokers by address, for blocking clients."""

    def __init__(self, brokers: dict[str, FakeBroker]) -> None:
        self.brokers = brokers
        self.opened: list[FakeSocket] = []

    def open(self, host: str, port: int, timeout_seconds: float) -> FakeSocket:
        """Connect; a `SocketOpener`."""
        assert timeout_seconds > 0
        broker = self.brokers.get(f"{host}:{port}")
        if broker is None:
            raise ConnectionRefusedError(f"{host}:{port} refuses")
        self.opened.append(FakeSocket(broker))
        return self.opened[-1]


class HandShell:
    """Runs flows in no time: calls go straight to fake brokers, unless a failure is planned."""

    def __init__(self, brokers: dict[str, FakeBroker]) -> None:
        self.brokers = brokers
        self.now = 1000.0
        self.effects: list[Effect] = []
        self.failures: dict[str, list[ClientError]] = {}

    def clock(self) -> float:
        """A `clock` for a core."""
        return self.now

    def calls_to(self, code: int) -> list[str]:
        """Return the addresses that were asked, in order."""
        return [
            effect.address
            for effect in self.effects
            if isinstance(effect, Call) and effect.code == code
        ]

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end."""
        try:
            effect = next(flow)
            while True:
                answer = self._carry_out(effect)
                if isinstance(answer, ClientError):
                    effect = flow.throw(answer)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _carry_out(self, effect: Effect) -> object:
        self.effects.append(effect)
        match effect:
            case Call():
                return self._call(effect)
            case CallMany():
                return [self._carry_out(call) for call in effect.calls]
            case Pause():
                self.now += effect.seconds
                return None
            case Shared():
                try:
                    return self.run(effect.flow())
                except ClientError as error:
                    return error
            case _:
                assert_never(effect)

    def _call(self, call: Call) -> RemotingCommand | ClientError:
        if failures := self.failures.get(call.address):
            return failures.pop(0)
        broker = self.brokers.get(call.address)
        if broker is None:
            return ConnectionLostError(
                call.address, ConnectionCause.UNREACHABLE, "refused", outcome_unknown=False
            )
        request = RemotingCommand(call.code, 1, ext=call.ext, body=call.body)
        frame = broker.answer(decoded(encode_frame(request)))
        if not frame:
            self.now = call.deadline
            return RequestTimeoutError(call.address, outcome_unknown=True)
        return decoded(frame)


def decoded(frame: bytes) -> RemotingCommand:
    """Return the command in a frame."""
    frames = FrameBuffer()
    frames.receive_data(frame)
    command = frames.next_command()
    assert command is not None
    return command
