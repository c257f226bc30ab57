"""A RocketMQ master as far as a shadow sees one, and its name server: rules of 5.3.3, no more.

Source: DefaultHAConnection.ReadSocketService and WriteSocketService, DefaultHAService.
"""

from collections.abc import Awaitable, Callable

import trio

from ha.classic.protocol import REPORT, TRANSFER_HEADER
from store.machine.network import ConnectionLost, Listener, Network, Stream
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerOffsetTableBody,
    KVTable,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.route import BrokerData, ClusterInfo, encode_json_body
from tandem.wire.subscription_group import SubscriptionGroupWrapper

IP = "10.0.0.9"
CLIENT_PORT = 10_911
HA_PORT = 10_912
SERVER_PORT = 9_876
FRAME_BYTES = 1_000
FILE_BYTES = 4_096
POLL_SECONDS = 0.05
HEARTBEAT_SECONDS = 5.0


Task = Callable[[Stream], Awaitable[None]]


class FakeMaster:
    """One master, and one name server at the same address.

    Attributes:
        log: What it sends, from `start` on; a test appends.
        acknowledged: push2SlaveMaxOffset: what a put that waits would see.
        slave_ack: slaveAckOffset of the last connection.
        asked: every request of its client port and of the name server.
        requested: slaveRequestOffset of each connection, and when it came.
    """

    def __init__(self, network: Network, ip: str = IP) -> None:
        self.network = network
        self.ip = ip
        self.log = bytearray()
        self.start = 0
        self.acknowledged = 0
        self.slave_ack = -1
        self.requested: list[tuple[float, int]] = []
        self.streams: list[Stream] = []
        self.asked: list[RemotingCommand] = []
        self.settings = {
            "brokerIP2": ip,
            "haListenPort": str(HA_PORT),
            "mappedFileSizeCommitLog": str(FILE_BYTES),
            "maxMessageSize": "2048",
        }
        self.brokers = {
            "broker-a": BrokerData(
                broker_addrs={0: f"{ip}:{CLIENT_PORT}"}, broker_name="broker-a", cluster="c"
            )
        }

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            for port, task in (
                (HA_PORT, self._replicate),
                (CLIENT_PORT, self._answer),
                (SERVER_PORT, self._answer),
            ):
                listener = await self.network.listen(self.ip, port)
                nursery.start_soon(self._accept, listener, task, nursery)
            task_status.started()

    def drop(self) -> None:
        """Close all connections."""
        for stream in self.streams:
            stream.close_nowait()
        self.streams.clear()

    async def _accept(self, listener: Listener, task: Task, nursery: trio.Nursery) -> None:
        while True:
            stream = await listener.accept()
            self.streams.append(stream)
            nursery.start_soon(self._guarded, task, stream)

    async def _guarded(self, task: Task, stream: Stream) -> None:
        try:
            await task(stream)
        except* (ConnectionLost, trio.ClosedResourceError):
            pass

    async def _replicate(self, stream: Stream) -> None:
        asked: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, stream, asked)
            unread = b""
            while data := await stream.receive_some(65_536):
                unread += data
                if len(unread) < REPORT.size:
                    continue
                # Only the last whole report counts.
                whole = len(unread) - len(unread) % REPORT.size
                (self.slave_ack,) = REPORT.unpack_from(unread, whole - REPORT.size)
                unread = unread[whole:]
                if not asked:
                    asked.append(self.slave_ack)
                    self.requested.append((trio.current_time(), self.slave_ack))
                self.acknowledged = max(self.acknowledged, self.slave_ack)
            nursery.cancel_scope.cancel()

    async def _send(self, stream: Stream, asked: list[int]) -> None:
        while not asked:
            await trio.sleep(0.01)
        end = self.start + len(self.log)
        position = asked[0] or max(end - end % FILE_BYTES, self.start)
        last_write = trio.current_time()
        while True:
            end = self.start + len(self.log)
            stop = min(end, position + FRAME_BYTES, position - position % FILE_BYTES + FILE_BYTES)
            body = bytes(self.log[position - self.start : stop - self.start])
            if self.start <= position < end:
                await stream.send_all(TRANSFER_HEADER.pack(position, len(body)) + body)
                position += len(body)
                last_write = trio.current_time()
                continue
            if trio.current_time() - last_write > HEARTBEAT_SECONDS:
                await stream.send_all(TRANSFER_HEADER.pack(position, 0))
                last_write = trio.current_time()
            await trio.sleep(POLL_SECONDS)

    async def _answer(self, stream: Stream) -> None:
        frames = FrameBuffer()
        while data := await stream.receive_some(65_536):
            frames.receive_data(data)
            while (command := frames.next_command()) is not None:
                self.asked.append(command)
                body = self._body_of(command.code)
                answer = RemotingCommand(0, command.opaque, RESPONSE_FLAG, None, body=body)
                await stream.send_all(encode_frame(answer))

    def _body_of(self, code: int) -> bytes:
        end = self.start + len(self.log)
        lines = [f"{name}={value}\n" for name, value in self.settings.items()]
        table = {"commitLogMinOffset": str(self.start), "commitLogMaxOffset": str(end)}
        bodies = {
            RequestCode.GET_BROKER_CLUSTER_INFO: ClusterInfo(self.brokers),
            RequestCode.GET_BROKER_RUNTIME_INFO: KVTable(table),
            RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper({"T": TopicConfig("T")}),
            RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetTableBody({"T@g": {0: 7}}),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(),
        }
        if code == RequestCode.GET_BROKER_CONFIG:
            return "".join(lines).encode()
        return encode_json_body(bodies[RequestCode(code)])
