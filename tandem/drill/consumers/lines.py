"""The ledger of the consumers' load: what was sent to them, and what each of them saw, in order.

While the drill runs it is NDJSON, `consumers.ndjson`, and it stays in the report. A line is handed
to the kernel before what it speaks of has any effect: a message that is handled has its line before
the group's offset can pass it, and a transaction that is committed before the broker hears of it.
"""

import enum
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tandem.drill.errors import LedgerError
from tandem.wire.untrusted import UnreadableError, json_decoder

Place = tuple[str, str, int, int]
"""Topic, broker name, queue id and offset in the queue."""


class Kind(enum.StrEnum):
    """What a message is there to show."""

    PLAIN = "plain"
    DELAYED = "delayed"
    """By a delay level."""
    TIMED = "timed"
    """With a time of its own."""
    TRANSACTION = "transaction"
    RETRIED = "retried"
    """It fails a number of times, perhaps each time."""


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="sent"):
    """A message that is about to leave."""

    message_id: str
    kind: Kind
    topic: str
    at_ms: float
    due_ms: float = 0.0
    """When it may be seen at the earliest; 0: at once."""
    failures: int = 0
    """How often its handler fails."""


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="answered"):
    """What a send came to, in the ledger's words. `attempts`: how many may have been stored."""

    message_id: str
    status: str
    reason: str
    at_ms: float
    attempts: int = 1


class Decided(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="decided"):
    """What became of a transaction: `commit`, `rollback`, or `unknown`: the broker has to ask."""

    message_id: str
    state: str
    at_ms: float
    was_asked: bool = False
    """Whether this is the answer to a broker's question."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="seen"):
    """A message in the hands of a group, which handles it now.

    Of one that came back, `queue_id` and `queue_offset` are those of the group's retry topic.
    """

    group: str
    member: str
    message_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    at_ms: float
    is_whole: bool = True
    """Whether it has the body that was sent."""


class GivenBack(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="given-back"):
    """A message whose handler failed: it is to come again after `delay_ms`, or is a dead letter."""

    group: str
    message_id: str
    reconsume_times: int
    at_ms: float
    delay_ms: float


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="dead-letter"):
    """A message that is among the dead letters of a group."""

    group: str
    message_id: str
    at_ms: float


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="committed"):
    """A group's offset of a queue, as a master says it."""

    group: str
    topic: str
    broker_name: str
    queue_id: int
    offset: int
    at_ms: float


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="ended"):
    """A member that a client error ended, although its group was there."""

    group: str
    member: str
    topic: str
    reason: str
    at_ms: float


Line = Sent | Answered | Decided | Seen | GivenBack | DeadLetter | Committed | Ended


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a ledger of consumers. A torn last one is skipped.

    Raises:
        LedgerError: it cannot be read, or a line in the middle is damaged.
    """
    decode = json_decoder(Line)
    try:
        with path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                decoded: Line = decode(line)
                yield decoded
    except OSError as error:
        raise LedgerError(f"cannot read the ledger {path}: {error.strerror}") from error
    except UnreadableError as error:
        raise LedgerError(f"{path} is damaged: {error}; run the drill again") from error
