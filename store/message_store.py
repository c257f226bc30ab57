"""MessageStore: one node's messages on disk. Opens, recovers, runs, closes; puts and gets.

    <directory>/commitlog/<20 digits>                       the truth
               /consumequeue/<topic>/<id>/<20 digits>       built from it
               /consumequeue_ext/, /batchconsumequeue/      the same, where they are switched on
               /index/<17 digits>                           built from it: messages by key
               /checkpoint                                  how far they are on disk
               /abort                                       exists while the store is open
               /lock                                        held while the store is open
               /torn/<20 digits>                            what recovery has cut off, for people
               /truncated/, /set-aside/                     see truncation.py

Opening is recovering: after a clean stop it only starts further down the log. Every method is
synchronous and so atomic for other tasks; only `run` waits.

Delayed and transactional messages have services of their own, which a node runs beside this one:
`schedule_message_service.py`, `transactional_message_service.py`. docs/store.md tells the whole.

Source: org.apache.rocketmq.store.DefaultMessageStore of 5.3.3.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

import trio

from store.files.store_checkpoint import StoreCheckpoint
from store.files.transient_store_pool import TransientStorePool
from store.index.index_service import IndexService
from store.log.commit_log import CommitLog
from store.log.log_end import count_records
from store.machine.errors import (
    CorruptLogError,
    DiskFailedError,
    StoreClosedError,
    StoreError,
    StoreFullError,
)
from store.machine.signal import Signal
from store.messages.confirm_bound import ConfirmBound
from store.messages.message_reads import MessageReads
from store.messages.put_message import MessagePuts
from store.queue.consume_queue_store import ConsumeQueueStore, no_batch_topic
from store.recovery.store_recovery import StoreRecovery
from store.recovery.truncation import finish_set_aside, pending_truncation
from store.running_flags import RunningFlag, RunningFlags
from store.services.clean_service import (
    CleanCommitLogService,
    CleanConsumeQueueService,
    CleanService,
)
from store.services.flush_service import FlushService, dirty_index_files
from store.services.reput_message_service import ReputMessageService
from tandem.cluster_file.choices import FlushDiskType
from tandem.wire.delay_level import DelayLevels

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from store.config import StoreConfig
    from store.machine.disk import Disk
    from store.results import OnArrival
    from tandem.wire.message import Host

_log = logging.getLogger(__name__)

ALLOCATE_RETRY_SECONDS: Final = 5.0
INDEXED_AT_STOP_BYTES_MAX: Final = 64 << 20
"""A fraction of a second's work. An index that is further behind goes on after the next start."""


