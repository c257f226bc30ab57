"""Watches what the nodes of a fenced group make of damage for as long as it is open.

A node is *whole* that is registered, and whose record at the coordinator tells of no damage. What
is promised, docs/replication.md says. It is noted since when something is so: nodes that have only
just learned of it have not had time to act.
"""

from collections.abc import Callable, Mapping
from typing import Final

import trio

from ha.fenced.events import ConfirmAdvanced, HAEvent
from node.simulated.coordinator import SimulatedCoordinator
from tandem.wire.group_state import GroupKeys, GroupState, NodeRecord, decode_node
from tandem.wire.message import Host
from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.rot import fingerprint_of
from tests.sim.engine.rot_watch import LOOK_SECONDS, RotWatch
from tests.sim.engine.whole_disk import Rot
from tests.sim.fenced.disk import incarnation_of
from tests.sim.fenced.history import ElectionSeen, FencedHistory, StaySeen
from tests.sim.fenced.witness import Witness

KNOWN_SECONDS: Final = 4.0
"""What the coordinator has had for so long, every node that can reach it has heard: longer than
watches are late."""

CONFIRMED_SECONDS: Final = 1.0
"""A master that has confirmed something so lately hears of all members."""

BEHIND_SECONDS: Final = 0.5
"""A member that has what its master had then follows well."""


class FencedRotWatch(RotWatch):
    """Sees all nodes of one group, and writes the history."""

    def __init__(
        self,
        nodes: Mapping[str, SimulatedNode],
        coordinator: SimulatedCoordinator,
        group_keys: GroupKeys,
        witness: Witness,
        history: FencedHistory,
        *,
        are_links_fine: Callable[[str, str], bool],
    ) -> None:
        """`are_links_fine` says of two nodes whether replication between them is as ever."""
        super().__init__(nodes, history)
        self._are_links_fine = are_links_fine
        self.history = history
        self._addresses = {node.ip for node in nodes.values()}
        self._coordinator = coordinator
        self._group_keys = group_keys
        self._witness = witness
        self._whole_since: dict[str, tuple[float, str]] = {}
        """By node: since when it is whole, and under which incarnation."""
        self._leaderless: tuple[float, dict[str, float]] | None = None
        """Since when, and what the boot clock of each node said then."""
        self._confirmed_at: dict[str, float] = {}
        self._ends: dict[str, list[tuple[float, int]]] = {}
        self._staying: dict[tuple[str, int, str], float] = {}
        """By master, epoch and member: since when the one ought to give way to the other."""
        self._longest: dict[tuple[str, int, str], StaySeen] = {}

    def look(self) -> None:
        """See what has changed since the last look."""
        super().look()
        self._look_at_master(trio.current_time())

    def directory_of(self, node: SimulatedNode) -> str:
        """Return the incarnation: a store that is set aside is another replica's."""
        return incarnation_of(node)

    def why_not_send(self, node: SimulatedNode, rot: Rot, source: Host, target: Host) -> str:
        """Return why a node ought to have known: it looks at what a peer asks for."""
        is_for_a_peer = source == Host(node.ip, node.config.node.port) and target.ip in (
            self._addresses
        )
        if is_for_a_peer and _does_not_fit(node, rot, trio.current_time()):
            return "and its fingerprint says that it is bad"
        return ""

    # Who is master

    def heard(self, node: SimulatedNode, event: HAEvent) -> None:
        """Take what a node says."""
        if isinstance(event, ConfirmAdvanced):
            self._confirmed_at[node.name] = trio.current_time()

    def changed(self, before: GroupState | None, after: GroupState | None) -> None:
        """Take note that keys of the coordinator have changed; `before` was the last record."""
        now = trio.current_time()
        for name in self._nodes:
            record = self._record_of(name)
            if record is None or record.trouble or record.damage:
                self._whole_since.pop(name, None)
            elif self._whole_since.get(name, (now, ""))[1] != record.incarnation:
                self._whole_since[name] = (now, record.incarnation)
        if before is not None and after is not None and after.epoch == before.epoch + 1:
            self._note_election(before, after.master, now)
        if self._coordinator.item(self._group_keys.leader) is not None:
            self._leaderless = None
        elif self._leaderless is None:
            clocks = {name: node.boot_clock.now_seconds() for name, node in self._nodes.items()}
            self._leaderless = (now, clocks)

    def _record_of(self, name: str) -> NodeRecord | None:
        item = self._coordinator.item(self._group_keys.node(name))
        return decode_node(item.value) if item is not None else None

    def _whole_others(self, isr: Mapping[str, str], name: str) -> dict[str, float]:
        """Return the other members that are whole, and since when."""
        return {
            other: since
            for other, (since, incarnation) in self._whole_since.items()
            if other != name and isr.get(other) == incarnation
        }

    def _note_election(self, before: GroupState, winner: str, now: float) -> None:
        if winner not in self._nodes or self._leaderless is None:
            return
        since, clocks = self._leaderless
        noted = self.noted_since(winner)
        if noted is None or not self.noted(self._nodes[winner]):
            return
        self.history.elections.append(
            ElectionSeen(
                at_seconds=now,
                node=winner,
                epoch=before.epoch + 1,
                noted_since=noted,
                leaderless_since=since,
                waited_seconds=self._nodes[winner].boot_clock.now_seconds() - clocks[winner],
                whole=self._whole_others(before.isr, winner),
            )
        )

    def _look_at_master(self, now: float) -> None:
        """Note for how long a damaged master is one beside a whole member that follows well."""
        kept, self._staying = self._staying, {}
        state = self._witness.state
        if state is None or state.master not in self._nodes:
            return
        master = self._nodes[state.master]
        end = self._witness.extent(master).written
        ends = self._ends.setdefault(master.name, [])
        ends.append((now, end))
        del ends[:-20]
        due = max((e for at, e in ends if at <= now - BEHIND_SECONDS), default=end)
        serves = self._witness.has_served_since(master, now)
        hears = self._confirmed_at.get(master.name, -1.0) >= now - CONFIRMED_SECONDS
        if not (serves and hears) or self.noted_since(master.name) is None:
            return
        for other, whole_since in self._whole_others(state.isr, master.name).items():
            is_known = whole_since <= now - KNOWN_SECONDS
            follows = self._witness.extent(self._nodes[other]).written >= due
            if is_known and follows and self._are_links_fine(master.name, other):
                key = (master.name, state.epoch, other)
                since = self._staying[key] = kept.get(key, now)
                longest = self._longest.get(key)
                if longest is None or now - since > longest.until - longest.since:
                    self._longest[key] = StaySeen(*key, since, now)
        self.history.stays = list(self._longest.values())


def _does_not_fit(node: SimulatedNode, rot: Rot, now: float) -> bool:
    """Whether a node has a fingerprint of a hurt file, and had time to see that it is hurt."""
    found = fingerprint_of(node, rot.start)
    content = node.disk.read(rot.path) or b""
    is_settled = rot.at_seconds <= now - LOOK_SECONDS
    return found is not None and is_settled and bool(found.differing(found.start, content))
