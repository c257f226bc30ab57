"""Reads by queue offset: what a pull gets.

    queue offset --unit--> physical offset, size --> views of the log, whole records in queue order

Messages that are side by side in the log leave as one view. Units that only a reader with other
tags wants, and records that were deleted meanwhile, are passed over for good: `next_begin_offset`
is where the next read goes on.

Older files of log and queues, which the last recovery has not looked at, are checked as they are
read. RocketMQ hands out whatever is there. A record that is damaged, or not the one that its place
in the queue says, ends the read before it: see `RecordCheck`. Where nothing is before it the status
is MESSAGE_DAMAGED, and the next read begins there as well.

Source: DefaultMessageStore.getMessage of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat, takewhile
from itertools import count as count_from
from typing import Final, TypeAlias

from store.log.commit_log import CommitLog
from store.machine.errors import RecordDamagedError
from store.messages.message_filter import FilteredRead, Verdict
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue_store import AnyConsumeQueue
from store.queue.record_check import Look, Missing, RecordCheck
from store.results import GetMessageResult, GetMessageStatus
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE, FILLER_SIZE, is_ext_address

MESSAGE_COUNT_MAX: Final = 32
MESSAGE_BYTES_MAX: Final = 262_144
"""Limits of one read (maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory)."""

_NOWHERE: Final = 1 << 63
_BY_PROPERTIES: Final = Verdict.PROPERTIES

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
    check: RecordCheck,
    filtered: FilteredRead | None = None,
    *,
    again: bool = False,
) -> GetMessageResult:
    """Read records from `offset` on, which is in the queue, up to `end`.

    At least one record is returned where one matches, whatever its size; but nothing from a
    damaged one on. `again`: what is known to be sound is checked, too; so is what a filter does not
    want.

    Long because it is one loop: a call more costs each message.

    Source: DefaultMessageStore.getMessage, its loop over units.
    """
    status = GetMessageStatus.NO_MATCHED_MESSAGE
    records: list[tuple[int, int]] = []
    count = total = 0
    next_offset = offset
    removed_below = -1
    scan_max = max(UNITS_SCANNED_BYTES_MAX // CQ_STORE_UNIT_SIZE, count_max)
    look = check.looks(queue, offset, again=again)
    look_again = look if filtered is None else _look_again(check, queue, offset, filtered)
    # Nearly all: nothing is asked about them.
    is_whole_from = not again and check.is_whole_from(queue, offset)
    whole_from = commit_log.min_offset if is_whole_from else _NOWHERE
    entries, damaged = _entries(queue, offset, end, scan_max, check)
    for (at, size, code), after, message_num in entries:
        if count and (count + message_num > count_max or total + size > bytes_max):
            break
        is_wanted = tags_codes is None or _may_match(code, tags_codes)
        # A unit that has been lost says nothing of its record, neither place nor tags.
        if size > 0 and (0 <= at < removed_below or not is_wanted):
            next_offset = after
            continue
        is_whole = at >= whole_from and size != FILLER_SIZE
        found = None if is_whole else look(after - message_num, at, size, message_num)
        if (
            found is None
            and filtered is not None
            and not filtered.wants(at, size, after - message_num)
        ):
            # Nobody looks at it after this reader, and what was read of it may have changed.
            found = look_again(after - message_num, at, size, message_num)
            if found is None:
                next_offset = after
                if filtered.is_over:
                    break
                continue
        if found is None:
            next_offset = after
            records.append((at, size))
            count += message_num
            total += size
        elif isinstance(found, RecordDamagedError):
            damaged = found
            break
        else:
            next_offset = after
            status = GetMessageStatus.MESSAGE_WAS_REMOVING
            if found is Missing.GONE:
                removed_below = commit_log.roll_next_file(at)
    return GetMessageResult(
        status=_status(status, count, damaged, has_moved=next_offset != offset),
        next_begin_offset=next_offset,
        min_offset=queue.min_offset,
        max_offset=end,
        body=_views(commit_log, records),
        message_count=count,
        body_bytes=total,
        filtered_count=0 if filtered is None else filtered.passed_over,
        damaged=damaged if next_offset == offset else None,
    )


def _look_again(
    check: RecordCheck, queue: AnyConsumeQueue, offset: int, filtered: FilteredRead
) -> Look:
    """Return what looks at a record that a filter does not want.

    Its properties have decided: their block is compared with its fingerprint. Where there were
    none to be read, the record is looked at as a whole.
    """
    low = high = 0

    def look_again(
        number: int, at: int, size: int, count: int | None = None
    ) -> Missing | RecordDamagedError | None:
        nonlocal low, high
        verdict = filtered.verdict
        if verdict is _BY_PROPERTIES:
            if low <= at and at + size <= high:
                return None
            found = check.look_at_blocks(queue, number, at, size)
            if found is None:
                low, high = check.blocks_around(at, size)
            return found
        if verdict is Verdict.BIT_MAP:
            return None
        return check.looks(queue, offset, again=True)(number, at, size, count)

    return look_again


def _views(commit_log: CommitLog, records: list[tuple[int, int]]) -> tuple[memoryview, ...]:
    """Return the records; those that are side by side in the log as one."""
    starts: list[int] = []
    ends: list[int] = []
    run_end = -1
    for at, size in records:
        if at != run_end:
            starts.append(at)
            ends.append(at)
        ends[-1] = run_end = at + size
    views = [commit_log.message(at, end - at) for at, end in zip(starts, ends, strict=True)]
    return tuple([view for view in views if view is not None])


def _status(
    otherwise: GetMessageStatus,
    count: int,
    damaged: RecordDamagedError | None,
    *,
    has_moved: bool,
) -> GetMessageStatus:
    if count:
        return GetMessageStatus.FOUND
    if has_moved:
        return otherwise
    if damaged is not None:
        return GetMessageStatus.MESSAGE_DAMAGED
    return GetMessageStatus.OFFSET_FOUND_NULL


_Entry: TypeAlias = "tuple[tuple[int, int, int], int, int]"


def _entries(
    queue: AnyConsumeQueue, offset: int, end: int, count_max: int, check: RecordCheck
) -> tuple[Iterable[_Entry], RecordDamagedError | None]:
    """Return units with the queue offset after each, and how many messages each stands for.

    Of a queue of batches, none and an error where the first one is not the one to begin with.
    """
    if isinstance(queue, BatchConsumeQueue):
        found = queue.batch_units(offset, count_max)
        first = next(found, None)
        fault = check.batch_fault(queue, offset, first)
        if first is None or fault is not None:
            return (), fault
        units = takewhile(lambda unit: unit.end <= end, chain((first,), found))
        return ((unit[:3], unit.end, unit.batch_size) for unit in units), None
    units_max = min(count_max, end - offset)
    return zip(queue.units(offset, units_max), count_from(offset + 1), repeat(1)), None


def _may_match(code: int, tags_codes: frozenset[int]) -> bool:
    """Say whether a message may have one of these tags. An extension that was lost says nothing."""
    return code in tags_codes or is_ext_address(code)
