"""What is answered: for each message that fits the question its life, and where was looked.

All records are JSON as they are; docs/why.md lists the fields and the kinds. A finding says what is
so, when, and what shows it. What nothing shows is in `unknown`, with the reason; it is never
guessed.
"""

import enum

import msgspec

from tandem.life.evidence import UNKNOWN, Gap, Look


class Kind(enum.StrEnum):
    """What a finding is about."""

    BORN = "born"
    STORED = "stored"
    CONTRACT = "contract"
    REPLICATED = "replicated"
    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not-confirmed"
    DAMAGED = "damaged"
    DUPLICATED = "duplicated"
    RESENT = "resent"
    CUT = "cut"
    SET_ASIDE = "set-aside"
    HALF = "half"
    CHECKED = "checked"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    TRANSACTION_OPEN = "transaction-open"
    TRANSACTION_GIVEN_UP = "transaction-given-up"
    DELAYED = "delayed"
    OVERDUE = "overdue"
    DELIVERED = "delivered"
    RECALLED = "recalled"
    NO_READERS = "no-readers"
    CONSUMED = "consumed"
    FILTERED = "filtered"
    NOT_YET = "not-yet"
    NO_OFFSET = "no-offset"
    BROADCAST = "broadcast"
    RETRY_WAITS = "retry-waits"
    RETRIED = "retried"
    DEAD = "dead-letter"
    TRACED = "traced"
    EXPIRED = "expired"
    PAST_END = "past-end"
    NO_RECORD = "no-record"
    NOT_INDEXED = "not-indexed"
    NOT_STORED = "not-stored"
    OTHER_BROKER = "other-broker"
    REPLACED = "replaced"
    SWITCHED = "switched"
    NOT_SHOWN = "not-shown"
    TOO_NEW = "too-new"


class State(enum.StrEnum):
    """What a message is to a consumer group."""

    CONSUMED = "consumed"
    FILTERED = "passed over by its filter"
    NOT_YET = "not yet consumed"
    NO_OFFSET = "not begun"
    AGAIN = "to be delivered again"
    DEAD = "dead letter"
    UNKNOWN = "not known"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is so. `evidence` is what shows it; without a time `at_ms` is 0."""

    kind: Kind
    text: str
    evidence: list[str]
    at_ms: int = 0
    is_concluded: bool = False
    """It follows from what is shown, and holds unless something changed meanwhile."""
    due_ms: int = 0
    """When what it waits for is due; 0 if it waits for no time, or it is not known."""
    group: str = ""
    """The consumer group that it is about."""
    node: str = ""
    broker: str = ""
    topic: str = ""
    queue_id: int = UNKNOWN
    queue_offset: int = UNKNOWN
    physical_offset: int = UNKNOWN


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """What a message is to one consumer group at present."""

    group: str
    state: State
    retries: int = 0
    queue_offset: int = UNKNOWN
    committed: int = UNKNOWN
    """The next queue offset that the group consumes."""
    before_it: int = UNKNOWN
    """Messages of the queue that come first."""
    due_ms: int = 0
    """When it is to be delivered again."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one message. `findings` are in the order of time, what is so now last."""

    id: str
    """Its unique key; without one the offset id of the first record."""
    topic: str
    keys: str = ""
    tags: str = ""
    summary: list[str]
    """What matters most, in sentences."""
    groups: list[GroupState] = []
    findings: list[Finding] = []
    unknown: list[Gap] = []


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question about a message."""

    message: str
    """What was asked for."""
    topic: str = ""
    is_found: bool
    lives: list[Life] = []
    absence: list[Finding] = []
    """If nothing was found: what that proves."""
    looked: list[Look] = []
    unknown: list[Gap] = []
    """What could not be looked at."""
    left_out: int = 0
    """Messages with the same key whose lives are not in `lives`, which has the newest."""
    asked_at_ms: int = 0
