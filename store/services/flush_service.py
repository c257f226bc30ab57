"""FlushService: carries what was written to the disk, and answers the puts that wait for that.

    SYNC_FLUSH   a put waits in the group-commit queue; one sync answers all who came before it
    ASYNC_FLUSH  the log is synced every interval if enough pages are dirty, thoroughly now and then

Consume queues and the other files built from the log are always synced in the background. The
checkpoint moves after the syncs.

With a `TransientStorePool` the log is first committed (`CommitRealTimeService`): before each
thorough sync, and besides by itself. Each commit wakes the flush.

A failed sync is final: what is on disk is then unknown, and the kernel may have dropped the dirty
pages, so a second try would succeed without having written them. The store refuses writes from
then on, and every waiting put is answered so.

Source: CommitLog.GroupCommitService and FlushRealTimeService,
DefaultMessageStore.FlushConsumeQueueService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import trio

from store.config import StoreConfig
from store.files.mapped_file import MappedFile
from store.files.store_checkpoint import StoreCheckpoint
from store.files.sync_at_once import Progress
from store.index.index_file import IndexFile
from store.index.index_service import IndexService
from store.log.commit_log import CommitLog
from store.machine.disk import Disk, DiskFile
from store.machine.errors import DiskFailedError
from store.machine.histogram import Histogram
from store.machine.signal import Signal
from store.machine.waiting_row import WaitingRow
from store.queue.consume_queue_store import QUEUES_AT_ONCE, ConsumeQueueStore
from store.results import Done, PutMessageStatus
from store.services.commit_real_time_service import CommitRealTimeService
from tandem.cluster_file.choices import FlushDiskType

_log = logging.getLogger(__name__)

FLUSH_CONSUME_QUEUE_LEAST_PAGES: Final = 2
FLUSH_CONSUME_QUEUE_THOROUGH_INTERVAL_SECONDS: Final = 10.0
"""RocketMQ: 60 s. The checkpoint waits for it, and with it how far recovery has to go back."""

SYNCED_TOGETHER_MAX: Final = 64
"""Files of queues that one call syncs: a stop does not wait for more."""

Synced: TypeAlias = Callable[[], None]
"""Called when a file has been synced: may note that, and move the checkpoint if this was the last
of what it promises."""

DirtyFiles: TypeAlias = "Callable[[int], Sequence[tuple[DiskFile, Synced]]]"
"""Returns the files to sync, in this order, for a number of least pages; 0 means all of it.

