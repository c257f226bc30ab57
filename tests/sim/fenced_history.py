"""What a run of a fenced group leaves behind: records for `tests.sim.fenced_checker`.

Some are what the outside saw (sends, reads, committed offsets, probes). The others are noted in
the very step in which a node says that something happened, together with what is true at that
moment and the node cannot know: what lies on every disk, what the coordinator has recorded.
"""

import enum
import zlib

import msgspec

from ha.fenced.events import HAEvent
from tandem.wire.crc import crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.group_state import GroupState, LeaderRecord
from tandem.wire.message import BLANK_MAGIC_CODE, decode_message
from tests.sim.checker import Outcome, Probe


class Contract(enum.StrEnum):
    """What a producer asked for."""

    ASYNC = "async"
    """No promise: WAIT=false."""
    REPLICATED = "replicated"
    FLUSHED = "flushed"


class FencedSend(msgspec.Struct, frozen=True, kw_only=True):
    """One message from its first try to the answer. Times are virtual seconds."""

    key: str
    body_crc: int
    contract: Contract
    outcome: Outcome
    invoked_at: float
    answered_at: float = float("inf")
    """Infinity for UNKNOWN: the message may still be stored at any later time."""
    ended_at: float = float("inf")
    attempts_max: int = 1
    queue_id: int = -1
    queue_offset: int = -1
    physical_offset: int = -1
    text: str = ""


class LogRecord(msgspec.Struct, frozen=True):
    """One record of a log. Two of them are the same bytes if they are equal."""

    topic: str
    key: str
    body_crc: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    end: int
    content_crc: int
    """Of all its bytes."""


class FencedLog(msgspec.Struct, frozen=True):
    """A commit log from offset 0 to its end, walked."""

    data: bytes
    records: tuple[LogRecord, ...]
    fault: str = ""
    """Why it cannot be walked to its end; empty if it can."""


class Extent(msgspec.Struct, frozen=True):
    """How much of the log a node holds, read from its disk."""

    written: int
    flushed: int
    is_certain: bool = True
    """False after a power loss or a flipped bit, until the node has looked itself."""


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
    log: FencedLog
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
    written: int
    acknowledged: int


class StateSeen(msgspec.Struct, frozen=True):
    """The deciding record, as a transaction wrote it, and the leader next to it."""

    at_seconds: float
    revision: int
    state: GroupState
    leader: LeaderRecord | None
    was_led: bool = True
    """Until this change the leader record was that of the recorded master."""


class ReadSeen(msgspec.Struct, frozen=True):
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


class EpochEntrySeen(msgspec.Struct, frozen=True):
    """One entry of a node's epoch file."""

    epoch: int
    start: int


class FinalNode(msgspec.Struct, frozen=True):
    """A node when all is over."""

    name: str
    log: FencedLog
    epochs: tuple[EpochEntrySeen, ...]
    is_master: bool = False
    is_excused: bool = False
    """It cannot have caught up: an operator has to look at it, and there was cause."""


class FencedHistory(msgspec.Struct):
    """Everything, each list in order of time."""

    sends: list[FencedSend] = []
    reads: list[ReadSeen] = []
    drained: list[ReadSeen] = []
    """What pulling every queue from its start gave at the very end."""
    offsets: list[OffsetSeen] = []
    probes: list[Probe] = []
    crashes: list[str] = []
    events: list[NodeEvent] = []
    acks: list[AckSeen] = []
    openings: list[OpeningSeen] = []
    cuts: list[CutSeen] = []
    reports: list[ReportSeen] = []
    states: list[StateSeen] = []
    topics_created: list[str] = []
    """Whose creation was answered."""
    topics_at_end: list[str] | None = None
    """None: nobody could be asked."""
    missing: list[NotDurableSeen] = []
    lacking: list[LackingSeen] = []
    nodes: list[FinalNode] = []


def walk_fenced_log(data: bytes, base: int = 0) -> FencedLog:
    """Decode a log from offset `base`; every byte up to the end must belong to a valid record."""
    records: list[LogRecord] = []
    position = 0
    while position < len(data):
        filler_bytes = int.from_bytes(data[position : position + 4], "big")
        if (
            int.from_bytes(data[position + 4 : position + 8], "big") == BLANK_MAGIC_CODE
            and filler_bytes >= 8
        ):
            position += filler_bytes
            continue
        try:
            message, end = decode_message(data, position)
        except MalformedMessageError as error:
            return FencedLog(data, tuple(records), f"byte {base + position}: {error}")
        if crc32(message.body) != message.body_crc or message.physical_offset != base + position:
            fault = f"record at byte {base + position}: wrong CRC or offset"
            return FencedLog(data, tuple(records), fault)
        records.append(
            LogRecord(
                topic=message.topic,
                key=message.keys,
                body_crc=message.body_crc,
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
                physical_offset=message.physical_offset,
                end=base + end,
                content_crc=zlib.crc32(data[position:end]),
            )
        )
        position = end
    fault = "" if position == len(data) else f"ends inside the filler at byte {base + len(data)}"
    return FencedLog(data, tuple(records), fault)
