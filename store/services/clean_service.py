"""CleanService: deletes what is past its time, and watches how full the disks are.

    after 60 s, then every clean_resource_interval_ms
        CleanCommitLogService       flags about the disks; oldest files of the commit log
        CleanConsumeQueueService    queue and index files whose messages are gone
    after 1 min, then every 10 min
        check_self                  whether the rows of files have no holes

`clean_policy` decides what is to be done; here it is carried out. Only whole files go, the
oldest first and never the last one, the one being written. The commit log is always first. If the
process dies in between, files of queues and index remain that only name messages that are gone;
they go in the first run after the next start.

A file that somebody still holds is left for later, and closed by force when that takes too long.
Slaves that are behind hold no file: as in RocketMQ, they go on with what is left. `keep_from` is
where another rule goes.

A deletion that the disk refuses is logged once, and tried again in each run.

Source: DefaultMessageStore.CleanCommitLogService, ConsumeQueueStore.CleanConsumeQueueService and
DefaultMessageStore.addScheduleTask of 5.3.3.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import trio

from store.config import StoreConfig
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.machine.disk import Disk
from store.machine.errors import DiskFailedError
from store.machine.tell_once import TellOnce
from store.queue.consume_queue_store import QUEUES_AT_ONCE, ConsumeQueueStore
from store.running_flags import RunningFlags
from store.services.clean_policy import (
    HOUR_MS,
    CleanDecision,
    CleanPolicy,
    DirectoryUsage,
    Watermarks,
    used_percent,
    utc_hour,
)

_log = logging.getLogger(__name__)

FIRST_RUN_SECONDS: Final = 60.0
CHECK_SELF_INTERVAL_SECONDS: Final = 600.0


def _no_limit() -> None:
    """Let everything be deleted."""


def local_hour(now_ms: int) -> int:
    """Return the hour of the day in this machine's time zone."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().hour


class Index(Protocol):
    """What cleaning asks of the `IndexService`."""

    def delete_expired_files(self, min_physical_offset: int) -> int:
        """Delete the oldest files all of whose messages are below; return how many went."""