Whatever a `Synced` promises must be found before the first of these syncs begins: what is written
while they run is not on disk. A file that has been closed by its turn counts as synced."""


class FlushService:
    """The flushing of one store."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        checkpoint: StoreCheckpoint,
        disk: Disk,
        config: StoreConfig,
        *,
        on_failure: Callable[[str], None],
        after_commit: Callable[[], None],
        after_release: Callable[[], None],
        queued_timestamp_ms: Callable[[], int] | None = None,
        dispatched_offset: Callable[[], int] | None = None,
        other_files: Sequence[DirtyFiles] = (),
    ) -> None:
        """Flush `commit_log`, `queues` and `other_files`.

        Args:
            commit_log: What puts wait for.
            queues: Flushed in the background.
            checkpoint: Moved after the syncs.
            disk: Does them.
            config: Intervals, and how many pages make a flush worth while.
            on_failure: Called once, with what went wrong and what to do about it.
            after_commit: See `CommitRealTimeService`.
            after_release: Called once after a round of answers, so that they leave together.
            queued_timestamp_ms: Returns up to which store time every message is in its queue;
                where it is not given, puts enter their queue at once.
            dispatched_offset: Returns the same as an offset of the log.
            other_files: More files that are built from the log.
        """
        self._after_release = after_release
        self.flushed = Signal()
        """Notified when a flush of the log has ended, well or not: look at `flushed_where`."""
        self.sync_seconds = Histogram()
        """How long syncs of files took."""
        self._wanted = 0
        self._commit_log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._disk = disk
        self._config = config
        self._interval_seconds = config.flush_interval_commit_log_ms / 1000
        self._on_failure = on_failure
        self._commits = CommitRealTimeService(
            commit_log.files, config, on_failure=self._fail, after_commit=after_commit
        )
        self._queued_timestamp_ms = queued_timestamp_ms or (
            lambda: commit_log.last_store_timestamp_ms
        )
        self._dispatched_offset = dispatched_offset or (lambda: commit_log.max_offset)
        self.queues_flushed_where = self._dispatched_offset()
        """The offset below which every message is in a queue that is on disk: what is before it in
        the log may be deleted. Recovery syncs all queues, so at first that is the end."""
        self._other_files = other_files
        self._waiting: WaitingRow[Done] = WaitingRow()
        self._arrived = Signal()
        self._failure = ""

    def submit(self, end_offset: int, deadline: float, done: Done) -> None:
        """Call `done` once: PUT_OK when the log is durable up to `end_offset`, else why not.

        `deadline` is in trio's time. Past it the status is FLUSH_DISK_TIMEOUT; the message stays in
        the log. Source: GroupCommitRequest, FlushDiskWatcher.

        Raises:
            ValueError: a put with a higher offset or a later deadline is waiting already.
        """
        if self._failure:
            done(PutMessageStatus.FLUSH_DISK_TIMEOUT, self._failure)
            return
        self._waiting.add(end_offset, deadline, done)

    def wake(self) -> None:
        """Start commit and group commit for what was put and submitted. Call once for many puts."""
        self._commits.wake()
        if self._waiting:
            self._arrived.notify()
        self._wake_wanted()

    def want_flush(self, offset: int) -> None:
        """Flush at once, and go on so until the log is durable up to `offset`.

        What is not there yet is flushed as soon as it comes (`wake`). Each step notifies `flushed`.
        """
        self._wanted = max(self._wanted, offset)
        self._wake_wanted()

    def _wake_wanted(self) -> None:
        if self._is_wanted:
            self._arrived.notify()
            self._commits.committed.notify()

    @property
    def _is_wanted(self) -> bool:
        """True if somebody waits for the flush of something that is there."""
        if not self._wanted:
            return False
        files = self._commit_log.files
        return files.flushed_where < min(self._wanted, files.committed_where)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush until cancelled. The owner syncs the rest when it closes the store."""
        async with trio.open_nursery() as nursery:
            if self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
                nursery.start_soon(self._group_commit)
                nursery.start_soon(self._expire)
            else:
                nursery.start_soon(self._flush_real_time)
            if self._commit_log.files.pool is not None:
                nursery.start_soon(self._commits.run)
            nursery.start_soon(self._flush_consume_queues)
            task_status.started()

    async def _group_commit(self) -> None:
        while not self._failure:
            if not self._waiting and not self._is_wanted:
                # Bytes without a waiting put are flushed, too: with WAIT=false, or on a slave.
                with trio.move_on_after(self._interval_seconds):
                    await self._arrived.wait()
            await trio.lowlevel.checkpoint()
            await self._sync_commit_log(0)
            self._answer_flushed()

    def _answer_flushed(self) -> None:
        answered = self._waiting.take_reached(self._commit_log.files.flushed_where)
        for done in answered:
            done(PutMessageStatus.PUT_OK, "")
        if answered:
            self._after_release()

    async def _expire(self) -> None:
        """Answer the puts whose deadline has passed while a sync was on its way."""
        while True:
            deadline = self._waiting.next_deadline
            if deadline is None:
                await self._arrived.wait()
                continue
            expired = self._waiting.take_expired(trio.current_time())
            if not expired:
                with trio.move_on_at(deadline):
                    await self._arrived.wait()
                continue
            for _, done in expired:
                done(
                    PutMessageStatus.FLUSH_DISK_TIMEOUT,
                    "the disk was too slow; the message is in the log and may yet become durable",
                )
            self._after_release()

    async def _flush_real_time(self) -> None:
        thorough_seconds = self._config.flush_commit_log_thorough_interval_ms / 1000
        least_pages = self._config.flush_commit_log_least_pages
        last_thorough = trio.current_time()
        while not self._failure:
            if not self._is_wanted:
                with trio.move_on_after(self._interval_seconds):
                    await self._commits.committed.wait()
            await trio.lowlevel.checkpoint()
            thorough = self._is_wanted
            thorough |= trio.current_time() >= last_thorough + thorough_seconds
            if thorough:
                last_thorough = trio.current_time()
            await self._sync_commit_log(0 if thorough else least_pages)

    async def _sync_commit_log(self, least_pages: int) -> None:
        timestamp_ms = self._commit_log.last_store_timestamp_ms
        clock_steps = self._commit_log.clock_steps
        all_of_it = least_pages <= 0
        if all_of_it:
            self._commits.commit(0)
        for file in self._commit_log.files.dirty_files(least_pages):
            await self._sync(file)
        if self._failure:
            return
        self._checkpoint.confirm_physical_offset = self._commit_log.files.flushed_where
        # It may go back, with the clock: later records would seem to be on disk otherwise.
        if all_of_it and timestamp_ms and clock_steps == self._commit_log.clock_steps:
            self._checkpoint.physic_msg_timestamp_ms = timestamp_ms
        self.flushed.notify()

    async def sync_queues(self, progress: Progress) -> None:
        """Bring to the disk what queues have now. For a stop, while nothing else is flushed."""
        done, count = 0, self._queues.awake.count
        progress(done, count)
        await self._sync_many()
        for files in self._queues.dirty_files(0):
            await self._sync_some(files)
            done += min(QUEUES_AT_ONCE, count - done)
            progress(done, count)

    async def _sync_many(self) -> None:
        """Sync queues with all of their file system, where there are many that have changed."""
        if self._failure or self._queues.awake.count < self._disk.many_files:
            return
        ends: list[tuple[MappedFile, int]] = []
        for files in self._queues.dirty_files(0):
            ends += ((file, file.read_position) for file in files)
            await trio.lowlevel.checkpoint()
        if len(ends) < self._disk.many_files:
            return
        began = trio.current_time()
        if not await self._disk.sync_tree(self._config.directory):
            return
        self.sync_seconds.count(trio.current_time() - began)
        for file, end in ends:
            file.flushed_position = max(file.flushed_position, min(end, file.read_position))

    async def _sync_some(self, files: Sequence[MappedFile]) -> None:
        for few in _few_at_once(files):
            await self._sync(*few)
            self._queues.open_files.let_go()

    async def _flush_consume_queues(self) -> None:
        last_thorough = trio.current_time()
        while not self._failure:
            await trio.sleep(self._config.flush_interval_consume_queue_ms / 1000)
            thorough = (
                trio.current_time() >= last_thorough + FLUSH_CONSUME_QUEUE_THOROUGH_INTERVAL_SECONDS
            )
            is_all_of_it = thorough or self._queues.open_files.are_too_many
            least_pages = 0 if is_all_of_it else FLUSH_CONSUME_QUEUE_LEAST_PAGES
            timestamp_ms = self._queued_timestamp_ms()
            dispatched = self._dispatched_offset()
            clock_steps = self._commit_log.clock_steps
            if is_all_of_it:
                await self._sync_many()
            for number, files in enumerate(self._queues.dirty_files(least_pages)):
                if number and not files:
                    await trio.lowlevel.checkpoint()
                await self._sync_some(files)
            if thorough and not self._failure:
                last_thorough = trio.current_time()
                self.queues_flushed_where = dispatched
                if timestamp_ms and clock_steps == self._commit_log.clock_steps:
                    self._checkpoint.logics_msg_timestamp_ms = timestamp_ms
            await self._flush_others(least_pages)
            await self._flush_checkpoint()

    async def _flush_others(self, least_pages: int) -> None:
        for dirty_files in self._other_files:
            for file, synced in dirty_files(least_pages):
                if await self._sync_files(file):
                    synced()

    async def _flush_checkpoint(self) -> None:
        if self._failure:
            return
        try:
            await self._checkpoint.flush()
        except OSError as error:
            self._fail(f"checkpoint: sync failed: {error}")

    async def _sync(self, *files: MappedFile) -> None:
        """Sync these, whose turn has come; those that are about to be deleted count as synced."""
        held: list[tuple[MappedFile, int]] = []
        for file in files:
            if file.hold():
                held.append((file, file.read_position))
            else:  # DefaultMappedFile.flush
                file.flushed_position = file.read_position
        try:
            synced = await self._sync_files(*(file.file for file, _ in held))
        except DiskFailedError as error:  # a file of a queue that is closed, and gone
            self._fail(str(error))
            return
        finally:
            for file, _ in held:
                file.release()
        if synced:
            for file, end in held:
                # Bytes that recovery has cut meanwhile cannot be flushed; added ones were not.
                file.flushed_position = max(file.flushed_position, min(end, file.read_position))

    async def _sync_files(self, *files: DiskFile) -> bool:
        """Sync files unless a sync has failed before; return whether they are on disk."""
        if self._failure or not files:
            return not self._failure
        began = trio.current_time()
        try:
            if len(files) == 1:
                await self._disk.sync(files[0])
            else:
                await self._disk.sync_together(files)
        except OSError as error:
            self._fail(f"{error.filename or files[0].path}: sync failed: {error}")
            return False
        self.sync_seconds.count(trio.current_time() - began)
        return True

    def _fail(self, reason: str) -> None:
        if self._failure:
            return
        self._failure = f"{reason}; what is durable is unknown: restart this node on a sound disk"
        _log.error("the store takes no more writes: %s", self._failure)
        self._on_failure(self._failure)
        for done in self._waiting.take_all():
            done(PutMessageStatus.FLUSH_DISK_TIMEOUT, self._failure)
        self._after_release()
        self.flushed.notify()


def _few_at_once(files: Sequence[MappedFile]) -> Iterator[Sequence[MappedFile]]:
    for start in range(0, len(files), SYNCED_TOGETHER_MAX):
        yield files[start : start + SYNCED_TOGETHER_MAX]


def dirty_index_files(index: IndexService) -> DirtyFiles:
    """Return index files for `FlushService`; after their syncs they move the checkpoint."""

    def synced(file: IndexFile) -> None:
        file.flushed_position = file.wrote_position
        index.synced()

    # The files are full: nothing is written to them while they are synced.
    return lambda _: [(file.file, partial(synced, file)) for file in index.files_to_sync()]
