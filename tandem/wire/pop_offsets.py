"""What an answer to a pop says of its messages, in three fields: which offsets of which queues.

    startOffsetInfo   0 2 100;1 0 7            read from offset 100 of queue 2, and 7 of queue 0
    msgOffsetInfo     0 2 100,101,105;1 0 7    these came
    orderCountInfo    0 qo2%105 1;0 2 0        popped in order: how often it, or all, came before

The first number of each is the mark of the topic (`tandem.wire.receipt_handle`). No topic and queue
is in a field twice: RocketMQ's clients lose the whole answer otherwise. Offsets ascend.

Source: RocketMQ 5.3.3, ExtraInfoUtil, buildStartOffsetInfo and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tandem.wire.java_numbers import NumberFormatError, parse_int, parse_long
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.untrusted import SHOWN_BYTES_MAX, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_QUEUE_OFFSET: Final = "qo"
_QUEUE_OFFSET_SEPARATOR: Final = "%"
_PARTS: Final = 3

V = TypeVar("V")
K = TypeVar("K")


class PoppedQueue(NamedTuple):
    """A queue of an answer: it is the key in the first two fields."""

    mark: TopicMark
    queue_id: int


class PoppedOffset(NamedTuple):
    """A message popped in order; `offset` None: all of the queue."""

    mark: TopicMark
    queue_id: int
    offset: int | None


def encode_start_offsets(starts: Mapping[PoppedQueue, int]) -> str:
    """Return startOffsetInfo, in the order of the map."""
    return ";".join(f"{mark.value} {queue} {start}" for (mark, queue), start in starts.items())


def encode_message_offsets(offsets: Mapping[PoppedQueue, Sequence[int]]) -> str:
    """Return msgOffsetInfo, in the order of the map."""
    return ";".join(
        f"{mark.value} {queue} {','.join(map(str, each))}"
        for (mark, queue), each in offsets.items()
    )


def encode_order_counts(counts: Mapping[PoppedOffset, int]) -> str:
    """Return orderCountInfo, in the order of the map."""
    return ";".join(_order_count(key, count) for key, count in counts.items())


def _order_count(key: PoppedOffset, count: int) -> str:
    if key.offset is None:
        return f"{key.mark.value} {key.queue_id} {count}"
    place = f"{_QUEUE_OFFSET}{key.queue_id}{_QUEUE_OFFSET_SEPARATOR}{key.offset}"
    return f"{key.mark.value} {place} {count}"


def decode_start_offsets(text: str) -> dict[PoppedQueue, int]:
    """Read startOffsetInfo; nothing for an empty text.

    Raises:
        UnreadableError: an entry has not three parts, or there are two of a queue.
    """
    return _decoded(text, _queue, _number)


def decode_message_offsets(text: str) -> dict[PoppedQueue, list[int]]:
    """Read msgOffsetInfo; nothing for an empty text.

    Raises:
        UnreadableError: an entry has not three parts, or there are two of a queue.
    """
    return _decoded(text, _queue, lambda each: [_number(offset) for offset in each.split(",")])


def decode_order_counts(text: str) -> dict[PoppedOffset, int]:
    """Read orderCountInfo; nothing for an empty text.

    Raises:
        UnreadableError: an entry has not three parts, or there are two of a message or queue.
    """
    return _decoded(text, _place, _number)


def _decoded(
    text: str, key_of: Callable[[str, str], K], value_of: Callable[[str], V]
) -> dict[K, V]:
    found: dict[K, V] = {}
    for entry in _entries(text):
        parts = entry.split(" ")
        if len(parts) != _PARTS:
            raise UnreadableError(f"{entry[:SHOWN_BYTES_MAX]!r} is no offset of a queue")
        key = key_of(parts[0], parts[1])
        if key in found:
            raise UnreadableError(f"{text[:SHOWN_BYTES_MAX]!r} has a queue twice")
        found[key] = value_of(parts[2])
    return found


def _entries(text: str) -> Iterable[str]:
    return text.split(";") if text else ()


def _queue(mark: str, queue: str) -> PoppedQueue:
    return PoppedQueue(_mark(mark), _queue_id(queue))


def _place(mark: str, place: str) -> PoppedOffset:
    if not place.startswith(_QUEUE_OFFSET):
        return PoppedOffset(_mark(mark), _queue_id(place), None)
    queue, separator, offset = place.removeprefix(_QUEUE_OFFSET).partition(_QUEUE_OFFSET_SEPARATOR)
    if not separator:
        raise UnreadableError(f"{place[:SHOWN_BYTES_MAX]!r} is no place of a message")
    return PoppedOffset(_mark(mark), _queue_id(queue), _number(offset))


def _mark(text: str) -> TopicMark:
    try:
        return TopicMark(parse_int(text))
    except ValueError as error:
        raise UnreadableError(f"{text[:SHOWN_BYTES_MAX]!r} is no mark of a topic") from error


def _queue_id(text: str) -> int:
    try:
        return parse_int(text)
    except NumberFormatError as error:
        raise UnreadableError(f"a queue: {error}") from error


def _number(text: str) -> int:
    try:
        return parse_long(text)
    except NumberFormatError as error:
        raise UnreadableError(f"an offset: {error}") from error
