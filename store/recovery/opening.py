"""Opening: the parts of a store are loaded, recovered, and handed over whole.

    lock                                          another process has it? refused
    a cut that was ordered or begun is finished   see `truncation.py`
    log, checkpoint, queues, index are loaded     a wrong file? refused, nothing was changed
    log and queues are made to agree              see `store_recovery.py`
    the index follows, or starts anew
    `abort` is written                            a stop without `close` is a hard one from here on

Opening is recovering: after a clean stop it only starts further down the log.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import ExitStack
from typing import Final, NamedTuple

from store.compaction.compaction_logs import CompactionLogs
from store.config import StoreConfig
from store.files.store_checkpoint import StoreCheckpoint
from store.files.transient_store_pool import TransientStorePool
from store.index.index_service import IndexService
from store.log.commit_log import CommitLog
from store.log.damage import EVERYTHING, LogDamage
from store.log.fingerprints import Fingerprints
from store.log.log_start import UNKNOWN, LogStart, locked
from store.machine.disk import Disk
from store.machine.errors import DiskFailedError
from store.machine.kept_files import keep
from store.queue.consume_queue_store import ConsumeQueueStore, nothing_hidden
from store.queue.queue_note import QueueNote
from store.queue.record_check import RecordCheck
from store.recovery.missing_files import make_stand_ins, missing_files, tell_missing
from store.recovery.store_recovery import StoreRecovery
from store.recovery.truncation import finish_set_aside, pending_truncation
from tandem.cluster_file.choices import FlushDiskType
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import Host

_NOBODY: Final = Host("127.0.0.1", 0)
"""The host that would be in new records; none are written."""


class StoreParts(NamedTuple):
    """What an open store is made of, and what is below it. All of it agrees."""

    config: StoreConfig
    disk: Disk
    wall_clock_ms: Callable[[], int]
    store_host: Host
    commit_log: CommitLog
    log_start: LogStart
    fingerprints: Fingerprints
    queues: ConsumeQueueStore
    queue_note: QueueNote
    checkpoint: StoreCheckpoint
    index_service: IndexService | None
    """None where it is switched off."""
    compaction: CompactionLogs
    delay_levels: DelayLevels
    record_check: RecordCheck
    damaged_end: str | None
    """Why recovery may have cut off more than a put under way; see `StoreRecovery`."""
    full_directories: set[str]
    """Directories that get no new file of the log while there is another place; to be kept up."""
    unmap: Callable[[], None]
    """Close all files without syncing, and release the lock. Harmless when repeated."""

    @property
    def has_pool(self) -> bool:
        """Whether puts go to a transient store pool first, where they cannot be read yet."""
        return self.commit_log.files.pool is not None


def open_parts(
    config: StoreConfig,
    *,
    disk: Disk,
    wall_clock_ms: Callable[[], int],
    store_host: Host,
    is_slave: bool,
    is_batch_topic: Callable[[str], bool],
    compacted: Container[str],
    hidden_before: Callable[[str], int],
    has_replicas: bool,
) -> StoreParts:
    """Lock, load and recover the store in `config.directory`; an empty directory is fine.

    If it `has_replicas`, as in a fenced group, files that are missing are healed from them later.

    Raises:
        StoreError: see `MessageStore.open`. Nothing is left open.
    """
    try:
        with ExitStack() as opened:
            release, log_start = locked(disk, config.directory)
            opened.callback(release)
            opening = _Opening(config, disk, wall_clock_ms, store_host, log_start, opened)
            queues = consume_queues(config, disk, is_batch_topic, hidden_before)
            return opening.run(queues, compacted, is_slave=is_slave, has_replicas=has_replicas)
    except OSError as error:
        raise disk_failed(config.directory, error) from error


def consume_queues(
    config: StoreConfig,
    disk: Disk,
    is_batch_topic: Callable[[str], bool],
    hidden_before: Callable[[str], int] = nothing_hidden,
) -> ConsumeQueueStore:
    """Return the queues of a store, which are still to be loaded."""
    root = config.directory
    return ConsumeQueueStore(
        f"{root}/consumequeue",
        config.mapped_file_size_consume_queue_bytes,
        disk,
        batch_directory=f"{root}/batchconsumequeue",
        batch_mapped_file_size=config.mapper_file_size_batch_consume_queue_bytes,
        ext_directory=f"{root}/consumequeue_ext" if config.enable_consume_queue_ext else "",
        ext_mapped_file_size=config.mapped_file_size_consume_queue_ext_bytes,
        is_batch_topic=is_batch_topic,
        hidden_before=hidden_before,
        open_files_max=min(config.open_queue_files_max, disk.open_files_max),
    )


def load_log(config: StoreConfig, disk: Disk, wall_clock_ms: Callable[[], int]) -> CommitLog:
    """Return the log of a store that is not to be opened, every file taken as full.

    Raises:
        CorruptLogError: a file has a wrong name or length, or one is missing in between.
    """
    log = CommitLog(
        config.commit_log_directories,
        config.mapped_file_size_commit_log_bytes,
        disk,
        _NOBODY,
        read_only_directories=config.read_only_commit_log_store_paths,
        damage=LogDamage(disk, config.directory, wall_clock_ms),
    )
    log.files.load()
    return log


def disk_failed(directory: str, error: OSError) -> DiskFailedError:
    """Return what an error of the system means for the store in `directory`."""
    return DiskFailedError(
        f"{error.filename or directory}: {error.strerror or error};"
        " check the disk and who may write to it, then start again",
        path=error.filename or directory,
    )


def _lost_end(log: CommitLog) -> str | None:
    """Return why the log may have been longer, None if nothing says so.

    A file that was lost is noted as bad, and only what was surely in it is healed before a start.
    """
    lost = log.damage.within(log.max_offset, EVERYTHING)
    if lost is None or lost.end == EVERYTHING:
        return None
    return f"the log was longer than {log.max_offset}: {lost.reason}"


class _Opening:
    """One opening. `opened` closes what is open, the last first, until the parts are whole."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        store_host: Host,
        log_start: LogStart,
        opened: ExitStack,
    ) -> None:
        self._config = config
        self._disk = disk
        self._now_ms = wall_clock_ms
        self._store_host = store_host
        self._log_start = log_start
        self._fingerprints = Fingerprints(disk, config.directory, era=log_start.era)
        self._opened = opened
        self._levels = DelayLevels(config.message_delay_level)
        self._full_directories: set[str] = set()

    def run(
        self,
        queues: ConsumeQueueStore,
        compacted: Container[str],
        *,
        is_slave: bool,
        has_replicas: bool,
    ) -> StoreParts:
        config, disk, opened = self._config, self._disk, self._opened
        abort = f"{config.directory}/abort"
        log = self._commit_log(self._pool(is_slave=is_slave))
        opened.callback(log.files.close)
        opened.callback(queues.close)
        if finish_set_aside(disk, config.directory):
            self._log_start.move_to(UNKNOWN)
            self._fingerprints = Fingerprints(disk, config.directory, era=self._log_start.era)
        short_end = self._see_to_missing_files(log, has_replicas=has_replicas)
        log.files.load()
        checkpoint = StoreCheckpoint(f"{config.directory}/checkpoint", disk)
        opened.callback(checkpoint.close)
        truncation = pending_truncation(disk, config.directory, log.files)
        if truncation is not None:
            truncation.cut_log(checkpoint)
            # Now, not after recovery: that may find damage, and what others give would not fit.
            self._fingerprints.keep_within(0, truncation.cut, log.files.mapped_file_size)
        clean = not disk.exists(abort)
        log_end = checkpoint.confirm_physical_offset if clean and truncation is None else -1
        note = self._load(queues, log, log_end)
        index = self._index(checkpoint, clean=clean)
        recovery = self._recovery(log, queues, checkpoint)
        recovery.run(clean=clean)
        note.save(queues)
        if truncation is None:
            short_end = _lost_end(log) or short_end
        log.damage.keep_within(log.min_offset, log.max_offset)
        self._log_start.move_to(log.min_offset if log.files.files else UNKNOWN)
        self._fingerprints.keep_within(log.min_offset, log.max_offset, log.files.mapped_file_size)
        index = self._recovered(index, log)
        compaction = self._compaction(queues, compacted, clean=clean)
        if truncation is not None:
            truncation.finish()
        disk.replace(abort, b"")
        keep(disk, abort, b"")
        return StoreParts(
            *(config, disk, self._now_ms, self._store_host),
            log,
            self._log_start,
            self._fingerprints,
            queues,
            note,
            checkpoint,
            index,
            compaction,
            self._levels,
            self._record_check(log, queues),
            recovery.damaged_end or short_end,
            self._full_directories,
            opened.pop_all().close,
        )

    def _record_check(self, log: CommitLog, queues: ConsumeQueueStore) -> RecordCheck:
        return RecordCheck(
            log,
            queues,
            skips=self._config.skip_damaged_records,
            fingerprints=self._fingerprints,
        )

    def _compaction(
        self, queues: ConsumeQueueStore, compacted: Container[str], *, clean: bool
    ) -> CompactionLogs:
        """Load the compaction logs: queues, which they follow, are recovered."""
        logs = CompactionLogs(self._config, self._disk, queues, compacted, clean=clean)
        self._opened.callback(logs.close)
        logs.load()
        return logs

    def _load(self, queues: ConsumeQueueStore, log: CommitLog, log_end: int) -> QueueNote:
        """Load the queues, and miss those that are gone; return the note of them.

        `log_end` is -1 after a stop that was not clean: then their files are read.
        """
        queues.load()
        note = QueueNote(self._disk, self._config.directory, self._log_start)
        if self._log_start.start != UNKNOWN:
            queues.broken = queues.broken or note.missing(queues)
        note.ends.take(queues, log.files, log_end if queues.broken is None else -1)
        return note

    def _recovery(
        self, log: CommitLog, queues: ConsumeQueueStore, checkpoint: StoreCheckpoint
    ) -> StoreRecovery:
        return StoreRecovery(
            self._config.directory,
            log,
            queues,
            checkpoint,
            self._disk,
            levels=self._levels,
            check_crc=self._config.check_crc_on_recover,
            force_verify_prop_crc=self._config.force_verify_prop_crc,
            wall_clock_ms=self._now_ms,
            fingerprints=self._fingerprints,
        )

    def _see_to_missing_files(self, log: CommitLog, *, has_replicas: bool) -> str | None:
        """Put stand-ins in the place of files that are missing; return what is short."""
        missing = missing_files(self._config, self._disk, self._log_start.start, begun=has_replicas)
        if not has_replicas:
            tell_missing(missing, self._config)
            return None
        make_stand_ins(missing, log.files.mapped_file_size, self._disk, log.damage)
        short = [file for file in missing if file.there_bytes]
        return f"{short[-1].path} had {short[-1].there_bytes} bytes only" if short else None

    def _commit_log(self, pool: TransientStorePool | None) -> CommitLog:
        config = self._config
        return CommitLog(
            config.commit_log_directories,
            config.mapped_file_size_commit_log_bytes,
            self._disk,
            self._store_host,
            read_only_directories=config.read_only_commit_log_store_paths,
            is_directory_full=self._full_directories.__contains__,
            pool=pool,
            warm=config.warm_mapped_file_enable,
            max_message_size_bytes=config.max_message_size_bytes,
            append_prop_crc=config.enabled_append_prop_crc,
            damage=LogDamage(self._disk, config.directory, self._now_ms),
            before_delete=self._before_delete,
            on_first_file=self._log_start.begins_at,
        )

    def _before_delete(self, start: int) -> None:
        """Take note that retention is about to let the log begin at `start`."""
        self._log_start.move_to(start)
        self._fingerprints.drop_before(start)

    def _pool(self, *, is_slave: bool) -> TransientStorePool | None:
        """Return the pool, None if there is none: a slave has no puts, a sync flush no use for it.

        Source: DefaultMessageStore.isTransientStorePoolEnable.
        """
        config = self._config
        sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        if not config.transient_store_pool_enable or is_slave or sync_flush:
            return None
        pool = TransientStorePool(
            config.transient_store_pool_size,
            config.mapped_file_size_commit_log_bytes,
            self._disk,
            fast_fail=config.fast_fail_if_no_buffer_in_store_pool,
        )
        self._opened.callback(pool.close)
        return pool

    def _index(self, checkpoint: StoreCheckpoint, *, clean: bool) -> IndexService | None:
        """Load the index; after a hard stop even one that is switched off.

        It may be switched on again, and would then be trusted.
        """
        config = self._config
        if clean and not config.message_index_enable:
            return None
        index = IndexService(
            f"{config.directory}/index",
            config.max_hash_slot_num,
            config.max_index_num,
            disk=self._disk,
            wall_clock_ms=self._now_ms,
            checkpoint=checkpoint,
            max_msgs_num_batch=config.max_msgs_num_batch,
        )
        self._opened.callback(index.close)
        index.load(clean=clean)
        return index

    def _recovered(self, index: IndexService | None, log: CommitLog) -> IndexService | None:
        """Let the index go on where the recovered log allows; return it if it is switched on."""
        if index is None:
            return None
        index.recover(log.min_offset, log.max_offset, log.record_at)
        if self._config.message_index_enable:
            return index
        index.close()
        return None
