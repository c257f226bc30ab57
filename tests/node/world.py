"""Whole nodes on simulated disks, network and coordinator; use it with `autojump_clock`."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import trio

from ha.fenced.events import HAEvent
from node.metrics.exporters import Exporter
from node.name_server.name_server import NameServer
from node.remoting.remoting_client import RemotingClient, RequestFailedError, open_client
from node.run import run_node
from node.security.guard import Guard
from node.simulated.coordinator import SimulatedCoordinator
from node.simulated.disk import SimulatedDisk
from node.simulated.network import Machine, SimulatedNetwork
from node.simulated.virtual_clock import Timeline, WallClock
from store.machine.machine import Machine as NodeMachine
from tandem.cluster_file.choices import ClientAccess
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.cluster_file.load import load_config
from tandem.coordinator.interface import Coordinator
from tandem.wire.ha_status import FencedStatus
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import Ext, RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
    GetRouteInfoRequestHeader,
    HARuntimeInfo,
    PullMessageRequestHeader,
    QueueRequestHeader,
    SendMessageRequestHeaderV2,
    TimestampResponseHeader,
)
from tandem.wire.route import TopicRouteData, decode_json_body
from tandem.wire.secret_keys import Purpose, key_of
from tests.support.patience import PATIENCE_SECONDS
from tests.support.secret import SECRET, write_secret

MASTER, SLAVE_1, SLAVE_2 = "10.0.0.1", "10.0.0.2", "10.0.0.3"
CLIENT, COORDINATOR = "10.0.0.9", "10.0.0.8"
NAMES = ("a1", "a2", "a3")
"""The nodes of a fenced group."""

CLUSTER = """\
cluster:
  secret_file: secret
security:
  allow_unauthenticated: true
  allow_in_clear: true
  clients: {clients}
store:
  mapped_file_size_commit_log_bytes: 1048576
  mapped_file_size_consume_queue_bytes: 6000
  max_message_size_bytes: 100000
  max_hash_slot_num: 50
  max_index_num: 1000
  flush_disk_type: {flush}
groups:
  broker-a: {{{group}}}
nodes:
"""


def cluster_config(
    directory: Path,
    role: str = "SYNC_MASTER",
    flush: str = "ASYNC_FLUSH",
    clients: ClientAccess = ClientAccess.OPEN,
) -> ClusterConfig:
    """A classic group: `a0` is the master."""
    return _load(directory, f"broker_role: {role}", first_id=0, flush=flush, clients=clients)


def fenced_cluster(
    directory: Path, *, learners: str = "", clients: ClientAccess = ClientAccess.OPEN
) -> ClusterConfig:
    """A fenced group of `NAMES`."""
    group = f"kind: fenced, learners: [{learners}]"
    return _load(directory, group, first_id=1, clients=clients)


def _load(
    directory: Path,
    group: str,
    *,
    first_id: int,
    flush: str = "ASYNC_FLUSH",
    clients: ClientAccess = ClientAccess.OPEN,
) -> ClusterConfig:
    write_secret(directory / "secret")
    nodes = "".join(
        f"  - {{name: a{node_id}, group: broker-a, broker_id: {node_id}, address: {address}}}\n"
        for node_id, address in enumerate((MASTER, SLAVE_1, SLAVE_2), first_id)
    )
    file = directory / "cluster.yaml"
    file.write_text(
        CLUSTER.format(group=group, flush=flush, clients=clients.value) + nodes, encoding="utf-8"
    )
    return load_config(file)


class World:
    """A cluster whose nodes are started and killed by name. Open it with `open_world`."""

    def __init__(self, config: ClusterConfig, nursery: trio.Nursery) -> None:
        self.config = config
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(1))
        self.coordinator = SimulatedCoordinator(COORDINATOR, self.network, random.Random(2))
        self.disks = {node.name: SimulatedDisk() for node in config.nodes}
        self.boots = {node.name: "boot-1" for node in config.nodes}
        self.events: list[tuple[str, HAEvent]] = []
        self.stops: dict[str, trio.Event] = {}
        self.exporters: dict[str, Exporter] = {}
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ended: dict[str, trio.Event] = {}
        self._machines: dict[str, Machine] = {}
        self._addresses = {node.name: node.address for node in config.nodes}
        self._client = self.network.machine(CLIENT)

    async def start(self, *names: str) -> None:
        """Start nodes; returns once they serve."""
        for name in names:
            await self._nursery.start(self._run, name)

    async def _run(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        self.stops[name] = trio.Event()
        ended = self._ended[name] = trio.Event()
        self._machines[name] = self.network.machine(self._addresses[name])
        with trio.CancelScope() as self._scopes[name]:
            try:
                await run_node(
                    self.config.node(name),
                    self._machine(name),
                    stop=self.stops[name],
                    coordinator=self._coordinator(name),
                    exporter=self.exporters.get(name),
                    task_status=task_status,
                )
            except Exception:
                self._machines[name].kill()
                raise
            self._machines[name].kill()
        ended.set()

    def _machine(self, name: str) -> NodeMachine:
        return NodeMachine(
            disk=self.disks[name],
            network=self._machines[name],
            wall_clock_ms=WallClock().now_ms,
            boottime=trio.current_time,
            boot_id=self.boots[name],
            random=random.Random(f"{name} {self.boots[name]}"),
            on_event=lambda event: self.events.append((name, event)),
        )

    def _coordinator(self, name: str) -> Coordinator | None:
        is_fenced = self.config.node(name).is_fenced
        return self.coordinator.client(self._machines[name]) if is_fenced else None

    async def stop(self, name: str) -> None:
        """Stop a node in good order and wait until it is down."""
        self.stops[name].set()
        await self._ended[name].wait()

    async def kill(self, name: str) -> None:
        """End a node as kill -9 does: what its tasks do while they end is seen by nobody."""
        self.disks[name] = self.disks[name].crashed()
        self._scopes[name].cancel()
        self._machines[name].kill()
        await self._ended[name].wait()

    async def power_off(self, name: str) -> None:
        """End a node as a machine without power does: what was not synced may be gone."""
        self.boots[name] += "+"
        self.disks[name] = self.disks[name].powered_off(random.Random(len(self.boots[name])))
        self._scopes[name].cancel()
        self._machines[name].power_off()
        await self._ended[name].wait()

    def client(self, host: str, port: int = 10911) -> AbstractAsyncContextManager[Caller]:
        """Connect to a node, as a client."""
        return open_caller(self._client, host, port)

    def address(self, name: str) -> str:
        return self._addresses[name]

    async def status(self, name: str) -> FencedStatus:
        async with self.client(self._addresses[name]) as client:
            answer = await client.call(RequestCode.FENCED_STATUS)
            return msgspec.json.decode(answer.body, type=FencedStatus)

    async def master(self, *among: str, after: int = 0) -> str:
        """Wait until a node of a fenced group takes messages under a higher epoch than `after`."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                for name in among or NAMES:
                    status = await self.status(name)
                    if status.role == "MASTER" and not status.refusal and status.epoch > after:
                        return name
                await trio.sleep(0.02)


