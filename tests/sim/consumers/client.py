"""What every client of RocketMQ does: connections, routes, heartbeats. All intervals are a tenth.

A client is a process: it is killed and started again at the same address, under another client id.
"""

import math
import random
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from node.simulated.network import Machine, SimulatedNetwork, SimulatedStream
from node.simulated.virtual_clock import WallClock
from store.machine.network import ConnectionLost
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import ONEWAY_FLAG, Ext, RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import GetRouteInfoRequestHeader, HeartbeatData
from tandem.wire.route import MASTER_ID, TopicRouteData, decode_json_body, encode_json_body
from tests.sim.consumers.seen import Seen
from tests.sim.engine.trace import Trace

ROUTE_SECONDS: Final = 3.0
HEARTBEAT_SECONDS: Final = 3.0
TIMEOUT_SECONDS: Final = 1.0
"""Of a request that is not held."""

CONNECT_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 0.3


class NoAnswerError(Exception):
    """Nobody knows what became of a request, or a route is missing."""


class Place(msgspec.Struct):
    """Where a client lives, and whom it tells what it has seen.

    `term_of` says which time as master of which node an address stands for now; `node_of` names it.
    """

    network: SimulatedNetwork
    name_servers: list[str]
    broker_addresses: list[str]
    knowing_addresses: list[str]
    """Those that know where a group is, or say that they do not."""
    seen: Seen
    trace: Trace
    chance: random.Random
    term_of: Callable[[str], str]
    node_of: Callable[[str], str]
    quits: Callable[[], bool]
    """Whether producers have to send nothing more."""


