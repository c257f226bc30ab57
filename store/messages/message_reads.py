"""MessageReads: what clients read of a store, by queue offset, by time, by place and by key.

    all of it                      in a classic group
    what ends below the bound      in a fenced group: see `ConfirmBound`

Services of the store read queues and log themselves, without a bound.

Source: org.apache.rocketmq.store.DefaultMessageStore of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, Protocol

from store.index.index_service import IndexService, QueryMessageResult
from store.log.commit_log import CommitLog
from store.machine.errors import RecordDamagedError
from store.messages.confirm_bound import ConfirmBound
from store.messages.get_message import (
    MESSAGE_BYTES_MAX,
    MESSAGE_COUNT_MAX,
    collect,
    position_status,
)
from store.messages.message_filter import FilteredRead, MessageFilter
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore
from store.queue.record_check import RecordCheck
from store.results import GetMessageResult, GetMessageStatus
from store.running_flags import RunningFlag, RunningFlags
from tandem.wire.pull_run import LogPiece, PullRuns, QueueUnits
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE

_FOREVER_MS: Final = (1 << 63) - 1


class CompactedReads(Protocol):
    """The reads of compaction topics. `CompactionStore` has them."""

    topics: Container[str]
    """Those whose reads these are, at any time. They are looked into for each read."""

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        *,
        max_bytes: int,
        tags_codes: frozenset[int] | None,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        """See `MessageReads.get_message`."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """See `MessageReads.min_offset_in_queue`."""


class MessageReads:
    """The reads of one store. Without a bound everything can be read.

    `index_the_last` is called before a query by key: to enter what the index does not know yet.
    `again`: see `RecordCheck`. Topics that `compacted` holds are read there.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        flags: RunningFlags,
        index_service: IndexService | None,
        bound: ConfirmBound | None,
        check: RecordCheck,
        index_the_last: Callable[[], None] = lambda: None,
        *,
        again: bool = False,
        compacted: CompactedReads | None = None,
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._flags = flags
        self._index_service = index_service
        self._bound = bound
        self._check = check
        self._index_the_last = index_the_last
        self._again = again
        self._compacted = compacted

    def without_bound(self) -> MessageReads:
        """Return what services of a master read: also what is not confirmed yet. No index.

        They make messages from what they read, so it is checked each time; see `RecordCheck`.
        """
        read = (self._commit_log, self._queues, self._flags)
        return MessageReads(*read, None, None, self._check, again=True)

    def for_copies(self) -> MessageReads:
        """Return the same reads for those who make messages from what they read. No index.

        What is known to be sound is checked each time; see `RecordCheck`: a copy has checksums of
        its own, and nobody would ever see that it was made from bytes that had changed.
        """
        read = (self._commit_log, self._queues, self._flags)
        return MessageReads(
            *(*read, None, self._bound, self._check), again=True, compacted=self._compacted
        )

    def _end_of(self, queue: AnyConsumeQueue) -> int:
        bound = self._bound
        return queue.next_offset if bound is None else queue.readable_end(bound.offset)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be read; 0 for an unknown queue."""
        if self._compacted is not None and topic in self._compacted.topics:
            return self._compacted.min_offset_in_queue(topic, queue_id)
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message to be read; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return self._end_of(queue) if queue else 0

    def look_message_by_offset(self, offset: int) -> bytes | None:
        """Return the record at `offset`, None if none starts there that can be read.

        Raises:
            RecordDamagedError: one starts there, and is damaged.

        Source: DefaultMessageStore.lookMessageByOffset.
        """
        return self._below_bound(self._check.at_place(offset, again=self._again), offset)

    def _below_bound(self, record: bytes | None, offset: int) -> bytes | None:
        if record is None or self._bound is None:
            return record
        return record if offset + len(record) <= self._bound.offset else None

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        *,
        max_bytes: int = MESSAGE_BYTES_MAX,
        tags_codes: frozenset[int] | None = None,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult:
        """Read records of one queue from queue offset `offset` on.

        At least one record is returned where one matches, whatever its size. Filtering is by tags
        code: the reader has to compare the tags themselves. A `message_filter` is final.

        A bound looks like the end of the queue. Past it the answer is OFFSET_OVERFLOW_ONE with
        `offset` itself, as long as the queue reaches there: the reader has only to wait.

        Source: DefaultMessageStore.getMessage.
        """
        if self._compacted is not None and topic in self._compacted.topics:
            return self._compacted.get_message(
                topic,
                queue_id,
                offset,
                min(max_msg_nums, MESSAGE_COUNT_MAX),
                max_bytes=max_bytes,
                tags_codes=tags_codes,
                message_filter=message_filter,
            )
        queue = self._queues.find(topic, queue_id)
        end = 0 if queue is None else self._end_of(queue)
        status, next_offset = position_status(queue, offset, end)
        if status is not GetMessageStatus.FOUND and self._flags.is_set(RunningFlag.SLAVE):
            # A slave may only be late: it does not correct what a consumer asks for.
            next_offset = offset
        if queue is None:
            return GetMessageResult(status, next_offset, 0, 0)
        if status is GetMessageStatus.FOUND and queue.trouble:
            damaged = self._check.in_doubt(queue, offset)
            status = GetMessageStatus.MESSAGE_DAMAGED
            return GetMessageResult(status, offset, queue.min_offset, end, damaged=damaged)
        if status is GetMessageStatus.FOUND:
            count_max = min(max_msg_nums, MESSAGE_COUNT_MAX)
            log = self._commit_log
            filtered = FilteredRead(message_filter, log, queue) if message_filter else None
            limits = (offset, end, count_max, max_bytes)
            check, again = self._check, self._again
            return collect(log, queue, *limits, tags_codes, check, filtered, again=again)
        return GetMessageResult(status, next_offset, queue.min_offset, end)

    def queue_offset_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the queue offset of the message at a physical offset, -1 if there is none.

        The queue alone is asked: the record may be damaged.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.next_offset:
            return -1
        number = queue.readable_end(offset)
        is_held = queue.min_offset <= number < queue.next_offset
        return number if is_held and queue.unit(number)[0] == offset else -1

    def run_units(self, topic: str, queue_id: int, offset: int) -> QueueUnits | None:
        """Return what a run of pulls may read of a queue that one of them reads from `offset` on.

        None: they have to be answered one by one. So are all while something of the log is bad.
        """
        if self._commit_log.damage or (self._compacted and topic in self._compacted.topics):
            return None
        queue = self._queues.find(topic, queue_id)
        if type(queue) is not ConsumeQueue or queue.trouble:
            return None
        end, lowest = self._end_of(queue), max(queue.min_offset, queue.confirmed_from)
        file = queue.file_of(offset) if lowest <= offset < end else None
        if file is None:
            return None
        first = file.file_from_offset // CQ_STORE_UNIT_SIZE
        units_end = first + file.wrote_position // CQ_STORE_UNIT_SIZE
        return QueueUnits(file.buffer, first, units_end, lowest, queue.min_offset, end)

    def answer_run(
        self,
        run: PullRuns,
        queues: Iterable[QueueUnits],
        tags_codes: frozenset[int] | None,
    ) -> memoryview:
        """Return the answers to pulls as `get_message` would have them, up to one that is in doubt.

        `queues` are `run_units` of the places of the run. The view is good up to the next run.
        """
        return run.answer(
            queues,
            self._log_piece,
            tags_codes=tags_codes,
            min_physical_offset=self._commit_log.min_offset,
            bytes_max=MESSAGE_BYTES_MAX,
        )

    def _log_piece(self, offset: int) -> LogPiece | None:
        file = self._commit_log.files.find_by_offset(offset)
        if file is None or not file.is_available:
            return None
        first = file.file_from_offset
        return LogPiece(file.buffer, first, first + file.read_position)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the queue offset for a store time.

        Lower bound: the first message stored at `timestamp_ms` or later, the end if there is none.
        Upper bound: the last one stored then or earlier, 0 if there is none.

        Raises:
            RecordDamagedError: a time that decides cannot be believed.

        Source: ConsumeQueue.getOffsetInQueueByTime.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        if queue.trouble:
            raise self._check.in_doubt(queue, queue.min_offset)
        return queue.offset_by_time(
            self._check.store_timestamp_ms,
            timestamp_ms,
            self._commit_log.min_offset,
            upper=upper,
            end=self._end_of(queue),
        )

    def message_store_timestamp_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, -1 if there is none to be read at this queue offset.

        Source: DefaultMessageStore.getMessageStoreTimeStamp.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < self._end_of(queue):
            return -1
        if queue.trouble:
            raise self._check.in_doubt(queue, offset)
        return self._check.store_timestamp_ms(queue.unit(offset)[0])

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
    ) -> QueryMessageResult:
        """Return the newest records with this key; see `IndexService.query_message`.

        What was put a moment ago is entered first. Only where the index is far behind, as while
        it is built anew, the last messages may be missing.

        Raises:
            RecordDamagedError: a record that may have the key is damaged.
        """
        index = self._index_service
        if index is None:
            return QueryMessageResult((), 0, 0)
        self._index_the_last()
        return index.query_message(
            topic,
            key,
            max_num,
            begin_ms,
            end_ms,
            record_at=self._indexed,
            below=None if self._bound is None else self._bound.offset,
        )

    def _indexed(self, offset: int) -> bytes | None:
        record = self._check.at_place(offset)
        is_held = self._commit_log.min_offset <= offset < self._commit_log.max_offset
        if record is None and is_held and not self._check.skips:
            reason = "the index names it, and it is not there"
            raise RecordDamagedError("", -1, -1, offset, reason)
        return self._below_bound(record, offset)
