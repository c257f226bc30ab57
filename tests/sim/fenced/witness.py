"""Notes what the nodes of a fenced group say and what their coordinator does: all that is judged.

A node tells of what it does by events, in the step in which it happens. Here each event is noted
with what is true at that moment: what lies on the disks, what the coordinator has recorded.
"""

import math
from collections.abc import Mapping

import trio

from ha.errors import HAError
from ha.fenced.epoch_file import EpochFile
from ha.fenced.events import (
    AckDecided,
    HAEvent,
    MasterOpened,
    ReplicaReported,
    SteppedDown,
    TruncationDecided,
)
from node.simulated.coordinator import EXPIRED, HELD, REVOKED, SimulatedCoordinator
from store.machine.errors import StoreError
from tandem.coordinator.kv_records import Change
from tandem.wire.group_state import GroupKeys, GroupState, decode_leader, decode_state
from tests.sim.engine.history import AnswerSeen, Contract, Extent
from tests.sim.engine.log_tail import DiskTails
from tests.sim.engine.node import SimulatedNode, read_log
from tests.sim.engine.trace import Trace
from tests.sim.engine.walked_log import walk_log
from tests.sim.fenced.disk import incarnation_of, missing_on_disk
from tests.sim.fenced.history import (
    AckSeen,
    CutSeen,
    EpochEntrySeen,
    FencedHistory,
    FinalNode,
    LackingSeen,
    NodeEvent,
    NotDurableSeen,
    OpeningSeen,
    ReportSeen,
    StateSeen,
)


