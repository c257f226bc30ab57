"""Has a queue lost its first files? Retention deletes them, too, but only with their messages.

    log       |-- start ---- number 5 ---- number 10 --...
    queue                                  number 10 --...      5 to 9 are gone, their records not

A row of units that does not begin with the first number has lost files that retention has deleted,
or others. It was retention if the log has no record of the queue from before the first unit. That
part of the log is walked, as far as it is not too long: what is further away the scrub finds.
"""

from __future__ import annotations

from typing import Final

from store.log.commit_log import CommitLog
from store.log.log_end import Blank, Damage, next_records
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore, is_queued
from tandem.wire.column_values import distinct_values
from tandem.wire.record_scan import RecordColumns
from tandem.wire.system_topics import LMQ_PREFIX

WALKED_BYTES_MAX: Final = 256 << 20
"""A fraction of a second's work, and only where a queue begins after the log."""

PIECE_BYTES: Final = 1 << 20


def lost_front(log: CommitLog, queues: ConsumeQueueStore) -> str | None:
    """Return which queue lacks messages at its beginning that the log has, in words; None for none.

    The files of both are loaded, and the ends of the queues are known.
    """
    start = log.min_offset
    firsts: dict[tuple[str, int], tuple[int, int]] = {}
    for key in queues.queues():
        queue = queues.find(*key)
        first = _first_unit(queue) if queue is not None else None
        if first is not None and first[0] > start:
            firsts[key] = first
    end = min(max((offset for offset, _ in firsts.values()), default=0), start + WALKED_BYTES_MAX)
    while start < end:
        file = log.files.find_by_offset(start)
        assert file is not None
        position = start - file.file_from_offset
        data, found = next_records(
            file.buffer, position, file.size, start, bytes_max=PIECE_BYTES, check_crc=False
        )
        if isinstance(found, Damage):
            return None  # it is seen to elsewhere
        if isinstance(found, Blank):
            start = file.file_from_offset + file.size
            continue
        words = _earlier(data, found, firsts)
        if words:
            return words
        start = int(found.physical_offset[-1] + found.size[-1])
    return None


def _first_unit(queue: AnyConsumeQueue) -> tuple[int, int] | None:
    # Light queues name records of other topics.
    return None if queue.topic.startswith(LMQ_PREFIX) else queue.first_unit


def _earlier(
    data: bytes | memoryview,
    columns: RecordColumns,
    firsts: dict[tuple[str, int], tuple[int, int]],
) -> str | None:
    topics, of_row = distinct_values(data, columns.topic_start, columns.topic_size)
    names = [topic.decode("utf-8", "replace") for topic in topics]
    if not {name for name, _ in firsts} & set(names):
        return None
    rows = zip(
        of_row.tolist(),
        columns.queue_id.tolist(),
        columns.queue_offset.tolist(),
        columns.physical_offset.tolist(),
        columns.sys_flag.tolist(),
        strict=True,
    )
    for topic, queue_id, number, at, sys_flag in rows:
        first = firsts.get((names[topic], queue_id))
        if first is not None and number < first[1] and at < first[0] and is_queued(sys_flag):
            return (
                f"{names[topic]}-{queue_id}: it begins with number {first[1]}, and the log has"
                f" number {number} at {at}"
            )
    return None
