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
`schedule_message_service.py`, `transactional_message_service.py`. docs/store.md describes them all.

Source: org.apache.rocketmq.store.DefaultMessageStore of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from types import TracebackType
from typing import Self

import trio

from store.compaction.compaction_store import CompactionStore
from store.config import StoreConfig
from store.log.healing import LogHealing
from store.log.log_positions import LogPositions
from store.machine.disk import Disk
from store.machine.errors import (
    SettingError,
    StoreClosedError,
)
from store.machine.signal import Signal
from store.messages.arrivals import NO_LISTENER, Arrivals
from store.messages.confirm_bound import ConfirmBound
from store.messages.message_filter import bit_maps_of_records
from store.messages.message_reads import MessageReads
from store.messages.put_message import MessagePuts
from store.queue.consume_queue_store import no_batch_topic, nothing_hidden
from store.recovery.closing import SyncProgress, sync_everything
from store.recovery.opening import StoreParts, disk_failed, open_parts
from store.running_flags import Flagged, RunningFlag, RunningFlags, StoreRefusal
from store.services.allocate_mapped_file_service import AllocateMappedFileService
from store.services.clean_service import CleanService, clean_service
from store.services.fingerprint_service import fingerprint_service
from store.services.flush_service import FlushService, dirty_index_files
from store.services.reput_message_service import ReputMessageService
from store.services.scrub_service import ScrubService
from store.store_listener import StoreListener
from tandem.wire.message import Host


