"""A fenced group: real stores and replicas over simulated disks, network and coordinator."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from ha.errors import NotServedError, PeerSilentError
from ha.fenced.closed_healing import ClosedHealing
from ha.fenced.config import FencedConfig
from ha.fenced.events import HAEvent
from ha.fenced.ha_service import FencedHAService
from ha.fenced.master import FencedMaster
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.served_log import ServedLog
from ha.results import Ack
from node.simulated.coordinator import SimulatedCoordinator
from node.simulated.network import Machine, NetworkSettings
from node.simulated.virtual_clock import WallClock
from store import MessageStore, PutMessage, PutMessageStatus
from store.machine.machine import Machine as NodeMachine
from tandem.wire.group_state import GroupState, LeaderRecord, decode_leader, decode_state
from tandem.wire.peer_log import PeerLogPart
from tests.ha.world import IPS, KEYS, STORE_CONFIG, World, fenced_config, read_whole_log

COORDINATOR_IP: Final = "127.0.9.1"


class Replica:
    """One node: rounds of a store and its service, until it is killed."""

    def __init__(self, world: FencedWorld, config: FencedConfig) -> None:
        self.world = world
        self.config = config
        self.name = config.name
        self.machine: Machine = world.network.machine(config.address)
        self.boot_id = "boot-1"
        self.boot_offset = 0.0
        self.store: MessageStore
        self.ha: FencedHAService
        self.rounds = 0
        self.epochs_opened: list[int] = []
        self.events: list[HAEvent] = []
        self.scope = trio.CancelScope()
        self.serves = False

    async def run(self) -> None:
        """Run rounds until killed or stopped."""
        with self.scope:
            while True:
                await self._run_round()
                await trio.sleep(0.05)

    async def _run_round(self) -> None:
        machine = NodeMachine(
            disk=self.world.disks[self.name],
            network=self.machine,
            wall_clock_ms=WallClock().now_ms,
            boottime=lambda: trio.current_time() + self.boot_offset,
            boot_id=self.boot_id,
            random=random.Random(self.world.chance.random()),
            on_event=self.events.append,
        )
        peer_logs = WorldPeerLogs(self.world)
        closed = ClosedHealing(self.config, STORE_CONFIG, machine, peer_logs)
        with await closed.open(partial(self.world.open_store, self.name)) as self.store:
            self.ha = FencedHAService(
                self.config,
                self.store,
                machine,
                self.world.coordinator.client(self.machine),
                peer_logs=peer_logs,
            )
            self.rounds += 1
            self._round_over = trio.Event()
            async with trio.open_nursery() as nursery:
                await nursery.start(self.store.run)
                await nursery.start(self.ha.run, self)
                self.serves = True
                await self._round_over.wait()
                self.serves = False
                nursery.cancel_scope.cancel()
        self.ha.stopped_clean()

    # The `ReplicationListener`.

    def opened(self, epoch: int) -> None:
        self.epochs_opened.append(epoch)

    def role_changed(self) -> None: ...

    def answered(self) -> None: ...

    def ended(self, reason: str) -> None:
        self._round_over.set()

    def put(self, body: bytes = b"body") -> int:
        """Put one message; return its end offset."""
        assert self.ha.refusal() is None
        result = self.store.puts.put_message(PutMessage("T", 0, body, b"", 1, bytes(8)))
        assert result.status is PutMessageStatus.PUT_OK, result.reason
        return result.end_offset

    def submit(self, end: int, *, flushed: bool = False) -> list[tuple[PutMessageStatus, str]]:
        """Have a put waited for; return the list its answer will be in."""
        answers: list[tuple[PutMessageStatus, str]] = []
        self.ha.waits(Ack.FLUSHED if flushed else Ack.REPLICATED).submit(
            end,
            trio.current_time() + 3.0,
            lambda status, reason: answers.append((status, reason)),
        )
        self.store.announce()
        return answers

    async def send(self, body: bytes = b"body", *, flushed: bool = False) -> PutMessageStatus:
        """Put one message and wait for its outcome."""
        answers = self.submit(self.put(body), flushed=flushed)
        with trio.fail_after(10):
            while not answers:
                await trio.sleep(0.001)
        return answers[0][0]

    @property
    def bodies(self) -> list[bytes]:
        """What is in the log, in order; of messages of the tests only."""
        log = read_whole_log(self.store)
        return [word for word in log.split(b"|") if word.startswith(b"m")]

    def kill(self) -> None:
        """Kill -9: what the process still does is seen by nobody, its disk stays."""
        self.machine.kill()
        self.world.disks[self.name] = self.world.disks[self.name].crashed()
        self.scope.cancel()


class WorldPeerLogs:
    """What a replica asks its peers of their logs, without a wire."""

    def __init__(self, world: FencedWorld) -> None:
        self._world = world

    @asynccontextmanager
    async def session(self, peer: str) -> AsyncIterator[WorldPeerLog]:
        yield WorldPeerLog(self._world, peer)


class WorldPeerLog:
    """One peer: its `ServedLog` itself, as long as it is there."""

    def __init__(self, world: FencedWorld, name: str) -> None:
        self._world = world
        self._name = name

    async def _served(self) -> ServedLog:
        await trio.sleep(0.001)
        replica = self._world.replicas.get(self._name)
        if replica is None or not replica.serves or not replica.machine.alive:
            raise PeerSilentError(f"{self._name} is not there")
        return replica.ha.served_log

    async def part(self, start: int, end: int) -> PeerLogPart:
        served = await self._served()
        try:
            return served.part(start, end)
        except NotServedError as error:
            raise PeerSilentError(str(error)) from error

    async def data(self, start: int, end: int, history: str = "") -> bytes:
        served = await self._served()
        try:
            return served.data(start, end, history)
        except NotServedError as error:
            raise PeerSilentError(str(error)) from error

    async def doubt(self, start: int, end: int) -> None:
        (await self._served()).doubted(start, end)


class FencedWorld(World):
    """The machine room of a whole group, with its coordinator."""

    def __init__(self, settings: NetworkSettings | None = None) -> None:
        super().__init__(settings, seed=2)
        self.chance = random.Random(1)
        self.coordinator = SimulatedCoordinator(COORDINATOR_IP, self.network, random.Random(3))
        self.replicas: dict[str, Replica] = {}

    def start(self, name: str, **changes: object) -> Replica:
        replica = self.replicas[name] = Replica(self, fenced_config(name, **changes))
        self.nursery.start_soon(replica.run)
        return replica

    @property
    def state(self) -> GroupState | None:
        item = self.coordinator.item(KEYS.state)
        return decode_state(item.value) if item else None

    @property
    def leader(self) -> LeaderRecord | None:
        item = self.coordinator.item(KEYS.leader)
        return decode_leader(item.value) if item else None

    @property
    def isr(self) -> list[str]:
        state = self.state
        return sorted(state.isr) if state else []

    def reap(self, name: str) -> None:
        """Do what a supervisor does for a child that died."""
        self.coordinator.revoke_leases_of(KEYS.node(name))

    async def wait_for(self, what: Callable[[], object], seconds: float = 30.0) -> None:
        with trio.fail_after(seconds):
            while not what():
                await trio.sleep(0.01)

    def masters(self) -> list[Replica]:
        return [
            replica
            for replica in self.replicas.values()
            if replica.serves and replica.ha.role is ReplicaRole.MASTER and replica.machine.alive
        ]

    async def master(self, *, but: str = "", seconds: float = 30.0) -> Replica:
        """Wait for a master that takes messages."""
        with trio.fail_after(seconds):
            while True:
                for replica in self.masters():
                    if replica.name != but and replica.ha.refusal() is None:
                        return replica
                await trio.sleep(0.01)

    async def whole_group(self) -> Replica:
        """Start all nodes; return the master once all are in sync."""
        for name in IPS:
            self.start(name)
        master = await self.master()
        await self.wait_for(lambda: self.in_sync(master))
        # And have seen it: for one that has not, no master that is cut off from now on makes room.
        await self.wait_for(lambda: all(r.ha.replica.is_complete for r in self.replicas.values()))
        return master

    def in_sync(self, master: Replica) -> bool:
        mastership = master.ha.standing.mastership
        return (
            self.isr == sorted(IPS)
            and mastership is not None
            and mastership.isr.live_count(trio.current_time()) == len(IPS)
        )

    def is_back(self, replica: Replica) -> bool:
        """True if a node that was started anew is a member under its present incarnation."""
        if not replica.serves or self.state is None:
            return False
        is_member = self.state.isr.get(replica.name) == replica.ha.replica.file.incarnation
        # One that was master itself is here again before there is another.
        return is_member and any(map(self.in_sync, self.masters()))

    def slaves(self) -> list[Replica]:
        masters = self.masters()
        return [r for r in self.replicas.values() if r not in masters and r.machine.alive]

    def isolate(self, ip: str, other_ip: str) -> None:
        self.network.stall(ip, other_ip)
        self.network.stall(other_ip, ip)


open_world = FencedWorld.open


def refused(by: FencedHAService | FencedMaster) -> str:
    """Why no put is taken, in words; empty if puts are taken."""
    refusal = by.refusal()
    return "" if refusal is None else refusal.text
