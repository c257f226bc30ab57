"""The machines of one group in one process: started, killed, frozen, stopped and started again.

Nothing in here knows how a node works. It is a function that is given a configuration, a disk, a
network and a clock, and runs until it is cancelled or asked to stop. What a kind of group adds, and
what somebody who watches wants to know, is in the methods of the last part.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import trio

from ha.fenced.events import HAEvent
from node.run import run_node
from node.simulated.deterministic_trio import Hold
from node.simulated.disk import SimulatedDisk
from node.simulated.network import Machine as NetworkMachine
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import BootClock, WallClock
from store.machine.errors import CorruptLogError, StoreError
from store.machine.machine import Machine
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.coordinator.interface import Coordinator


class Incarnation:
    """One run of a process, from start to kill."""

    def __init__(self, name: str, network: NetworkMachine) -> None:
        self.name = name
        self.network = network
        self.stop = trio.Event()
        """Set by SIGTERM."""
        self.scope = trio.CancelScope()
        self.hold = Hold(lambda context: context.get(incarnation_of_task) is self)
        """Begun while the process stands still."""


incarnation_of_task: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar(
    "incarnation", default=None
)
"""Whose task is running; tells whose log line it is."""


class SimulatedNode:
    """One node over all its incarnations. Its disk is the one that the next start will find."""

    def __init__(self, config: NodeConfig, disk: SimulatedDisk, clock: WallClock) -> None:
        self.config = config
        self.name = config.node.name
        self.ip = config.node.address
        self.directory = str(config.directory)
        self.disk = disk
        self.clock = clock
        self.boot_clock = BootClock()
        self.current: Incarnation | None = None
        self.life = 0
        """How often it was started."""
        self.disk_was_hurt = False
        """It was full or failed, so that giving up was right."""
        self.start_again = False
        """As soon as the process has ended that was asked to."""

    @property
    def is_up(self) -> bool:
        """True while a process runs."""
        return self.current is not None


class Crash(msgspec.Struct, frozen=True):
    """A node that ended by itself."""

    node: str
    at_seconds: float
    text: str
    excused: bool
    """True if its disk was being hurt, so that giving up was right."""


N = TypeVar("N", bound=SimulatedNode)


class SimulatedMachines(Generic[N]):
    """The nodes of one group, and what happens to their machines."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        network: SimulatedNetwork,
        chance: random.Random,
        note: Callable[[str, str], None],
        nursery: trio.Nursery,
    ) -> None:
        self.network = network
        self.crashes: list[Crash] = []
        self.hit: dict[str, int] = {}
        """Faults that did something, and how often."""
        self._chance = chance
        self._note = note
        self._nursery = nursery
        self.nodes: dict[str, N] = {
            settings.name: self._new_node(
                config.node(settings.name),
                self._new_disk(settings.name),
                WallClock(skew_ms=chance.randint(-200, 200), drift_ppm=chance.randint(-100, 100)),
            )
            for settings in config.nodes
        }
        self._nodes_by_ip = {node.ip: node for node in self.nodes.values()}

    def _new_disk(self, name: str) -> SimulatedDisk:
        return SimulatedDisk(
            sync_seconds=lambda: self._chance.uniform(0.000_1, 0.002),
            on_event=lambda event: self._disk_event(name, event),
        )

    def start(self, name: str) -> None:
        """Start a node's process, once the one before has ended; harmless if it runs."""
        node = self.nodes[name]
        if node.current is not None:
            node.start_again = node.current.stop.is_set()
            return
        node.start_again = False
        node.life += 1
        self._note("fault", f"start {name}")
        life = node.current = self._new_incarnation(node, self.network.machine(node.ip))
        machine = Machine(
            disk=node.disk,
            network=life.network,
            wall_clock_ms=node.clock.now_ms,
            boottime=node.boot_clock.now_seconds,
            boot_id=node.boot_clock.boot_id,
            random=random.Random(self._chance.random()),
            on_event=self._listener(node),
        )
        self._nursery.start_soon(self._run, node, life, machine)

    async def _run(self, node: N, life: Incarnation, machine: Machine) -> None:
        incarnation_of_task.set(life)
        error: BaseException | None = None
        try:
            with life.scope:
                coordinator = self._coordinator(life)
                await run_node(node.config, machine, stop=life.stop, coordinator=coordinator)
        except BaseExceptionGroup as group:
            _, error = group.split(trio.Cancelled)
            if error is None:
                raise
        except Exception as caught:  # noqa: BLE001  # judged below
            error = caught
        # Of a node that was killed, what its tasks ran into meanwhile is nobody's business.
        if node.current is life:
            node.current = None
            life.network.kill()
            node.disk = node.disk.crashed()
            if error is not None:
                self._note_crash(node, error)
            if node.start_again:
                self.start(node.name)

    def _note_crash(self, node: N, error: BaseException) -> None:
        if self._is_remedied(node, error):
            return
        text = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
        excused = node.disk_was_hurt and all(
            isinstance(leaf, StoreError | OSError) and not isinstance(leaf, CorruptLogError)
            for leaf in leaves(error)
        )
        self._note(node.name, f"ended by itself: {text}")
        self.crashes.append(Crash(node.name, trio.current_time(), text, excused))

    # What happens to machines

    def note_hit(self, name: str) -> None:
        """Take note that a fault did something."""
        self.hit[name] = self.hit.get(name, 0) + 1

    def kill(self, name: str) -> None:
        """Kill -9. What is in the page cache stays."""
        node = self.nodes[name]
        if node.current is not None:
            self._end_process(node, node.current)
            self.note_hit("kill")
            self._was_killed(node)

    def kill_all(self) -> None:
        """Kill every node when all is over: no fault, and nobody notes it."""
        for node in self.nodes.values():
            if node.current is not None:
                self._end_process(node, node.current)

    def _end_process(self, node: N, dead: Incarnation) -> None:
        node.current = None
        dead.hold.release()
        dead.network.kill()
        node.disk = node.disk.crashed()
        self._process_ended(node, dead)
        dead.scope.cancel()

    def power_off(self, name: str) -> None:
        """Cut the power. What was not synced may be lost."""
        node = self.nodes[name]
        if node.current is None:
            return
        self.note_hit("power-off")
        dead, node.current = node.current, None
        dead.hold.release()
        dead.network.power_off()
        node.boot_clock.restart()
        node.disk = node.disk.powered_off(self._chance)
        self._lost_power(node)
        dead.scope.cancel()

    def freeze(self, name: str, seconds: float) -> None:
        """Let a process stand still for a while."""
        life = self.nodes[name].current
        if life is None or life.hold.is_active:
            return
        self.note_hit("freeze")
        life.hold.begin()
        self.network.timeline.call_later(seconds, lambda: self.thaw(life))

    def thaw(self, life: Incarnation) -> None:
        """Let a process run again; harmless if it does."""
        if life.hold.is_active:
            self._note("fault", f"thaw {life.name}")
            life.hold.release()

    def stop(self, name: str) -> None:
        """SIGTERM. The process ends when it has finished what it has to."""
        life = self.nodes[name].current
        if life is not None:
            self.note_hit("stop")
            life.stop.set()

    def heal_disk(self, node: N) -> None:
        """End the faults of a disk."""
        healthy = self._new_disk(node.name)
        node.disk.capacity_bytes = healthy.capacity_bytes
        node.disk.sync_within(healthy.sync_seconds)
        node.disk.sync_fails = False

    def name_servers(self) -> list[str]:
        """Return where clients ask for routes."""
        return [f"{node.ip}:{node.config.node.name_server_port}" for node in self.nodes.values()]

    # What a kind of group adds

    def _new_node(self, config: NodeConfig, disk: SimulatedDisk, clock: WallClock) -> N:
        """Return a node that was never started."""
        raise NotImplementedError

    def _new_incarnation(self, node: N, network: NetworkMachine) -> Incarnation:
        """Return what begins with a start."""
        return Incarnation(node.name, network)

    def _disk_event(self, name: str, event: str) -> None:
        """Something is about to happen to a disk."""
        self._note(name, f"disk {event}")

    def _listener(self, node: N) -> Callable[[HAEvent], None] | None:
        """Return who hears what the next life of a node says, if anybody does."""
        del node
        return None

    def _coordinator(self, life: Incarnation) -> Coordinator | None:
        """Return what a life of a node talks to, if there is a coordinator."""
        del life
        return None

    def _process_ended(self, node: N, dead: Incarnation) -> None:
        """A process was killed; its disk is as the next one will find it."""

    def _was_killed(self, node: N) -> None:
        """A process was killed, or its disk failed and it had to go."""

    def _lost_power(self, node: N) -> None:
        """A machine has lost power, and perhaps what it had not synced."""

    def _is_remedied(self, node: N, error: BaseException) -> bool:
        """Whether a node that ended by itself had cause to, and somebody helps."""
        del node, error
        return False


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors that a group of errors is made of."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]
