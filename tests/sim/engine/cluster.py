"""The machines of one group as plans and judges want them: `node.simulated.machines`, and more.

`SimulatedCluster` does to machines what plans say. What a kind of group adds (a coordinator, alarms
of its own, what its nodes say) is in a class below it, which fills in the methods of the last part.

Nothing in here knows how a node works. What it did is read from its disk, from the bytes it sends,
from its events and from its log lines.
"""

import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from node.simulated.disk import SimulatedDisk
from node.simulated.machines import Incarnation as SimulatedIncarnation
from node.simulated.machines import SimulatedMachines, incarnation_of_task
from node.simulated.network import Machine as NetworkMachine
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import WallClock
from store.machine.network import ConnectionLost
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.wire.message import Host, decode_message
from tests.sim.engine.client_watch import AskedPull, ClientWatch
from tests.sim.engine.faults import ALL, MASTER
from tests.sim.engine.history import AnswerSeen, EmptyPull, Extent, History
from tests.sim.engine.log_tail import DiskTails
from tests.sim.engine.node import Incarnation, LogLine, SimulatedNode
from tests.sim.engine.rot import rot_log
from tests.sim.engine.trace import Trace
from tests.sim.engine.whole_disk import is_healed
from tests.sim.engine.workload import TOPIC

ROLES: Final = ("first", "second", "third", "fourth", "fifth")
"""How scenarios name the nodes: `first` is the master when the load begins."""


class SimulatedCluster(SimulatedMachines[SimulatedNode]):
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
        super().__init__(config, network=network, chance=chance, note=trace.note, nursery=nursery)
        self.history = history
        self.log_lines: list[LogLine] = []
        self.roles: dict[str, str] = {}
        self.flips: dict[tuple[str, str], int] = {}
        """How many bits are still to be flipped on the way from one address to another."""
        self.quiet_until = 0.0
        """Producers send nothing before."""
        self.other_addresses: dict[str, str] = {}
        self._trace = trace
        self._tails: dict[str, DiskTails] = {}
        self._clients = ClientWatch(
            self.nodes.values(), on_stored=self._was_stored, on_empty=self._was_empty
        )
        network.on_sent = self._watch_sent
        network.garble = self._garble

    def _new_node(self, config: NodeConfig, disk: SimulatedDisk, clock: WallClock) -> SimulatedNode:
        return SimulatedNode(config, disk, clock)

    def _new_incarnation(self, node: SimulatedNode, network: NetworkMachine) -> Incarnation:
        return Incarnation(node, network)

    def _disk_event(self, name: str, event: str) -> None:
        super()._disk_event(name, event)
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

    # What happens to machines

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

    def heal(self) -> None:
        """End every fault and start every node. One whose disk failed has to start again."""
        for node in self.nodes.values():
            if node.current is not None:
                self.thaw(node.current)
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

    def _process_ended(self, node: SimulatedNode, dead: SimulatedIncarnation) -> None:
        assert isinstance(dead, Incarnation)
        self._tear(node, dead.tail.end())

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

    def note_log_line(self, line: LogLine) -> None:
        """Take a line of WARNING or above."""
        self.log_lines.append(line)

    def _ports(self, node: SimulatedNode) -> Iterable[int]:
        """Return where a node listens."""
        settings = node.config.node
        return settings.port, settings.ha_port, settings.name_server_port

    def _was_sent(self, source: Host, target: Host, data: bytes) -> None:
        """Bytes were handed to the network."""

    def _wiping(self, node: SimulatedNode) -> None:
        """A store is about to be moved away."""

    def _heal_others(self) -> None:
        """End the faults of what is neither node, nor disk, nor cable."""


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
