"""What a gatherer has seen. Every piece says who or which file said so.

Offsets are bytes of the log unless they are called queue offsets; -1 is unknown. Times are
milliseconds since 1970; 0 is unknown.
"""

import enum
from typing import Final

import msgspec

from tandem.wire.message import MessageExt
from tandem.wire.message_properties import PROPERTY_ORIGIN_MESSAGE_ID, PROPERTY_UNIQUE_KEY

UNKNOWN: Final = -1


class Held(enum.StrEnum):
    """In which part of a node a record was found."""

    LOG = "log"
    CUT = "cut off"
    """In `truncated/`: it was cut off the log after a change of master."""
    SET_ASIDE = "set aside"
    """In `set-aside/`: the whole store was moved away, and the log copied anew."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One record as one node has it."""

    node: str
    broker: str
    """Broker name of its group; empty if nobody says so, as in a directory."""
    source: str
    held: Held = Held.LOG
    message: MessageExt
    is_sound: bool = True
    """Its body is what its checksum says."""
    why_held: str = ""
    """Why it was cut off or set aside, in the words of the node."""

    @property
    def family(self) -> str:
        """What all copies of one message have in common, retries and dead letters too."""
        properties = self.message.properties
        return (
            properties.get(PROPERTY_UNIQUE_KEY)
            or properties.get(PROPERTY_ORIGIN_MESSAGE_ID)
            or self.message.offset_msg_id
        )


class Epoch(msgspec.Struct, frozen=True):
    """A mastership, and where in the log its bytes begin. `id` is empty if it is not known."""

    epoch: int
    start: int
    id: str = ""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """What a master knows of another node."""

    name: str
    written: int = UNKNOWN
    flushed: int = UNKNOWN
    is_connected: bool = False
    is_in_sync: bool = False
    trouble: str = ""


class NodeLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one node."""

    node: str
    broker: str
    source: str
    role: str = ""
    """MASTER, SLAVE, FOLLOWER and so on; empty for a directory."""
    is_fenced: bool = False
    start: int = UNKNOWN
    end: int = UNKNOWN
    flushed: int = UNKNOWN
    confirm: int = UNKNOWN
    """Every in-sync replica has the log below it."""
    first_store_ms: int = 0
    last_store_ms: int = 0
    epochs: tuple[Epoch, ...] = ()
    replicas: tuple[Replica, ...] = ()
    in_sync: tuple[str, ...] = ()
    min_isr: int = UNKNOWN
    ack_level: str = ""
    master: str = ""
    is_indexed: bool | None = None
    """Whether its messages can be looked up by key; None if it does not say."""
    contract: str = ""
    """Of a classic group: what SEND_OK means by its settings."""
    damage: str = ""
    switched_ms: int = 0
    """When its group last changed its master, and why."""
    switch_reason: str = ""
    trouble: str = ""
    """Why it could not be asked or read; the rest is unknown then."""


class QueueAt(msgspec.Struct, frozen=True, kw_only=True):
    """How far a consumer group is in one queue: queue offsets.

    `broker` or `node` says whose queue it is: one of them is empty.
    """

    topic: str
    queue_id: int
    committed: int
    broker: str = ""
    node: str = ""
    pulled: int = UNKNOWN
    end: int = UNKNOWN
    last_consumed_ms: int = 0
    client_id: str = ""
    """Who reads it; empty if nobody says so."""


class GroupAt(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group. `members_count` is None if nobody could be asked."""

    group: str
    source: str
    queues: tuple[QueueAt, ...] = ()
    members_count: int | None = None
    is_broadcasting: bool = False
    subscriptions: dict[str, str] = {}
    """What its members want now, by topic."""


class DelayAt(msgspec.Struct, frozen=True, kw_only=True):
    """How delayed messages of one broker wait: milliseconds by level, next offset by level."""

    broker: str
    node: str
    source: str
    delays_ms: tuple[int, ...] = ()
    is_default: bool = False
    """The levels are RocketMQ's: nobody said which ones the broker has."""
    next_offsets: dict[int, int] = {}


class HalfEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A record that says that the half at a queue offset has ended, or a copy of it."""

    broker: str
    node: str
    half_queue_offset: int
    at_ms: int
    source: str


class HalvesRead(msgspec.Struct, frozen=True, kw_only=True):
    """How much was read of the records that say which halves have ended."""

    broker: str
    node: str
    is_complete: bool


class TraceMark(msgspec.Struct, frozen=True, kw_only=True):
    """What a client wrote of a message into the topic of traces."""

    what: str
    """`sent`, `received`, `handled`, or `ended` of a transaction."""
    at_ms: int
    group: str
    source: str
    success: bool | None = None
    cost_ms: int = UNKNOWN
    is_stored: bool = False
    """Of a send: the answer said where the message is."""
    state: str = ""
    """How a transaction was said to end."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A place that was looked at, and what that covers."""

    where: str
    how: str
    found: int
    covers: str = ""
    """Which part of the log, or which time."""
    is_complete: bool = True
    """A message that is there would have been found."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be looked at, or that nothing says."""

    what: str
    why: str
    remedy: str = ""


class Evidence(msgspec.Struct, kw_only=True):
    """All that was gathered about one question."""

    message: str
    topic: str = ""
    now_ms: int
    copies: list[Copy] = []
    others: list[Copy] = []
    """Records at the place that an offset id names, with another id."""
    nodes: list[NodeLog] = []
    groups: list[GroupAt] = []
    delays: list[DelayAt] = []
    ends: list[HalfEnd] = []
    halves_read: list[HalvesRead] = []
    traces: list[TraceMark] = []
    looks: list[Look] = []
    gaps: list[Gap] = []
    topics_known: set[str] = set()
    """Topics of users that there are, as far as that was seen."""
    readers_known: set[str] = set()
    """Topics of which it is known which groups read them."""
    is_cluster: bool = False
    """Nodes were asked; else directories were read."""
    families_left_out: int = 0
    """Messages with the same key beyond those that were followed."""

    def gap(self, what: str, why: str, remedy: str = "") -> None:
        """Note once that something could not be looked at."""
        found = Gap(what=what, why=why, remedy=remedy)
        if found not in self.gaps:
            self.gaps.append(found)
