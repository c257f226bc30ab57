"""Records of POP, as short as tests want them."""

from collections.abc import Iterable

import msgspec

from node.pop.changes import Acked, Popped, QueueKey, runs_of

KEY = QueueKey("g", "T", 0)


def popped(
    offsets: Iterable[int], pop_time_ms: int = 1000, *, key: QueueKey = KEY, **changes: object
) -> Popped:
    """These were handed out, for ten seconds."""
    found = list(offsets)
    next_offset = found[-1] + 1 if found else 0
    change = Popped(*key, pop_time_ms, 10_000, next_offset, runs_of(found))
    return msgspec.structs.replace(change, **changes)


def acked(*offsets: int, pop_time_ms: int = 1000, key: QueueKey = KEY) -> Acked:
    """These are done."""
    return Acked(*key, [(pop_time_ms, runs_of(offsets))])
