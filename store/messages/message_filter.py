"""What a reader wants beyond tags, and how much work one read puts into finding it.

    unit of the queue --bit map--> may match --properties in the log--> matches

A read looks at as many messages as its filter can test at a bearable cost, and at one at least.
Messages that it passed over are passed over for good: `next_begin_offset` says where to go on.

Source: RocketMQ 5.3.3, MessageFilter.isMatchedByConsumeQueue, isMatchedByCommitLog.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Protocol

from store.log.commit_log import CommitLog
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_ext import CqExtUnit
from store.queue.consume_queue_store import AnyConsumeQueue
from tandem.wire.record_rule import record_parts

READ_COST_MAX: Final = 32_768
"""Of all messages one read looks at. A simple filter gets to the end of any other limit."""

PROPERTIES_PER_COST_BYTES: Final = 512
"""A property string of this many bytes doubles what a message costs."""


class MessageFilter(Protocol):
    """Says of messages, by their properties, whether a reader wants them."""

    @property
    def cost(self) -> int:
        """What one message costs, in about microseconds."""

    @property
    def uses_bit_maps(self) -> bool:
        """Whether `may_match` has anything to say."""

    def may_match(self, at: int, unit: CqExtUnit) -> bool:
        """False if the extension of the unit of the record at `at` shows that nobody wants it."""

    def matches(self, properties: bytes) -> bool:
        """Say whether a message with this property string is wanted."""


class Verdict(enum.Enum):
    """By what a message was found to be wanted or not."""

    PROPERTIES = "its properties"
    BIT_MAP = "the extension of its unit"
    UNREADABLE = "there are no properties to be read"


_BY_PROPERTIES: Final = Verdict.PROPERTIES


class FilteredRead:
    """One read of one queue through a filter.

    Attributes:
        passed_over: How many messages were looked at and not wanted.
        verdict: What decided about the last one.
    """

    def __init__(
        self, wanted: MessageFilter, commit_log: CommitLog, queue: AnyConsumeQueue
    ) -> None:
        self._wanted = wanted
        self._commit_log = commit_log
        has_units = wanted.uses_bit_maps and isinstance(queue, ConsumeQueue)
        self._queue = queue if has_units and isinstance(queue, ConsumeQueue) else None
        self._left = READ_COST_MAX
        self.passed_over = 0
        self.verdict = _BY_PROPERTIES

    @property
    def is_over(self) -> bool:
        """Whether this read has looked at enough."""
        return self._left <= 0

    def wants(self, at: int, size: int, number: int) -> bool:
        """Look at the record at `at`, which has this number in its queue."""
        self._left -= 1
        self.verdict = _BY_PROPERTIES
        if self._queue is not None and not self._may_want(at, number):
            self.verdict = Verdict.BIT_MAP
            wants = False
        else:
            wants = self._wants_record(at, size)
        self.passed_over += not wants
        return wants

    def _may_want(self, at: int, number: int) -> bool:
        unit = None if self._queue is None else self._queue.ext_unit(number)
        return unit is None or self._wanted.may_match(at, unit)

    def _wants_record(self, at: int, size: int) -> bool:
        properties = record_properties(self._commit_log, at, size)
        if properties is None:
            self.verdict = Verdict.UNREADABLE
            return False
        self._left -= self._wanted.cost * (1 + len(properties) // PROPERTIES_PER_COST_BYTES)
        return self._wanted.matches(properties)


def record_properties(commit_log: CommitLog, at: int, size: int) -> bytes | None:
    """Return the property string of the record at `at`; None if there is no such record."""
    record = commit_log.message(at, size)
    if record is None:
        return None
    parts = record_parts(record, at, 0)
    if isinstance(parts, str):
        return None
    return bytes(record[parts.properties_start : parts.properties_end])


def bit_maps_of_records(
    commit_log: CommitLog, bit_map_of: Callable[[str, bytes], bytes]
) -> Callable[[str, int, int], bytes]:
    """Return what calculates the filter bit map of a record that is in the log.

    It takes topic, physical offset and size, and `bit_map_of` topic and property string.
    """

    def of_record(topic: str, at: int, size: int) -> bytes:
        properties = record_properties(commit_log, at, size)
        return b"" if properties is None else bit_map_of(topic, properties)

    return of_record
