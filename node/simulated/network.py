"""A network in memory: streams that are bounded, late, stalled, cut and half open.

    SimulatedNetwork        the machines, and the cables between them (`node.simulated.cables`)
      Machine               one incarnation of a node or client; a `Network`
        SimulatedListener
        SimulatedStream     one end of a connection

It behaves as TCP does, as far as its users can tell:

- bytes arrive in order, cut into other pieces than they were sent in; never lost, never twice;
- a stream takes `STREAM_BYTES_MAX` bytes that were not read at the other end, then no more;
- a *stalled* link delivers nothing until it is healed, then everything: that is what dropped
  packets look like above TCP. Each direction is stalled by itself;
- `cut` resets connections at one end or at both; the end that was not told learns of it when its
  next bytes arrive at the other machine and are answered with a reset;
- `Machine.kill` is kill -9: the kernel closes the sockets, with a reset if bytes were unread;
- `Machine.power_off` tells nobody anything.

A machine that was killed is deaf and mute, so what its tasks do while they are being cancelled is
seen by nobody.
"""

import math
import random
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from node.simulated.cables import Cables
from node.simulated.virtual_clock import Timeline
from store.machine.network import AddressInUseError, ClosedHere, ConnectionLost, ReceivesSome
from tandem.wire.message import Host

STREAM_BYTES_MAX: Final = 64 * 1024
"""Bytes on their way or not yet read, per direction of a connection."""

TICK_SECONDS: Final = 0.000_25
"""Bytes arrive on a tick: what arrives together is delivered together, which saves wake-ups."""

BACKLOG_MAX: Final = 64
"""Connections that wait to be accepted; beyond it they are refused."""

EPHEMERAL_PORT_FIRST: Final = 40_000


class NetworkSettings(msgspec.Struct, frozen=True):
    """How a healthy network of one machine room behaves. Times in seconds."""

    delay_seconds_min: float = 0.000_05
    delay_seconds_max: float = 0.001
    split_chance: float = 0.2
    """Chance that what one call sends arrives in two pieces."""

    short_send_chance: float = 0.05
    """Chance that a call takes only a part although there is room for all."""


