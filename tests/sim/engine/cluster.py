"""The machines of one group in one process: started, killed, frozen, cut off and started again.

`SimulatedCluster` does to machines what faults do. What a kind of group adds (a coordinator, alarms
of its own, what its nodes say) is in a class below it, which fills in the methods of the last part.

Nothing in here knows how a node works. It is a function that is given a configuration, a disk, a
network and a clock, and runs until it is cancelled or told to stop; what it did is read from its
disk, from the bytes it sends, from its events and from its log lines.
"""

import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from ha.fenced.events import HAEvent
from node.run import run_node
from store.machine.errors import CorruptLogError, StoreError
from store.machine.machine import Machine
from store.machine.network import ConnectionLost
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.coordinator.interface import Coordinator
from tandem.wire.message import Host, decode_message
from tests.sim.engine.client_watch import AskedPull, ClientWatch
from tests.sim.engine.faults import ALL, MASTER
from tests.sim.engine.history import AnswerSeen, EmptyPull, Extent, History
from tests.sim.engine.log_tail import DiskTails
from tests.sim.engine.node import (
    Crash,
    Incarnation,
    LogLine,
    SimulatedNode,
    incarnation_of_task,
)
from tests.sim.engine.rot import rot_log
from tests.sim.engine.trace import Trace
from tests.sim.engine.whole_disk import is_healed
from tests.sim.engine.workload import TOPIC
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_network import SimulatedNetwork
from tests.support.virtual_clock import WallClock

ROLES: Final = ("first", "second", "third", "fourth", "fifth")
"""How scenarios name the nodes: `first` is the master when the load begins."""


