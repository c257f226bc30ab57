"""Closing: all that a store has written is brought to the disk, and the stop is marked as clean.

    log                                       all of it
    queues and index are made to follow it    behind? the stop is not clean
    queues                                    many files at once; how far that is, is logged
    notes of queues, index, compaction
    checkpoint
    `abort` is removed                        last: until then a start is one after a kill

Nothing may be left out: a start after a clean stop believes what it finds, and so does RocketMQ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from store.compaction.compaction_store import CompactionStore
from store.machine.errors import CorruptLogError, DiskFailedError, StoreFullError
from store.recovery.opening import StoreParts
from store.running_flags import RunningFlags
from store.services.reput_message_service import ReputMessageService

_log = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS: Final = 5000


class SyncProgress:
    """Logs now and then how far the syncs of queues have got. Short ones it passes over."""

    def __init__(self, wall_clock_ms: Callable[[], int]) -> None:
        self._now_ms = wall_clock_ms
        self._told_ms = wall_clock_ms()

    def __call__(self, done: int, count: int) -> None:
        """Take note that so many queues of those that had changed are on the disk."""
        now_ms = self._now_ms()
        if 0 <= now_ms - self._told_ms < PROGRESS_INTERVAL_MS:
            return
        self._told_ms = now_ms
        _log.info("before the stop: %d of %d queues that had changed are on the disk", done, count)


def sync_everything(
    parts: StoreParts,
    flags: RunningFlags,
    reput_service: ReputMessageService,
    compaction: CompactionStore,
) -> None:
    """Block until all of a store is on the disk, and mark the stop as clean.

    Where queues are behind the log it does not count as clean.

    Raises:
        OSError: the disk failed; the stop is not clean.
    """
    log = parts.commit_log
    log.files.sync_all()
    parts.log_start.follow(log.files)
    try:
        reput_service.dispatch_all()
        reput_service.index_the_rest()
    except (StoreFullError, DiskFailedError, CorruptLogError) as error:
        _log.error("queues or index are behind the log at the stop: %s", error)
    if not flags.may_dispatch or reput_service.is_behind:
        return  # the checkpoint must not speak for queues that lack units
    parts.queues.sync_all(SyncProgress(parts.wall_clock_ms))
    parts.queue_note.save_at_stop(parts.queues, log.files)
    if parts.index_service is not None:
        parts.index_service.sync_all()
    compaction.close()
    if log.last_store_timestamp_ms:
        parts.checkpoint.physic_msg_timestamp_ms = log.last_store_timestamp_ms
        parts.checkpoint.logics_msg_timestamp_ms = log.last_store_timestamp_ms
    parts.checkpoint.confirm_physical_offset = log.max_offset
    parts.checkpoint.flush_blocking()
    parts.disk.remove(f"{parts.config.directory}/abort")
