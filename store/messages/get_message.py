"""Reads by queue offset: what a pull gets.

    queue offset --unit--> physical offset, size --> views of the log, whole records in queue order

Messages that are side by side in the log leave as one view. Units that only a reader with other
tags wants, and records that were deleted meanwhile, are passed over for good: `next_begin_offset`
is where the next read goes on.

Older files of log and queues, which the last recovery has not looked at, are checked as they are
read. RocketMQ hands out whatever is there. A record that is damaged, or not the one that its place
in the queue says, is logged and passed over.

Source: DefaultMessageStore.getMessage of 5.3.3.
"""

from __future__ import annotations

import logging
from itertools import count as count_from
from itertools import repeat, takewhile
from typing import TYPE_CHECKING, Final

from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue_store import LMQ_PREFIX
from store.results import GetMessageResult, GetMessageStatus
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE, FILLER_SIZE, is_ext_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.log.commit_log import CommitLog
    from store.messages.message_filter import FilteredRead
    from store.queue.consume_queue_store import AnyConsumeQueue

_log = logging.getLogger(__name__)

MESSAGE_COUNT_MAX: Final = 32
MESSAGE_BYTES_MAX: Final = 262_144
"""Limits of one read (maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory)."""

UNITS_SCANNED_BYTES_MAX: Final = 16_000
"""How far one read looks for matching tags (maxFilterMessageSize)."""


def position_status(
    queue: AnyConsumeQueue | None, offset: int, end: int
) -> tuple[GetMessageStatus, int]:
    """Say whether `offset` is in the queue; FOUND if so, else where to go on.

    `end` is where its readable messages end. A reader of a later one, which is there but may not be
    seen yet, has only to wait, and goes on where it is.

    Source: DefaultMessageStore.getMessage, its first checks.
    """
    if queue is None:
        return GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0
    if queue.next_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < queue.min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL, queue.min_offset
    if offset < end:
        return GetMessageStatus.FOUND, offset
    if offset <= queue.next_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    return GetMessageStatus.OFFSET_OVERFLOW_BADLY, end


def collect(
    commit_log: CommitLog,
    queue: AnyConsumeQueue,
    offset: int,
    end: int,
    count_max: int,
    bytes_max: int,
    tags_codes: frozenset[int] | None,
    filtered: FilteredRead | None = None,
) -> GetMessageResult:
    """Read records from `offset` on, which is in the queue, up to `end`.

    At least one record is returned where one matches, whatever its size.

    Source: DefaultMessageStore.getMessage, its loop over units.
    """
    status = GetMessageStatus.NO_MATCHED_MESSAGE
    starts: list[int] = []
    ends: list[int] = []
    run_end = -1
    count = total = 0
    next_offset = offset
    removed_below = -1
    scan_max = max(UNITS_SCANNED_BYTES_MAX // CQ_STORE_UNIT_SIZE, count_max)
    min_physical = commit_log.min_offset
    is_known = offset >= queue.confirmed_from
    for (at, size, code), after, message_num in _entries(queue, offset, end, scan_max):
        if count and (count + message_num > count_max or total + size > bytes_max):
            break
        next_offset = after
        if at < removed_below or not (tags_codes is None or _may_match(code, tags_codes)):
            continue
        is_gone = size == FILLER_SIZE or at < min_physical
        if is_gone or not (is_known or _is_sound(commit_log, queue, at, size, after - message_num)):
            if not count:
                status = GetMessageStatus.MESSAGE_WAS_REMOVING
            if is_gone:
                removed_below = commit_log.roll_next_file(at)
            continue
        if filtered is not None and not filtered.wants(at, size, after - message_num):
            if filtered.is_over:
                break
            continue
        if at != run_end:
            starts.append(at)
            ends.append(at)
        ends[-1] = run_end = at + size
        count += message_num
        total += size
    runs = zip(starts, ends, strict=True)
    views = [commit_log.message(start, end - start) for start, end in runs]
    return GetMessageResult(
        status=_status(status, count, has_moved=next_offset != offset),
        next_begin_offset=next_offset,
        min_offset=queue.min_offset,
        max_offset=end,
        body=tuple(view for view in views if view is not None),
        message_count=count,
        body_bytes=total,
        filtered_count=0 if filtered is None else filtered.passed_over,
    )


def _status(otherwise: GetMessageStatus, count: int, *, has_moved: bool) -> GetMessageStatus:
    if count:
        return GetMessageStatus.FOUND
    return otherwise if has_moved else GetMessageStatus.OFFSET_FOUND_NULL


def _is_sound(
    commit_log: CommitLog, queue: AnyConsumeQueue, at: int, size: int, number: int
) -> bool:
    """Say whether the record that a unit names is the right one, and whole. If not, log it once."""
    # Light queues name records of other topics.
    owner = None if queue.topic.startswith(LMQ_PREFIX) else (queue.topic, queue.queue_id, number)
    fault = commit_log.record_fault(at, size, owner)
    told = commit_log.faults_told
    if fault and not told.is_full and told.is_news("damaged", about=at):
        _log.error(
            "number %d of queue %d of topic %s cannot be read: %s; `tandem log verify` says more",
            number,
            queue.queue_id,
            queue.topic,
            fault,
        )
    return not fault


def _entries(
    queue: AnyConsumeQueue, offset: int, end: int, count_max: int
) -> Iterable[tuple[tuple[int, int, int], int, int]]:
    """Return units with the queue offset after each, and how many messages each stands for."""
    if isinstance(queue, BatchConsumeQueue):
        units = takewhile(lambda unit: unit.end <= end, queue.batch_units(offset, count_max))
        return ((unit[:3], unit.end, unit.batch_size) for unit in units)
    units_max = min(count_max, end - offset)
    return zip(queue.units(offset, units_max), count_from(offset + 1), repeat(1))


def _may_match(code: int, tags_codes: frozenset[int]) -> bool:
    """Say whether a message may have one of these tags. An extension that was lost says nothing."""
    return code in tags_codes or is_ext_address(code)