class MessageStore(Flagged, LogPositions):
    """An open store. Use it as a context manager, or call `close`."""

    def __init__(
        self, parts: StoreParts, flags: RunningFlags, *, confirm_bounds_reads: bool
    ) -> None:
        self.config = parts.config
        self.commit_log = parts.commit_log
        self.fingerprints = parts.fingerprints
        self.queues = parts.queues
        self.checkpoint = parts.checkpoint
        self.index_service = parts.index_service
        self.delay_levels = parts.delay_levels
        self.damaged_end = parts.damaged_end
        """Why recovery may have cut off more than a put under way; see `StoreRecovery`."""
        self.flags = flags
        """Why no message is taken, as far as disks are concerned."""
        self.grown = Signal()
        """Notified by `announce`: the commit log has grown."""
        self.confirmed = Signal()
        """Notified by `confirm`: more of the log can be read."""
        self._parts = parts
        self._log_start = parts.log_start
        self._unmap = parts.unmap
        self._closed = False
        self._announced = self.commit_log.max_offset
        self._enters_queue = not parts.has_pool
        """Whether a put enters its message in the queue. With a pool it cannot be read yet."""
        self._bound = ConfirmBound() if confirm_bounds_reads else None
        self.arrivals = Arrivals(self._bound)
        self.puts = self._puts(parts)
        self.reput_service = self._reput_service()
        self.record_check = parts.record_check
        self.compaction = self._compaction(parts)
        self.reads = self._reads()
        self.whole_log = self.reads.without_bound()
        self.flush_service = self._flush_service()
        self._allocate_service = AllocateMappedFileService(
            self.commit_log.files,
            may_begin=lambda: not self.is_slave,
            on_room=self.puts.found_room,
        )
        self.clean_service = self._clean_service(parts)
        self.scrub_service = self._scrub_service(parts)
        self._fingerprint_service = fingerprint_service(
            self.commit_log, self.fingerprints, parts.log_start
        )
        if self._bound is not None:
            self._bound.raise_to(min(self.checkpoint.replicated_offset, self.max_physical_offset))
        self.healing = LogHealing(
            self.commit_log, self.fingerprints, parts.disk, self.config.directory
        )

    def _puts(self, parts: StoreParts) -> MessagePuts:
        return MessagePuts(
            self.commit_log,
            self.queues,
            self.flags,
            parts.config,
            delay_levels=self.delay_levels,
            wall_clock_ms=parts.wall_clock_ms,
            store_host=parts.store_host,
            enters_queue=self._enters_queue,
            on_clock_back=self._clock_went_back,
            entered=self.arrivals.entered,
        )

    def _reput_service(self) -> ReputMessageService:
        index = self.index_service
        return ReputMessageService(
            self.commit_log,
            self.queues,
            self.grown,
            levels=self.delay_levels,
            index_service=index,
            running_flags=self.flags,
            reput_from_offset=self._announced,
            index_from_offset=index.next_offset if index is not None else 0,
            heals=self._bound is not None,
            on_clock_back=self._clock_went_back,
            entered=self.arrivals.entered,
            after_dispatch=self.arrivals.end_round,
        )

    def _compaction(self, parts: StoreParts) -> CompactionStore:
        read = (self.commit_log, self.queues, self.flags, None, self._bound, self.record_check)
        reads = MessageReads(*read, again=True)
        logs, log_files = parts.compaction, self.commit_log.files
        return CompactionStore(
            *(logs, self.queues, reads, parts.disk, parts.config),
            flushed_where=lambda: log_files.flushed_where,
        )

    def _reads(self) -> MessageReads:
        parts = (self.commit_log, self.queues, self.flags, self.index_service, self._bound)
        index_the_last = self.reput_service.index_the_last
        return MessageReads(*parts, self.record_check, index_the_last, compacted=self.compaction)

    def _flush_service(self) -> FlushService:
        index = self.index_service
        return FlushService(
            self.commit_log,
            self.queues,
            self.checkpoint,
            self._parts.disk,
            self.config,
            on_failure=self._refuse,
            after_commit=self.grown.notify,
            after_release=self.arrivals.answered,
            queued_timestamp_ms=(
                None if self._enters_queue else self.reput_service.dispatched_timestamp_ms
            ),
            dispatched_offset=lambda: self.dispatched_offset,
            other_files=[
                *([dirty_index_files(index)] if index is not None else []),
                self.compaction.dirty_files,
            ],
        )

    def _scrub_service(self, parts: StoreParts) -> ScrubService:
        return ScrubService(
            self.commit_log,
            self.queues,
            self.fingerprints,
            parts.disk,
            parts.config,
            wall_clock_ms=parts.wall_clock_ms,
            index_service=self.index_service,
            on_index_dropped=self._index_dropped,
            indexed=lambda: self.reput_service.index_from_offset,
            levels=parts.delay_levels,
            dispatched=lambda: self.dispatched_offset,
        )

    def _index_dropped(self) -> None:
        """Have the index built anew from where it ends now."""
        if self.index_service is not None:
            self.reput_service.index_from_offset = self.index_service.next_offset
            self.grown.notify()

    def _clean_service(self, parts: StoreParts) -> CleanService:
        return clean_service(
            self.commit_log.files,
            self.queues,
            self.index_service,
            self.flags,
            parts.disk,
            parts.config,
            wall_clock_ms=parts.wall_clock_ms,
            keep_from=self._keep_from,
            full_directories=parts.full_directories,
            check_self=self.check_self,
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
        compacted: Container[str] = frozenset(),
        hidden_before: Callable[[str], int] = nothing_hidden,
        confirm_bounds_reads: bool = False,
    ) -> Self:
        """Lock, load and recover the store in `config.directory`; an empty directory is fine.

        `is_batch_topic` says which topics have batch queues (queue.type=BatchCQ), `compacted` those
        that are compacted (cleanup.policy=COMPACTION), and `hidden_before` up to where in the log
        the records of a topic are those of a deleted one. With
        `confirm_bounds_reads` only what is below the offset given to `confirm` can be read, as in
        a fenced group; at first that is what was confirmed when the store was open last.

        Raises:
            StoreError: reads cannot be bounded with a transient store pool.
            StoreLockedError: another process has it open.
            CorruptLogError: a file is not what it must be; nothing was changed.
            StoreFullError: no room for what recovery has to write.
            DiskFailedError: the disk does not do what it is asked.
        """
        if confirm_bounds_reads and config.transient_store_pool_enable:
            raise SettingError(
                f"{config.directory}: transient_store_pool_enable cannot be used in a fenced group:"
                " what a replica acknowledges must not be lost with its process; switch it off",
                setting="transient_store_pool_enable",
            )
        flags = RunningFlags()
        if is_slave:
            flags.set(RunningFlag.SLAVE, "this node is a slave")
        parts = open_parts(
            config,
            disk=disk,
            wall_clock_ms=wall_clock_ms,
            store_host=store_host,
            is_slave=is_slave,
            is_batch_topic=is_batch_topic,
            compacted=compacted,
            hidden_before=hidden_before,
            has_replicas=confirm_bounds_reads,
        )
        return cls(parts, flags, confirm_bounds_reads=confirm_bounds_reads)

    def _keep_from(self) -> int:
        """Return where the part of the log begins that must not be deleted, whatever its age.

        What no queue on disk knows yet stays: after a power loss its number would be given out
        again, and a queue that is behind would have a gap. So does what is not confirmed.
        """
        flushed = self.compaction.keep_from(self.flush_service.queues_flushed_where)
        return flushed if self._bound is None else min(flushed, self._bound.offset)

    def check_self(self) -> list[str]:
        """Return what is wrong with the rows of files, in words; RocketMQ's checkSelf."""
        return self.commit_log.files.check_self() + self.queues.check_self()

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
        self._closed = True
        self.flags.set(RunningFlag.CLOSED, "the store is closed")
        try:
            if not self.flags.is_not_writeable:
                sync_everything(self._parts, self.flags, self.reput_service, self.compaction)
        except OSError as error:
            raise disk_failed(self.config.directory, error) from error
        finally:
            self._unmap()

    async def settle(self) -> None:
        """Bring queues to the disk, so that `close` has less to do. For a stop, after `run`.

        Other tasks go on meanwhile. The log says how far it is.
        """
        if not self.flags.is_not_writeable:
            await self.flush_service.sync_queues(SyncProgress(self._parts.wall_clock_ms))

    def sync_log(self) -> None:
        """Block until all that was put is durable. For a stop, before others note how far they got.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        self.commit_log.files.sync_all()

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

    async def run(
        self,
        listener: StoreListener = NO_LISTENER,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Flush and dispatch until cancelled; `listener` hears what arrives.

        Raises:
            CorruptLogError: see `ReputMessageService.run`.
        """
        self.arrivals.listen(listener)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.flush_service.run)
            await nursery.start(self.reput_service.run)
            nursery.start_soon(self._allocate_service.run)
            nursery.start_soon(self.clean_service.run)
            nursery.start_soon(self._fingerprint_service.run)
            nursery.start_soon(self.scrub_service.run)
            nursery.start_soon(self.compaction.run)
            task_status.started()

    # -- replication and wake-ups ----------------------------------------------------------------

    def append_data(self, offset: int, data: bytes | memoryview) -> None:
        """Append raw log bytes from a master. Call `announce` after a round of appends.

        Raises:
            AppendGapError: they do not continue the log.
            StoreFullError: no room for the next file.
            StoreClosedError: the store is closed, or its disk has failed.
        """
        if self._closed or self.flags.is_not_writeable:
            raise self._closed_error()
        self.commit_log.append_data(offset, data)

    def announce(self) -> None:
        """Wake replication, then the rest: while it does its part, the other node is at work."""
        self.puts.end_round()
        end = self.commit_log.files.max_offset
        if end != self._announced:
            self._announced = end
            if self._enters_queue and not self.is_slave:
                self.reput_service.reput_from_offset = end
            self.grown.notify()
            self.flush_service.wake()
            self._allocate_service.wake()
        if self.arrivals.entered:
            self.arrivals.end_round()

    def calculate_bit_maps(self, bit_map_of: Callable[[str, bytes], bytes]) -> None:
        """Have the filter bit maps of messages from now on kept, by topic and property string."""
        self.queues.calculate_bit_maps(bit_maps_of_records(self.commit_log, bit_map_of))

    # -- roles -----------------------------------------------------------------------------------

    def become_master(self) -> None:
        """Take messages from now on, after everything that a master has sent so far.

        When it returns, all of the log is in the queues, and numbers go on after it. Harmless
        when repeated. There is no way back but to close the store and open it as a slave's.

        Raises:
            StoreClosedError: the store is closed, or its disk has failed.
            StoreFullError: no room for a queue file. The store is still a slave's; call again.
            CorruptLogError: what the log holds does not fit the queues; restart the node.
        """
        if self._closed or not self.flags.may_dispatch:
            raise self._closed_error()
        if not self.is_slave:
            return
        self.reput_service.dispatch_all()
        self.reput_service.stands_still = None
        self.flags.clear(RunningFlag.SLAVE)
        self.announce()
        # The log may be empty so far: its first file was not made in advance.
        self._allocate_service.wake()

    def _closed_error(self) -> StoreClosedError:
        refusal = self.refusal if self._closed else self.flags.dispatch_refusal
        assert refusal is not None, "asked only where a flag is set"
        return StoreClosedError(refusal.text, flags=refusal.flags)

    @property
    def disk_trouble(self) -> StoreRefusal | None:
        """Why this node must not be a master, as far as its disk is concerned; None if it may."""
        trouble = self.flags.disk_trouble
        # Where the next file is there, or the last one was begun since, there is room again.
        no_room = self.puts.no_room if self.commit_log.files.next_file.is_wanted else None
        others = [why for why in (self.reput_service.stands_still, no_room) if why is not None]
        if not others:
            return trouble
        texts = dict.fromkeys([trouble.text, *others] if trouble is not None else others)
        return StoreRefusal(trouble.flags if trouble else RunningFlag(0), "; ".join(texts))

    # -- what is confirmed -----------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        """Up to where the log can be read: its end, unless `confirm` decides."""
        return self.max_physical_offset if self._bound is None else self._bound.offset

    def confirm(self, offset: int) -> None:
        """Let clients read the log below `offset`, as far as it goes.

        Never goes back. Messages that can be read from now on are reported as arrived.

        Raises:
            StoreError: the store was not opened with `confirm_bounds_reads`.
        """
        if self._bound is None:
            raise SettingError(
                f"{self.config.directory}: nothing bounds the reads of this store;"
                " open it with confirm_bounds_reads",
                setting="confirm_bounds_reads",
            )
        offset = min(offset, self.max_physical_offset)
        if offset > self._bound.offset:
            self.checkpoint.replicated_offset = offset
            self.arrivals.readable(self._bound.raise_to(offset))
            self.confirmed.notify()

    # -- positions -------------------------------------------------------------------------------

    @property
    def dispatched_offset(self) -> int:
        """The offset below which every message is in its queue."""
        if self.is_slave or not self._enters_queue:
            return self.reput_service.reput_from_offset
        return self.commit_log.max_offset

    def list_queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue that holds or held a message."""
        return self.queues.queues()
