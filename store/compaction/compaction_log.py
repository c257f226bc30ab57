"""CompactionLog: one queue of a compaction topic, which follows the queue and answers its reads.

    consume queue   |=================================|      all messages that the log still has
    compaction log  |.|...|..|.|====================|        newest of each key; then all of them
                                                    ^ followed_to

What is confirmed and sound enters, in the order of its numbers, if it has a key. Reads are by queue
offset: a number that is not here is passed over, and the next one taken.

Source: RocketMQ 5.3.3, CompactionLog.getMessage, asyncPutMessage.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from store.compaction.compacting import Compacting, key_of
from store.compaction.topic_partition_log import CompactedUnit, FilePair, TopicPartitionLog
from store.machine.errors import RecordDamagedError
from store.machine.tell_once import TellOnce
from store.results import GetMessageResult, GetMessageStatus
from tandem.wire.message import BORNHOST_V6_FLAG
from tandem.wire.message_properties import tags_code_of
from tandem.wire.record_rule import record_parts

_log = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">I16xqqi")
"""Size, queue offset, physical offset, SYSFLAG."""
_STORED_AT: Final = 56
"""Where the store timestamp is in a record with a v4 born host; 12 bytes later with another."""


class PropertyFilter(Protocol):
    """What is asked of a `MessageFilter`."""

    def matches(self, properties: bytes) -> bool:
        """Say whether a message with this property string is wanted."""


class ReadLimits(NamedTuple):
    """How much one read returns at most, and of what."""

    count_max: int
    bytes_max: int
    tags_codes: frozenset[int] | None
    message_filter: PropertyFilter | None
    skips_damaged: bool


class CompactionLog:
    """One queue. `current` is loaded."""

    def __init__(
        self, topic: str, queue_id: int, current: TopicPartitionLog, hidden_before: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.current = current
        self.hidden_before = hidden_before
        """Up to where the commit log had records of a deleted topic of this name; see there."""
        self.followed_to = current.next_queue_offset
        """The number of the next message of the queue to be looked at."""
        self.durable_to = self.followed_to
        """The number below which it is on the disk."""
        self.is_stuck = False
        """Whether the next message of the queue is damaged."""
        self.swapping: Compacting | None = None
        """The compaction whose swap the disk has refused; it is to be finished first."""
        self._told: TellOnce[str] = TellOnce()

    @property
    def min_offset(self) -> int:
        """The number of the first record, -1 if there is none."""
        return self.current.first_queue_offset

    # -- following -------------------------------------------------------------------------------

    def follow(self, read: Callable[[int], GetMessageResult], end: int) -> bool:
        """Take what one read returns of the queue, which ends at `end`; return whether it helped.

        Raises:
            StoreFullError: no room; call again.
        """
        if self.followed_to >= end:
            return False
        before = self.followed_to
        result = read(before)
        self.is_stuck = result.damaged is not None
        if result.damaged is not None:
            if self._told.is_news("damaged", about=str(before)):
                _log.error(
                    "the compaction log of %s-%d waits before message %d: %s",
                    *(self.topic, self.queue_id, before, result.damaged),
                )
            return False
        if result.status is GetMessageStatus.OFFSET_TOO_SMALL and not self.hidden_before:
            _log.error(
                "%s-%d: messages %d to %d have left the commit log, and are not in this node's"
                " compaction log: older values of their keys may be missing. If another node has"
                " them, stop both and copy its compaction/ here, before this one may be master",
                *(self.topic, self.queue_id, before, result.next_begin_offset - 1),
            )
        for view in result.body:
            self._take_all(view)
        self.followed_to = max(self.followed_to, result.next_begin_offset)
        return self.followed_to > before

    def _take_all(self, records: memoryview) -> None:
        at = 0
        while at < len(records):
            size, queue_offset, physical_offset, sys_flag = _HEAD.unpack_from(records, at)
            stored_at = at + _STORED_AT + (12 if sys_flag & BORNHOST_V6_FLAG else 0)
            stored_ms = int.from_bytes(records[stored_at : stored_at + 8], "big", signed=True)
            self._take(records[at : at + size], queue_offset, physical_offset, stored_ms)
            self.followed_to = queue_offset + 1
            at += size

    def _take(
        self, record: memoryview, queue_offset: int, physical_offset: int, stored_ms: int
    ) -> None:
        """Source: CompactionLog.asyncPutMessage."""
        if queue_offset < self.current.next_queue_offset:
            return
        parts = record_parts(record, physical_offset, 0)
        if isinstance(parts, str):
            return
        properties = bytes(record[parts.properties_start : parts.properties_end])
        if not key_of(properties):
            if self._told.is_news("no key"):
                _log.warning(
                    "%s-%d: message %d has no key, and is not in the compaction log",
                    *(self.topic, self.queue_id, queue_offset),
                )
            return
        try:
            self.current.append(record, queue_offset, tags_code_of(properties), stored_ms)
        except ValueError as error:
            _log.error("message %d is passed over: %s", queue_offset, error)

    # -- reading ---------------------------------------------------------------------------------

    def get_message(self, offset: int, end: int, limits: ReadLimits) -> GetMessageResult:
        """Read from a queue offset on. Messages from `end` on are not to be seen.

        Source: CompactionLog.getMessage.
        """
        seen = min(end, self.followed_to)
        first = max(0, self.min_offset)
        if not seen:
            status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
            return GetMessageResult(status, offset if end else 0, first, seen)
        if offset >= seen:
            is_near = offset <= end
            status = GetMessageStatus.OFFSET_OVERFLOW_ONE
            if not is_near:
                status = GetMessageStatus.OFFSET_OVERFLOW_BADLY
            return GetMessageResult(status, offset if is_near else seen, first, seen)
        pair = self.current.pair_for(offset)
        if pair is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, seen, first, seen)
        return self._collect(pair, offset, seen, limits)

    def _collect(
        self, pair: FilePair, offset: int, seen: int, limits: ReadLimits
    ) -> GetMessageResult:
        body: list[memoryview] = []
        total = filtered = 0
        next_offset = offset
        damaged = None
        for unit in pair.units(pair.index_of(offset)):
            if unit.queue_offset >= seen:
                next_offset = seen
                break
            size = unit.size
            if body and (len(body) >= limits.count_max or total + size > limits.bytes_max):
                break
            if limits.tags_codes is not None and unit.tags_code not in limits.tags_codes:
                next_offset = unit.queue_offset + 1
                continue
            record, fault = pair.record(unit), pair.fault(unit)
            if record is None or fault is not None:
                if limits.skips_damaged:
                    next_offset = unit.queue_offset + 1
                    continue
                damaged = RecordDamagedError(
                    self.topic, self.queue_id, unit.queue_offset, -1, f"compaction log: {fault}"
                )
                break
            next_offset = unit.queue_offset + 1
            if limits.message_filter is not None and not _matches(
                limits.message_filter, pair, unit, record
            ):
                filtered += 1
                continue
            body.append(record)
            total += size
        status = GetMessageStatus.FOUND if body else GetMessageStatus.NO_MATCHED_MESSAGE
        if not body and damaged is not None and next_offset == offset:
            status = GetMessageStatus.MESSAGE_DAMAGED
            next_offset = damaged.queue_offset
        return GetMessageResult(
            status,
            next_offset,
            max(0, self.min_offset),
            seen,
            tuple(body),
            len(body),
            total,
            filtered,
            damaged if status is GetMessageStatus.MESSAGE_DAMAGED else None,
        )


def _matches(
    message_filter: PropertyFilter, pair: FilePair, unit: CompactedUnit, record: memoryview
) -> bool:
    parts = pair.parts(unit, record)
    return parts is not None and message_filter.matches(
        bytes(record[parts.properties_start : parts.properties_end])
    )