class SimulatedStream(ReceivesSome):
    """One end of a connection; implements `store.machine.network.Stream`.

    `remote` is the other end, None while the handshake is under way. Of the two directions this
    end owns the one that arrives here.
    """

    def __init__(self, machine: "Machine", local: Host, peer: Host) -> None:
        self._machine = machine
        self._local = local
        self._peer = peer
        self.remote: SimulatedStream | None = None
        self._arrived = bytearray()
        self._on_the_way = 0
        self._last_arrival = 0.0
        self._heals_seen = 0
        self._ended = False
        self._gone: type[ConnectionLost] = ConnectionLost
        self._why_gone: str | None = None
        self._readable = trio.lowlevel.ParkingLot()
        self._writable = trio.lowlevel.ParkingLot()
        self._receiving = False
        self.is_established = False
        """False while the handshake is under way: then there is nothing to cut yet."""

    @property
    def local(self) -> Host:
        """Address of this end."""
        return self._local

    @property
    def peer(self) -> Host:
        """Address of the other end."""
        return self._peer

    @property
    def usable(self) -> bool:
        """False once it was closed, reset or its machine died."""
        return self._why_gone is None

    async def receive_some(self, bytes_max: int) -> bytes:
        """See `Stream.receive_some`."""
        assert bytes_max > 0
        assert not self._receiving, "two tasks receive from one stream"
        self._receiving = True
        try:
            if not self._arrived or self._machine.network.chance.random() < 0.3:
                await trio.lowlevel.checkpoint()
            while not self._arrived and not self._ended and self.usable:
                await self._readable.park()
        finally:
            self._receiving = False
        self._expect_usable()
        data = bytes(self._arrived[:bytes_max])
        del self._arrived[:bytes_max]
        if data and self.remote is not None:
            self.remote._writable.unpark_all()
        return data

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """See `Stream.send_nowait`."""
        self._expect_usable()
        assert self.remote is not None
        room = STREAM_BYTES_MAX - self.remote._on_the_way - len(self.remote._arrived)
        size = min(len(data), max(0, room))
        chance = self._machine.network.chance
        if size > 1 and chance.random() < self._machine.network.settings.short_send_chance:
            size = chance.randrange(1, size)
        if size:
            self._send(bytes(memoryview(data)[:size]))
        return size

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `Stream.send_all`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        sent = self.send_nowait(data)
        while sent < len(data):
            if not self._has_room():
                await self._writable.park()
            sent += self.send_nowait(memoryview(data)[sent:])

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        self.close_nowait()
        await trio.lowlevel.checkpoint()

    def close_nowait(self) -> None:
        """See `Stream.close_nowait`. Unread bytes turn the farewell into a reset, as in TCP."""
        if not self.usable:
            return
        remote = self.remote
        unread = bool(self._arrived)
        self._end(f"the connection to {self._peer} was closed here", ClosedHere)
        if remote is not None:
            self._machine.note(f"{self._name} {'reset' if unread else 'close'}")
            self._transmit(0, remote._reset if unread else remote._receive_end)

    def abandon(self) -> None:
        """Forget the connection and tell nobody, as a machine without power does."""
        self._end(f"{self._local} lost power")

    @property
    def _name(self) -> str:
        return f"{self._local}>{self._peer}"

    def _has_room(self) -> bool:
        remote = self.remote
        return (
            not self.usable
            or remote is None
            or remote._on_the_way + len(remote._arrived) < STREAM_BYTES_MAX
        )

    def _expect_usable(self) -> None:
        if self._why_gone is not None:
            raise self._gone(self._why_gone)

    def _send(self, data: bytes) -> None:
        network = self._machine.network
        self._machine.note(f"{self._name} send {len(data)}")
        arriving = network.garble(self._local, self._peer, data)
        pieces = [arriving]
        if len(data) > 1 and network.chance.random() < network.settings.split_chance:
            cut = network.chance.randrange(1, len(data))
            pieces = [arriving[:cut], arriving[cut:]]
        remote = self.remote
        assert remote is not None
        for piece in pieces:
            remote._on_the_way += len(piece)
            self._transmit(len(piece), lambda piece=piece: remote._receive(piece))  # type: ignore[misc]
        network.on_sent(self._local, self._peer, data)

    def _transmit(self, size_bytes: int, delivery: Callable[[], None]) -> None:
        """Deliver behind everything this end has sent before."""
        network = self._machine.network
        link = network.link_between(self._local, self._peer)
        if self._heals_seen != link.heal_count:
            # What was slow has arrived by now; only what is on its way must not be overtaken.
            self._heals_seen = link.heal_count
            self._last_arrival = min(self._last_arrival, link.healthy_until)
        time = link.arrival_time(size_bytes, network.delay_seconds())
        time = math.ceil(time / TICK_SECONDS) * TICK_SECONDS
        self._last_arrival = max(time, self._last_arrival)
        link.send(network.timeline, self._last_arrival, delivery)

    def _receive(self, data: bytes) -> None:
        self._on_the_way -= len(data)
        if self._why_gone is None and not self._ended:
            self._arrived += data
            self._readable.unpark_all()
        else:
            self._answer_with_reset()

    def _receive_end(self) -> None:
        self._ended = True
        self._readable.unpark_all()

    def _reset(self) -> None:
        if self.usable:
            self._machine.note(f"{self._name} was reset")
            self._end(f"the connection to {self._peer} broke: Connection reset by peer")

    def _answer_with_reset(self) -> None:
        if self.remote is not None and self.remote.usable:
            self._transmit(0, self.remote._reset)

    def _end(self, reason: str, kind: type[ConnectionLost] = ConnectionLost) -> None:
        self._why_gone, self._gone = reason, kind
        self._arrived.clear()
        self._readable.unpark_all()
        self._writable.unpark_all()
        if self.remote is not None:
            self.remote._writable.unpark_all()
        self._machine.forget(self)