class SimulatedCluster:
    """The nodes of one group.

    Attributes:
        channels: links between two machines that can be cut apart from the others.
        other_addresses: names of machines, beside nodes, that plans may use.
    """

    channels: tuple[str, ...] = ("",)

    def __init__(
        self,
        config: ClusterConfig,
        history: History,
        *,
        network: SimulatedNetwork,
        chance: random.Random,
        trace: Trace,
        nursery: trio.Nursery,
    ) -> None:
        self.history = history
        self.network = network
        self.crashes: list[Crash] = []
        self.log_lines: list[LogLine] = []
        self.hit: dict[str, int] = {}
        """Faults that did something, and how often."""
        self.roles: dict[str, str] = {}
        self.flips: dict[tuple[str, str], int] = {}
        """How many bits are still to be flipped on the way from one address to another."""
        self.quiet_until = 0.0
        """Producers send nothing before."""
        self.other_addresses: dict[str, str] = {}
        self._chance = chance
        self._trace = trace
        self._nursery = nursery
        self.nodes = {
            settings.name: SimulatedNode(
                config.node(settings.name),
                self._new_disk(settings.name),
                WallClock(skew_ms=chance.randint(-200, 200), drift_ppm=chance.randint(-100, 100)),
            )
            for settings in config.nodes
        }
        self._nodes_by_ip = {node.ip: node for node in self.nodes.values()}
        self._tails: dict[str, DiskTails] = {}
        self._clients = ClientWatch(
            self.nodes.values(), on_stored=self._was_stored, on_empty=self._was_empty
        )
        network.on_sent = self._watch_sent
        network.garble = self._garble

    def _new_disk(self, name: str) -> SimulatedDisk:
        return SimulatedDisk(
            sync_seconds=lambda: self._chance.uniform(0.000_1, 0.002),
            on_event=lambda event: self._disk_event(name, event),
        )

    def _disk_event(self, name: str, event: str) -> None:
        self._trace.note(name, f"disk {event}")
        if event.startswith("sync") and "/commitlog/" in event:
            self._syncs_log(self.nodes[name])
        self._count_down(self.nodes[name], "kill-at-disk")

    def _count_down(self, node: SimulatedNode, verb: str) -> None:
        """Kill the node if this is what it was waiting for, in the middle of what it is doing."""
        if node.kill_at is None or node.kill_at[0] != verb:
            return
        left = node.kill_at[1] - 1
        node.kill_at = (verb, left) if left else None
        if not left:
            self._trace.note("fault", f"{verb} {node.name} now")
            if node.is_up:
                self.note_hit(verb)
            self.kill(node.name)

    def start(self, name: str) -> None:
        """Start a node's process, once the one before has ended; harmless if it runs."""
        node = self.nodes[name]
        if node.current is not None:
            node.start_again = node.current.stop.is_set()
            return
        node.start_again = False
        node.life += 1
        self._trace.note("fault", f"start {name}")
        life = node.current = Incarnation(node, self.network.machine(node.ip))
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

    async def _run(self, node: SimulatedNode, life: Incarnation, machine: Machine) -> None:
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

    def _note_crash(self, node: SimulatedNode, error: BaseException) -> None:
        if self._is_remedied(node, error):
            return
        text = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
        excused = node.disk_was_hurt and all(
            isinstance(leaf, StoreError | OSError) and not isinstance(leaf, CorruptLogError)
            for leaf in leaves(error)
        )
        self._trace.note(node.name, f"ended by itself: {text}")
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

    def _end_process(self, node: SimulatedNode, dead: Incarnation) -> None:
        node.current = None
        dead.hold.release()
        dead.network.kill()
        node.disk = node.disk.crashed()
        self._tear(node, dead.tail.end())
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
        self.network.timeline.call_later(seconds, lambda: self._thaw(life))

    def _thaw(self, life: Incarnation) -> None:
        if life.hold.is_active:
            self._trace.note("fault", f"thaw {life.name}")
            life.hold.release()

    def stop(self, name: str) -> None:
        """SIGTERM. The process ends when it has finished what it has to."""
        life = self.nodes[name].current
        if life is not None:
            self.note_hit("stop")
            life.stop.set()

    def wipe(self, name: str) -> None:
        """Move the store of a stopped node away, as the remedy in an alarm says."""
        node = self.nodes[name]
        assert not node.is_up
        self._trace.note("fault", f"wipe {name}")
        self._wiping(node)
        node.disk = self._new_disk(name)
        node.rots.clear()

    def send_garbage(self, name: str, ip: str) -> None:
        """Have somebody at `ip` send nonsense to every port of a node."""
        self.note_hit("garbage")
        self._nursery.start_soon(self._send_garbage, self.nodes[name], ip)

    async def _send_garbage(self, node: SimulatedNode, ip: str) -> None:
        """Send nonsense to every port: noise, then what looks like the beginning of a frame."""
        machine = self.network.machine_at(ip)
        for port in self._ports(node):
            for head in (b"", b"\0\0\0\x64\0\0\0\x20", b"\x7f\xff\xff\xff"):
                noise = head + self._chance.randbytes(self._chance.randint(1, 200))
                with trio.move_on_after(1.0), suppress(ConnectionLost):
                    stream = await machine.connect(node.ip, port, source=None)
                    await stream.send_all(noise)
                    await stream.receive_some(1000)
                    await stream.aclose()

    def heal_disk(self, node: SimulatedNode) -> None:
        """End the faults of a disk."""
        healthy = self._new_disk(node.name)
        node.disk.capacity_bytes = healthy.capacity_bytes
        node.disk.sync_seconds = healthy.sync_seconds
        node.disk.sync_fails = False

    def heal(self) -> None:
        """End every fault and start every node. One whose disk failed has to start again."""
        for node in self.nodes.values():
            if node.current is not None:
                self._thaw(node.current)
        self.flips.clear()
        self._heal_others()
        self._trace.note("fault", "heal everything")
        self.network.heal_all()
        for node in self.nodes.values():
            node.kill_at = None
            self.heal_disk(node)
            if node.sync_has_failed:
                self.kill(node.name)
            self.start(node.name)

    def _tear(self, node: SimulatedNode, end: int) -> None:
        """Now and then leave the beginning of a record behind the log, as a kill in a put does.

        A record is written from behind its length to its end, then its length: what a kill leaves
        is bytes behind four zeros.
        """
        if not end or self._chance.random() < 0.5:
            return
        file_bytes = node.config.cluster.store.mapped_file_size_commit_log_bytes
        path = f"{node.directory}/commitlog/{end - end % file_bytes:020d}"
        if not node.disk.exists(path):
            return
        buffer = node.disk.open(path).buffer
        position = end % file_bytes
        size = self._chance.randint(5, 120)
        if position + size > file_bytes:
            return
        buffer[position + 4 : position + size] = buffer[4:size]
        self._trace.note(node.name, f"torn {size} bytes at {end}")

    def _watch_sent(self, source: Host, target: Host, data: bytes) -> None:
        self._was_sent(source, target, data)
        self._clients.was_sent(source, target, data)
        node = self._nodes_by_ip.get(source.ip)
        if node is not None:
            self._count_down(node, "kill-at-send")

    # Disks that rot

    def rot(self, name: str, kind: str) -> None:
        """Hurt a full file of a node's log, below where all logs end; see `rot_log`."""
        raise NotImplementedError

    def _rot(
        self,
        name: str,
        kind: str,
        may_rot: Callable[[int, int], bool],
        *,
        memory_chance: float = 1.0,
    ) -> bool:
        node = self.nodes[name]
        self._forget_healed()
        below = self._rots_below(node)
        done = rot_log(node, kind, below, self._chance, may_rot, memory_chance)
        if done is None:
            return False
        self._trace.note("fault", f"rots: {done.where}")
        self.note_hit(f"rot {done.kind}")
        node.rots.append(msgspec.structs.replace(done, at_seconds=trio.current_time()))
        return True

    def _syncs_log(self, node: SimulatedNode) -> None:
        """A file of a node's log is on its disk now, with what was written to heal it."""

    def _rots_below(self, _: SimulatedNode) -> int:
        """Return below where a node's log may rot: all nodes have what is there."""
        return min(self.extent(other).written for other in self.nodes.values())

    def rotten(self) -> list[str]:
        """Return what has rotted and is not whole again, in words."""
        self._forget_healed()
        return [rot.where for node in self.nodes.values() for rot in node.rots]

    def _forget_healed(self) -> None:
        for node in self.nodes.values():
            node.rots[:] = [rot for rot in node.rots if not is_healed(rot, node.disk)]

    # What clients are answered, and what is true then

    def extent(self, node: SimulatedNode) -> Extent:
        """Return how much of the log is on a node's disk."""
        return self._tails_of(node).extent()

    def _tails_of(self, node: SimulatedNode) -> DiskTails:
        tails = self._tails.get(node.name)
        if tails is None or tails.disk is not node.whole_disk:
            tails = self._tails[node.name] = DiskTails(node.whole_disk, node.directory)
        return tails

    def _was_stored(self, node: SimulatedNode, offsets: list[int]) -> None:
        """A node says SEND_OK of messages at these offsets."""
        for offset in offsets:
            record = self._tails_of(node).written.record_at(offset)
            if record:
                answer = AnswerSeen(
                    at_seconds=trio.current_time(),
                    node=node.name,
                    key=decode_message(record)[0].keys,
                    physical_offset=offset,
                    own=self.extent(node),
                    stored=self._holders(),
                )
                self.history.answers.append(answer)
                self._was_answered(answer)

    def _was_empty(self, node: SimulatedNode, pull: AskedPull) -> None:
        """A node says that there is nothing at an offset."""
        if pull.topic == TOPIC and self._must_be_fresh(node, pull.asked_at):
            self.history.empty_pulls.append(
                EmptyPull(
                    node=node.name,
                    asked_at=pull.asked_at,
                    answered_at=trio.current_time(),
                    queue_id=pull.queue_id,
                    queue_offset=pull.queue_offset,
                )
            )

    def _garble(self, source: Host, target: Host, data: bytes) -> bytes:
        """Flip a bit of what is sent on a channel, if that is due."""
        ends = (source.ip, target.ip)
        ports = self.network.channels
        if not self.flips.get(ends) or not (source.port in ports or target.port in ports):
            return data
        self.flips[ends] -= 1
        self.note_hit("flip-wire")
        at = self._chance.randrange(len(data))
        self._trace.note("fault", f"flips byte {at} of {len(data)} from {source} to {target}")
        flipped = data[at] ^ 1 << self._chance.randrange(8)
        return b"".join((data[:at], bytes((flipped,)), data[at + 1 :]))

    # Names and addresses

    def name_servers(self) -> list[str]:
        """Return where clients ask for routes."""
        return [f"{node.ip}:{node.config.node.name_server_port}" for node in self.nodes.values()]

    def ip_of(self, machine: str) -> str:
        """Return the address of a node, or of a client, which is named by its address."""
        return self.nodes[machine].ip if machine in self.nodes else machine

    def ends(self, source: str, target: str, channel: str = "") -> list[tuple[str, str]]:
        """Return the directions between addresses that FROM and TO mean."""
        return [
            (one + channel, other + channel)
            for one in self._addresses(source)
            for other in self._addresses(target)
            if one != other
        ]

    def _addresses(self, name: str) -> list[str]:
        if name == ALL:
            return [*self.network.addresses, *self.other_addresses.values()]
        return [self.other_addresses.get(name) or self.ip_of(name)]

    def bind_roles(self) -> None:
        """From now on `first` is who is master now."""
        master = self.master_name()
        names = sorted(self.nodes, key=lambda name: (name != master, name))
        self.roles.update(zip(ROLES, names, strict=False))

    def resolved_name(self, name: str) -> str:
        """Return the node that a role means now."""
        if not name.startswith(MASTER):
            return self.roles.get(name, name)
        master = self.master_name() or next(iter(self.nodes))
        return master if name == MASTER else self.roles.setdefault(name, master)

    # What a kind of group adds

    def master_name(self) -> str:
        """Return the master of the moment; empty if nobody knows one."""
        return next(iter(self.nodes))

    def _holders(self) -> dict[str, Extent]:
        """Return what is on the disks of all who must have what is acknowledged."""
        return {}

    def _was_answered(self, answer: AnswerSeen) -> None:
        """A node has said SEND_OK of a message."""

    def _must_be_fresh(self, node: SimulatedNode, since: float) -> bool:
        """Whether a node is master now, and has been ready to serve since a time."""
        raise NotImplementedError

    def _listener(self, node: SimulatedNode) -> Callable[[HAEvent], None] | None:
        """Return who hears what the next life of a node says, if anybody does."""
        del node
        return None

    def _coordinator(self, life: Incarnation) -> Coordinator | None:
        """Return what a life of a node talks to, if there is a coordinator."""
        del life
        return None

    def note_log_line(self, line: LogLine) -> None:
        """Take a line of WARNING or above."""
        self.log_lines.append(line)

    def _ports(self, node: SimulatedNode) -> Iterable[int]:
        """Return where a node listens."""
        settings = node.config.node
        return settings.port, settings.ha_port, settings.name_server_port

    def _was_sent(self, source: Host, target: Host, data: bytes) -> None:
        """Bytes were handed to the network."""

    def _was_killed(self, node: SimulatedNode) -> None:
        """A process was killed, or its disk failed and it had to go."""

    def _lost_power(self, node: SimulatedNode) -> None:
        """A machine has lost power, and perhaps what it had not synced."""

    def _wiping(self, node: SimulatedNode) -> None:
        """A store is about to be moved away."""

    def _is_remedied(self, node: SimulatedNode, error: BaseException) -> bool:
        """Whether a node that ended by itself had cause to, and somebody helps."""
        del node, error
        return False

    def _heal_others(self) -> None:
        """End the faults of what is neither node, nor disk, nor cable."""


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors that a group of errors is made of."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]


class NodeLogHandler(logging.Handler):
    """Takes the log lines of all nodes: into the trace, and from WARNING on into the cluster.

    What a killed node's tasks say while they are being cancelled, nobody has heard.
    """

    def __init__(self, cluster: SimulatedCluster, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """Note one line."""
        incarnation = incarnation_of_task.get()
        node = incarnation.name if incarnation else "client"
        if incarnation and self._cluster.nodes[node].current is not incarnation:
            return
        text = record.getMessage()
        self._trace.note(node, f"{record.levelname} {text}")
        if record.levelno >= logging.WARNING:
            line = LogLine(
                node, trio.current_time(), record.levelno, text, record.exc_info is not None
            )
            self._cluster.note_log_line(line)
