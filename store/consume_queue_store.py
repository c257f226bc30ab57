"""ConsumeQueueStore: all consume queues of a store, by topic and queue id.

On disk: `consumequeue/<topic>/<queueId>/<20 digits>`.

Source: org.apache.rocketmq.store.queue.ConsumeQueueStore.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.consume_queue import ConsumeQueue
from tandem.wire.message import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE

if TYPE_CHECKING:
    from store.disk import Disk
    from store.mapped_file import MappedFile
    from store.recovery import DispatchRequest

_log = logging.getLogger(__name__)


def is_queued(sys_flag: int) -> bool:
    """True if a record with this SYSFLAG belongs in its queue; prepared and rollback ones do not.

    Source: CommitLogDispatcherBuildConsumeQueue.
    """
    return sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE)


class ConsumeQueueStore:
    """The queues. `MessageStore` owns and closes them."""

    def __init__(self, directory: str, mapped_file_size: int, disk: Disk) -> None:
        assert mapped_file_size % CQ_STORE_UNIT_SIZE == 0
        self._directory = directory
        self._mapped_file_size = mapped_file_size
        self._disk = disk
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def load(self) -> None:
        """Open every queue found on disk; a directory whose name is no number is skipped.

        Raises:
            CorruptLogError: a file has a wrong length or name.
        """
        for topic in self._disk.list_directories(self._directory):
            for name in self._disk.list_directories(f"{self._directory}/{topic}"):
                if name.isdecimal():
                    self.find_or_create(topic, int(name)).load()

    def recover(self) -> int:
        """Find the end of every queue; return the end of the last record any queue knows, or -1."""
        for queue in self._queues.values():
            queue.recover()
        return max((q.max_physic_offset for q in self._queues.values()), default=-1)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, None if it does not exist yet."""
        return self._queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; a new one gets its first file with its first message."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            directory = f"{self._directory}/{topic}/{queue_id}"
            queue = ConsumeQueue(directory, topic, queue_id, self._mapped_file_size, self._disk)
            self._queues[topic, queue_id] = queue
        return queue

    def dispatch(
        self, request: DispatchRequest, *, may_start_late: bool = True
    ) -> ConsumeQueue | None:
        """Enter a record; return its queue if it is new there, else None.

        Raises:
            QueueGapError, StoreFullError: see `ConsumeQueue.dispatch`.
        """
        if not is_queued(request.sys_flag):
            return None
        queue = self.find_or_create(request.topic, request.queue_id)
        return queue if queue.dispatch(request, may_start_late=may_start_late) else None

    def truncate_dirty(self, physical_offset: int) -> None:
        """Drop the units of records at or behind `physical_offset` everywhere."""
        for queue in self._queues.values():
            queue.truncate_dirty_logic_files(physical_offset)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """See `ConsumeQueue.correct_min_offset`."""
        for queue in self._queues.values():
            queue.correct_min_offset(min_physical_offset)

    def queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of all queues, sorted."""
        return sorted(self._queues)

    def dirty_files(self, least_pages: int) -> list[MappedFile]:
        """Return the files that a flush with this threshold has to sync."""
        return [f for q in self._queues.values() for f in q.files.dirty_files(least_pages)]

    def sync_all(self) -> None:
        """Block until every unit is durable."""
        for queue in self._queues.values():
            queue.files.sync_all()

    def destroy(self) -> None:
        """Delete every queue, to build them anew from the log."""
        for queue in self._queues.values():
            queue.destroy()
        self._queues.clear()

    def close(self) -> None:
        """Unmap everything."""
        for queue in self._queues.values():
            queue.close()
