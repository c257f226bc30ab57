"""A fenced group in one process: its nodes, its coordinator, and what both did, as records.

A node tells of what it does by events, in the step in which it happens. Here each event is noted
with what is true at that moment: what lies on the disks, what the coordinator has recorded. Some
instructions wait for an event: then the node dies in that very step, or stands still right after.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from ha.errors import HAError
from ha.fenced.epoch_file import EpochFile
from ha.fenced.events import (
    AckDecided,
    HAEvent,
    MasterOpened,
    ReplicaReported,
    TruncationDecided,
)
from store.machine.errors import CorruptLogError, StoreError
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.coordinator.kv_records import Change, Item, StoreImage
from tandem.wire.group_state import GroupKeys, GroupState, decode_leader, decode_state
from tandem.wire.message import Host
from tests.sim.cluster import (
    Incarnation,
    LogLine,
    NodeFunction,
    NodeSeams,
    SimulatedCluster,
    SimulatedNode,
    leaves,
    read_log,
)
from tests.sim.faults import Instruction
from tests.sim.fenced_actions import ACTIONS, HA_CHANNEL
from tests.sim.fenced_disk import (
    flip_bit_of_tail,
    incarnation_of,
    missing_on_disk,
)
from tests.sim.fenced_faults import ALL, COORDINATOR, MASTER
from tests.sim.fenced_history import (
    AckSeen,
    CutSeen,
    EpochEntrySeen,
    Extent,
    FencedHistory,
    FinalNode,
    LackingSeen,
    NodeEvent,
    NotDurableSeen,
    OpeningSeen,
    ReportSeen,
    StateSeen,
    walk_fenced_log,
)
from tests.sim.fenced_operator import REMEDY_SECONDS, Operator
from tests.sim.log_tail import LogTail
from tests.sim.trace import Trace
from tests.sim.workload import ClientMachine
from tests.support.simulated_coordinator import EXPIRED, HELD, REVOKED, SimulatedCoordinator
from tests.support.simulated_network import SimulatedNetwork

if TYPE_CHECKING:
    from tests.support.simulated_disk import SimulatedDisk

COORDINATOR_IP: Final = "127.0.3.1"
OPERATOR_IP: Final = "127.0.2.7"

ROLES: Final = ("first", "second", "third", "fourth", "fifth")
"""How scenarios name the nodes: `first` is the master when the load begins."""


REAP_SECONDS: Final = 0.2
"""From the death of a process to when its supervisor has ended its lease."""


class _Waiting(msgspec.Struct):
    """An instruction that waits for an event."""

    name: str
    left: int
    action: Callable[[], None]


class _Traits:
    """What is remembered of one node beside `SimulatedNode`."""

    def __init__(self) -> None:
        self.life = 0
        self.is_hurt = False
        """Its disk may have lost something, and it has not looked yet."""
        self.was_hurt = False
        """The same at any time before."""
        self.is_spoiled = False
        """A bit of its log was flipped: it may refuse to start."""
        self.waiting: list[_Waiting] = []
        self.leader_lease = 0
        self.vote = (0, 0.0)
        """How many transactions from now one is late, and by how much."""
        self.tails: tuple[SimulatedDisk, LogTail, LogTail] | None = None


class FencedCluster(SimulatedCluster):
    """The nodes of one fenced group and their coordinator."""

    def __init__(
        self,
        config: ClusterConfig,
        node_function: NodeFunction,
        history: FencedHistory,
        *,
        network: SimulatedNetwork,
        chance: random.Random,
        trace: Trace,
        nursery: trio.Nursery,
        is_supervised: bool,
    ) -> None:
        super().__init__(
            config,
            node_function,
            network=network,
            chance=chance,
            trace=trace,
            nursery=nursery,
        )
        self.history = history
        self.hit: dict[str, int] = {}
        """Faults that did something, and how often."""
        self.group_keys = GroupKeys(config.cluster.name, next(iter(config.groups)))
        self.roles: dict[str, str] = {}
        self.operator = Operator(
            ClientMachine(network.machine(OPERATOR_IP), self._name_servers(), salt=7),
            nursery,
            told=self.note_hit,
            note=lambda text: trace.note("operator", text),
        )
        self.quiet_until = 0.0
        """Producers send nothing before."""
        self._is_supervised = is_supervised
        self._traits = {name: _Traits() for name in self.nodes}
        self._state: GroupState | None = None
        self._led_by = ""
        self.saved: StoreImage | None = None
        self.coordinator = SimulatedCoordinator(
            COORDINATOR_IP,
            network,
            random.Random(chance.random()),
            on_event=lambda event: trace.note("coordinator", event),
        )
        self.coordinator.on_call = self._called
        self.coordinator.on_change = self._changed
        network.channels = {node.config.node.replication_port: HA_CHANNEL for node in self.all}
        network.garble = self._garble
        self.flips: dict[tuple[str, str], int] = {}

    def _name_servers(self) -> list[str]:
        return [f"{node.ip}:{node.config.node.name_server_port}" for node in self.all]

    @property
    def all(self) -> list[SimulatedNode]:
        """Every node."""
        return list(self.nodes.values())

    # Lives

    def _new_seams(self, node: SimulatedNode) -> NodeSeams:
        seams = super()._new_seams(node)
        traits = self._traits[node.name]
        traits.life += 1
        life = traits.life
        return msgspec.structs.replace(
            seams,
            coordinator=self.coordinator.client(seams.network),
            on_event=lambda event: self._heard(node, life, event),
        )

    def kill(self, name: str) -> None:
        """See `SimulatedCluster.kill`; a supervisor tells the coordinator soon."""
        was_up = self.nodes[name].is_up
        super().kill(name)
        if was_up:
            self.note_hit("kill")
            self._reap(name)

    def _reap(self, name: str) -> None:
        if self._is_supervised:
            key = self.group_keys.node(name)
            before = self.coordinator.item(key)
            self.network.timeline.call_later(REAP_SECONDS, lambda: self._revoke(key, before))

    def _revoke(self, key: str, before: Item | None) -> None:
        now = self.coordinator.item(key)
        if now is not None and before is not None and now.lease_id == before.lease_id:
            self.coordinator.revoke_leases_of(key)

    def power_off(self, name: str) -> None:
        """See `SimulatedCluster.power_off`."""
        if self.nodes[name].is_up:
            self.note_hit("power-off")
            self.hurt(name)
        super().power_off(name)

    def hurt(self, name: str) -> None:
        """Take note that a node's disk may have lost something."""
        self._traits[name].is_hurt = self._traits[name].was_hurt = True

    def spoil(self, name: str) -> None:
        """Flip a bit of a stopped node's log: it may refuse to start."""
        node = self.nodes[name]
        where = "" if node.is_up else flip_bit_of_tail(node, self._chance)
        if where:
            self._trace.note("fault", f"flips a bit of {name}: {where}")
            self.note_hit("flip-tail")
            self.hurt(name)
            self._traits[name].is_spoiled = True

    def was_hurt(self, name: str) -> bool:
        """Whether the node's disk may ever have lost something that was not synced."""
        return self._traits[name].was_hurt

    def note_log_line(self, line: LogLine) -> None:
        """Take a line of WARNING or above."""
        self.log_lines.append(line)

    def freeze(self, name: str, seconds: float) -> None:
        """Let a process stand still for a while."""
        life = self.nodes[name].current
        if life is None or life.hold.is_active:
            return
        self.note_hit("freeze")
        life.hold.begin()
        self.network.timeline.call_later(seconds, lambda: self._thaw(name, life))

    def _thaw(self, name: str, life: Incarnation) -> None:
        if life.hold.is_active:
            self._trace.note("fault", f"thaw {name}")
            life.hold.release()

    # What nodes say

    def _heard(self, node: SimulatedNode, life: int, event: HAEvent) -> None:
        traits = self._traits[node.name]
        if node.current is None or traits.life != life:
            return
        self._trace.note(node.name, str(event))
        self.history.events.append(NodeEvent(trio.current_time(), node.name, life, event))
        missing = missing_on_disk(node, event)
        if missing:
            self.history.missing.append(NotDurableSeen(trio.current_time(), node.name, missing))
        match event:
            case AckDecided():
                self.history.acks.append(self._ack_seen(node, event))
            case MasterOpened(epoch, confirm):
                log = walk_fenced_log(read_log(node))
                self.history.openings.append(
                    OpeningSeen(
                        trio.current_time(),
                        node.name,
                        epoch,
                        confirm,
                        log,
                        self._was_elected(epoch, node.name),
                    )
                )
            case ReplicaReported(epoch, written, flushed):
                self.history.reports.append(
                    ReportSeen(
                        trio.current_time(),
                        node.name,
                        epoch,
                        written,
                        flushed,
                        self.extent(node),
                    )
                )
            case TruncationDecided(cut, end, confirm):
                self.history.cuts.append(self._cut_seen(node, cut, end, confirm))
            case _:
                pass
        self._count_event(node.name, type(event).__name__)

    def _was_elected(self, epoch: int, name: str) -> bool:
        return any(
            (seen.state.epoch, seen.state.master) == (epoch, name) for seen in self.history.states
        )

    def _ack_seen(self, node: SimulatedNode, event: AckDecided) -> AckSeen:
        state = self._state
        isr = state.isr if state is not None else {}
        return AckSeen(
            at_seconds=trio.current_time(),
            node=node.name,
            epoch=event.epoch,
            end=event.end,
            used_isr=event.isr,
            live_count=event.live_count,
            boottime_seconds=event.boottime_seconds,
            deadline_seconds=event.deadline_seconds,
            true_boottime_seconds=node.boot_clock.now_seconds(),
            lease=self._lease_of(node.name),
            recorded_epoch=state.epoch if state is not None else -1,
            recorded_isr=isr,
            stored={
                name: self.extent(self.nodes[name])
                for name, incarnation in isr.items()
                if incarnation_of(self.nodes[name]) == incarnation
            },
        )

    def _lease_of(self, name: str) -> str:
        item = self.coordinator.item(self.group_keys.leader)
        if item is not None and decode_leader(item.value).node == name:
            return HELD
        ended = self.coordinator.ended.get(self._traits[name].leader_lease)
        return EXPIRED if ended == EXPIRED else REVOKED

    def _cut_seen(self, node: SimulatedNode, cut: int, end: int, confirm: int) -> CutSeen:
        tail = self._tails(node)[0]
        data = tail.read(cut, max(cut, tail.end()))
        records = walk_fenced_log(data, cut).records
        return CutSeen(trio.current_time(), node.name, cut, end, confirm, records)

    def _tails(self, node: SimulatedNode) -> tuple[LogTail, LogTail]:
        traits = self._traits[node.name]
        if traits.tails is None or traits.tails[0] is not node.disk:
            traits.tails = (
                node.disk,
                LogTail(node.disk, node.directory),
                LogTail(node.disk, node.directory, is_durable=True),
            )
        return traits.tails[1], traits.tails[2]

    def extent(self, node: SimulatedNode) -> Extent:
        """Return how much of the log lies on a node's disk."""
        written, flushed = self._tails(node)
        return Extent(written.end(), flushed.end(), not self._traits[node.name].is_hurt)

    # What the coordinator did

    def _called(self, ip: str, name: str) -> None:
        node = self._nodes_by_ip.get(ip)
        if node is not None:
            self._trace.note(node.name, f"coordinator {name}")
            self._count_down(node, "kill-at-coordinator")
            if name == "transact":
                self._count_vote(node)

    def delay_vote(self, name: str, seconds: float) -> None:
        """Make the second transaction from now on late, and what comes behind it."""
        self._traits[name].vote = (2, seconds)

    def _count_vote(self, node: SimulatedNode) -> None:
        traits = self._traits[node.name]
        left, seconds = traits.vote
        traits.vote = (max(0, left - 1), seconds)
        if left == 1:
            self.note_hit("late-vote")
            self.network.slow(
                node.ip, COORDINATOR_IP, delay_seconds=seconds, bytes_per_second=1_000_000
            )

    def _changed(self, change: Change) -> None:
        led_by, self._led_by = self._led_by, self._leader_name()
        for item in change.puts:
            key = item.key.decode()
            if key == self.group_keys.state:
                self._state = decode_state(item.value)
                self._trace.note("coordinator", str(self._state))
                self.history.states.append(self._state_seen(change, self._state, led_by))
                self._look_at_members(list(self._state.isr))
            elif key == self.group_keys.leader:
                leader = decode_leader(item.value)
                self._trace.note("coordinator", str(leader))
                self._traits[leader.node].leader_lease = item.lease_id
            elif key.startswith(self.group_keys.nodes):
                self._looked(key.removeprefix(self.group_keys.nodes))

    def _state_seen(self, change: Change, state: GroupState, led_by: str) -> StateSeen:
        leader = self.coordinator.item(self.group_keys.leader)
        record = decode_leader(leader.value) if leader is not None else None
        was_led = led_by == state.master
        return StateSeen(trio.current_time(), change.revision, state, record, was_led)

    def _leader_name(self) -> str:
        item = self.coordinator.item(self.group_keys.leader)
        return decode_leader(item.value).node if item is not None else ""

    def _looked(self, name: str) -> None:
        """A node that has said who it is has looked at its disk."""
        if self.nodes[name].is_up:
            self._traits[name].is_hurt = False
            self._look_at_members([name])

    def _look_at_members(self, names: list[str]) -> None:
        """Whoever is recorded as a member has everything that was acknowledged."""
        isr = self._state.isr if self._state is not None else {}
        acknowledged = max((ack.end for ack in self.history.acks), default=0)
        for name in names:
            node = self.nodes[name]
            extent = self.extent(node)
            is_member = name in isr and incarnation_of(node) == isr[name]
            if is_member and extent.is_certain and extent.written < acknowledged:
                self.history.lacking.append(
                    LackingSeen(trio.current_time(), name, extent.written, acknowledged)
                )

    @property
    def state(self) -> GroupState | None:
        """The deciding record as the coordinator has it."""
        return self._state

    def electable(self) -> list[str]:
        """Return the members of the recorded ISR that are what was recorded."""
        isr = self._state.isr if self._state is not None else {}
        return [n for n, inc in isr.items() if incarnation_of(self.nodes[n]) == inc]

    # Faults

    def note_hit(self, name: str) -> None:
        """Take note that a fault did something."""
        self.hit[name] = self.hit.get(name, 0) + 1

    def _count_down(self, node: SimulatedNode, verb: str) -> None:
        was_up = node.is_up
        super()._count_down(node, verb)
        if was_up and not node.is_up:
            self.note_hit(verb)

    def _count_event(self, name: str, event: str) -> None:
        waiting = self._traits[name].waiting
        for entry in [entry for entry in waiting if entry.name == event]:
            entry.left -= 1
            if entry.left == 0:
                waiting.remove(entry)
                entry.action()

    def ends(self, arguments: tuple[str, ...], channel: str = "") -> list[tuple[str, str]]:
        """Return the directions between addresses that FROM and TO mean."""
        sources, targets = (self._addresses(argument) for argument in arguments)
        return [
            (source + channel, target + channel)
            for source in sources
            for target in targets
            if source != target
        ]

    def _addresses(self, name: str) -> list[str]:
        if name == ALL:
            return [*self.network.addresses, COORDINATOR_IP]
        return [COORDINATOR_IP if name == COORDINATOR else self.ip_of(name)]

    def bind_roles(self) -> None:
        """From now on `first` is who is master now."""
        master = self._state.master if self._state is not None else ""
        names = sorted(self.nodes, key=lambda name: (name != master, name))
        self.roles.update(zip(ROLES, names, strict=False))

    def _resolved(self, instruction: Instruction) -> Instruction:
        arguments = tuple(map(self.resolved_name, instruction.arguments))
        return Instruction(instruction.at_seconds, instruction.verb, arguments)

    def resolved_name(self, name: str) -> str:
        """Return the node that a role means now."""
        if not name.startswith(MASTER):
            return self.roles.get(name, name)
        master = self._state.master if self._state is not None else ""
        if name == MASTER:
            return master or next(iter(self.nodes))
        return self.roles.setdefault(name, master or next(iter(self.nodes)))

    def carry_out(self, instruction: Instruction) -> None:
        """Do what a line of a plan says. Nodes may be named by their role, too."""
        instruction = self._resolved(instruction)
        if instruction.verb in ACTIONS:
            self._trace.note("fault", str(instruction))
            ACTIONS[instruction.verb](self, *instruction.arguments)
        else:
            super().carry_out(instruction)
            if instruction.verb in ("clock", "garbage", "cut", "half-cut", "slow", "stop"):
                self.note_hit(instruction.verb)
            if instruction.verb in ("disk-full", "disk-slow", "disk-fails"):
                self.note_hit(instruction.verb)

    def _ports(self, node: SimulatedNode) -> tuple[int, ...]:
        return (node.config.node.replication_port, *super()._ports(node))

    def at_event(self, name: str, event: str, count: str, action: Callable[[], None]) -> None:
        """Have something done when a node tells of an event for the so-manyeth time."""
        self._traits[name].waiting.append(_Waiting(event, int(count), action))

    def _garble(self, source: Host, target: Host, data: bytes) -> bytes:
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

    def _note_crash(self, node: SimulatedNode, error: BaseException) -> None:
        """See `SimulatedCluster._note_crash`. A log that rotted is refused, and moved away."""
        if self._traits[node.name].is_spoiled and any(
            isinstance(leaf, CorruptLogError) for leaf in leaves(error)
        ):
            self.note_hit("store moved away")
            self._trace.note(node.name, f"is moved away: {error}")
            self.network.timeline.call_later(REMEDY_SECONDS, lambda: self._remedy(node.name))
        else:
            super()._note_crash(node, error)

    def _remedy(self, name: str) -> None:
        if not self.nodes[name].is_up:
            self.wipe(name)
            self.start(name)

    def wipe(self, name: str) -> None:
        """See `SimulatedCluster.wipe`."""
        super().wipe(name)
        self._traits[name].is_spoiled = False

    def heal(self) -> None:
        """End every fault and start every node."""
        for traits in self._traits.values():
            traits.waiting.clear()
        for node in self.all:
            if node.current is not None:
                self._thaw(node.name, node.current)
        self.flips.clear()
        self.coordinator.watch_delay_seconds = 0.0
        self.coordinator.lost_replies.clear()
        self.coordinator.start()
        super().heal()

    def _watch_sent(self, source: Host, target: Host, data: bytes) -> None:
        del target, data
        if source.ip in self._nodes_by_ip:
            self._count_down(self._nodes_by_ip[source.ip], "kill-at-send")

    # The end

    def end(self) -> None:
        """Kill every node; nobody hears what they say from now on."""
        for name in self.nodes:
            super().kill(name)

    def final_nodes(self, *, is_excused: bool) -> list[FinalNode]:
        """Return what every node has when all is over; `is_excused`: they need not be equal."""
        master = self._state.master if self._state is not None else ""
        if is_excused and self.history.openings:
            master = self.history.openings[-1].node
        return [self._final(node, master, is_excused=is_excused) for node in self.all]

    def _final(self, node: SimulatedNode, master: str, *, is_excused: bool) -> FinalNode:
        entries: tuple[EpochEntrySeen, ...] = ()
        try:
            epochs = EpochFile(node.disk, node.directory)
        except (HAError, StoreError) as error:
            self.history.crashes.append(f"{node.name}: its epoch file cannot be read: {error}")
        else:
            entries = tuple(EpochEntrySeen(e.epoch, e.start) for e in epochs.entries)
        log = walk_fenced_log(read_log(node))
        return FinalNode(node.name, log, entries, node.name == master, is_excused)