class CleanCommitLogService:
    """Deletes old files of the commit log, and sets the flags about full disks.

    Args:
        files: the commit log's.
        local_hour: the hour of the day, 0 to 23, at the node's place, for a time in ms since 1970.
        keep_from: offset below which files may be deleted; None: all may. Asked for each file.
        full_directories: kept up to date with the directories in which no new file should be made
            while there is another place.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        running_flags: RunningFlags,
        disk: Disk,
        config: StoreConfig,
        *,
        wall_clock_ms: Callable[[], int],
        local_hour: Callable[[int], int] = utc_hour,
        keep_from: Callable[[], int | None] = _no_limit,
        full_directories: set[str] | None = None,
    ) -> None:
        self.full_directories = set() if full_directories is None else full_directories
        self._files = files
        self._flags = running_flags
        self._disk = disk
        self._config = config
        self._now_ms = wall_clock_ms
        self._keep_from = keep_from
        self.file_reserved_time_hours = config.file_reserved_time_hours
        """How long a file is kept; an operator may change it until the store is closed."""
        self._policy = CleanPolicy(
            delete_when=config.delete_when,
            watermarks=Watermarks.of(config),
            clean_file_forcibly_enable=config.clean_file_forcibly_enable,
            local_hour=local_hour,
        )
        self._retried_seconds = -math.inf
        self._told: TellOnce[str] = TellOnce()

    def delete_manually(self) -> None:
        """Delete expired files in each of the next 20 runs, whatever the hour.

        Source: DefaultMessageStore.executeDeleteFilesManually.
        """
        self._policy.delete_manually()

    async def run(self) -> None:
        """Clean until cancelled."""
        await trio.sleep(FIRST_RUN_SECONDS)
        while True:
            try:
                await self.clean()
            except OSError as error:
                self._tell(f"a file cannot be deleted: {error}; check who may write there")
            await trio.sleep(self._config.clean_resource_interval_ms / 1000)

    async def clean(self) -> None:
        """Run once. Each file is deleted whole or not at all, also if this is cancelled.

        Raises:
            OSError: the disk refuses a deletion, or does not say how full it is.
        """
        self._retry_hanged_file()
        decision = self._policy.decide(
            self._now_ms(),
            [self._usage(directory) for directory in self._config.commit_log_directories],
            self._usage(f"{self._config.directory}/consumequeue"),
        )
        self.full_directories.clear()
        self.full_directories.update(decision.full_directories)
        self._raise_flags(decision)
        if decision.reason:
            await self._delete_expired_files(decision)
        if not decision.space_is_short:
            self._told.over()

    def _usage(self, directory: str) -> DirectoryUsage:
        space = self._disk.space(directory)
        return DirectoryUsage(directory, used_percent(space.used_bytes, space.usable_bytes))

    def _raise_flags(self, decision: CleanDecision) -> None:
        for flag, reason in decision.refusals.items():
            if (reason is not None) == self._flags.is_set(flag):
                continue
            if reason is not None:
                self._flags.set(flag, reason)
                _log.error("messages are refused: %s", reason)
            else:
                self._flags.clear(flag)
                _log.info("there is room on the disk again (%s cleared)", flag.name)

    async def _delete_expired_files(self, decision: CleanDecision) -> None:
        count = 0
        while count < self._config.delete_file_batch_max and self._delete_one(decision):
            count += 1
            await trio.sleep(self._config.delete_commit_log_files_interval_ms / 1000)
        if not count and decision.space_is_short and self._files.files:
            self._tell(
                f"{decision.reason}, and no file of the commit log can be deleted:"
                " free space there, or shorten file_reserved_time_hours"
            )

    def _delete_one(self, decision: CleanDecision) -> bool:
        if len(self._files.files) < 2 or not self._may_go(self._files.files[0]):
            return False
        now_ms = self._now_ms()
        age_ms = now_ms - self._disk.modified_ms(self._files.files[0].file.path)
        deleted = self._files.delete_expired_file_by_time(
            now_ms=now_ms,
            expired_time_ms=self.file_reserved_time_hours * HOUR_MS,
            interval_forcibly_ms=self._config.destroy_mapped_file_interval_forcibly_ms,
            delete_file_batch_max=1,
            clean_immediately=decision.immediately,
        )
        for file in deleted:
            _log.info(
                "%s is deleted, last written to %.1f h ago: %s%s",
                file.file.path,
                age_ms / HOUR_MS,
                decision.reason,
                " (whatever its age)" if decision.immediately else "",
            )
        return bool(deleted)

    def give_up_before(self, end: int) -> bool:
        """Delete the files before `end`, whatever their age; return whether none is left.

        The last one stays, and so does any that is still needed. One that somebody holds is left:
        call again.

        Raises:
            OSError: the disk refuses a deletion.
        """
        while len(self._files.files) > 1:
            first = self._files.files[0]
            if first.file_from_offset >= end:
                return True
            deleted = self._may_go(first) and self._files.delete_expired_file_by_time(
                now_ms=self._now_ms(),
                expired_time_ms=0,
                interval_forcibly_ms=self._config.destroy_mapped_file_interval_forcibly_ms,
                delete_file_batch_max=1,
                clean_immediately=True,
            )
            if not deleted:
                break
        return False

    def _may_go(self, file: MappedFile) -> bool:
        keep_from = self._keep_from()
        return keep_from is None or file.file_from_offset + file.size <= keep_from

    def _retry_hanged_file(self) -> None:
        """See again to a file that was to be deleted while somebody held it.

        Source: CleanCommitLogService.reDeleteHangedFile.
        """
        interval_seconds = self._config.redelete_hanged_file_interval_ms / 1000
        if trio.current_time() - self._retried_seconds <= interval_seconds:
            return
        self._retried_seconds = trio.current_time()
        deleted = self._files.retry_delete_first_file(
            self._now_ms(), self._config.destroy_mapped_file_interval_forcibly_ms
        )
        if deleted is not None:
            _log.warning("%s is deleted after a long time in use", deleted.file.path)

    def _tell(self, text: str) -> None:
        """Log what an operator has to know, but not in each run."""
        if self._told.is_news(text):
            _log.warning("%s", text)


class CleanConsumeQueueService:
    """Deletes files of the queues and of the index whose messages have left the commit log.

    Args:
        files: the commit log's.
        index: None if messages are not indexed.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        queues: ConsumeQueueStore,
        index: Index | None,
        config: StoreConfig,
        *,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._queues = queues
        self._index = index
        self._config = config
        self._now_ms = wall_clock_ms
        self._last_physical_min_offset = 0
        self._told: TellOnce[str] = TellOnce()

    async def run(self) -> None:
        """Clean until cancelled."""
        await trio.sleep(FIRST_RUN_SECONDS)
        while True:
            try:
                await self.clean()
            except OSError as error:
                if self._told.is_news(str(error)):
                    _log.warning("a file cannot be deleted: %s; check who may write there", error)
            await trio.sleep(self._config.clean_resource_interval_ms / 1000)

    async def clean(self) -> None:
        """Run once, if the log has lost files since the last run that came to its end.

        Raises:
            OSError: the disk refuses a deletion. The next run does it all again.
        """
        min_offset = self._files.min_offset
        if min_offset <= self._last_physical_min_offset:
            return
        failures: list[DiskFailedError] = []
        for number, (topic, queue_id) in enumerate(self._queues.queues()):
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            try:
                count = self._clean_queue(topic, queue_id, min_offset)
            except DiskFailedError as error:
                failures.append(error)
                continue
            if count:
                await trio.sleep(self._config.delete_consume_queue_files_interval_ms / 1000)
        count = self._index.delete_expired_files(min_offset) if self._index is not None else 0
        if count:
            _log.info(
                "%d files of the index are deleted: the log begins at %d now", count, min_offset
            )
        if not failures:
            self._last_physical_min_offset = min_offset
        elif self._told.is_news(str(failures[0])):
            _log.error("%d queues are not cleaned: %s", len(failures), failures[0])

    def _clean_queue(self, topic: str, queue_id: int, min_offset: int) -> int:
        # It may have been deleted while this task was waiting.
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        count = queue.delete_expired_files(min_offset, now_ms=self._now_ms())
        self._queues.correct_min_offset_of(topic, queue_id, min_offset)
        if count:
            _log.info(
                "%d files of queue %d of %s are deleted: the log begins at %d now",
                count,
                queue_id,
                topic,
                min_offset,
            )
        return count


