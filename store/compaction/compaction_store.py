"""CompactionStore: compaction topics of one store, followed, read, compacted and flushed.

    a read            first what the queue has, as far as that is done at once; then its records
    every second      what the queues have, a slice of each in its turn
    every 15 minutes  compacting, one queue after the other
    with the queues   a flush of what was written

Source: RocketMQ 5.3.3, CompactionStore, CompactionService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Sized
from functools import partial
from typing import Final, Protocol

import trio

from store.compaction.compacting import Compacting, DamagedPairError, end_swap, is_swap_noted
from store.compaction.compaction_log import CompactionLog, PropertyFilter, ReadLimits
from store.compaction.compaction_logs import CompactionLogs
from store.config import StoreConfig
from store.files.mapped_file import MappedFile
from store.machine.disk import Disk, DiskFile
from store.machine.errors import CorruptLogError, DiskFailedError, StoreFullError
from store.machine.tell_once import TellOnce
from store.queue.consume_queue_store import ConsumeQueueStore
from store.results import GetMessageResult, GetMessageStatus

_log = logging.getLogger(__name__)

FOLLOW_SECONDS: Final = 1.0
READS_AT_ONCE_MAX: Final = 16
"""Of 32 records each: what a read may have to follow first, some milliseconds' work."""
RECORDS_READ_AT_ONCE: Final = 32
KEY_BYTES: Final = 200
"""What a key takes in memory while a queue is compacted, about."""
KEYS_MIN: Final = 100
"""Source: CompactionLog.OffsetMap."""


class QueueReads(Protocol):
    """What is asked of the reads of a store. `MessageReads` has it."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first queue offset that can be read."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message to be read."""

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int
    ) -> GetMessageResult:
        """Read records of one queue from queue offset `offset` on."""


