"""CompactionLogs: the compaction logs of one store, by topic and queue id.

    compaction/compactionLog/<topic>/<queueId>/<20 digits>
              /compactionCq/<topic>/<queueId>/<20 digits>
              /position-checkpoint                           up to which number each was compacted

They are opened with the store, or when they are asked for. A queue that was cut, because its log
was, has its compaction log cut as well; RocketMQ takes the messages that come in their place for
repeats. What a hard stop may have left of records is checked, and taken from the queue again.

Source: RocketMQ 5.3.3, CompactionStore, CompactionPositionMgr.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Final

import msgspec

from store.compaction.compacting import end_swap, finish_swap
from store.compaction.compaction_log import CompactionLog
from store.compaction.topic_partition_log import COMPACTING, TopicPartitionLog
from store.config import StoreConfig
from store.machine.disk import Disk
from store.machine.table_file import TableFile
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore
from tandem.wire.store_layout import compaction_file_sizes

_log = logging.getLogger(__name__)

COMPACTION_DIRECTORY: Final = "compaction"
LOG_DIRECTORY: Final = "compactionLog"
CQ_DIRECTORY: Final = "compactionCq"
CHECKPOINT_FILE: Final = "position-checkpoint"


class CompactionPositions(msgspec.Struct, rename="camel"):
    """The content of `position-checkpoint`; `empty` is what fastjson writes beside the map."""

    empty: bool = True
    queue_offset_map: dict[str, int] = {}


class CompactionLogs:
    """The logs. `MessageStore` owns and closes them.

    Args:
        config: of the store.
        disk: its disk.
        queues: its consume queues, recovered before a log is opened.
        topics: those that have the attribute cleanup.policy=COMPACTION, at any time.
        clean: whether the last stop was a clean one.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        queues: ConsumeQueueStore,
        topics: Container[str],
        *,
        clean: bool,
    ) -> None:
        root = f"{config.directory}/{COMPACTION_DIRECTORY}"
        self._log_root, self._cq_root = f"{root}/{LOG_DIRECTORY}", f"{root}/{CQ_DIRECTORY}"
        self._sizes = compaction_file_sizes(
            config.compaction_mapped_file_size_bytes, config.compaction_cq_mapped_file_size_bytes
        )
        self._disk = disk
        self._queues = queues
        self.topics = topics if config.enable_compaction else frozenset()
        self._clean = clean
        self._table = TableFile(disk, f"{root}/{CHECKPOINT_FILE}", is_needed=False)
        self._positions: dict[str, int] = {}
        self._logs: dict[tuple[str, int], CompactionLog] = {}

    def load(self) -> None:
        """Open the logs that are there.

        Raises:
            CorruptLogError: a file is not what it must be.
        """
        saved = self._table.load(CompactionPositions)
        if saved is not None:
            self._positions = saved.queue_offset_map
        for topic, queue_id in self._queues.queues_of(self.topics):
            if self._disk.list_files(f"{self._log_root}/{topic}/{queue_id}"):
                self.of(topic, queue_id)

    def find(self, topic: str, queue_id: int) -> CompactionLog | None:
        """Return the log if it is open."""
        return self._logs.get((topic, queue_id))

    def of(self, topic: str, queue_id: int) -> CompactionLog | None:
        """Return the log of a queue of a topic that is compacted, None if there is no such queue.

        Raises:
            CorruptLogError: a file is not what it must be.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        log = self._logs.get((topic, queue_id))
        hidden_before = self._queues.hidden_before(topic)
        if log is not None and log.hidden_before != hidden_before:
            # On a node that was not the master when the topic was created again.
            self.drop(topic)
            log = None
        return log or self._opened(queue, hidden_before)

    def _opened(self, queue: AnyConsumeQueue, hidden_before: int) -> CompactionLog:
        topic, queue_id = queue.topic, queue.queue_id
        current = TopicPartitionLog(
            f"{self._log_root}/{topic}/{queue_id}",
            f"{self._cq_root}/{topic}/{queue_id}",
            self._sizes,
            self._disk,
        )
        swap = finish_swap(self._disk, current)
        if swap is not None:
            _log.warning("%s-%d: a swap of compacted files is finished", topic, queue_id)
            self.note(topic, queue_id, swap.position)
            end_swap(self._disk, current)
        try:
            current.load()
            self._make_agree(current, queue, hidden_before)
        except BaseException:
            current.close()
            raise
        log = CompactionLog(topic, queue_id, current, hidden_before)
        self._logs[topic, queue_id] = log
        return log

    def _make_agree(
        self, current: TopicPartitionLog, queue: AnyConsumeQueue, hidden_before: int
    ) -> None:
        """Take away what the queue does not have, and what a hard stop has damaged."""
        if hidden_before and current.first_queue_offset < _first_shown(queue, hidden_before):
            current.destroy()
        if queue.next_offset and current.cut(queue.next_offset):
            _log.warning("%s: its compaction log is cut at %d", queue.name, queue.next_offset)
        if self._clean:
            return
        fault = current.first_fault(self.position(queue.topic, queue.queue_id))
        if fault is not None:
            queue_offset, reason = fault
            _log.warning(
                "%s: its compaction log goes on from message %d of the queue: %s",
                *(queue.name, queue_offset, reason),
            )
            current.cut(queue_offset)
        current.sync_what_was_there()

    # -- positions -------------------------------------------------------------------------------

    def position(self, topic: str, queue_id: int) -> int:
        """Return the number of the last record that was looked at for compacting, -1 if none."""
        return self._positions.get(f"{topic}_{queue_id}", -1)

    def note(self, topic: str, queue_id: int, position: int) -> None:
        """Note up to where a queue is compacted. Durable when it returns.

        Raises:
            StoreFullError: no room; the old positions are there still.
        """
        self._positions[f"{topic}_{queue_id}"] = position
        self.save_positions()

    def save_positions(self) -> None:
        """Write them down; nothing happens if there never was a compaction topic.

        Raises:
            StoreFullError: no room.
        """
        if self._positions or self._logs:
            self._table.save(CompactionPositions(not self._positions, self._positions))

    # -- all of them -----------------------------------------------------------------------------

    def open_logs(self) -> list[CompactionLog]:
        """Return those that are open, sorted."""
        return [self._logs[key] for key in sorted(self._logs)]

    def drop(self, topic: str) -> None:
        """Delete the logs of a topic, whatever is in them.

        Raises:
            StoreFullError: no room for the positions.
        """
        for name, queue_id in [key for key in self._logs if key[0] == topic]:
            self._logs.pop((name, queue_id)).current.destroy()
        ids = set(self._ids_of(topic))
        for queue_id in ids:
            self._positions.pop(f"{topic}_{queue_id}", None)
            for root in (self._log_root, self._cq_root):
                queue = f"{root}/{topic}/{queue_id}"
                for directory in (f"{queue}/{COMPACTING}", queue):
                    for name, _ in self._disk.list_files(directory):
                        self._disk.remove(f"{directory}/{name}")
                    self._disk.remove_directory(directory)
        if ids:
            for root in (self._log_root, self._cq_root):
                self._disk.remove_directory(f"{root}/{topic}")
            self.save_positions()

    def _ids_of(self, topic: str) -> Iterable[int]:
        for root in (self._log_root, self._cq_root):
            names = self._disk.list_directories(f"{root}/{topic}")
            yield from (int(name) for name in names if name.isdecimal())

    def sync_all(self) -> None:
        """Block until everything is durable.

        Raises:
            OSError: the disk failed.
            StoreFullError: no room for the positions.
        """
        for log in self._logs.values():
            log.current.sync_all()
            log.durable_to = log.followed_to
        self.save_positions()

    def close(self) -> None:
        """Unmap all files without syncing."""
        for log in self._logs.values():
            log.current.close()
        self._logs.clear()


def _first_shown(queue: AnyConsumeQueue, hidden_before: int) -> int:
    """Return the number of the first message that is not hidden, as far as the queue knows."""
    number = queue.readable_end(hidden_before)
    has_hidden = queue.min_offset < number or (
        number < queue.next_offset and queue.unit(number)[0] == hidden_before
    )
    return number if has_hidden else 0
