"""What clients that receive by POP saw. Times are virtual seconds."""

import math

import msgspec

from tests.sim.consumers.seen import Seen


class Got(msgspec.Struct, kw_only=True):
    """A message that a client was given.

    Attributes:
        asked_at: It was not handed out before.
        earliest_again: Nobody may be given it before; a changed time moves it.
    """

    group: str
    client: str
    key: str
    topic: str
    """The real one."""
    queue_id: int
    offset: int
    pop_time_ms: int
    reconsume_times: int
    asked_at: float
    answered_at: float
    answer: int
    """Counts the answers of all clients."""
    earliest_again: float


class Acknowledged(msgspec.Struct, kw_only=True):
    """A client said that it is done with a message; `is_good` if its handle was, so that it is."""

    got: Got
    asked_at: float
    answered_at: float = math.inf
    is_good: bool = False
    is_stale: bool = False


class PopSeen(Seen):
    """Everything, each list in order of time."""

    got: list[Got] = msgspec.field(default_factory=list)
    acks: list[Acknowledged] = msgspec.field(default_factory=list)
    answer_count: int = 0