class MessageStore:
    """An open store. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        store_host: Host,
        is_slave: bool,
        is_batch_topic: Callable[[str], bool] = no_batch_topic,
        confirm_bounds_reads: bool = False,
    ) -> None:
        self.config = config
        self.grown = Signal()
        """Notified by `announce`: the commit log has grown."""
        self.confirmed = Signal()
        """Notified by `confirm`: more of the log can be read."""
        self.flags = RunningFlags()
        """Why no message is taken, as far as disks are concerned."""
        self.damaged_end = ""
        """Why recovery may have cut off more than a put under way; see `StoreRecovery`."""
        if is_slave:
            self.flags.set(RunningFlag.SLAVE, "this node is a slave")
        self.delay_levels = DelayLevels(config.message_delay_level)
        self._disk = disk
        self._now_ms = wall_clock_ms
        self._store_host = store_host
        self._release_lock: Callable[[], None] | None = None
        self._closed = False
        self._announced = 0
        self._pool = self._transient_store_pool()
        self._enters_queue = self._pool is None
        """Whether a put enters its message in the queue. With a pool it cannot be read yet."""
        self.commit_log = self._open_commit_log()
        self.queues = self._consume_queue_store(is_batch_topic)
        self._bound = ConfirmBound(self.queues) if confirm_bounds_reads else None
        self.index_service: IndexService | None = None
        self.puts = MessagePuts(
            self.commit_log,
            self.queues,
            self.flags,
            config,
            delay_levels=self.delay_levels,
            wall_clock_ms=wall_clock_ms,
            store_host=store_host,
            enters_queue=self._enters_queue,
        )
        # Not methods that call them: a put is the one call that counts.
        self.put_message = self.puts.put_message
        self.put_batch = self.puts.put_batch
        reads = self._reads = MessageReads(self.commit_log, self.queues, self.flags, self._bound)
        self.get_message = reads.get_message
        self.min_offset_in_queue = reads.min_offset_in_queue
        self.max_offset_in_queue = reads.max_offset_in_queue
        self.offset_in_queue_by_time = reads.offset_in_queue_by_time
        self.look_message_by_offset = reads.look_message_by_offset
        self.query_message = reads.query_message

    def _transient_store_pool(self) -> TransientStorePool | None:
        """Return the pool, None if there is none: a slave has no puts, a sync flush no use for it.

        Source: DefaultMessageStore.isTransientStorePoolEnable.
        """
        config = self.config
        sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        if not config.transient_store_pool_enable or self.is_slave or sync_flush:
            return None
        return TransientStorePool(
            config.transient_store_pool_size,
            config.mapped_file_size_commit_log_bytes,
            self._disk,
            fast_fail=config.fast_fail_if_no_buffer_in_store_pool,
        )

    def _consume_queue_store(self, is_batch_topic: Callable[[str], bool]) -> ConsumeQueueStore:
        config = self.config
        root = config.directory
        return ConsumeQueueStore(
            f"{root}/consumequeue",
            config.mapped_file_size_consume_queue_bytes,
            self._disk,
            batch_directory=f"{root}/batchconsumequeue",
            batch_mapped_file_size=config.mapper_file_size_batch_consume_queue_bytes,
            ext_directory=f"{root}/consumequeue_ext" if config.enable_consume_queue_ext else "",
            ext_mapped_file_size=config.mapped_file_size_consume_queue_ext_bytes,
            is_batch_topic=is_batch_topic,
        )

    def _open_commit_log(self) -> CommitLog:
        config = self.config
        return CommitLog(
            config.commit_log_directories,
            config.mapped_file_size_commit_log_bytes,
            self._disk,
            self._store_host,
            read_only_directories=config.read_only_commit_log_store_paths,
            is_directory_full=lambda path: path in self.clean_service.commit_log.full_directories,
            pool=self._pool,
            warm=config.warm_mapped_file_enable,
            max_message_size_bytes=config.max_message_size_bytes,
            append_prop_crc=config.enabled_append_prop_crc,
        )

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        store_host: Host,
        is_slave: bool,
        is_batch_topic: Callable[[str], bool] = no_batch_topic,
        confirm_bounds_reads: bool = False,
    ) -> Self:
        """Lock, load and recover the store in `config.directory`; an empty directory is fine.

        `is_batch_topic` says which topics have batch queues (queue.type=BatchCQ). With
        `confirm_bounds_reads` only what `confirm` was told of can be read, as in a fenced group;
        at first that is what was confirmed when the store was open last.

        Raises:
            StoreError: reads cannot be bounded with a transient store pool.
            StoreLockedError: another process has it open.
            CorruptLogError: a file is not what it must be; nothing was changed.
            StoreFullError: no room for what recovery has to write.
            DiskFailedError: the disk does not do what it is asked.
        """
        if confirm_bounds_reads and config.transient_store_pool_enable:
            raise StoreError(
                f"{config.directory}: transient_store_pool_enable cannot be used in a fenced group:"
                " what a replica acknowledges must not be lost with its process; switch it off"
            )
        store = cls(
            config,
            disk=disk,
            wall_clock_ms=wall_clock_ms,
            store_host=store_host,
            is_slave=is_slave,
            is_batch_topic=is_batch_topic,
            confirm_bounds_reads=confirm_bounds_reads,
        )
        try:
            store._release_lock = disk.lock(f"{config.directory}/lock")
            store._load()
        except BaseException as error:
            store._close_flag()
            store._unmap()
            if isinstance(error, OSError):
                raise _disk_failed(config.directory, error) from error
            raise
        return store

    # -- opening ---------------------------------------------------------------------------------

    def _load(self) -> None:
        config, disk = self.config, self._disk
        abort = f"{config.directory}/abort"
        finish_set_aside(disk, config.directory)
        self.commit_log.files.load()
        self.checkpoint = StoreCheckpoint(f"{config.directory}/checkpoint", disk)
        truncation = pending_truncation(disk, config.directory, self.commit_log.files)
        if truncation is not None:
            truncation.cut_log(self.checkpoint)
        clean = not disk.exists(abort)
        self.queues.load()
        # After a hard stop even an index that is switched off: it may be switched on again.
        index = self._index_service() if config.message_index_enable or not clean else None
        if index is not None:
            index.load(clean=clean)
        recovery = StoreRecovery(
            config.directory,
            self.commit_log,
            self.queues,
            self.checkpoint,
            disk,
            levels=self.delay_levels,
            check_crc=config.check_crc_on_recover,
            force_verify_prop_crc=config.force_verify_prop_crc,
            wall_clock_ms=self._now_ms,
        )
        recovery.run(clean=clean)
        self.damaged_end = recovery.damaged_end
        if index is not None:
            log = self.commit_log
            index.recover(log.min_offset, log.max_offset, log.record_at)
            if config.message_index_enable:
                self.index_service = self._reads.index_service = index
            else:
                index.close()
        if truncation is not None:
            truncation.finish()
        self._make_services()
        if self._bound is not None:
            self._bound.raise_to(min(self.checkpoint.replicated_offset, self.max_physical_offset))
        disk.replace(abort, b"")

    def _index_service(self) -> IndexService:
        config = self.config
        return IndexService(
            f"{config.directory}/index",
            config.max_hash_slot_num,
            config.max_index_num,
            disk=self._disk,
            wall_clock_ms=self._now_ms,
            checkpoint=self.checkpoint,
            max_msgs_num_batch=config.max_msgs_num_batch,
        )

    def _make_services(self) -> None:
        config, index = self.config, self.index_service
        self.reput_service = ReputMessageService(
            self.commit_log,
            self.queues,
            self.grown,
            levels=self.delay_levels,
            index_service=index,
            running_flags=self.flags,
        )
        self.reput_service.reput_from_offset = self._announced = self.commit_log.max_offset
        self.reput_service.index_from_offset = index.next_offset if index is not None else 0
        self.flush_service = FlushService(
            self.commit_log,
            self.queues,
            self.checkpoint,
            self._disk,
            flush_disk_type=config.flush_disk_type,
            flush_interval_commit_log_seconds=config.flush_interval_commit_log_ms / 1000,
            flush_commit_log_least_pages=config.flush_commit_log_least_pages,
            flush_commit_log_thorough_interval_seconds=(
                config.flush_commit_log_thorough_interval_ms / 1000
            ),
            flush_interval_consume_queue_seconds=config.flush_interval_consume_queue_ms / 1000,
            on_failure=self._refuse,
            commit_interval_commit_log_seconds=config.commit_interval_commit_log_ms / 1000,
            commit_commit_log_least_pages=config.commit_commit_log_least_pages,
            commit_commit_log_thorough_interval_seconds=(
                config.commit_commit_log_thorough_interval_ms / 1000
            ),
            queued_timestamp_ms=(
                None if self._enters_queue else self.reput_service.dispatched_timestamp_ms
            ),
            dispatched_offset=lambda: self.dispatched_offset,
            other_files=[dirty_index_files(index)] if index is not None else [],
        )
        self.flush_service.after_commit = self.grown.notify
        self.puts.on_clock_back = self.reput_service.on_clock_back = self._clock_went_back
        self.clean_service = CleanService(
            CleanCommitLogService(
                self.commit_log.files,
                self.flags,
                self._disk,
                config,
                wall_clock_ms=self._now_ms,
                local_hour=_local_hour,
                keep_from=self._keep_from,
            ),
            CleanConsumeQueueService(
                self.commit_log.files, self.queues, index, config, wall_clock_ms=self._now_ms
            ),
            self.check_self,
        )

    def _keep_from(self) -> int:
        """Return where the part of the log begins that must not be deleted, whatever its age.

        What no queue on disk knows yet stays: after a power loss its number would be given out
        again, and a queue that is behind would have a gap. So does what is not confirmed.
        """
        flushed = self.flush_service.queues_flushed_where
        return flushed if self._bound is None else min(flushed, self._bound.offset)

    def check_self(self) -> list[str]:
        """Return what is wrong with the rows of files, in words; RocketMQ's checkSelf."""
        problems = self.commit_log.files.check_self()
        for key in self.queues.queues():
            queue = self.queues.find(*key)
            for files in queue.file_queues if queue is not None else ():
                problems += files.check_self()
        return problems

    # -- closing ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sync everything, mark the stop as clean, release the lock. Blocks; harmless twice.

        After a failed sync, or when the queues are behind, the stop does not count as clean.

        Raises:
            DiskFailedError: the last sync failed.
        """
        if self._closed:
            return
        self._close_flag()
        try:
            if not self.flags.is_set(RunningFlag.NOT_WRITEABLE):
                self._sync_everything()
                if self.flags.may_dispatch and not self.reput_service.is_behind:
                    self._disk.remove(f"{self.config.directory}/abort")
        except OSError as error:
            raise _disk_failed(self.config.directory, error) from error
        finally:
            self._unmap()

    def _close_flag(self) -> None:
        self._closed = True
        self.flags.set(RunningFlag.CLOSED, "the store is closed")

    def _sync_everything(self) -> None:
        log = self.commit_log
        log.files.sync_all()
        try:
            while self.reput_service.is_behind:
                self.reput_service.dispatch_some()
            self._index_the_rest()
        except (StoreFullError, DiskFailedError, CorruptLogError) as error:
            _log.error("queues or index are behind the log at the stop: %s", error)
        if not self.flags.may_dispatch or self.reput_service.is_behind:
            return  # the checkpoint must not speak for queues that lack units
        self.queues.sync_all()
        if self.index_service is not None:
            self.index_service.sync_all()
        if log.last_store_timestamp_ms:
            self.checkpoint.physic_msg_timestamp_ms = log.last_store_timestamp_ms
            self.checkpoint.logics_msg_timestamp_ms = log.last_store_timestamp_ms
        self.checkpoint.confirm_physical_offset = log.max_offset
        self.checkpoint.flush_blocking()

    def sync_log(self) -> None:
        """Block until all that was put is durable. For a stop, before others note how far they got.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        self.commit_log.files.sync_all()

    def _index_the_rest(self) -> None:
        """Enter the last records in the index, unless they are so many that nobody would wait."""
        service = self.reput_service
        if self.max_physical_offset - service.index_from_offset <= INDEXED_AT_STOP_BYTES_MAX:
            while service.is_index_behind:
                service.index_some()

    def _unmap(self) -> None:
        self.commit_log.files.close()
        self.queues.close()
        if self._pool is not None:
            self._pool.close()
        if self.index_service is not None:
            self.index_service.close()
        if hasattr(self, "checkpoint"):
            self.checkpoint.close()
        if self._release_lock is not None:
            self._release_lock()

    def _clock_went_back(self, now_ms: int) -> None:
        """Take back what the checkpoint says of times that come a second time."""
        self.commit_log.clock_steps += 1
        try:
            self.checkpoint.clock_went_back(now_ms)
        except OSError as error:
            self._refuse(
                f"checkpoint: sync failed: {error}; what is durable is unknown:"
                " restart this node on a sound disk"
            )

    def _refuse(self, reason: str) -> None:
        self.flags.set(RunningFlag.NOT_WRITEABLE, reason)

    @property
    def is_slave(self) -> bool:
        """True if this store takes a master's bytes and no messages."""
        return self.flags.is_set(RunningFlag.SLAVE)

    @property
    def refusal(self) -> str:
        """Why the store takes no messages; empty if it does."""
        return self.flags.refusal

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush and dispatch until cancelled.

        Raises:
            CorruptLogError: see `ReputMessageService.run`.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self.flush_service.run)
            await nursery.start(self.reput_service.run)
            nursery.start_soon(self._allocate_mapped_files)
            nursery.start_soon(self.clean_service.run)
            task_status.started()

    async def _allocate_mapped_files(self) -> None:
        """Have the next commit log file ready before it is needed.

        Source: AllocateMappedFileService.
        """
        files = self.commit_log.files
        while True:
            # Look again after each one: the log may have grown past it meanwhile. Where the log of
            # an empty slave begins is up to its master.
            if not files.next_file.is_wanted or (self.is_slave and not files.files):
                await self.grown.wait()
                continue
            try:
                await files.next_file.prepare()
                self.puts.no_room = ""
            except (StoreFullError, DiskFailedError) as error:
                _log.warning("puts will be refused when this file is full: %s", error)
                await trio.sleep(ALLOCATE_RETRY_SECONDS)

    # -- replication and wake-ups ----------------------------------------------------------------

    def append_data(self, offset: int, data: bytes | memoryview) -> None:
        """Append raw log bytes from a master. Call `announce` after a round of appends.

        Raises:
            AppendGapError: they do not continue the log.
            StoreFullError: no room for the next file.
            StoreClosedError: the store is closed, or its disk has failed.
        """
        if self._closed:
            raise StoreClosedError(self.refusal)
        if self.flags.is_set(RunningFlag.NOT_WRITEABLE):
            raise StoreClosedError(self.flags.dispatch_refusal)
        self.commit_log.append_data(offset, data)

    def announce(self) -> None:
        """Wake replication, group commit and dispatch if the log has grown."""
        self.puts.end_round()
        end = self.commit_log.append_offset
        if end != self._announced:
            self._announced = end
            if self._enters_queue and not self.is_slave:
                self.reput_service.reput_from_offset = end
            self.flush_service.wake()
            self.grown.notify()

    @property
    def on_arrival(self) -> OnArrival | None:
        """Called for every message that has entered its queue and can be read."""
        return self.reput_service.on_arrival if self._bound is None else self._bound.on_arrival

    @on_arrival.setter
    def on_arrival(self, hook: OnArrival | None) -> None:
        if self._bound is not None:
            self._bound.on_arrival = hook
            hook = self._bound.arrived if hook is not None else None
        self.reput_service.on_arrival = self.puts.on_arrival = hook

    # -- roles -----------------------------------------------------------------------------------

    def become_master(self) -> None:
        """Take messages from now on, behind everything that a master has sent so far.

        When it returns, all of the log is in the queues, and numbers go on behind it. Harmless
        when repeated. There is no way back but to close the store and open it as a slave's.

        Raises:
            StoreClosedError: the store is closed, or its disk has failed.
            StoreFullError: no room for a queue file. The store is still a slave's; call again.
            CorruptLogError: what the log holds does not fit the queues; restart the node.
        """
        if self._closed or not self.flags.may_dispatch:
            raise StoreClosedError(self.refusal if self._closed else self.flags.dispatch_refusal)
        if not self.is_slave:
            return
        while self.reput_service.is_behind:
            self.reput_service.dispatch_some()
        self.reput_service.stands_still = ""
        self.flags.clear(RunningFlag.SLAVE)
        self.announce()
        # The log may be empty so far: its first file was not made in advance.
        self.grown.notify()

    def fence(self, reason: str) -> None:
        """Refuse messages from now on, with this reason. A master's bytes are taken."""
        self.flags.clear(RunningFlag.FENCED)
        self.flags.set(RunningFlag.FENCED, reason)

    def unfence(self) -> None:
        """Take `fence` back. Harmless if it was not called."""
        self.flags.clear(RunningFlag.FENCED)

    @property
    def disk_trouble(self) -> str:
        """Why this node must not be a master, as far as its disk is concerned; "" if it may."""
        # Where the next file is there, or the last one was begun since, there is room again.
        no_room = self.puts.no_room if self.commit_log.files.next_file.is_wanted else ""
        reasons = (self.flags.disk_trouble, self.reput_service.stands_still, no_room)
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    # -- what is confirmed -----------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        """Up to where the log can be read: its end, unless `confirm` decides."""
        return self.max_physical_offset if self._bound is None else self._bound.offset

    def confirm(self, offset: int) -> None:
        """Let clients read what lies below `offset`, as far as there is something.

        Never goes back. `on_arrival` is called for what can be read from now on.

        Raises:
            StoreError: the store was not opened with `confirm_bounds_reads`.
        """
        if self._bound is None:
            raise StoreError(
                f"{self.config.directory}: nothing bounds the reads of this store;"
                " open it with confirm_bounds_reads"
            )
        offset = min(offset, self.max_physical_offset)
        if offset > self._bound.offset:
            self.checkpoint.replicated_offset = offset
            self._bound.raise_to(offset)
            self.confirmed.notify()

    # -- positions -------------------------------------------------------------------------------

    @property
    def min_physical_offset(self) -> int:
        """The first byte of the log that is held."""
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """The end of the log: the first byte not written yet."""
        return self.commit_log.max_offset

    @property
    def flushed_where(self) -> int:
        """The offset below which the log is durable."""
        return self.commit_log.files.flushed_where

    @property
    def dispatched_offset(self) -> int:
        """The offset below which every message is in its queue."""
        if self.is_slave or not self._enters_queue:
            return self.reput_service.reput_from_offset
        return self.commit_log.max_offset

    @property
    def last_record_offset(self) -> int:
        """Where the last record known to be whole starts, -1 if there is none."""
        return self.commit_log.last_record_offset

    def list_queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue that holds or held a message."""
        return self.queues.queues()

    def count_records(self, start: int, end: int) -> int:
        """Return how many records lie between two places of the log, for people.

        `start` is where a record starts, or lies in front of the log. An inner batch is one record.
        """
        return count_records(self.commit_log.files.files, start, min(end, self.max_physical_offset))

    def read_log(self, offset: int, bytes_max: int) -> memoryview:
        """Return raw bytes of one file from `offset` on; see `CommitLog.read`."""
        return self.commit_log.read(offset, bytes_max)


def _local_hour(now_ms: int) -> int:
    """Return the hour of the day where this machine stands."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().hour


def _disk_failed(directory: str, error: OSError) -> DiskFailedError:
    return DiskFailedError(
        f"{error.filename or directory}: {error.strerror or error};"
        " check the disk and who may write to it, then start again"
    )
