"""What the outside saw of a run: sends and their ends, reads, committed offsets, probes.

Both kinds of group leave that behind; each adds what only it can show (`classic.history`,
`fenced.history`). Times are virtual seconds.
"""

import enum

import msgspec


class Outcome(enum.Enum):
    """How a send ended for the producer."""

    OK = enum.auto()
    """SEND_OK."""
    STORED = enum.auto()
    """FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE: in the master's log."""
    UNKNOWN = enum.auto()
    """No answer; it may be stored, or still be on its way."""
    REFUSED = enum.auto()
    """The broker said no, or the request never left: it must never be stored."""


class Contract(enum.StrEnum):
    """What a producer asked for. Classic groups know the first two."""

    ASYNC = "async"
    """No promise: WAIT=false."""
    REPLICATED = "replicated"
    FLUSHED = "flushed"


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """One message from its first try to the answer."""

    key: str
    body_crc: int
    contract: Contract
    outcome: Outcome
    invoked_at: float
    answered_at: float = float("inf")
    """Infinity for UNKNOWN: the message may still be stored at any later time."""
    ended_at: float = float("inf")
    """When the producer was done with it, answer or not."""
    attempts_max: int = 1
    queue_id: int = -1
    queue_offset: int = -1
    physical_offset: int = -1
    text: str = ""
    """The producer's words, for people."""


class Extent(msgspec.Struct, frozen=True):
    """How much of the log a node holds, read from its disk."""

    written: int
    flushed: int
    is_certain: bool = True
    """False after a power loss or a flipped bit, until the node has looked itself."""


class AnswerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A node handed SEND_OK for a message to the network; what was on the disks in that step."""

    at_seconds: float
    node: str
    key: str
    physical_offset: int
    own: Extent
    """Of the node that answers."""
    stored: dict[str, Extent] = {}
    """In a fenced group: of the recorded members whose incarnation is the recorded one."""


class EmptyPull(msgspec.Struct, frozen=True, kw_only=True):
    """The master of the moment answered a reader that there is nothing at this offset yet."""

    node: str
    asked_at: float
    """When the request left the reader."""
    answered_at: float
    queue_id: int
    queue_offset: int


class Read(msgspec.Struct, frozen=True):
    """One record a reader received."""

    at_seconds: float
    reader: str
    topic: str
    key: str
    body_crc: int
    queue_id: int
    queue_offset: int
    physical_offset: int


class OffsetSeen(msgspec.Struct, frozen=True):
    """What a consumer group was told about a queue: where to go on."""

    at_seconds: float
    group: str
    queue_id: int
    offset: int


class Probe(msgspec.Struct, frozen=True):
    """One send after everything was healed."""

    sent_after_heal_seconds: float
    succeeded: bool
    text: str = ""


class History(msgspec.Struct):
    """What the outside saw, each list in order of time."""

    sends: list[Send] = []
    reads: list[Read] = []
    drained: list[Read] = []
    """What pulling every queue from its start gave at the very end."""
    offsets: list[OffsetSeen] = []
    probes: list[Probe] = []
    contracts: dict[str, Contract] = {}
    """What was asked for with each message, by its key, from before it was sent."""
    answers: list[AnswerSeen] = []
    empty_pulls: list[EmptyPull] = []
    rotten: list[str] = []
    """What has rotted and was not whole again at the end, in words."""
    falsely_whole: list[str] = []
    """What was noted as bad, is noted no more, and is bad yet."""
    forgotten: list[str] = []
    """Who said that nothing was damaged, and had noted that something was."""
    handed_out: list[str] = []
    """What left a node although it knew that it was bad, or ought to."""
    skipped: list[str] = []
    """Answers that moved a reader on by more messages than they had."""
    crashes: list[str] = []
    """Nodes and clients that ended by themselves without cause, and tracebacks."""


class Finding(msgspec.Struct, frozen=True):
    """One broken promise, for a person. The checker of each kind of group says which there are."""

    kind: enum.Enum
    text: str