class SimulatedListener:
    """Implements `store.machine.network.Listener`."""

    def __init__(self, machine: "Machine", address: Host) -> None:
        self._machine = machine
        self.address = address
        self._waiting: deque[SimulatedStream] = deque()
        self._arrival = trio.lowlevel.ParkingLot()
        self._closed = False

    @property
    def port(self) -> int:
        """See `Listener.port`."""
        return self.address.port

    async def accept(self) -> SimulatedStream:
        """See `Listener.accept`."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._closed:
                raise ClosedHere("the listener was closed")
            await self._arrival.park()
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """See `Listener.aclose`."""
        self.close_nowait()
        await trio.lowlevel.checkpoint()

    def close_nowait(self) -> None:
        """Close; connections nobody accepted are reset."""
        self._closed = True
        self._machine.network.forget_listener(self)
        while self._waiting:
            self._waiting.popleft().close_nowait()
        self._arrival.unpark_all()

    def offer(self, stream: SimulatedStream) -> bool:
        """Queue a connection that was opened; False if there is no room."""
        if len(self._waiting) >= BACKLOG_MAX:
            return False
        self._waiting.append(stream)
        self._arrival.unpark()
        return True

    @property
    def machine(self) -> "Machine":
        """Whose listener it is."""
        return self._machine


class Machine:
    """One process's view of the network; implements `store.machine.network.Network`."""

    def __init__(self, network: "SimulatedNetwork", ip: str) -> None:
        self.network = network
        self.ip = ip
        self.alive = True
        self._streams: dict[SimulatedStream, None] = {}
        self._listeners: list[SimulatedListener] = []

    async def connect(self, host: str, port: int, *, source: str | None) -> SimulatedStream:
        """See `Network.connect`. A stalled link makes it wait until the link is healed."""
        await trio.lowlevel.checkpoint()
        self._expect_alive()
        if source not in (None, self.ip):
            raise ConnectionLost(f"cannot connect to {host}:{port}: Cannot assign {source}")
        local = Host(self.ip, self.network.next_port())
        stream = SimulatedStream(self, local, Host(host, port))
        self.adopt(stream)
        handshake = _Handshake(self.network, stream)
        try:
            refused = await handshake.shake()
        except BaseException:
            stream.close_nowait()
            raise
        self._expect_alive()
        if refused:
            stream.close_nowait()
            raise ConnectionLost(f"cannot connect to {host}:{port}: Connection refused")
        stream.is_established = True
        return stream

    async def listen(self, host: str, port: int) -> SimulatedListener:
        """See `Network.listen`."""
        await trio.lowlevel.checkpoint()
        self._expect_alive()
        listener = SimulatedListener(self, Host(host, port or self.network.next_port()))
        self.network.add_listener(listener)
        self._listeners.append(listener)
        return listener

    def kill(self) -> None:
        """End as by kill -9: the kernel closes every socket, in an order of its own."""
        self.note(f"{self.ip} killed")
        streams = self._die()
        self.network.chance.shuffle(streams)
        for stream in streams:
            stream.close_nowait()

    def power_off(self) -> None:
        """End without a word to anybody. The peers learn of it when they next send."""
        self.note(f"{self.ip} lost power")
        self.network.go_dark(self.ip)
        for stream in self._die():
            stream.abandon()

    def adopt(self, stream: SimulatedStream) -> None:
        """Note a stream that lives and dies with this machine."""
        if stream.usable:
            self._streams[stream] = None

    def forget(self, stream: SimulatedStream) -> None:
        """Drop a stream that has ended."""
        self._streams.pop(stream, None)

    def streams_to(self, ip: str) -> list[SimulatedStream]:
        """Return the established streams whose other end is at `ip`."""
        return [s for s in self._streams if s.peer.ip == ip and s.is_established]

    def reset_streams_to(self, ip: str) -> None:
        """Reset this machine's ends of the connections to `ip`; the other ends are not told."""
        for stream in self.streams_to(ip):
            stream._reset()

    def note(self, event: str) -> None:
        """Add a line to the trace."""
        self.network.on_event(event)

    def _die(self) -> list[SimulatedStream]:
        self.alive = False
        streams = list(self._streams)
        for listener in self._listeners:
            listener.close_nowait()
        self._listeners.clear()
        return streams

    def _expect_alive(self) -> None:
        if not self.alive:
            raise ConnectionLost(f"{self.ip} is down")


