"""What earlier masters of a group delivered that no progress in the journal speaks of.

    progress, noted when the log ended at `begin`      `end`: this master opened
         |                                                |
    -----+----d-----d---------d---------------------------+-----> the log
                  deliveries that the progress does not know

Progress is written twice a second. Later deliveries are in the log all the same: a
delivered message is a record of the topic that it is for, and says what it was, but for the time of
its delivery. So before a new master delivers a message that waited when it opened, it looks there;
each record that is found stands for one message, for there may be several of one content.

Nothing is read unless a message is due that waited then, and no more than the records of its queue
since `begin`, or since some seconds before its time, whichever is later: a master delivers nothing
before its time has come by the clock that its store timestamps are from. Only clocks that are more
seconds apart can hide a delivery: that message comes again. It is read in slices, and others have
their turn in between.

Until all was taken that an earlier master can have delivered, progress is not noted anew: it would
speak of an end of the log before which there are deliveries that it does not know. So a master that
dies before that leaves the next one the progress, and the `begin`, that it had itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, Protocol, TypeAlias

from store.results import PutMessage
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.message_properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
)

CLOCK_STEP_MS: Final = 5_000
"""A wall clock that goes back by less hides nothing, be it that of the next master."""

_SLICE_RECORDS: Final = 100
"""In one go: clients are served in between."""

_SAID: Final = (
    PROPERTY_UNIQUE_KEY,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_ROLL_TIMES,
)
"""What a delivered message says of the one that waited."""

_Content: TypeAlias = tuple[object, ...]


class DeliveredQueue(Protocol):
    """A queue that messages are delivered to. `ConsumeQueue` is one."""

    def units_below(self, physical_offset: int) -> Iterator[tuple[int, int, int]]:
        """Physical offset, size and queue offset of records below, the last one first."""


class SearchGoesOnError(Exception):
    """Some records were looked at and there are more: ask again, once others had their turn."""


class _Searched:
    """What was found in a queue, from the end of what is looked at down to `low`."""

    def __init__(self, low: int) -> None:
        self.low = low
        self.oldest_ms: float = math.inf
        """Store timestamp of the record at `low`."""
        self.found: Counter[_Content] = Counter()


class EarlierDeliveries:
    """Of one mastership. Memory: what was delivered in the last moments before it."""

    def __init__(
        self,
        begin: int,
        end: int,
        *,
        opened_ms: int,
        find_queue: Callable[[str, int], DeliveredQueue | None],
        message: Callable[[int, int], memoryview | None],
    ) -> None:
        """Look at the log from `begin` to `end`.

        Args:
            begin: Where it ended when the progress was noted that this master goes on from.
            end: Where it ended when this master opened.
            opened_ms: When that was, by the wall clock.
            find_queue: The queue of a topic, None if there is none.
            message: The record at a physical offset, of that size; None if it is not held.
        """
        self._begin = begin
        self.end = end
        self._until_ms = opened_ms + CLOCK_STEP_MS
        self._find_queue = find_queue
        self._message = message
        self._searched: dict[tuple[str, int], _Searched] = {}

    def is_past(self, offset: int, due_ms: int) -> bool:
        """Whether an earlier master cannot have delivered what waits at `offset` for `due_ms`."""
        return self._begin >= self.end or offset >= self.end or due_ms > self._until_ms

    def take(self, message: PutMessage, offset: int, due_ms: int) -> bool:
        """True if `message`, about to be put, was put before. It does not count a second time.

        `offset` is where the record is that waited, and `due_ms` when its time came.

        Raises:
            SearchGoesOnError: it is not known yet.
        """
        if offset >= self.end:
            return False
        key = message.topic, message.queue_id
        searched = self._searched.get(key)
        if searched is None:
            searched = self._searched[key] = _Searched(self.end)
        if searched.oldest_ms >= due_ms - CLOCK_STEP_MS:
            self._search(searched, self._find_queue(*key), due_ms - CLOCK_STEP_MS)
        content = _content_put(message)
        if not searched.found[content]:
            return False
        searched.found[content] -= 1
        return True

    def _search(self, searched: _Searched, queue: DeliveredQueue | None, until_ms: int) -> None:
        """Look at older records, down to the first that was stored before `until_ms`."""
        units = () if queue is None else queue.units_below(searched.low)
        for count, (offset, size, _) in enumerate(units):
            if offset < self._begin:
                break
            if count == _SLICE_RECORDS:
                raise SearchGoesOnError
            searched.low = offset
            record = self._read(offset, size)
            if record is not None and PROPERTY_REAL_TOPIC in record.properties:
                searched.found[_content_stored(record)] += 1
            if record is not None and record.store_timestamp_ms < until_ms:
                searched.oldest_ms = record.store_timestamp_ms
                return
        searched.oldest_ms = -math.inf

    def _read(self, offset: int, size: int) -> MessageExt | None:
        view = self._message(offset, size)
        try:
            return decode_message(view)[0] if view is not None else None
        except MalformedMessageError:
            return None


def _content_put(message: PutMessage) -> _Content:
    properties = decode_properties(message.properties)
    return (
        message.born_timestamp_ms,
        message.born_host,
        message.flag,
        message.reconsume_times,
        _digest(message.body),
        *(properties.get(name) for name in _SAID),
    )


def _content_stored(record: MessageExt) -> _Content:
    return (
        record.born_timestamp_ms,
        record.born_host.packed,
        record.flag,
        record.reconsume_times,
        _digest(record.body),
        *(record.properties.get(name) for name in _SAID),
    )


def _digest(body: bytes) -> bytes:
    """What is kept of a body: all that was found stays in memory as long as the mastership."""
    return blake2b(body, digest_size=16).digest()