class Channel:
    """One connection: many requests under way, and what the broker sends by itself."""

    def __init__(self, stream: SimulatedStream, on_push: Callable[[RemotingCommand], None]) -> None:
        self.is_open = True
        self._stream = stream
        self._on_push = on_push
        self._frames = FrameBuffer()
        self._opaque = 0
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, RemotingCommand] = {}
        self._outgoing, self._to_send = trio.open_memory_channel[bytes](math.inf)

    async def run(self) -> None:
        """Send and receive until the connection ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send)
            try:
                while data := await self._stream.receive_some(65_536):
                    self._frames.receive_data(data)
                    while (command := self._frames.next_command()) is not None:
                        self._take(command)
            except ConnectionLost:
                pass
            finally:
                self.close()
            nursery.cancel_scope.cancel()

    async def _send(self) -> None:
        try:
            async for data in self._to_send:
                await self._stream.send_all(data)
        except ConnectionLost:
            self.close()

    def _take(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._on_push(command)
        elif command.opaque in self._waiting:
            self._answers[command.opaque] = command
            self._waiting.pop(command.opaque).set()

    def close(self) -> None:
        """End the connection; harmless when repeated."""
        self.is_open = False
        self._stream.close_nowait()
        for waiting in self._waiting.values():
            waiting.set()
        self._waiting.clear()

    def tell(self, code: int, ext: Ext, body: bytes) -> None:
        """Send a request that gets no answer."""
        self._opaque += 1
        self._hand_over(RemotingCommand(code, self._opaque, ONEWAY_FLAG, ext=ext, body=body))

    async def ask(
        self, code: int, ext: Ext, body: bytes, timeout_seconds: float
    ) -> RemotingCommand:
        """Send a request and return its answer; a connection that gives none is closed."""
        if not self.is_open:
            raise NoAnswerError("the connection has ended")
        self._opaque += 1
        opaque = self._opaque
        answered = self._waiting[opaque] = trio.Event()
        self._hand_over(RemotingCommand(code, opaque, ext=ext, body=body, language="JAVA"))
        with trio.move_on_after(timeout_seconds):
            await answered.wait()
        answer = self._answers.pop(opaque, None)
        if answer is None:
            self.close()
            raise NoAnswerError(f"no answer to {code}")
        return answer

    def _hand_over(self, command: RemotingCommand) -> None:
        if self.is_open:
            self._outgoing.send_nowait(encode_frame(command))


class Client:
    """One life of one client. What it does beside the upkeep is in `_tasks`."""

    topics: tuple[str, ...] = ()

    def __init__(self, place: Place, ip: str, life: int) -> None:
        self.place = place
        self.seen = place.seen
        self.ip = ip
        self.client_id = f"{ip}@{life}"
        self.routes: dict[str, TopicRouteData] = {}
        self.machine: Machine = place.network.machine(ip)
        self._scope = trio.CancelScope()
        self._channels: dict[str, Channel] = {}
        self._connecting: dict[str, trio.Lock] = {}
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Live until killed."""
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                await self._find_routes()
                await self._beat_once()
                for task in (self._follow_routes, self._beat, *self._tasks()):
                    self._nursery.start_soon(task)

    def kill(self) -> None:
        """End the process: its sockets are closed by the kernel."""
        self._end()
        self.machine.kill()

    def vanish(self) -> None:
        """End the machine: it tells nobody."""
        self._end()
        self.machine.power_off()

    def _end(self) -> None:
        self._scope.cancel()
        self._died()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.place.trace.note(self.client_id, text)

    # What kinds of clients fill in

    def _tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return []

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(self.client_id)

    def _pushed(self, address: str, command: RemotingCommand) -> None:
        """A broker has sent a request."""

    def _died(self) -> None:
        """The process ends now."""

    # Upkeep

    async def _follow_routes(self) -> None:
        while True:
            await trio.sleep(ROUTE_SECONDS * self.place.chance.uniform(0.8, 1.2))
            await self._find_routes()

    async def _find_routes(self) -> None:
        for topic in self.topics:
            servers = list(self.place.name_servers)
            self.place.chance.shuffle(servers)
            for server in servers:
                try:
                    answer = await self.ask(
                        server, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic)
                    )
                except NoAnswerError:
                    continue
                if not answer.code:
                    self.routes[topic] = decode_json_body(answer.body, TopicRouteData)
                    break

    async def _beat(self) -> None:
        while True:
            await trio.sleep(HEARTBEAT_SECONDS * self.place.chance.uniform(0.8, 1.2))
            await self._beat_once()

    async def _beat_once(self) -> None:
        """Say to every broker of every route that this client is there."""
        body = encode_json_body(self._heartbeat())
        addresses = {
            address: None
            for route in self.routes.values()
            for data in route.broker_datas
            for broker_id, address in data.broker_addrs.items()
            if broker_id == MASTER_ID or self._beats_slaves
        }
        for address in addresses:
            try:
                await self.ask(address, RequestCode.HEART_BEAT, None, body)
            except NoAnswerError as error:
                self.note(f"heartbeat to {address}: {error}")

    _beats_slaves = False

    # Requests

    def master(self, topic: str) -> str:
        """The address of the master of a topic, as far as this client knows."""
        route = self.routes.get(topic)
        if route is not None:
            for data in route.broker_datas:
                if MASTER_ID in data.broker_addrs:
                    return data.broker_addrs[MASTER_ID]
        raise NoAnswerError(f"no route to {topic}")

    def queues(self, topic: str) -> list[int]:
        """The ids of a topic's queues, as far as this client knows."""
        route = self.routes.get(topic)
        return list(range(route.queue_datas[0].read_queue_nums)) if route else []

    async def ask(
        self,
        address: str,
        code: int,
        ext: Ext = None,
        body: bytes = b"",
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> RemotingCommand:
        """Ask a node; the answer may be an error."""
        channel = await self._channel(address)
        return await channel.ask(code, ext, body, timeout_seconds)

    async def tell(self, address: str, code: int, ext: Ext = None, body: bytes = b"") -> None:
        """Tell a node, and hear nothing of it."""
        (await self._channel(address)).tell(code, ext, body)

    async def _channel(self, address: str) -> Channel:
        async with self._connecting.setdefault(address, trio.Lock()):
            channel = self._channels.get(address)
            if channel is None or not channel.is_open:
                channel = self._channels[address] = await self._connect(address)
            return channel

    async def _connect(self, address: str) -> Channel:
        host, _, port = address.partition(":")
        stream: SimulatedStream | None = None
        try:
            with trio.move_on_after(CONNECT_SECONDS):
                stream = await self.machine.connect(host, int(port), source=None)
        except ConnectionLost as error:
            raise NoAnswerError(str(error)) from error
        if stream is None:
            raise NoAnswerError(f"{address} does not answer")
        channel = Channel(stream, lambda command: self._pushed(address, command))
        self._nursery.start_soon(channel.run)
        return channel


class ClientSlot:
    """A place at an address where one client after the other lives."""

    def __init__(
        self,
        ip: str,
        start: Callable[[str, int], Client],
        nursery: trio.Nursery,
    ) -> None:
        self.ip = ip
        self._start = start
        self._nursery = nursery
        self._life = 0
        self.current: Client | None = None
        self.is_dark = False
        """Its machine has vanished."""

    def start(self) -> None:
        """Start a process; harmless if one runs."""
        if self.current is None:
            self._life += 1
            self.is_dark = False
            self.current = self._start(self.ip, self._life)
            self._nursery.start_soon(self.current.run)

    def kill(self) -> bool:
        """End it; whether one ran."""
        return self._gone(Client.kill)

    def vanish(self) -> bool:
        """End its machine; whether one ran."""
        is_gone = self._gone(Client.vanish)
        self.is_dark |= is_gone
        return is_gone

    def _gone(self, end: Callable[[Client], None]) -> bool:
        client, self.current = self.current, None
        if client is not None:
            end(client)
        return client is not None


def wall_clock_ms() -> int:
    """What clients put into messages as their birth."""
    return WallClock().now_ms()
