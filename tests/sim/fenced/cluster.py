"""A fenced group in one process: its nodes, its coordinator, a supervisor and a person.

Some instructions wait for an event: then the node dies in the very step in which it tells of it, or
stands still right after. What nodes and coordinator do is noted by the `Witness`.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import trio

from ha.errors import StoreLevelError
from ha.fenced.events import HAEvent, TruncationDecided
from node.simulated.coordinator import SimulatedCoordinator
from node.simulated.disk import SimulatedDisk
from node.simulated.machines import Incarnation, leaves
from node.simulated.network import SimulatedNetwork
from node.tables.journal.journal_records import JournalFormatError
from store.machine.errors import CorruptLogError
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.coordinator.interface import Coordinator
from tandem.coordinator.kv_records import Change, Item, StoreImage
from tandem.tls_files import TLSFiles
from tandem.wire.feature_level import LEVEL_MAX
from tandem.wire.fingerprint import crcs_of
from tandem.wire.group_state import GroupKeys, decode_life
from tandem.wire.message import Host
from tests.sim.engine.actions import HA_CHANNEL
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.faults import COORDINATOR
from tests.sim.engine.history import AnswerSeen, Extent
from tests.sim.engine.node import LogLine, SimulatedNode, common_end, read_log
from tests.sim.engine.repair import repair_log
from tests.sim.engine.rot import IN_PLACE, fingerprint_of, own_share
from tests.sim.engine.trace import Trace
from tests.sim.engine.whole_disk import Rot, after_cut
from tests.sim.engine.workload import ClientMachine
from tests.sim.fenced.disk import flip_bit_of_tail
from tests.sim.fenced.faults import MOMENT
from tests.sim.fenced.history import FencedHistory, HurtSeen
from tests.sim.fenced.orders import REMEDY_SECONDS, Operator
from tests.sim.fenced.rot_watch import FencedRotWatch
from tests.sim.fenced.witness import Witness

COORDINATOR_IP: Final = "127.0.3.1"
OPERATOR_IP: Final = "127.0.2.7"
TERMINAL_IP: Final = "127.0.2.8"
"""From where the operator asks the coordinator."""

NOTED_SECONDS: Final = 1.0
"""A node notes at the coordinator how far it has confirmed this often."""

KEPT_OUT: Final = "the group is at feature level"
"""What a node says in its log that is too old for its group."""

READ_SECONDS: Final = 0.5
"""From when a node says so to when somebody has upgraded it."""

REAP_SECONDS: Final = 0.2
"""From the death of a process to when its supervisor has ended its lease."""


class _Waiting(msgspec.Struct):
    """An instruction that waits for an event."""

    name: str
    left: int
    action: Callable[[], None]


class FencedCluster(SimulatedCluster):
    """The nodes of one fenced group and their coordinator."""

    channels = ("", HA_CHANNEL)

    def __init__(
        self,
        config: ClusterConfig,
        history: FencedHistory,
        *,
        network: SimulatedNetwork,
        chance: random.Random,
        trace: Trace,
        nursery: trio.Nursery,
        is_supervised: bool,
        tls: TLSFiles | None = None,
    ) -> None:
        super().__init__(
            config, history, network=network, chance=chance, trace=trace, nursery=nursery
        )
        self.history: FencedHistory = history
        self.group_keys = GroupKeys(config.cluster.name, next(iter(config.groups)))
        self.saved: StoreImage | None = None
        """Of the coordinator, as some plan had it saved."""
        self.coordinator = SimulatedCoordinator(
            COORDINATOR_IP,
            network,
            random.Random(chance.random()),
            on_event=lambda event: trace.note("coordinator", event),
        )
        self.other_addresses[COORDINATOR] = COORDINATOR_IP
        self.witness = Witness(self.nodes, self.coordinator, self.group_keys, history, trace)
        self.coordinator.on_call = self._called
        self.rot_watch = FencedRotWatch(
            self.nodes,
            self.coordinator,
            self.group_keys,
            self.witness,
            history,
            are_links_fine=self._are_links_fine,
        )
        self.coordinator.on_change = self._changed
        network.channels = {
            node.config.node.replication_port: HA_CHANNEL for node in self.nodes.values()
        }
        self.operator = Operator(
            ClientMachine(network.machine(OPERATOR_IP), self.name_servers(), 7, tls),
            nursery,
            coordinator=self.coordinator.client(network.machine(TERMINAL_IP)),
            config=config,
            told=self.note_hit,
            note=lambda text: trace.note("operator", text),
        )
        self._is_supervised = is_supervised
        self.has_open_damage = False
        """The plan lets damage stay open."""
        self._was_set_back = False
        self._copies: dict[str, tuple[SimulatedDisk, float]] = {}
        """Of directories, and when each was taken."""
        self._killed_at: dict[str, float] = {}
        self._end_when_killed: dict[str, int] = {}
        self._spoiled: set[str] = set()
        self._life_in_the_dark: dict[str, int] = {}
        """By node: which of its lives ended by a power loss."""
        """Nodes with a flipped bit in their log: they may refuse to start."""
        self._waiting: dict[str, list[_Waiting]] = defaultdict(list)
        self._votes: dict[str, tuple[int, float]] = {}
        """How many transactions from now one is late, and by how much."""

    def master_name(self) -> str:
        """Return the recorded master; empty if there is none yet."""
        state = self.witness.state
        return state.master if state is not None else ""

    def extent(self, node: SimulatedNode) -> Extent:
        """See `SimulatedCluster.extent`: what may have been lost is not certain."""
        return self.witness.extent(node)

    def _holders(self) -> dict[str, Extent]:
        return self.witness.holders()

    def _was_answered(self, answer: AnswerSeen) -> None:
        self.witness.answered(answer)

    def _must_be_fresh(self, node: SimulatedNode, since: float) -> bool:
        return self.witness.has_served_since(node, since)

    def _coordinator(self, life: Incarnation) -> Coordinator:
        return self.coordinator.client(life.network)

    def _listener(self, node: SimulatedNode) -> Callable[[HAEvent], None]:
        life = node.life
        return lambda event: self._heard(node, life, event)

    def _ports(self, node: SimulatedNode) -> Iterable[int]:
        return (node.config.node.replication_port, *super()._ports(node))

    def _are_links_fine(self, one: str, other: str) -> bool:
        ends = self.ends(one, other, HA_CHANNEL) + self.ends(other, one, HA_CHANNEL)
        links = [self.network.link(*each) for each in ends]
        return not any(link.is_slow or link.stalled for link in links)

    # What nodes say, and what waits for it

    def _heard(self, node: SimulatedNode, life: int, event: HAEvent) -> None:
        if node.current is None or node.life != life:
            return
        self.witness.heard(node, event)
        self.rot_watch.heard(node, event)
        if isinstance(event, TruncationDecided):
            node.rots[:] = after_cut(node.rots, event.cut)
        self._count_event(node.name, type(event).__name__)

    def at_event(self, name: str, event: str, count: str, action: Callable[[], None]) -> None:
        """Have something done when a node tells of an event for the so-manyeth time."""
        self._waiting[name].append(_Waiting(event, int(count), action))

    def _count_event(self, name: str, event: str) -> None:
        waiting = self._waiting[name]
        for entry in [entry for entry in waiting if entry.name == event]:
            entry.left -= 1
            if entry.left == 0:
                waiting.remove(entry)
                entry.action()

    # The coordinator

    def _changed(self, change: Change) -> None:
        before = self.witness.state
        self.witness.changed(change)
        self.rot_watch.changed(before, self.witness.state)
        state = self.witness.state
        if state is not None and state.master and (before is None or state.age > before.age):
            known = self.nodes[state.master].config.level_max
            if known < state.level or (before is not None and state.level < before.level):
                text = f"{state.master} knows {known}, epoch {state.epoch} is at {state.level}"
                self.history.too_old.append(text)

    def _called(self, ip: str, name: str) -> None:
        node = self._nodes_by_ip.get(ip)
        if node is not None:
            self._trace.note(node.name, f"coordinator {name}")
            self._count_down(node, "kill-at-coordinator")
            if name == "transact":
                self._count_vote(node)

    def delay_vote(self, name: str, seconds: float) -> None:
        """Make the second transaction from now on late, and what comes after it."""
        self._votes[name] = (2, seconds)

    def _count_vote(self, node: SimulatedNode) -> None:
        left, seconds = self._votes.get(node.name, (0, 0.0))
        self._votes[node.name] = (max(0, left - 1), seconds)
        if left == 1:
            self.note_hit("late-vote")
            self.network.slow(
                node.ip, COORDINATOR_IP, delay_seconds=seconds, bytes_per_second=1_000_000
            )

    # The supervisor, and the person

    def black_out(self) -> None:
        """Cut the power of all machines at once."""
        self.note_hit("blackout")
        self.history.blackout_at = trio.current_time()
        self.witness.note_blackout()
        for name in self.nodes:
            self.power_off(name)

    async def recover_group(self) -> bool:
        """Do as `tandem ha recover-group --accept-loss` does; return whether nothing is left to do.

        All nodes have to be there: that is what the operator is told to see to.
        """
        nodes = [self.coordinator.item(self.group_keys.node(name)) for name in self.nodes]
        leader = self.coordinator.item(self.group_keys.leader)
        if leader is not None:
            return self.witness.has_opened_since_blackout
        return all(nodes) and await self.operator.recover(accept_loss=True)

    def _was_killed(self, node: SimulatedNode) -> None:
        """Tell the coordinator soon, if there is somebody who does."""
        self._killed_at[node.name] = trio.current_time()
        self._end_when_killed[node.name] = self.extent(node).written
        if self._is_supervised:
            key = self.group_keys.node(node.name)
            before = self.coordinator.item(key)
            self.network.timeline.call_later(REAP_SECONDS, lambda: self._revoke(key, before))

    def _revoke(self, key: str, before: Item | None) -> None:
        now = self.coordinator.item(key)
        if now is not None and before is not None and now.lease_id == before.lease_id:
            self.coordinator.revoke_leases_of(key)

    def _is_remedied(self, node: SimulatedNode, error: BaseException) -> bool:
        """A log that rotted is refused; somebody moves it away. An old version is upgraded."""
        is_old = isinstance(leaves(error)[0], StoreLevelError | JournalFormatError)
        if is_old and node.config.level_max < LEVEL_MAX:
            self._trace.note(node.name, f"is too old: {error}")
            self._upgrade_soon(node.name)
            return True
        is_damage = any(isinstance(leaf, CorruptLogError) for leaf in leaves(error))
        if is_damage and node.rots:
            # It could not reach anybody who has what is bad: its supervisor starts it again.
            self.note_hit("rotten node started again")
            self.network.timeline.call_later(REMEDY_SECONDS, lambda: self._start_again(node))
            return True
        if node.name not in self._spoiled or not is_damage:
            return False
        self.note_hit("store moved away")
        self._trace.note(node.name, f"is moved away: {error}")
        self.network.timeline.call_later(REMEDY_SECONDS, lambda: self._remedy(node))
        return True

    def _start_again(self, node: SimulatedNode) -> None:
        """Start a node that was stopped by damage; if no node runs, an operator repairs it first.

        Each of them waits for the others then, and none can open its log.
        """
        records = [self.coordinator.item(self.group_keys.node(name)) for name in self.nodes]
        if not node.is_up and not any(records) and repair_log(node, self.nodes.values()):
            self.note_hit("log repaired from a copy")
            self._trace.note("fault", f"the log of {node.name} is repaired from copies")
        self.start(node.name)

    def _remedy(self, node: SimulatedNode) -> None:
        if not node.is_up:
            self.wipe(node.name)
            self.start(node.name)

    # Versions

    def be_of_version(self, name: str, level_max: int) -> None:
        """Have the next process of a node be of the version that knows this feature level."""
        node = self.nodes[name]
        node.config = msgspec.structs.replace(node.config, level_max=level_max)

    def change_version(self, name: str, level_max: int) -> None:
        """Stop a node in order, and start it as another version; one that is down, at its start."""
        node = self.nodes[name]
        if node.config.level_max == level_max:
            return
        self.note_hit("upgrade" if level_max == LEVEL_MAX else "downgrade")
        self._trace.note("fault", f"{name} knows feature levels up to {level_max}")
        self.be_of_version(name, level_max)
        if node.current is not None:
            node.current.stop.set()
            node.start_again = True

    def note_log_line(self, line: LogLine) -> None:
        """See `SimulatedCluster`. Somebody reads what keeps a node out, and upgrades it."""
        super().note_log_line(line)
        if KEPT_OUT in line.text and self.nodes[line.node].config.level_max < LEVEL_MAX:
            self._upgrade_soon(line.node)

    def _upgrade_soon(self, name: str) -> None:
        self.note_hit("kept out")

        def upgrade() -> None:
            self.be_of_version(name, LEVEL_MAX)
            self.kill(name)
            self.start(name)

        self.network.timeline.call_later(READ_SECONDS, upgrade)

    # Disks

    def spoil(self, name: str) -> None:
        """Flip a bit of a stopped node's log: it may refuse to start.

        Not after a power loss: then the end looks as if it had never been synced, and nothing on
        the node says otherwise (see the limits in docs/replication.md).
        """
        node = self.nodes[name]
        lost_power = self._life_in_the_dark.get(name) == node.life
        where = "" if node.is_up or lost_power else flip_bit_of_tail(node, self._chance)
        if where:
            self._trace.note("fault", f"flips a bit of {name}: {where}")
            self.note_hit("flip-tail")
            self.witness.note_hurt(name)
            self._spoiled.add(name)

    def rot(self, name: str, kind: str) -> None:
        """Hurt a full file of a node's log, below where all logs end; see `rot_log`."""
        is_first = kind == "lose-first"
        may_rot = self._is_whole_elsewhere if is_first else self._own_share(name)
        self._rot(name, kind, may_rot, memory_chance=0.5)

    def rot_through(self, name: str, kind: str) -> None:
        """Do the same, and change what a running process has in memory, too."""
        self._rot(name, kind, self._own_share(name))

    def rot_bare(self, name: str, kind: str) -> None:
        """Hurt one of which the node has no fingerprint, or any other if it has all.

        A file that was closed just before a process ended gets one from the scrub only.
        """
        node, end = self.nodes[name], self._end_when_killed.get(name, 0)

        def was_left(start: int, size: int) -> bool:
            is_left = start + size <= end and fingerprint_of(node, start) is None
            return is_left and not self._hurt_at(start)

        if self._rot(name, kind, was_left):
            self.note_hit("rot without a fingerprint")
        else:
            self._rot(name, kind, self._is_whole_elsewhere)

    def rot_twin(self, name: str, kind: str) -> None:
        """Hurt one that has rotted at one other node, and is whole at a third one.

        Only where most nodes have its fingerprint, and it is right: else nobody could know who is.
        """
        node = self.nodes[name]
        if self._rot(name, kind, lambda start, size: self._may_rot_again(node, start, size)):
            self.note_hit("rot-twin")

    def _rot(
        self,
        name: str,
        kind: str,
        may_rot: Callable[[int, int], bool],
        *,
        memory_chance: float = 1.0,
    ) -> bool:
        """See `SimulatedCluster._rot`; where damage stays open, only what another node can heal."""
        is_done = super()._rot(
            name,
            kind,
            lambda start, size: (
                may_rot(start, size)
                and (not self.has_open_damage or self._has_healer(name, start, size))
            ),
            memory_chance=memory_chance,
        )
        if is_done and (rot := self.nodes[name].rots[-1]).kind in IN_PLACE:
            start, end = rot.start + rot.at, rot.start + rot.last + 1
            self.history.hurt.append(HurtSeen(rot.at_seconds, name, start, end))
        return is_done

    def _has_healer(self, name: str, start: int, size: int) -> bool:
        """Whether another node has a file whole, and knows for good that it is confirmed."""
        hurt = {rot.node for rot in self._hurt_at(start)}
        for other in self.nodes.values():
            item = self.coordinator.item(self.group_keys.life(other.name))
            confirm = decode_life(item.value).confirm if item is not None else 0
            has_it = min(confirm, self.extent(other).written) >= start + size
            if has_it and other.name not in hurt | {name}:
                return True
        return False

    def _rots_below(self, node: SimulatedNode) -> int:
        """Not where most logs go on and another one parts: it will copy there what has rotted.

        Unless the log is that of a few: what is its own is cut off.
        """
        log = read_log(node)
        ends = [common_end(log, read_log(other)) for other in self.nodes.values()]
        parts = [end for end in ends if end is not None]
        is_usual = 2 * len(parts) < len(ends)
        return min([super()._rots_below(node), *(parts if is_usual else [])])

    def _own_share(self, name: str) -> Callable[[int, int], bool]:
        own = own_share(list(self.nodes).index(name), len(self.nodes))
        return lambda start, size: own(start, size) and not self._hurt_at(start)

    def _is_whole_elsewhere(self, start: int, _: int) -> bool:
        return not self._hurt_at(start)

    def _hurt_at(self, start: int) -> list[Rot]:
        """Return what has rotted in the files that begin there, of all nodes."""
        return [rot for node in self.nodes.values() for rot in node.rots if rot.start == start]

    def _may_rot_again(self, node: SimulatedNode, start: int, size: int) -> bool:
        hurt = self._hurt_at(start)
        if len(hurt) != 1 or hurt[0].node == node.name or len(hurt[0].before) != size:
            return False
        right = crcs_of(hurt[0].before)
        found = [fingerprint_of(other, start) for other in self.nodes.values()]
        # A wrong one would be of a node that took it when the file had changed already.
        return 2 * sum(each is not None and each.crcs == right for each in found) > len(found)

    def _syncs_log(self, node: SimulatedNode) -> None:
        self.rot_watch.look_at(node)

    def _was_sent(self, source: Host, target: Host, data: bytes) -> None:
        node = self._nodes_by_ip.get(source.ip)
        if node is not None and node.rots and node.is_up:
            self.rot_watch.was_sent(node, source, target, data)

    def _is_rotten(self, node: SimulatedNode) -> bool:
        self._forget_healed()
        return bool(node.rots)

    def keep_copy(self, name: str) -> None:
        """Copy a node's directory, as a backup does: what the page cache shows at this moment."""
        self._copies[name] = self.nodes[name].disk.crashed(), trio.current_time()

    def put_back(self, name: str) -> None:
        """Let the copy take the place of a stopped node's directory."""
        node = self.nodes[name]
        if node.is_up or name not in self._copies:
            return
        copy, taken_at = self._copies[name]
        is_noticed = self._killed_at.get(name, math.inf) - taken_at > NOTED_SECONDS
        if not is_noticed and not any(other.is_up for other in self.nodes.values()):
            self.note_hit(MOMENT)
        self._trace.note("fault", f"put back the copy of {name}")
        self.note_hit("put-back")
        node.disk = copy.crashed()
        self.witness.note_put_back(name)

    def set_back(self, image: StoreImage) -> None:
        """Have the coordinator restored from a backup: somebody has to recover the group."""
        self.note_hit("restore-coordinator")
        self._was_set_back = True
        self.coordinator.restore(image)
        self.witness.set_back()

    def _lost_power(self, node: SimulatedNode) -> None:
        self.witness.note_hurt(node.name)
        self._life_in_the_dark[node.name] = node.life

    def _wiping(self, node: SimulatedNode) -> None:
        self._spoiled.discard(node.name)
        self.history.put_back.append((trio.current_time(), node.name))  # what it promised is gone

    def _heal_others(self) -> None:
        self._waiting.clear()
        self._votes.clear()
        self.coordinator.watch_delay_seconds = 0.0
        self.coordinator.lost_replies.clear()
        self.coordinator.start()
        if self._was_set_back:
            self.operator.recover_until(self.witness.has_master)
        if self.rotten():
            self.operator.scrub_until(
                lambda: [n for n in self.nodes.values() if self._is_rotten(n)]
            )
