"""What a run of a fenced group leaves behind, beside what every run does.

It is noted in the very step in which a node says that something happened, together with what is
true at that moment and the node cannot know: what lies on every disk, what the coordinator has
recorded. `tests.sim.fenced.checker` judges it.
"""

import msgspec

from ha.fenced.events import HAEvent
from tandem.wire.group_state import GroupState, LeaderRecord
from tests.sim.engine.history import Extent, History
from tests.sim.engine.walked_log import Log, LogRecord


class NodeEvent(msgspec.Struct, frozen=True):
    """What a node said, in order."""

    at_seconds: float
    node: str
    life: int
    """How often the node's process was started before."""
    event: HAEvent


class AckSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A put was about to be answered SEND_OK; and what was true then."""

    at_seconds: float
    node: str
    epoch: int
    end: int
    used_isr: tuple[str, ...]
    live_count: int
    boottime_seconds: float
    """As the node read it."""
    deadline_seconds: float
    true_boottime_seconds: float
    lease: str
    """Of the node's leader key at the coordinator: `held`, `revoked` or `expired`."""
    lease_left_seconds: float = float("inf")
    """For how long the coordinator will hold it yet; infinity if it is not held."""
    recorded_epoch: int
    recorded_isr: dict[str, str]
    stored: dict[str, Extent]
    """Of the recorded members whose incarnation is the recorded one."""


class OpeningSeen(msgspec.Struct, frozen=True):
    """A master opened, with this log."""

    at_seconds: float
    node: str
    epoch: int
    confirm: int
    log: Log
    is_elected: bool
    """Whether the coordinator has recorded this node as master of this epoch."""


class CutSeen(msgspec.Struct, frozen=True):
    """A node decided to cut its log; these whole records go."""

    at_seconds: float
    node: str
    cut: int
    end: int
    confirm: int
    records: tuple[LogRecord, ...]


class ReportSeen(msgspec.Struct, frozen=True):
    """What a slave is about to tell its master, and what it has."""

    at_seconds: float
    node: str
    epoch: int
    written: int
    flushed: int
    stored: Extent


class NotDurableSeen(msgspec.Struct, frozen=True):
    """What a node said is on its disk, and is not."""

    at_seconds: float
    node: str
    what: str


class LackingSeen(msgspec.Struct, frozen=True):
    """A recorded member of the ISR, under its recorded incarnation, lacks what was acknowledged."""

    at_seconds: float
    node: str
    stored: Extent
    acknowledged: int
    flushed_acknowledged: int = 0
    """Up to where messages were answered that have to be on its disk."""


class HurtSeen(msgspec.Struct, frozen=True):
    """Bytes of a node's log rotted, by physical offset; its files were as long as before."""

    at_seconds: float
    node: str
    start: int
    end: int


class StateSeen(msgspec.Struct, frozen=True):
    """The deciding record, as a transaction wrote it, and the leader next to it."""

    at_seconds: float
    revision: int
    state: GroupState
    leader: LeaderRecord | None
    was_led: bool = True
    """Until this change the leader record was that of the recorded master."""


class ElectionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A node was elected that knew its log to be damaged."""

    at_seconds: float
    node: str
    epoch: int
    noted_since: float
    leaderless_since: float
    waited_seconds: float
    """How long the group had no leader, by this node's clock."""
    whole: dict[str, float]
    """The other members that were registered with a whole log, and since when."""


class StaySeen(msgspec.Struct, frozen=True):
    """A master that knew its log to be damaged, and one that was whole and followed well."""

    node: str
    epoch: int
    other: str
    since: float
    until: float


class EpochEntrySeen(msgspec.Struct, frozen=True):
    """One entry of a node's epoch file."""

    epoch: int
    start: int


class FinalNode(msgspec.Struct, frozen=True):
    """A node when all is over."""

    name: str
    log: Log
    epochs: tuple[EpochEntrySeen, ...]
    is_master: bool = False
    is_excused: bool = False
    """It cannot have caught up: an operator has to look at it, and there was cause."""


class FencedHistory(History):
    """Everything, each list in order of time."""

    events: list[NodeEvent] = msgspec.field(default_factory=list)
    acks: list[AckSeen] = msgspec.field(default_factory=list)
    openings: list[OpeningSeen] = msgspec.field(default_factory=list)
    cuts: list[CutSeen] = msgspec.field(default_factory=list)
    reports: list[ReportSeen] = msgspec.field(default_factory=list)
    states: list[StateSeen] = msgspec.field(default_factory=list)
    topics_created: list[str] = msgspec.field(default_factory=list)
    """Whose creation was answered."""
    topics_at_end: list[str] | None = None
    """None: nobody could be asked."""
    missing: list[NotDurableSeen] = msgspec.field(default_factory=list)
    lacking: list[LackingSeen] = msgspec.field(default_factory=list)
    put_back: list[tuple[float, str]] = msgspec.field(default_factory=list)
    """When an older copy of a directory came back, and whose."""
    elections: list[ElectionSeen] = msgspec.field(default_factory=list)
    stays: list[StaySeen] = msgspec.field(default_factory=list)
    older_openings: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """Who opened which epoch by records from a backup, without all that was acknowledged: it takes
    nothing, because nobody follows it, and has to give way."""
    hurt: list[HurtSeen] = msgspec.field(default_factory=list)
    set_back: list[float] = msgspec.field(default_factory=list)
    """When the coordinator was restored from a backup."""
    too_old: list[str] = msgspec.field(default_factory=list)
    """Masters that do not know the feature level of their group, in words."""
    nodes: list[FinalNode] = msgspec.field(default_factory=list)
    blackout_at: float = float("inf")
    """When all machines lost power at once."""