class CompactionStore:
    """The compaction topics of one store.

    Args:
        logs: the logs, loaded.
        queues: the consume queues that they follow.
        reads: of the store, checked and as far as it is confirmed; without compaction topics.
        disk: where the logs are.
        config: how often to compact, and for how many keys at once there is memory.
        flushed_where: up to where the commit log is on the disk.
    """

    def __init__(
        self,
        logs: CompactionLogs,
        queues: ConsumeQueueStore,
        reads: QueueReads,
        disk: Disk,
        config: StoreConfig,
        *,
        flushed_where: Callable[[], int],
    ) -> None:
        self._logs = logs
        self.topics = logs.topics
        self._queues = queues
        self._reads = reads
        self._disk = disk
        self._interval_seconds = config.compaction_schedule_internal_ms / 1000
        self._skips_damaged = config.skip_damaged_records
        self._keys_max = max(KEYS_MIN, config.max_offset_map_size_bytes // KEY_BYTES)
        self._flushed_where = flushed_where
        self._told: TellOnce[str] = TellOnce()

    # -- following -------------------------------------------------------------------------------

    def _followed(self, topic: str, queue_id: int, reads_max: int) -> CompactionLog | None:
        log = self._logs.of(topic, queue_id)
        if log is None:
            return None
        end = self._reads.max_offset_in_queue(topic, queue_id)
        read = partial(self._reads.get_message, topic, queue_id, max_msg_nums=RECORDS_READ_AT_ONCE)
        for _ in range(reads_max):
            if not log.follow(read, end):
                break
        return log

    def _read_log(self, topic: str, queue_id: int) -> CompactionLog | None:
        """Return the log of a queue, which has followed it as far as that is possible now."""
        try:
            return self._followed(topic, queue_id, READS_AT_ONCE_MAX)
        except (StoreFullError, DiskFailedError) as error:
            self._tell(error)
            return self._logs.find(topic, queue_id)

    def _tell(self, error: Exception) -> None:
        if self._told.is_news(str(error)):
            _log.error("a compaction log does not follow its queue: %s", error)

    async def follow_all(self) -> None:
        """Let all logs follow their queues, with pauses."""
        if isinstance(self.topics, Sized) and not self.topics:
            return  # without a look at all queues, once a second
        for topic, queue_id in self._queues.queues_of(self.topics):
            try:
                while self._is_behind(topic, queue_id):
                    log = self._followed(topic, queue_id, 1)
                    await trio.lowlevel.checkpoint()
                    if log is None or log.is_stuck:
                        break
            except (StoreFullError, DiskFailedError, CorruptLogError) as error:
                self._tell(error)

    def _is_behind(self, topic: str, queue_id: int) -> bool:
        log = self._logs.of(topic, queue_id)
        end = self._reads.max_offset_in_queue(topic, queue_id)
        return log is not None and log.followed_to < end

    def follow_the_rest(self) -> None:
        """Follow all queues to their ends, holding everything up: for a stop.

        Raises:
            StoreFullError: no room.
        """
        for topic, queue_id in self._queues.queues_of(self.topics):
            while self._is_behind(topic, queue_id):
                log = self._followed(topic, queue_id, 1)
                if log is None or log.is_stuck:
                    break

    # -- reading ---------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        *,
        max_bytes: int,
        tags_codes: frozenset[int] | None,
        message_filter: PropertyFilter | None,
    ) -> GetMessageResult:
        """Read records of one queue of a compaction topic from queue offset `offset` on.

        Source: DefaultMessageStore.getMessage, CompactionStore.getMessage.
        """
        log = self._read_log(topic, queue_id)
        if log is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        end = self._reads.max_offset_in_queue(topic, queue_id)
        limits = ReadLimits(
            max_msg_nums,
            max_bytes,
            tags_codes,
            message_filter,
            self._skips_damaged,
        )
        return log.get_message(offset, end, limits)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first number that can be read: RocketMQ answers with the consume queue's."""
        first = self._reads.min_offset_in_queue(topic, queue_id)
        log = self._read_log(topic, queue_id)
        if log is None or log.min_offset < 0:
            return first
        return min(first, log.min_offset)

    # -- keeping ---------------------------------------------------------------------------------

    def keep_from(self, offset: int) -> int:
        """Return up to where the commit log may be deleted, if it may up to `offset` otherwise.

        What is not in a compaction log on the disk stays in the commit log, unless it is damaged.
        """
        for log in self._logs.open_logs():
            queue = self._queues.find(log.topic, log.queue_id)
            if queue is None or log.is_stuck or log.topic not in self.topics:
                continue
            number = max(log.durable_to, queue.min_offset)
            if number < queue.next_offset:
                try:
                    offset = min(offset, queue.unit(number)[0])
                except DiskFailedError as error:
                    self._tell(error)
                    return 0
        return offset

    def hide(self, topic: str) -> int:
        """Pass over all messages of a topic that was deleted; see `ConsumeQueueStore.hide`."""
        self._logs.drop(topic)
        return self._queues.hide(topic)

    def dirty_files(self, least_pages: int) -> Sequence[tuple[DiskFile, Callable[[], None]]]:
        """Return the files that a flush has to sync; see `DirtyFiles`."""
        found: list[tuple[DiskFile, Callable[[], None]]] = []
        for log in self._logs.open_logs():
            files = log.current.files()
            dirty = [file for file in files if file.is_able_to_flush(least_pages)]
            found += [(file.file, partial(_flushed, file, file.wrote_position)) for file in dirty]
            if dirty and not least_pages:
                file, flushed = found[-1]
                found[-1] = (file, partial(_all_flushed, log, log.followed_to, flushed))
            elif not any(file.is_able_to_flush(0) for file in files):
                log.durable_to = log.followed_to
        return found

    def close(self) -> None:
        """Have everything on the disk.

        Raises:
            StoreFullError: no room for what is left to be followed.
            OSError: the disk failed.
        """
        self.follow_the_rest()
        self._logs.sync_all()

    # -- compacting ------------------------------------------------------------------------------

    async def compact(self, log: CompactionLog) -> bool:
        """Compact one queue; return whether there was anything to do.

        Raises:
            StoreFullError, DiskFailedError: the disk refuses; the old files are there still, or
                the swap is finished by the next call, or the next start.
            OSError: a sync failed; the old files are there still.
        """
        self._end_last_swap(log)
        compacting = Compacting(log.current, self._disk)
        position = self._logs.position(log.topic, log.queue_id)
        pairs = compacting.new_pairs(position)
        if not pairs or not self._is_settled(log, pairs[-1].last_queue_offset):
            return False
        try:
            for _ in compacting.steps(position, self._keys_max):
                await trio.lowlevel.checkpoint()
                if self._logs.find(log.topic, log.queue_id) is not log:
                    break  # the topic was deleted meanwhile, and these files are closed
            for file in compacting.made.files():
                await self._disk.sync(file.file)
        except DamagedPairError as error:
            if self._told.is_news(str(error)):
                _log.error("%s-%d is not compacted: %s", log.topic, log.queue_id, error)
            compacting.give_up()
            return False
        except BaseException:
            compacting.give_up()
            raise
        if self._logs.find(log.topic, log.queue_id) is not log:
            compacting.give_up()
            return False
        self._swap(log, compacting)
        return True

    def _end_last_swap(self, log: CompactionLog) -> None:
        """Finish what the disk has refused.

        A stop while new files are made would have them taken for those of the last swap.
        """
        if log.swapping is not None:
            self._swap(log, log.swapping)
        elif is_swap_noted(self._disk, log.current):
            # It is done but for its position, which had no room.
            self._logs.save_positions()
            end_swap(self._disk, log.current)

    def _swap(self, log: CompactionLog, compacting: Compacting) -> None:
        log.swapping = compacting
        swap = compacting.swap()
        log.swapping = None
        self._logs.note(log.topic, log.queue_id, swap.position)
        end_swap(self._disk, log.current)
        _log.info(
            "%s-%d: compacted up to message %d, %d files into %d",
            *(log.topic, log.queue_id, swap.position, len(swap.old), len(swap.new)),
        )

    def _is_settled(self, log: CompactionLog, queue_offset: int) -> bool:
        """Whether a power loss cannot take a message back that takes the place of others."""
        queue = self._queues.find(log.topic, log.queue_id)
        if queue is None or queue_offset >= queue.next_offset:
            return False
        if queue_offset < queue.min_offset:
            return True
        offset, size, _ = queue.unit(queue_offset)
        return offset + size <= self._flushed_where()

    async def compact_all(self) -> None:
        """Compact all queues that have something to be compacted, as far as it can be read."""
        await self.follow_all()
        for log in self._logs.open_logs():
            if log.topic not in self.topics:
                continue
            try:
                await self.compact(log)
            except (StoreFullError, DiskFailedError, CorruptLogError, OSError) as error:
                if self._told.is_news(str(error)):
                    _log.error("%s-%d is not compacted: %s", log.topic, log.queue_id, error)

    async def run(self) -> None:
        """Follow and compact until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_following)
            nursery.start_soon(self._keep_compacting)

    async def _keep_following(self) -> None:
        while True:
            await trio.sleep(FOLLOW_SECONDS)
            await self.follow_all()

    async def _keep_compacting(self) -> None:
        while True:
            await trio.sleep(self._interval_seconds)
            await self.compact_all()


def _flushed(file: MappedFile, position: int) -> None:
    file.flushed_position = max(file.flushed_position, position)


def _all_flushed(log: CompactionLog, followed_to: int, flushed: Callable[[], None]) -> None:
    flushed()
    log.durable_to = max(log.durable_to, followed_to)
