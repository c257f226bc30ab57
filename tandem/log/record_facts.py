"""What queues and index have to hold of the records of a log, as columns."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from tandem.data_file import DataFile
from tandem.log.log_scan import LogWindow
from tandem.wire.column_values import distinct_values, tags_codes
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import (
    INNER_BATCH_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tandem.wire.message_properties import PROPERTY_CRC32, PROPERTY_INNER_NUM, property_value
from tandem.wire.property_crc import CRC32_RESERVED_LEN, property_crc_fault
from tandem.wire.record_keys import hash_keys
from tandem.wire.record_rule import record_fault
from tandem.wire.record_scan import Bools, Int64s, RecordColumns, body_crcs, crc_agrees
from tandem.wire.system_topics import SCHEDULE_TOPIC

NO_QUEUE: Final = -1

_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_INNER_NUM: Final = PROPERTY_INNER_NUM.encode()
_CRC_HEAD: Final = PROPERTY_CRC32.encode() + b"\x01"
_LOW_32: Final = 0xFFFF_FFFF


class RecordFacts(msgspec.Struct, frozen=True, eq=False):
    """Records in log order.

    `owner` is the number of the record's queue, NO_QUEUE if it has none; `tags_code` what its unit
    says, `message_count` how many messages the record holds. Of the keys, `key_row` is the record
    and `key_hash` the hash. `queue_names` are `topic/queue id` of records without a queue.
    """

    file: DataFile | None
    offset: Int64s
    size: Int64s
    queue_offset: Int64s
    store_timestamp_ms: Int64s
    owner: Int64s
    tags_code: Int64s
    message_count: Int64s
    is_queued: Bools
    is_indexed: Bools
    body_agrees: Bools
    is_sound: Bools
    key_row: Int64s
    key_hash: Int64s
    crc_faults: dict[int, str]
    queue_names: dict[int, str]

    def __len__(self) -> int:
        return len(self.offset)


class QueueNumbers:
    """Which queue a record belongs to, by topic and queue id."""

    def __init__(self, queues: Sequence[tuple[bytes, int]]) -> None:
        self._numbers = {queue: number for number, queue in enumerate(queues)}

    def owners(
        self, topics: list[bytes], numbers: Int64s, queue_ids: Int64s
    ) -> tuple[Int64s, dict[int, str]]:
        """Return the number of each record's queue, and the names of those that do not exist.

        `numbers` say which of `topics` is the record's.
        """
        pairs, rows = np.unique(numbers << 32 | queue_ids & _LOW_32, return_inverse=True)
        names = [(topics[pair >> 32], _signed(pair & _LOW_32)) for pair in pairs.tolist()]
        found = np.array([self._numbers.get(name, NO_QUEUE) for name in names], np.int64)
        owners: Int64s = found[rows]
        unknown = np.flatnonzero(owners == NO_QUEUE).tolist()
        words = [f"{topic.decode('utf-8', 'replace')}/{queue_id}" for topic, queue_id in names]
        return owners, {row: words[int(rows[row])] for row in unknown}


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def facts_of(window: LogWindow, numbers: QueueNumbers, levels: DelayLevels) -> RecordFacts:
    """Return the facts of one window; CRCs are computed here."""
    columns = window.columns
    topics, topic_numbers = distinct_values(window.data, columns.topic_start, columns.topic_size)
    owner, names = numbers.owners(topics, topic_numbers, columns.queue_id)
    transaction = columns.sys_flag & TRANSACTION_MASK
    is_rollback = transaction == TRANSACTION_ROLLBACK_TYPE
    is_queued = ~is_rollback & (transaction != TRANSACTION_PREPARED_TYPE)
    keys = hash_keys(window.data, columns)
    body_agrees = crc_agrees(columns, body_crcs(window.data, columns))
    faults = dict(_crc_faults(window, body_agrees))
    is_sound = np.ones(len(columns), np.bool_)
    is_sound[list(faults)] = False
    return RecordFacts(
        file=window.file,
        offset=columns.physical_offset,
        size=columns.size,
        queue_offset=columns.queue_offset,
        store_timestamp_ms=columns.store_timestamp_ms,
        owner=owner,
        tags_code=_dispatch_codes(window, topics, topic_numbers, levels),
        message_count=_message_counts(window),
        is_queued=is_queued,
        is_indexed=~is_rollback,
        body_agrees=body_agrees,
        is_sound=is_sound,
        key_row=keys.row,
        key_hash=keys.key_hash,
        crc_faults=faults,
        queue_names={row: name for row, name in names.items() if is_queued[row]},
    )


def _crc_faults(window: LogWindow, body_agrees: Bools) -> Iterator[tuple[int, str]]:
    """Yield the rows whose body, or whole record where it says so, is not what was stored."""
    columns = window.columns
    for row in np.flatnonzero(~body_agrees).tolist():
        fault = record_fault(window.data, window.base_offset, int(columns.start[row]))
        assert fault is not None, "the columns say that its body is another"
        yield row, fault
    ends = columns.start + columns.size
    roomy = np.flatnonzero(columns.properties_size >= CRC32_RESERVED_LEN)
    width = len(_CRC_HEAD)
    count = max(len(window.data) - width + 1, 0)
    heads = np.ndarray((count,), f"V{width}", window.data, strides=(1,))
    has_crc = roomy[heads[ends[roomy] - CRC32_RESERVED_LEN] == np.void(_CRC_HEAD)]
    for row in has_crc.tolist():
        if body_agrees[row]:
            fault = property_crc_fault(window.data, int(columns.start[row]), int(ends[row]))
            if fault is not None:
                yield row, fault


def _dispatch_codes(
    window: LogWindow, topics: list[bytes], numbers: Int64s, levels: DelayLevels
) -> Int64s:
    """What the queue units carry. Source: CommitLog.checkMessageAndReturnSize."""
    columns = window.columns
    codes = tags_codes(window.data, columns)
    if _SCHEDULE in topics:
        for row in np.flatnonzero(numbers == topics.index(_SCHEDULE)).tolist():
            stored_ms = int(columns.store_timestamp_ms[row])
            codes[row] = levels.dispatch_code(
                SCHEDULE_TOPIC, _properties(window, columns, row), stored_ms
            )
    return codes


def _message_counts(window: LogWindow) -> Int64s:
    """INNER_NUM of records that hold a batch, 1 of the others."""
    columns = window.columns
    counts = np.ones(len(columns), np.int64)
    for row in np.flatnonzero(columns.sys_flag & INNER_BATCH_FLAG).tolist():
        text = property_value(_properties(window, columns, row), _INNER_NUM) or b"1"
        if text.isdigit() and len(text) < 10:
            counts[row] = int(text)
    return counts


def _properties(window: LogWindow, columns: RecordColumns, row: int) -> bytes:
    start = int(columns.properties_start[row])
    return window.data[start : start + int(columns.properties_size[row])].tobytes()


_INTEGERS: Final = (
    "offset",
    "size",
    "queue_offset",
    "store_timestamp_ms",
    "owner",
    "tags_code",
    "message_count",
    "key_hash",
)
_BOOLEANS: Final = ("is_queued", "is_indexed", "body_agrees", "is_sound")


def join_facts(parts: Sequence[RecordFacts]) -> RecordFacts:
    """Return the records of several windows of one file as one; of none, no records."""
    starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
    pairs = list(zip(starts, parts, strict=False))
    faults = ((start + row, why) for start, part in pairs for row, why in part.crc_faults.items())
    names = ((start + row, name) for start, part in pairs for row, name in part.queue_names.items())
    no_integers, no_booleans = np.empty(0, np.int64), np.empty(0, np.bool_)
    columns: dict[str, Any] = {
        name: np.concatenate([no_integers, *(getattr(part, name) for part in parts)])
        for name in _INTEGERS
    }
    columns |= {
        name: np.concatenate([no_booleans, *(getattr(part, name) for part in parts)])
        for name in _BOOLEANS
    }
    return RecordFacts(
        file=parts[0].file if parts else None,
        key_row=np.concatenate([no_integers, *(start + part.key_row for start, part in pairs)]),
        crc_faults=dict(faults),
        queue_names=dict(names),
        **columns,
    )
