"""What changes the state of POP: the records that the journal carries, in the order of time.

Each is of one queue of a real topic (a retry topic is one of its own) and of one group. Offsets are
queue offsets, written as *runs*: `[100, 3, 2, 1]` is "from 100 three, then two not, then one", so
100, 101, 102, 105. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from tandem.wire.remoting_command import Int32, Int64


class QueueKey(NamedTuple):
    """One queue, for one group."""

    group: str
    topic: str
    """The real one: of messages that come again, the retry topic."""
    queue_id: int


class Popped(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Messages were handed out.

    Attributes:
        next_offset: The first one that was looked at by nobody: what a filter passed over is done.
        attempt_id: Of the request, "" for none: the same one again gets the same messages.
        is_orderly: Whether they come again in their place, and not through the retry topic.
    """

    group: str
    topic: str
    queue_id: Int32
    pop_time_ms: Int64
    invisible_ms: Int64
    next_offset: Int64
    runs: list[Int64]
    is_orderly: bool = False
    attempt_id: str = ""


class Acked(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """Messages are done: of each pop time, these; what is with somebody else by now is not."""

    group: str
    topic: str
    queue_id: Int32
    done: list[tuple[Int64, list[Int64]]]


class Revived(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Messages were put again, into a retry topic or to the dead letters, or are not held any more.

    It is in the log after what was put.
    """

    group: str
    topic: str
    queue_id: Int32
    done: list[tuple[Int64, list[Int64]]]


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """The time of one message is another from now on, and the handle too if the pop time is."""

    group: str
    topic: str
    queue_id: Int32
    offset: Int64
    old_pop_time_ms: Int64
    pop_time_ms: Int64
    invisible_ms: Int64


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """An operator has set the group's offset: it goes on there, and nothing is with anybody."""

    group: str
    topic: str
    queue_id: Int32
    offset: Int64


class Cut(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Messages from `offset` on are not in the log any more: others come in their place."""

    group: str
    topic: str
    queue_id: Int32
    offset: Int64


Change = Popped | Acked | Revived | Moved | Reset | Cut


def runs_of(offsets: Sequence[int]) -> list[int]:
    """Return ascending offsets as runs."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [offsets[0], len(offsets)]
    runs: list[int] = []
    end = -1
    for offset in offsets:
        if runs and offset == end:
            runs[-1] += 1
        else:
            runs += (offset - end, 1) if runs else (offset, 1)
        end = offset + 1
    return runs


def offsets_of(runs: Iterable[int]) -> list[int]:
    """Return the offsets that runs stand for."""
    offsets: list[int] = []
    numbers = iter(runs)
    at = 0
    for skip, count in zip(numbers, numbers, strict=True):
        at += skip
        offsets += range(at, at + count)
        at += count
    return offsets