class Caller:
    """The requests of the tests on one connection; every answer comes back, whatever its code."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def call(self, code: int, ext: Ext = None, body: bytes = b"") -> RemotingCommand:
        try:
            return await self._client.request(code, ext=ext, body=body)
        except RequestFailedError as error:
            return error.answer

    async def call_signed(
        self, code: int, ext: Ext = None, body: bytes = b"", *, target: str
    ) -> RemotingCommand:
        """As a node or an operator, who knows the secret."""
        key = key_of(SECRET, Purpose.REQUEST)
        try:
            return await self._client.request_signed(
                code, ext=ext, body=body, key=key, target=target
            )
        except RequestFailedError as error:
            return error.answer

    async def send(
        self, body: bytes, *, topic: str = "T", queue_id: int = 0, wait: bool = True
    ) -> RemotingCommand:
        properties = f"WAIT\x01{str(wait).lower()}\x02"
        header = SendMessageRequestHeaderV2("PG", topic, "TBW102", 4, queue_id, 0, 1, 0, properties)
        return await self.call(RequestCode.SEND_MESSAGE_V2, header, body)

    async def pull(
        self, offset: int = 0, *, topic: str = "T", suspend_ms: int = 0
    ) -> RemotingCommand:
        flags = PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_SUSPEND if suspend_ms else 0)
        header = PullMessageRequestHeader("g", topic, 0, offset, 32, flags, 0, suspend_ms, 0, "*")
        return await self.call(RequestCode.PULL_MESSAGE, header)

    async def earliest_store_time(self, topic: str = "T") -> int:
        answer = await self.call(
            RequestCode.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader(topic, 0)
        )
        return answer.decode_header(TimestampResponseHeader).timestamp

    async def ha_status(self) -> HARuntimeInfo:
        answer = await self.call(RequestCode.GET_BROKER_HA_STATUS)
        return decode_json_body(answer.body, HARuntimeInfo)

    async def route(self, topic: str) -> dict[int, str]:
        """The addresses of a topic, by broker id."""
        answer = await self.call(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic)
        )
        if answer.code:
            return {}
        return decode_json_body(answer.body, TopicRouteData).broker_datas[0].broker_addrs


def bodies(answer: RemotingCommand) -> list[bytes]:
    """The messages of a pull."""
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_messages(answer.body)]


@asynccontextmanager
async def open_caller(machine: Machine, host: str, port: int) -> AsyncIterator[Caller]:
    async with open_client(machine, host, port, source=None, timeout_seconds=5) as client:
        yield Caller(client)


@asynccontextmanager
async def open_world(config: ClusterConfig) -> AsyncIterator[World]:
    """A world without nodes yet; ends, nodes and all, with the block."""
    async with trio.open_nursery() as nursery:
        world = World(config, nursery)
        nursery.start_soon(world.timeline.run)
        yield world
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_name_server(
    config: NodeConfig,
) -> AsyncIterator[tuple[NameServer, SimulatedNetwork]]:
    """The name server of one node, without its broker."""
    timeline = Timeline()
    network = SimulatedNetwork(timeline, random.Random(1))
    names = NameServer(config, Guard(config, random.Random(2)), SimulatedDisk())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeline.run)
        await nursery.start(names.run, network.machine(config.node.address))
        yield names, network
        nursery.cancel_scope.cancel()