class _Handshake:
    """SYN to the listener and the answer back. Closing the stream meanwhile gives it up."""

    def __init__(self, network: "SimulatedNetwork", stream: SimulatedStream) -> None:
        self._network = network
        self._stream = stream
        self._answered = trio.Event()
        self._refused = False

    async def shake(self) -> bool:
        """Return True if the other side refused."""
        self._stream._transmit(0, self._knock)
        await self._answered.wait()
        return self._refused

    def _knock(self) -> None:
        if not self._stream.usable:
            return
        local, peer = self._stream.local, self._stream.peer
        listener = self._network.listener_at(peer)
        if listener is None:
            self._answer(refused=True)
            return
        end = SimulatedStream(listener.machine, peer, local)
        if not listener.offer(end):
            self._answer(refused=True)
            return
        end.remote = self._stream
        end.is_established = True
        self._stream.remote = end
        listener.machine.adopt(end)
        self._network.on_event(f"{local}>{peer} connected")
        end._transmit(0, lambda: self._answer(refused=False))

    def _answer(self, *, refused: bool) -> None:
        self._refused = refused
        self._answered.set()
        # Given up between the two halves: a real kernel answers the second with a reset.
        if not self._stream.usable:
            self._stream._answer_with_reset()


class SimulatedNetwork(Cables):
    """All machines, and the cables between them. `chance` decides delays and pieces.

    Attributes:
        on_sent: sees every byte when it has been handed over, for checks of what was promised. It
            may kill the sender.
        garble: what a wire makes of the bytes that are sent over it.
    """

    def __init__(
        self,
        timeline: Timeline,
        chance: random.Random,
        *,
        settings: NetworkSettings | None = None,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(timeline, on_event=on_event)
        self.chance = chance
        self.settings = settings or NetworkSettings()
        self.on_sent: Callable[[Host, Host, bytes], None] = lambda _from, _to, _data: None
        self.garble: Callable[[Host, Host, bytes], bytes] = lambda _from, _to, data: data
        self._listeners: dict[Host, SimulatedListener] = {}
        self._machines: dict[str, Machine] = {}
        self._port = EPHEMERAL_PORT_FIRST

    def machine(self, ip: str) -> Machine:
        """Start a machine at `ip`, the next incarnation if there was one before."""
        before = self._machines.get(ip)
        assert before is None or not before.alive, f"{ip} is up already"
        machine = self._machines[ip] = Machine(self, ip)
        self.go_bright(ip)
        return machine

    def machine_at(self, ip: str) -> Machine:
        """Return the machine that runs at `ip`."""
        return self._machines[ip]

    @property
    def addresses(self) -> list[str]:
        """Where a machine runs, or ran."""
        return list(self._machines)

    def cut(self, ip: str, other_ip: str, *, half_open: bool = False) -> None:
        """Reset the connections between two machines; with `half_open` only at `ip`."""
        self.on_event(f"cut {ip} {other_ip}{' half open' if half_open else ''}")
        for here, there in ((ip, other_ip), (other_ip, ip))[: 1 if half_open else 2]:
            if here in self._machines:
                self._machines[here].reset_streams_to(there)

    def delay_seconds(self) -> float:
        """Draw the time one piece needs on a healthy link."""
        return self.chance.uniform(self.settings.delay_seconds_min, self.settings.delay_seconds_max)

    def next_port(self) -> int:
        """Return a port nobody has."""
        self._port += 1
        return self._port

    def add_listener(self, listener: SimulatedListener) -> None:
        """Take the address of a listener."""
        if listener.address in self._listeners:
            raise AddressInUseError(host=listener.address.ip, port=listener.address.port)
        self._listeners[listener.address] = listener

    def forget_listener(self, listener: SimulatedListener) -> None:
        """Give the address back; harmless when repeated."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def listener_at(self, address: Host) -> SimulatedListener | None:
        """Return who listens there."""
        return self._listeners.get(address)
