"""What a broker is asked for by those that receive messages by POP, and what it answers. Values.

A *handle* says which delivery of which message is meant. It holds all that the broker needs: it is
good at every master of the group, whichever gave it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from node.errors import RequestError
from node.pop.changes import QueueKey
from store.messages.message_filter import MessageFilter
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.response_code import ResponseCode

ALL_QUEUES: Final = -1

MESSAGES_MAX: Final = 32
"""Of one request. Source: PopMessageProcessor."""

ATTEMPT_CHARACTERS_MAX: Final = 128
"""Of an attempt id, which is in the journal. Those of clients are UUIDs."""

INVISIBLE_MS_MAX: Final = 3 * 86_400_000
"""The longest that a message can be with one consumer; RocketMQ's timers go as far."""

REVIVE_QUEUES: Final = 8
"""Numbers that handles name in turn: RocketMQ's queues of checkpoints, which are not there."""

ORDERLY_REVIVE_QUEUE: Final = 999
"""In handles of an orderly group. Source: KeyBuilder.POP_ORDER_REVIVE_QUEUE."""


class Handle(msgspec.Struct, frozen=True):
    """One delivery of one message.

    `topic` is the real one: of a message that comes again, the retry topic.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    pop_time_ms: int

    @property
    def key(self) -> QueueKey:
        """Its queue."""
        return QueueKey(self.group, self.topic, self.queue_id)


class Receive(msgspec.Struct, frozen=True, kw_only=True):
    """A request for messages. What is allowed is tested by the caller: topic, group, rights.

    Attributes:
        topic: The one that was asked for; its retry topics are read, too.
        queue_id: One of it, or `ALL_QUEUES`.
        queue_count: How many queues of it can be read.
        count_max: At most `MESSAGES_MAX`.
        invisible_ms: How long nobody else gets them: 1 to `INVISIBLE_MS_MAX`.
        deadline: Until when it may wait for a message, in trio's time; not after now: not at all.
        starts_at_end: Where a group begins that never had anything of a queue: at its last
            message, or at its first.
        tags_codes: Codes of the tags that are wanted, None for all. The consumer compares tags.
        message_filter: What is put to the properties. It is final.
        is_orderly: One handout of a queue at a time, and what is not done comes again in its place.
        attempt_id: The same one again gets what it got, if that is not done.
    """

    group: str
    topic: str
    queue_id: int = ALL_QUEUES
    queue_count: int
    count_max: int
    invisible_ms: int
    deadline: float = 0.0
    starts_at_end: bool = False
    tags_codes: frozenset[int] | None = None
    message_filter: MessageFilter | None = None
    is_orderly: bool = False
    attempt_id: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Messages of one queue.

    Attributes:
        topic: The real one.
        start_offset: Where the read began: in the handle.
        offsets: Ascending, one for each record.
        counts: How often each was handed out, this time included; empty unless it is orderly.
        records: As stored, one after the other. A copy: good for ever.
    """

    topic: str
    mark: TopicMark
    queue_id: int
    start_offset: int
    offsets: tuple[int, ...]
    records: bytes
    counts: tuple[int, ...] = ()


class Found(enum.Enum):
    """What came of a request for messages."""

    FOUND = enum.auto()
    NOTHING = enum.auto()
    """In the time that there was: POLLING_TIMEOUT, PULL_NOT_FOUND."""
    FULL = enum.auto()
    """It would have had to wait, and there is no room: POLLING_FULL."""


class Received(msgspec.Struct, frozen=True):
    """The answer to `Receive`. A master that comes later knows of every message in it.

    Attributes:
        pop_time_ms: In the handle of each message.
        revive_queue_id: The same.
        rest_count: How many more there seem to be.
        is_left_off: Whether nothing was found by now, and a filter has not looked at all there is.
    """

    found: Found
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    rest_count: int = 0
    batches: tuple[Batch, ...] = ()
    is_left_off: bool = False


class Changed(msgspec.Struct, frozen=True):
    """A message has another time, and another handle: the same one with this pop time."""

    pop_time_ms: int
    invisible_ms: int


WhenReceived = Callable[[Received | RequestError], None]
WhenAcked = Callable[[list[bool] | RequestError], None]
WhenChanged = Callable[[Changed | RequestError | None], None]
WhenNoticed = Callable[[Found], None]


class Client(Protocol):
    """Where answers go. A connection of a client is one."""

    @property
    def is_closed(self) -> bool:
        """Whether nobody hears an answer any more."""

    @property
    def is_congested(self) -> bool:
        """Whether it has not read yet what was sent to it."""

    def when_drained(self, call: Callable[[], None]) -> None:
        """Call this when it has."""


class Waiting(Protocol):
    """A request that waits for a message."""

    def cancel(self) -> None:
        """Forget it: nothing is handed out for it, and it is not answered. Harmless if it was."""


def check_invisible(invisible_ms: int, least_ms: int) -> None:
    """Refuse a time that no message can be invisible for.

    Raises:
        RequestError: INVALID_PARAMETER.
    """
    if not least_ms <= invisible_ms <= INVISIBLE_MS_MAX:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"a message can be invisible for {least_ms} to {INVISIBLE_MS_MAX} ms,"
            f" {invisible_ms} were asked for",
        )


def check_receive(request: Receive) -> None:
    """Refuse a request that makes no sense.

    Raises:
        RequestError: INVALID_PARAMETER.
    """
    if not 0 < request.count_max <= MESSAGES_MAX:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"{request.count_max} messages were asked for, allowed are 1 to {MESSAGES_MAX}",
        )
    if len(request.attempt_id) > ATTEMPT_CHARACTERS_MAX:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"an attempt id has at most {ATTEMPT_CHARACTERS_MAX} characters, this one"
            f" {len(request.attempt_id)}",
        )
    check_invisible(request.invisible_ms, 1)