class CleanService:
    """Both of them, and the look at the rows of files. `MessageStore` runs it."""

    def __init__(
        self,
        commit_log: CleanCommitLogService,
        consume_queue: CleanConsumeQueueService,
        check_self: Callable[[], list[str]],
    ) -> None:
        self.commit_log = commit_log
        self.consume_queue = consume_queue
        self._check_self = check_self

    async def run(self) -> None:
        """Clean until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.commit_log.run)
            nursery.start_soon(self.consume_queue.run)
            nursery.start_soon(self._check_regularly)

    async def _check_regularly(self) -> None:
        await trio.sleep(FIRST_RUN_SECONDS)
        while True:
            for problem in self._check_self():
                _log.error(
                    "%s; stop this node and look at its disk, or restore it from another node",
                    problem,
                )
            await trio.sleep(CHECK_SELF_INTERVAL_SECONDS)


def clean_service(
    files: MappedFileQueue,
    queues: ConsumeQueueStore,
    index: Index | None,
    flags: RunningFlags,
    disk: Disk,
    config: StoreConfig,
    *,
    wall_clock_ms: Callable[[], int],
    keep_from: Callable[[], int | None],
    full_directories: set[str],
    check_self: Callable[[], list[str]],
) -> CleanService:
    """Return the cleaning of a store, at this machine's hours. `files` are those of its log."""
    return CleanService(
        CleanCommitLogService(
            files,
            flags,
            disk,
            config,
            wall_clock_ms=wall_clock_ms,
            local_hour=local_hour,
            keep_from=keep_from,
            full_directories=full_directories,
        ),
        CleanConsumeQueueService(files, queues, index, config, wall_clock_ms=wall_clock_ms),
        check_self,
    )