class Witness:
    """Sees everything that happens to one group, and writes the history.

    Attributes:
        state: the deciding record as the coordinator has it.
    """

    def __init__(
        self,
        nodes: Mapping[str, SimulatedNode],
        coordinator: SimulatedCoordinator,
        group_keys: GroupKeys,
        history: FencedHistory,
        trace: Trace,
    ) -> None:
        self.history = history
        self.state: GroupState | None = None
        self._nodes = nodes
        self._coordinator = coordinator
        self._group_keys = group_keys
        self._trace = trace
        self._led_by = ""
        self._leader_leases: dict[str, int] = {}
        self._tails: dict[str, DiskTails] = {}
        self._serving: dict[str, tuple[int, int, float]] = {}
        """Of a master that has opened: life, epoch, and when it did."""
        self._flushed_promised = 0
        """Up to where messages were answered that have to be on every member's disk."""
        self._acks_before = self._openings_before = 0
        """How many there were when all lost power."""
        self._hurt: set[str] = set()
        """Whose disk may have lost something, and who has not looked yet."""
        self._once_hurt: set[str] = set()
        self._are_records_old = False
        self._members_by_backup: set[str] = set()
        """Who has not been seen to have everything since the coordinator was set back."""
        """The coordinator was set back, and no master has opened since: the in-sync set that it
        names is not the one that an earlier master waits for until it has noticed."""
        self._put_back: set[str] = set()
        """Who has an older copy of its directory, and has not caught up since."""

    # Disks

    def note_blackout(self) -> None:
        """Take note that all lose power now: what was only replicated counts no more."""
        self._acks_before = len(self.history.acks)
        self._openings_before = len(self.history.openings)

    @property
    def has_opened_since_blackout(self) -> bool:
        """Whether there is a master again."""
        return len(self.history.openings) > self._openings_before

    def note_hurt(self, name: str) -> None:
        """Take note that a node's disk may have lost something."""
        self._hurt.add(name)
        self._once_hurt.add(name)

    def note_put_back(self, name: str) -> None:
        """Take note that a node has an older copy of its directory: it has forgotten promises."""
        self.note_hurt(name)
        self._put_back.add(name)
        self.history.put_back.append((trio.current_time(), name))

    def set_back(self) -> None:
        """The coordinator has older records now, and all leases of then."""
        item = self._coordinator.item(self._group_keys.state)
        self.state = decode_state(item.value) if item is not None else None
        self._led_by = self._leader_name()
        self._are_records_old = self.state is not None
        self.history.set_back.append(trio.current_time())

    def has_master(self) -> bool:
        """Whether the recorded leader lives and has opened; one from a backup has not."""
        name = self._leader_name()
        return bool(name) and self.has_served_since(self._nodes[name], trio.current_time())

    @property
    def was_any_hurt(self) -> bool:
        """Whether a disk may ever have lost something that was not synced."""
        return bool(self._once_hurt)

    def extent(self, node: SimulatedNode) -> Extent:
        """Return how much of the log lies on a node's disk."""
        return self._tails_of(node).extent(is_certain=node.name not in self._hurt)

    def _tails_of(self, node: SimulatedNode) -> DiskTails:
        tails = self._tails.get(node.name)
        if tails is None or tails.disk is not node.whole_disk:
            tails = self._tails[node.name] = DiskTails(node.whole_disk, node.directory)
        return tails

    def holders(self) -> dict[str, Extent]:
        """Return what is on the disks of the members that are what was recorded."""
        names = () if self._are_records_old else self.electable()
        return {name: self.extent(self._nodes[name]) for name in names}

    # What clients are answered

    def answered(self, answer: AnswerSeen) -> None:
        """Note up to where everything has to be on the disk of whoever becomes a member."""
        if self.history.contracts.get(answer.key) is Contract.FLUSHED:
            self._flushed_promised = max(self._flushed_promised, answer.physical_offset + 1)

    def has_served_since(self, node: SimulatedNode, since: float) -> bool:
        """Whether a node is the recorded master, and had opened by then."""
        life, epoch, opened_at = self._serving.get(node.name, (0, 0, 0.0))
        state = self.state
        return (
            state is not None
            and (state.master, state.epoch) == (node.name, epoch)
            and life == node.life
            and opened_at <= since
        )

    # What nodes say

    def heard(self, node: SimulatedNode, event: HAEvent) -> None:
        """Note what a node says, and what is true now."""
        now = trio.current_time()
        self._trace.note(node.name, str(event))
        self.history.events.append(NodeEvent(now, node.name, node.life, event))
        missing = missing_on_disk(node, event)
        if missing:
            self.history.missing.append(NotDurableSeen(now, node.name, missing))
        match event:
            case AckDecided():
                self.history.acks.append(self._ack_seen(node, event))
            case MasterOpened(epoch, confirm):
                self._serving[node.name] = (node.life, epoch, now)
                log = walk_log(read_log(node))
                acknowledged = max((ack.end for ack in self.history.acks), default=0)
                is_older = self._are_records_old or node.name in self._put_back
                if is_older and self.extent(node).written < acknowledged:
                    self.history.older_openings.append((node.name, epoch))
                    return
                if self._are_records_old:
                    self._records_are_true_again()
                is_elected = self._was_elected(epoch, node.name)
                opening = OpeningSeen(now, node.name, epoch, confirm, log, is_elected)
                self.history.openings.append(opening)
            case SteppedDown():
                self._serving.pop(node.name, None)
            case ReplicaReported(epoch, written, flushed):
                stored = self.extent(node)
                report = ReportSeen(now, node.name, epoch, written, flushed, stored)
                self.history.reports.append(report)
            case TruncationDecided(cut, end, confirm):
                self.history.cuts.append(self._cut_seen(node, cut, end, confirm))
            case _:
                pass

    def _records_are_true_again(self) -> None:
        """A master has opened that has everything. Who was a member by a backup may lack some.

        It counts when it has caught up, or it has to go.
        """
        self._are_records_old = False
        members = self.state.isr if self.state is not None else {}
        self._members_by_backup = set(members)

    def _was_elected(self, epoch: int, name: str) -> bool:
        return any(
            (seen.state.epoch, seen.state.master) == (epoch, name) for seen in self.history.states
        )

    def _ack_seen(self, node: SimulatedNode, event: AckDecided) -> AckSeen:
        state = self.state
        isr = state.isr if state is not None and not self._are_records_old else {}
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
            lease_left_seconds=self._lease_left(node.name, event.epoch),
            recorded_epoch=state.epoch if state is not None else -1,
            recorded_isr=isr,
            stored=self.holders(),
        )

    def _lease_of(self, name: str) -> str:
        if self._leader_name() == name:
            return HELD
        ended = self._coordinator.ended.get(self._leader_leases.get(name, 0))
        return EXPIRED if ended == EXPIRED else REVOKED

    def _lease_left(self, name: str, epoch: int) -> float:
        """Return for how long the lease of a leader runs yet; infinity if it does not lead."""
        item = self._coordinator.item(self._group_keys.leader)
        if item is not None:
            leader = decode_leader(item.value)
            if (leader.node, leader.epoch) == (name, epoch):
                return self._coordinator.store.time_left(item.lease_id, trio.current_time())
        return math.inf

    def _cut_seen(self, node: SimulatedNode, cut: int, end: int, confirm: int) -> CutSeen:
        tail = self._tails_of(node).written
        data = tail.read(cut, max(cut, tail.end()))
        records = walk_log(data, cut).records
        return CutSeen(trio.current_time(), node.name, cut, end, confirm, records)

    # What the coordinator does

    def changed(self, change: Change) -> None:
        """Note a change of keys, and what was true when it was made."""
        led_by, self._led_by = self._led_by, self._leader_name()
        for item in change.puts:
            key = item.key.decode()
            if key == self._group_keys.state:
                self.state = decode_state(item.value)
                self._trace.note("coordinator", str(self.state))
                self.history.states.append(self._state_seen(change, self.state, led_by))
                self._look_at_members(list(self.state.isr))
            elif key == self._group_keys.leader:
                leader = decode_leader(item.value)
                self._trace.note("coordinator", str(leader))
                self._leader_leases[leader.node] = item.lease_id
            elif key.startswith(self._group_keys.nodes):
                self._has_looked(key.removeprefix(self._group_keys.nodes))

    def _state_seen(self, change: Change, state: GroupState, led_by: str) -> StateSeen:
        leader = self._coordinator.item(self._group_keys.leader)
        record = decode_leader(leader.value) if leader is not None else None
        was_led = led_by == state.master
        return StateSeen(trio.current_time(), change.revision, state, record, was_led)

    def _leader_name(self) -> str:
        item = self._coordinator.item(self._group_keys.leader)
        return decode_leader(item.value).node if item is not None else ""

    def _has_looked(self, name: str) -> None:
        """A node that has said who it is has looked at its disk."""
        if self._nodes[name].is_up:
            self._hurt.discard(name)
            self._look_at_members([name])

    def _look_at_members(self, names: list[str]) -> None:
        """Whoever is recorded as a member has everything that was acknowledged."""
        if self._are_records_old:
            return
        acknowledged = max((ack.end for ack in self.history.acks[self._acks_before :]), default=0)
        for name in names:
            extent = self.extent(self._nodes[name])
            lacks_some = extent.written < acknowledged or extent.flushed < self._flushed_promised
            if not lacks_some:
                self._put_back.discard(name)
                self._members_by_backup.discard(name)
            if name in self._put_back | self._members_by_backup:
                # A copy of some seconds ago, of the same life, cannot be told from the latest. It
                # is judged by what becomes of it: it must not win, or give way.
                continue
            if lacks_some and extent.is_certain and self._is_recorded(name):
                now = trio.current_time()
                lacking = LackingSeen(now, name, extent, acknowledged, self._flushed_promised)
                self.history.lacking.append(lacking)

    def electable(self) -> list[str]:
        """Return the members of the recorded ISR that are what was recorded."""
        isr = self.state.isr if self.state is not None else {}
        return [name for name in isr if self._is_recorded(name)]

    def _is_recorded(self, name: str) -> bool:
        isr = self.state.isr if self.state is not None else {}
        return name in isr and incarnation_of(self._nodes[name]) == isr[name]

    # The end

    def final_nodes(self, *, is_excused: bool) -> list[FinalNode]:
        """Return what every node has when all is over; `is_excused`: they need not be equal."""
        master = self.state.master if self.state is not None else ""
        if is_excused and self.history.openings:
            master = self.history.openings[-1].node
        return [self._final(node, master, is_excused=is_excused) for node in self._nodes.values()]

    def _final(self, node: SimulatedNode, master: str, *, is_excused: bool) -> FinalNode:
        entries: tuple[EpochEntrySeen, ...] = ()
        try:
            epochs = EpochFile(node.disk, node.directory)
        except (HAError, StoreError) as error:
            self.history.crashes.append(f"{node.name}: its epoch file cannot be read: {error}")
        else:
            entries = tuple(EpochEntrySeen(e.epoch, e.start) for e in epochs.entries)
        log = walk_log(read_log(node))
        return FinalNode(node.name, log, entries, node.name == master, is_excused)
