"""What a store has been told, kept apart from the store: the truth that a crash is checked against.

A `History` outlives crashes. It holds every byte of the log since its beginning, also of files that
were deleted since, and what follows from the records in them: queue units, keys, where the log may
end. It is built from the bytes with the plain decoder, and each new record is compared with what
was put.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    INNER_BATCH_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    MessageExt,
    decode_message,
)
from tandem.wire.message_properties import java_string_hash

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
DELAYS_MS: Final = (1_000, 5_000, 10_000, 30_000)
"""Of the first levels; the campaign uses no others."""

Queue = tuple[str, int]


class Expected(NamedTuple):
    """What was put, as far as the record has to say so."""

    topic: str
    queue_id: int
    body: bytes
    sys_flag: int


class Row(NamedTuple):
    """One record of the log."""

    offset: int
    end: int
    queue: Queue
    queue_offset: int
    count: int  # type: ignore[assignment] # in place of tuple.count
    tags_code: int
    store_timestamp_ms: int
    keys: tuple[tuple[int, int], ...]
    """Hash of `topic#key` and offset, as the index holds them."""
    is_queued: bool
    is_batch: bool

    @property
    def unit(self) -> tuple[int, ...]:
        """What the queue says of this record."""
        place = (self.offset, self.end - self.offset, self.tags_code)
        if self.is_batch:
            return *place, self.store_timestamp_ms, self.queue_offset, self.count
        return place


class History:
    """One log from its beginning, across crashes."""

    def __init__(self, file_bytes: int) -> None:
        self.file_bytes = file_bytes
        self.log = bytearray()
        self.rows: list[Row] = []
        self.messages: list[MessageExt] = []
        self.queues: defaultdict[Queue, list[Row]] = defaultdict(list)
        self.stops: set[int] = {0}
        """Where the log may end: behind a record, behind a blank."""
        self.expected: dict[int, Expected] = {}
        """What was put, by the offset that the store has answered."""

    @property
    def end(self) -> int:
        """The end of all that was ever written."""
        return len(self.log)

    def forget(self, end: int) -> None:
        """Take note that a crash has cut the log at `end`."""
        assert end in self.stops, f"{end} is not where a record ends"
        del self.log[end:]
        while self.rows and self.rows[-1].offset >= end:
            row = self.rows.pop()
            self.messages.pop()
            if row.is_queued:
                self.queues[row.queue].pop()
        self.stops = {stop for stop in self.stops if stop <= end}
        self.expected = {offset: put for offset, put in self.expected.items() if offset < end}

    def extend(self, data: bytes) -> None:
        """Add the bytes that the log has got since; compare what is in them with what was put."""
        position = self.end
        self.log += data
        while position < len(self.log):
            if int.from_bytes(self.log[position + 4 : position + 8], "big") == BLANK_MAGIC_CODE:
                position += int.from_bytes(self.log[position : position + 4], "big")
                assert position % self.file_bytes == 0
            else:
                message, position = decode_message(self.log, position)
                self._add(message, position)
            self.stops.add(position)
        assert position == len(self.log)

    def _add(self, message: MessageExt, end: int) -> None:
        put = self.expected.get(message.physical_offset)
        if put is not None:
            found = Expected(message.topic, message.queue_id, message.body, message.sys_flag)
            assert found == put, message
        row = row_of(message, end)
        self.rows.append(row)
        self.messages.append(message)
        if row.is_queued:
            assert row.queue_offset == self.next_offset(row.queue), message
            self.queues[row.queue].append(row)
        else:
            assert row.queue_offset == 0

    def next_offset(self, queue: Queue) -> int:
        """Return the number of the next message in a queue."""
        rows = self.queues.get(queue)
        return rows[-1].queue_offset + rows[-1].count if rows else 0

    def rows_between(self, rows: list[Row], begin: int, end: int) -> list[Row]:
        """Return those of `rows`, which rise by offset, that start in this part of the log."""
        low = bisect_left(rows, begin, key=lambda row: row.offset)
        return rows[low : bisect_left(rows, end, key=lambda row: row.offset)]

    def keys_before(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield what a whole index of the log up to `end` holds, in the order of entering."""
        for row in self.rows:
            if row.offset >= end:
                return
            yield from row.keys


def row_of(message: MessageExt, end: int) -> Row:
    """Return what queue and index have to say of a record; none of the store's code is asked."""
    offset = message.physical_offset
    kind = message.sys_flag & TRANSACTION_MASK
    tags = message.properties.get("TAGS", "")
    tags_code = java_string_hash(tags) if tags else 0
    if message.topic == SCHEDULE_TOPIC and "DELAY" in message.properties:
        tags_code = message.store_timestamp_ms + DELAYS_MS[int(message.properties["DELAY"]) - 1]
    keys = [message.properties.get("UNIQ_KEY", "")]
    keys += message.properties.get("KEYS", "").split(" ")
    is_batch = bool(message.sys_flag & INNER_BATCH_FLAG)
    return Row(
        offset=offset,
        end=end,
        queue=(message.topic, message.queue_id),
        queue_offset=message.queue_offset,
        count=int(message.properties["INNER_NUM"]) if is_batch else 1,
        tags_code=tags_code,
        store_timestamp_ms=message.store_timestamp_ms,
        keys=()
        if kind == TRANSACTION_ROLLBACK_TYPE
        else tuple((key_hash(message.topic, key), offset) for key in keys if key),
        is_queued=kind not in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE),
        is_batch=is_batch,
    )


def key_hash(topic: str, key: str) -> int:
    """Return what an index file keeps of a key. Source: IndexFile.indexKeyHashMethod."""
    value = abs(java_string_hash(f"{topic}#{key}"))
    return value if value < 1 << 31 else 0
