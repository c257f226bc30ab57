"""The receipt handle of a popped message: what acknowledges it, or moves the time it comes again.

    0 start offset   2 invisible time   4 mark of the topic   6 queue       8 physical offset,
    1 pop time       3 revive queue     5 broker name         7 offset        of proxies alone

It is text with blanks between. An answer to a pop has the parts once for each queue, and the client
puts them together (see `tandem.wire.pop_offsets`); requests of clients have eight parts, those of
proxies nine, and a broker reads the first six: queue and offset are in the header of its request.

Nothing in it is secret or signed: who may acknowledge is decided by the topic and the group.

Source: RocketMQ 5.3.3, ExtraInfoUtil.buildExtraInfo, ReceiptHandle, KeyBuilder.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tandem.wire.java_numbers import NumberFormatError, parse_int, parse_long
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX
from tandem.wire.untrusted import UnreadableError

POP_ORDER_REVIVE_QUEUE: Final = 999
"""In place of a revive queue: the message was popped in order. Source: KeyBuilder."""

RECEIPT_CHARACTERS_MAX: Final = 4_096
"""Ours: a broker name has at most some hundred characters, and a number twenty."""

PARTS_OF_A_BROKER: Final = 6
PARTS_OF_A_CLIENT: Final = 8
NO_PHYSICAL_OFFSET: Final = -1


class TopicMark(enum.IntEnum):
    """Which topic a popped message is in. Source: ExtraInfoUtil, NORMAL_TOPIC and so on."""

    NORMAL = 0
    RETRY_V1 = 1
    """`%RETRY%GROUP_TOPIC`."""
    RETRY_V2 = 2
    """`%RETRY%GROUP+TOPIC`."""

    def topic(self, topic: str, group: str) -> str:
        """Return the topic in which the messages of `topic` are that bear this mark."""
        return pop_retry_topic(topic, group, self) if self else topic


_V2_SEPARATOR: Final = "+"
_SEPARATORS: Final = {TopicMark.RETRY_V1: "_", TopicMark.RETRY_V2: _V2_SEPARATOR}


def pop_retry_topic(topic: str, group: str, mark: TopicMark) -> str:
    """Return where the messages of a topic are that come again to a group that pops.

    Source: KeyBuilder.buildPopRetryTopicV1 and .._V2.
    """
    return f"{RETRY_GROUP_TOPIC_PREFIX}{group}{_SEPARATORS[mark]}{topic}"


def mark_of(topic: str) -> TopicMark:
    """Return the mark of a topic as a record names it. Source: ExtraInfoUtil.getRetry."""
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return TopicMark.NORMAL
    return TopicMark.RETRY_V2 if _V2_SEPARATOR in topic else TopicMark.RETRY_V1


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that a retry topic of this group belongs to; any other as it is.

    Source: KeyBuilder.parseNormalTopic.
    """
    for mark in _SEPARATORS:
        prefix = pop_retry_topic("", group, mark)
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What a broker reads of a handle.

    Attributes:
        start_offset: The queue offset from which the pop read.
        pop_time_ms: When it was popped, by the broker's clock.
        invisible_ms: How long nobody else gets it.
        revive_queue_id: `POP_ORDER_REVIVE_QUEUE` says that it was popped in order.
        mark: In which topic it is.
        broker_name: By which name the client called the broker.
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: TopicMark
    broker_name: str

    @property
    def is_ordered(self) -> bool:
        """Whether it was popped in order."""
        return self.revive_queue_id == POP_ORDER_REVIVE_QUEUE

    @property
    def visible_ms(self) -> int:
        """When it may come again."""
        return self.pop_time_ms + self.invisible_ms


class ReceiptHandle(Receipt, frozen=True, gc=False):
    """All of a handle: the queue and the offset of the message, too."""

    queue_id: int
    queue_offset: int
    physical_offset: int = NO_PHYSICAL_OFFSET


def encode_receipt_handle(handle: ReceiptHandle) -> str:
    """Return the handle as clients send it; with its physical offset if it has one."""
    text = (
        f"{handle.start_offset} {handle.pop_time_ms} {handle.invisible_ms}"
        f" {handle.revive_queue_id} {handle.mark.value} {handle.broker_name}"
        f" {handle.queue_id} {handle.queue_offset}"
    )
    if handle.physical_offset == NO_PHYSICAL_OFFSET:
        return text
    return f"{text} {handle.physical_offset}"


def decode_receipt(text: str) -> Receipt:
    """Read what a broker needs of a handle: its first six parts.

    Raises:
        UnreadableError: it has fewer, or a number that is none.
    """
    return _receipt(_parts(text, PARTS_OF_A_BROKER))


def decode_receipt_handle(text: str) -> ReceiptHandle:
    """Read a whole handle; what follows the ninth part is ignored.

    Raises:
        UnreadableError: it has fewer than eight parts, or a number that is none.
    """
    parts = _parts(text, PARTS_OF_A_CLIENT)
    start, pop_time, invisible, revive, mark, broker = msgspec.structs.astuple(_receipt(parts))
    physical = _number(parts[8]) if len(parts) > PARTS_OF_A_CLIENT else NO_PHYSICAL_OFFSET
    return ReceiptHandle(
        start,
        pop_time,
        invisible,
        revive,
        mark,
        broker,
        _queue(parts[6]),
        _number(parts[7]),
        physical,
    )


def _parts(text: str, least: int) -> list[str]:
    if len(text) > RECEIPT_CHARACTERS_MAX:
        raise UnreadableError(f"a receipt handle has {len(text)} characters")
    parts = text.split(" ")
    if len(parts) < least:
        raise UnreadableError(f"a receipt handle has {len(parts)} parts instead of {least}")
    return parts


def _receipt(parts: list[str]) -> Receipt:
    return Receipt(
        _number(parts[0]),
        _number(parts[1]),
        _number(parts[2]),
        _queue(parts[3]),
        _MARKS.get(parts[4], TopicMark.NORMAL),
        parts[5],
    )


_MARKS: Final = {str(mark.value): mark for mark in TopicMark}
"""What is none of these is taken for a normal topic, as RocketMQ's brokers take it."""


def _number(text: str) -> int:
    try:
        return parse_long(text)
    except NumberFormatError as error:
        raise UnreadableError(f"in a receipt handle: {error}") from error


def _queue(text: str) -> int:
    try:
        return parse_int(text)
    except NumberFormatError as error:
        raise UnreadableError(f"in a receipt handle: {error}") from error
