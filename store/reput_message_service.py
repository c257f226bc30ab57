"""ReputMessageService: lets the queues follow the commit log.

On a master a put enters its message in the queue itself. On a slave the log grows by raw bytes, and
this service reads the records in them. It never goes past the end of the log, and what it does is
undone by nothing: the queues filter repeats.

Source: org.apache.rocketmq.store.DefaultMessageStore.ReputMessageService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from store.consume_queue import QueueGapError
from store.errors import CorruptLogError, StoreFullError
from store.recovery import Blank, Damage, DispatchRequest, read_record

if TYPE_CHECKING:
    from store.commit_log import CommitLog
    from store.consume_queue_store import ConsumeQueueStore
    from store.signal import Signal

_log = logging.getLogger(__name__)

OnArrival: TypeAlias = Callable[[str, int, int, int | None], None]
"""(topic, queue id, new max queue offset, tags code or None if several)"""

_SLICE_RECORDS: Final = 50
"""A fifth of a millisecond; then other tasks have their turn. Replication pays for longer ones."""

_FULL_DISK_RETRY_SECONDS: Final = 1.0


class ReputMessageService:
    """The dispatch of one store. `reput_from_offset` is the first byte not dispatched yet."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueueStore, grown: Signal) -> None:
        self.reput_from_offset = 0
        self.on_arrival: OnArrival | None = None
        self._commit_log = commit_log
        self._queues = queues
        self._grown = grown

    @property
    def is_behind(self) -> bool:
        """True if the log holds bytes that were not dispatched."""
        return self.reput_from_offset < self._commit_log.max_offset

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the log until cancelled.

        Raises:
            CorruptLogError: the log holds something that is no record, or a queue has a gap.
        """
        task_status.started()
        told = False
        while True:
            if not self.is_behind:
                await self._grown.wait()
                continue
            try:
                self.dispatch_some(_SLICE_RECORDS)
                told = False
                await trio.lowlevel.checkpoint()
            except StoreFullError as error:
                if not told:
                    _log.error("consume queues stand still: %s", error)
                    told = True
                await trio.sleep(_FULL_DISK_RETRY_SECONDS)

    def dispatch_some(self, records_max: int) -> None:
        """Dispatch up to `records_max` records.

        Raises:
            CorruptLogError: see `run`.
            StoreFullError: no room for a queue file; call again later.
        """
        for _ in range(records_max):
            # A slave's log may begin above 0.
            offset = max(self.reput_from_offset, self._commit_log.min_offset)
            if offset >= self._commit_log.max_offset:
                return
            record = self._read(offset)
            if isinstance(record, Blank):
                self.reput_from_offset = offset + record.size
                continue
            try:
                queue = self._queues.dispatch(record)
            except QueueGapError as error:
                raise CorruptLogError(
                    f"{error}; restart the node: it builds the queues anew", path="", offset=offset
                ) from error
            self.reput_from_offset = offset + record.size
            self._commit_log.last_record_offset = offset
            self._commit_log.last_store_timestamp_ms = record.store_timestamp_ms
            if queue is not None and self.on_arrival is not None:
                self.on_arrival(queue.topic, queue.queue_id, queue.next_offset, record.tags_code)

    def _read(self, offset: int) -> DispatchRequest | Blank:
        file = self._commit_log.files.find_by_offset(offset)
        assert file is not None
        position = offset - file.file_from_offset
        # The bytes were checked before they were appended; the CRC is not worth a second look.
        record = read_record(file.buffer, position, file.wrote_position, offset, check_crc=False)
        if isinstance(record, Damage):
            raise CorruptLogError(
                f"{file.file.path}: no record at {offset}: {record.reason}",
                path=file.file.path,
                offset=offset,
            )
        return record
