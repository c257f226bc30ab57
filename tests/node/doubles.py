"""Stand-ins and short cuts for the tests of the node."""

import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import trio

from ha.replication import ReplicationListener
from ha.results import Ack, PutWait, Refusal, ReplicaStanding
from node.broker import handler_set
from node.broker.handler_set import Handlers
from node.broker.parts import BrokerParts
from node.handlers.send_properties import PropertyStamp
from node.name_server.route_table import RouteTable
from node.remoting.client_requests import ClientRequests
from node.remoting.connection import Connection, Outbox
from node.remoting.dispatcher import Dispatcher, Handler
from node.remoting.unsupported import UnsupportedRequests
from node.security.request import handler_table
from node.simulated.disk import SimulatedDisk
from node.tables.broker_stats import BrokerStats
from node.tables.plain_tables import PlainFiles, PlainTables
from node.tables.put_counting import PutCounting
from node.tables.topic_config_table import system_topics
from store import MessageStore, StoreConfig
from store.delayed.timer_metrics import TimerMetricsSerializeWrapper
from store.machine.network import ConnectionLost, ReceivesSome
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    NodeSettings,
    ReplicationSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import Host
from tandem.wire.remoting_command import (
    RESPONSE_FLAG,
    Ext,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_headers import HARuntimeInfo, TopicConfig
from tandem.wire.response_code import ResponseCode
from tests.support.listening import hear, listen

CLIENT = Host("10.1.2.3", 1234)
BROKER = Host("127.0.0.1", 10911)
NOW_MS = 1_700_000_000_000


class FakeStream(ReceivesSome):
    """A stream whose other end is the test: `arrive` what is received, look at `sent`.

    Attributes:
        room: How many bytes the peer takes before `send_nowait` says 0.
    """

    def __init__(self, peer: Host = CLIENT) -> None:
        self.peer = peer
        self.sent = bytearray()
        self.room = 1 << 30
        self.closed = False
        self.reads = 0
        self._send_chunks, self._receive_chunks = trio.open_memory_channel[bytes](1000)
        self._writable = trio.lowlevel.ParkingLot()
        self._readable = trio.lowlevel.ParkingLot()

    def arrive(self, data: bytes) -> None:
        self._send_chunks.send_nowait(data)
        self._readable.unpark_all()

    def end(self) -> None:
        self.arrive(b"")

    def make_room(self, size: int) -> None:
        self.room += size
        self._writable.unpark_all()

    async def receive_some(self, bytes_max: int) -> bytes:
        self.reads += 1
        while not self.closed:
            try:
                return self._receive_chunks.receive_nowait()
            except trio.WouldBlock:
                await self._readable.park()
        raise ConnectionLost("closed here")

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        if self.closed:
            raise ConnectionLost("closed here")
        size = min(len(data), self.room)
        self.sent += bytes(data[:size])
        self.room -= size
        return size

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        sent = self.send_nowait(data)
        while sent < len(data):
            await self._writable.park()
            sent += self.send_nowait(data[sent:])

    async def aclose(self) -> None:
        self.close_nowait()
        await trio.lowlevel.checkpoint()

    def close_nowait(self) -> None:
        self.closed = True
        self._writable.unpark_all()
        self._readable.unpark_all()

    def take_frames(self) -> list[RemotingCommand]:
        """The commands sent since the last call."""
        frames = FrameBuffer()
        frames.receive_data(bytes(self.sent))
        self.sent.clear()
        commands = []
        while (command := frames.next_command()) is not None:
            commands.append(command)
        return commands


class Client:
    """One connection with its dispatcher: requests go in as bytes, answers come out as bytes."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        outbox: Outbox | None = None,
        to_clients: ClientRequests | None = None,
        unsupported: UnsupportedRequests | None = None,
    ) -> None:
        self.outbox = outbox or Outbox()
        self.stream = FakeStream()
        self.connection = Connection(self.stream, self.outbox)
        self._dispatcher = Dispatcher(
            handlers, (to_clients or ClientRequests()).answered, unsupported
        )
        self._opaque = 100
        self.pieces = 0
        """How many pieces requests took, besides the first of each."""

    def send(
        self,
        code: int,
        ext: Ext = None,
        body: bytes = b"",
        *,
        flag: int = 0,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> int:
        """Send a request without looking for an answer; return its opaque."""
        self._opaque += 1
        request = RemotingCommand(
            code, self._opaque, flag, ext=ext, body=body, serialize_type=serialize_type
        )
        self._receive(request)
        self.go_on()
        return self._opaque

    def _receive(self, command: RemotingCommand) -> None:
        frames = FrameBuffer()
        frames.receive_data(encode_frame(command))
        received = frames.next_command()
        assert received is not None
        self._dispatcher.dispatch(self.connection, received)

    def begin(self, code: int, ext: Ext = None, body: bytes = b"") -> None:
        """Send a request, and have its first piece done."""
        self._opaque += 1
        self._receive(RemotingCommand(code, self._opaque, ext=ext, body=body))

    def go_on(self) -> None:
        """Have the rest of a request done that is handled in pieces."""
        while self.connection.unfinished is not None:
            self.pieces += 1
            self.connection.go_on()

    def end(self) -> RemotingCommand:
        """Have the rest of a request done; return its answer."""
        self.go_on()
        (answer,) = [each for each in self.answers() if each.is_response]
        return answer

    def answer(self, request: RemotingCommand, code: int = 0, body: bytes = b"") -> None:
        """Answer what the broker has asked of this client."""
        self._receive(RemotingCommand(code, request.opaque, RESPONSE_FLAG, body=body))

    def answers(self) -> list[RemotingCommand]:
        """End the round; return what has been sent to this client since the last call."""
        self.connection.end_round()
        self.outbox.flush()
        return self.stream.take_frames()

    def call(
        self,
        code: int,
        ext: Ext = None,
        body: bytes = b"",
        *,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> RemotingCommand:
        """Send a request and return its answer."""
        opaque = self.send(code, ext, body, serialize_type=serialize_type)
        answers = [answer for answer in self.answers() if answer.is_response]
        assert [answer.opaque for answer in answers] == [opaque]
        assert answers[0].serialize_type is serialize_type
        return answers[0]


class FakeReplication:
    """A `Replication` under the control of a test: a master that waits for nobody, at first."""

    def __init__(self) -> None:
        self.is_master = True
        self.is_quarantined = False
        self.epoch = 0
        self.refused: Refusal | None = None
        self.put_waits: dict[Ack, PutWait | None] = dict.fromkeys(Ack)
        self.standing = ReplicaStanding(role="MASTER", in_sync=1)
        self.info = HARuntimeInfo(master=True, master_commit_log_max_offset=77)

    def demote(self, text: str, code: int = ResponseCode.SERVICE_NOT_AVAILABLE) -> None:
        """Have another node be the master."""
        self.is_master = False
        self.refused = Refusal(code, text)

    def refusal(self) -> Refusal | None:
        return self.refused

    def why_behind(self) -> str | None:
        return self.refused.text if self.refused is not None else None

    def waits(self, ack: Ack) -> PutWait | None:
        return self.put_waits[ack]

    def runtime_info(self) -> HARuntimeInfo:
        return self.info

    def replica_standing(self) -> ReplicaStanding:
        return self.standing

    def why_not_served(self) -> str:
        return "in quarantine"

    async def run(
        self,
        listener: ReplicationListener,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        listener.opened(self.epoch)
        task_status.started()
        await trio.sleep_forever()


def open_store(
    disk: SimulatedDisk,
    *,
    is_slave: bool,
    is_fenced: bool = False,
    wall_clock_ms: Callable[[], int] = lambda: NOW_MS,
    **changes: int,
) -> MessageStore:
    """Open a small store; `changes` are fields of its config."""
    config = StoreConfig(
        "s",
        mapped_file_size_commit_log_bytes=1 << 20,
        mapped_file_size_consume_queue_bytes=6000,
        max_message_size_bytes=100_000,
        max_hash_slot_num=100,
        max_index_num=1000,
    )
    return MessageStore.open(
        msgspec.structs.replace(config, **changes),
        disk=disk,
        wall_clock_ms=wall_clock_ms,
        store_host=BROKER,
        is_slave=is_slave,
        confirm_bounds_reads=is_fenced,
    )


class FakeDelayed:
    """What delivers messages later."""

    checkpoint: bytes | None = None
    metrics: TimerMetricsSerializeWrapper | None = None

    def delay_progress(self) -> dict[int, int]:
        return {3: 5}

    def timer_checkpoint(self) -> bytes | None:
        return self.checkpoint

    def timer_metrics(self) -> TimerMetricsSerializeWrapper | None:
        return self.metrics


class Broker(BrokerParts):
    """Store and tables of one broker, on a simulated disk; one of a fenced group is its master.

    Attributes:
        now_ms: The time of day.
        topic_changes: How often the topics have changed.
        settings: Of `broker:` in the cluster file, for `handlers_of`.
    """

    def __init__(
        self,
        *,
        is_slave: bool = False,
        is_fenced: bool = False,
        topics: tuple[str, ...] = ("T",),
    ) -> None:
        self.now_ms = NOW_MS
        self.topic_changes = 0
        disk = SimulatedDisk()
        store = open_store(
            disk,
            is_slave=is_slave or is_fenced,
            is_fenced=is_fenced,
            wall_clock_ms=lambda: self.now_ms,
            # Its clock jumps between two requests of one round: that is no slow disk.
            os_page_cache_busy_timeout_ms=2**62,
        )
        if is_fenced:
            store.become_master()
        self.plain = PlainTables(PlainFiles(disk, "s", lambda: NOW_MS), hide=store.compaction.hide)
        self.topics, self.offsets = self.plain.topics, self.plain.offsets
        hear(self.topics.changes, self._topics_changed)
        self.topics.update(*system_topics("C", "broker-a", auto_create_queue_nums=8))
        for topic in topics:
            self.topics.update(TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4))
        self.settings = BrokerSettings(
            enable_property_filter=True,
            store_reply_message_enable=True,
            recall_message_enable=True,
        )
        super().__init__(
            NodeConfig(cluster_of(self.settings), NODE),
            store,
            self.plain,
            FakeReplication(),
            disk=disk,
            random=random.Random(7),
            wall_clock_ms=lambda: self.now_ms,
        )
        self.simulated_disk = disk
        self.stamp = PropertyStamp("C", lambda: "U")
        self.stats = BrokerStats("C", lambda now_ms: now_ms // 86_400_000, NOW_MS)
        self.counting = PutCounting(store, self.stats, lambda: self.now_ms)
        if not is_slave:
            self.transactions.open(self.transaction_tables.progress(is_journaled=is_fenced))
        listen(store, self.holds.messages_arrived)
        self.routes = RouteTable(20)
        self.spawned: list[Callable[[], Awaitable[None]]] = []
        self.delayed = FakeDelayed()

    def set(self, **changes: object) -> None:
        """Change settings of `broker:`; they count in the next `handlers_of`."""
        self.settings = msgspec.structs.replace(self.settings, **changes)
        self.config = NodeConfig(cluster_of(self.settings), NODE)

    def _topics_changed(self) -> None:
        self.topic_changes += 1


NODE: Final = NodeSettings("a0", "broker-a", 0, BROKER.ip)


def cluster_of(settings: BrokerSettings) -> ClusterConfig:
    """The cluster of one node that these tests are about."""
    return ClusterConfig(
        Path("cluster.yaml"),
        ClusterSettings("C"),
        StoreSettings(),
        ReplicationSettings(),
        settings,
        {"broker-a": GroupSettings()},
        (NODE,),
    )


def handlers_of(broker: Broker, replication: FakeReplication | None = None) -> Handlers:
    """Every handler of a broker's request table."""
    broker.replication = replication or FakeReplication()
    return handler_set.handlers_of(
        broker,
        when_known=lambda known: known(),
        route_of=broker.routes.route,
        delayed=lambda: broker.delayed,  # type: ignore[arg-type, return-value]
        spawn=broker.spawned.append,
    )


def request_table(handlers: Handlers) -> dict[int, Handler]:
    """What a broker serves, by request code; nobody is asked who they are."""
    return handler_table(*handlers.families)
