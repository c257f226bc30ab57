"""What the clients of a run with consumer groups saw, and what lies in the master's log at its end.

Times are virtual seconds. `tests.sim.consumers.checker` judges it.
"""

import enum
import math
from typing import Final

import msgspec

from tandem.wire.message import BLANK_MAGIC_CODE, decode_message
from tandem.wire.message_properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
)
from tandem.wire.system_topics import RMQ_SYS_TRANS_OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

QueueKey = tuple[str, int]
"""Topic and queue id."""


class Decision(enum.Enum):
    """What a producer makes of a transaction; once drawn, it stays."""

    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    NEVER = enum.auto()
    """It never knows: in the end the broker gives up."""


class Sent(msgspec.Struct, kw_only=True):
    """One message of a producer; `is_acknowledged` once a broker has said SEND_OK."""

    key: str
    topic: str
    invoked_at: float
    ended_at: float = math.inf
    is_acknowledged: bool = False


class Transaction(msgspec.Struct, kw_only=True):
    """One half, and what was said about it."""

    key: str
    decision: Decision
    invoked_at: float
    ended_at: float = math.inf
    is_prepared: bool = False
    """The half was answered SEND_OK."""
    was_ended: bool = False
    """A broker has answered the decision with success."""


class Consumed(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer has looked at a message; with `is_ok` it is done with it."""

    at_seconds: float
    group: str
    client: str
    session: int
    """Counts the times that any client took up any queue."""
    queue: QueueKey
    queue_offset: int
    key: str
    reconsume_times: int
    is_ok: bool


class SentBack(msgspec.Struct, frozen=True, kw_only=True):
    """A message that failed was taken back by a broker."""

    group: str
    key: str
    reconsume_times: int


class Commit(msgspec.Struct, kw_only=True):
    """A consumer told a broker how far it is."""

    group: str
    queue: QueueKey
    offset: int
    asked_at: float
    answered_at: float = math.inf
    is_settled: bool = False
    """It was answered, and with success: it stands. What comes with a pull is never answered."""


class OffsetTold(msgspec.Struct, frozen=True, kw_only=True):
    """A node told a consumer where its group is; None: nowhere yet."""

    node: str
    group: str
    queue: QueueKey
    offset: int | None
    asked_at: float
    answered_at: float


class Holding(msgspec.Struct, kw_only=True):
    """A client trusts that it alone reads a queue, from the answer to its first lock on."""

    client: str
    queue: QueueKey
    grantor: str
    """Which time as master of which node gave the lock; empty if that changed meanwhile."""
    begin: float
    until: float


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A node gave locks."""

    node: str
    asked_at: float
    answered_at: float


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A node told a consumer that the place it asked for is not in the queue."""

    node: str
    group: str
    queue: QueueKey
    offset: int
    """Where the consumer was, by what nodes had told it."""
    to: int
    asked_at: float
    answered_at: float


class Term(msgspec.Struct, frozen=True):
    """A node is master, until the next one begins."""

    node: str
    at_seconds: float


class Seen(msgspec.Struct):
    """Everything, each list in order of time."""

    sent: dict[str, Sent] = msgspec.field(default_factory=dict)
    transactions: dict[str, Transaction] = msgspec.field(default_factory=dict)
    consumed: list[Consumed] = msgspec.field(default_factory=list)
    sent_back: list[SentBack] = msgspec.field(default_factory=list)
    commits: list[Commit] = msgspec.field(default_factory=list)
    told: list[OffsetTold] = msgspec.field(default_factory=list)
    holdings: list[Holding] = msgspec.field(default_factory=list)
    grants: list[Grant] = msgspec.field(default_factory=list)
    moves: list[Moved] = msgspec.field(default_factory=list)
    terms: list[Term] = msgspec.field(default_factory=list)
    lost_memory_at: list[float] = msgspec.field(default_factory=list)
    """When the master of a classic group died: what it had not saved of its tables is gone."""
    session_count: int = 0
    oddities: list[str] = msgspec.field(default_factory=list)
    """Pulls that left something out, and questions about what is not there."""


class Stored(msgspec.Struct, frozen=True):
    """One record of the log."""

    topic: str
    key: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    ended: tuple[int, ...] = ()
    """Of an op: the queue offsets of the halves that have ended."""
    waits_for: str = ""
    """The topic that it is to be delivered to later; empty if it does not wait."""
    was_delayed: bool = False
    """It has waited, and was delivered."""


_DELAYS: Final = frozenset({PROPERTY_DELAY_LEVEL, PROPERTY_TIMER_OUT_MS})


def stored_in(log: bytes) -> list[Stored]:
    """Return the records of a whole log."""
    records = []
    position = 0
    while position < len(log):
        if int.from_bytes(log[position + 4 : position + 8], "big") == BLANK_MAGIC_CODE:
            position += int.from_bytes(log[position : position + 4], "big")
            continue
        message, position = decode_message(log, position)
        real_topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        waits = message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
        is_op = message.topic == RMQ_SYS_TRANS_OP_HALF_TOPIC
        records.append(
            Stored(
                message.topic,
                message.properties.get(PROPERTY_UNIQUE_KEY, ""),
                message.queue_id,
                message.queue_offset,
                message.reconsume_times,
                tuple(int(part) for part in message.body.split(b",") if part) if is_op else (),
                real_topic if waits else "",
                message.topic == real_topic and not _DELAYS.isdisjoint(message.properties),
            )
        )
    return records
