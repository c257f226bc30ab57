"""What was seen in one drill. The caller of `play` owns it, so it outlives an interruption."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cluster_file.choices import GroupKind
from tandem.drill.effects import Effects
from tandem.drill.preflight import Group
from tandem.drill.replication import Replication
from tandem.drill.timeline import Timeline
from tandem.drill.watched_group import NO_BOUND, Change, WatchedGroup
from tandem.drill.workload import Clock

if TYPE_CHECKING:
    from tandem.drill.consumers.promises import Promises
    from tandem.drill.lost_leases import Late
    from tandem.drill.scenario import Expectation, ScenarioRun
    from tandem.drill.stream_audit import Content, Place
    from tandem.drill.undisturbed import CalmTime
    from tandem.drill.witness_audit import WitnessSummary


class Recording:
    """Everything a drill collects, from before its first phase on."""

    def __init__(self, clock: Clock, group: Group) -> None:
        self.clock = clock
        self.timeline = Timeline()
        is_fenced = group.kind is GroupKind.FENCED
        self.watched = WatchedGroup([node.name for node in group.nodes]) if is_fenced else None
        self.replication = Replication(_known_by(group), self.timeline)
        self.expectations: list[Expectation] = []
        self.runs: list[ScenarioRun] = []
        self.master = group.nodes[0].name
        """Whose log the audit goes by."""
        self.confirm: int | None = None
        """Of a fenced group: below this every node has the whole log."""
        self.apart: list[str] = []
        """Nodes that did not follow the last master when a drill ended early, where no offset says
        what all have: one may have a tail that it cuts off when it follows. They are not compared.
        """
        self.ready_at = 0.0
        """When all nodes had started for the first time and clients found the topic."""
        self.lateness: list[Late] = []
        """When the drill itself did not get to run."""
        self.exits: set[str] = set()
        """Nodes that ended although nobody stopped them, and how."""
        self.disorder: list[str] = []
        self.input_lines = 0
        self.input_lines_acknowledged = 0
        self.ended_at: float | None = None
        self.stopped_because = ""
        self.reads: dict[Place, Content] = {}
        """What our consumers have read, for a witness to be compared with."""
        self.witness: WitnessSummary | None = None
        self.no_audit = ""
        """Why there are no stores to look into; empty if there are."""
        self.effects = Effects()
        """What faults did, as it was seen."""
        self.notes: list[str] = []
        """What its user has to know of a cluster that stays."""
        self.beside: dict[str, Recording] = {}
        """The same of the other groups of the cluster, by name."""
        self.calm: list[CalmTime] = []
        """When others were hurt, and this group was not."""
        self.promises: Promises | None = None
        """What consumers were promised; None where they are not audited."""

    @property
    def history(self) -> Sequence[Change]:
        """What changed in a fenced group, in order."""
        return self.watched.history if self.watched is not None else ()

    @property
    def is_empty(self) -> bool:
        """Whether none of the scenarios could be begun, so that there is nothing to audit."""
        is_possible = any(run.is_possible for run in self.runs)
        is_sent = any(phase.sends or phase.in_flight for phase in self.timeline.phases)
        return bool(self.runs) and not is_possible and not is_sent

    def note_end(self) -> None:
        """Keep what the audit goes by: the last master, and up to where all logs must agree."""
        watched = self.watched
        if watched is None:
            return
        last = watched.master or (watched.state.master if watched.state else "")
        self.master = last or self.master
        status = watched.statuses.get(last)
        if status is not None and not self.stopped_because:
            self.confirm = status.confirm
        else:
            self.confirm = min(watched.confirms.values(), default=0)
        if self.stopped_because and self.confirm == NO_BOUND:
            states = self.replication.states.items()
            self.apart = [n for n, state in states if n != self.master and not state.connected]

    def compared(self, stores: Mapping[str, Path]) -> dict[str, Path]:
        """Return those of these stores, by node, whose logs are compared: see `apart`."""
        return {node: store for node, store in stores.items() if node not in self.apart}


def _known_by(group: Group) -> dict[str, str]:
    """By what the master's reports name each node: its address, or in a fenced group its name."""
    if group.kind is GroupKind.FENCED:
        return {node.name: node.name for node in group.nodes}
    return {node.name: node.address for node in group.slaves}
