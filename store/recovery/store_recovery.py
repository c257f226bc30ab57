"""StoreRecovery: makes queues and commit log agree again, when a store is opened.

    queues: find their ends      1
    log: walk to its end         2   records enter the queues that do not have them yet
    log: what is past the end    3   nothing | torn: set aside | corrupt: stop, nothing changed
    queues: cut                  4
    log: cut                     5
    sync, checkpoint             6

Every step can be interrupted: the next start does the same again. Queues are cut before the log, so
that after an interruption every unit has its record. There is no other way to open a store: after
a clean stop step 2 only starts further down the log.

Bytes alone decide what counts as a record, as torn and as corrupt: see `store/log/log_end.py`.

Source: DefaultMessageStore.recover, CommitLog.recoverNormally and recoverAbnormally of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NoReturn

from store.files.mapped_file import MappedFile
from store.files.store_checkpoint import StoreCheckpoint
from store.files.sync_at_once import sync_each, sync_tree_or_each
from store.log.commit_log import CommitLog
from store.log.fingerprints import Fingerprints
from store.log.log_end import (
    BLANK_HEADER,
    DELAY_LEVELS,
    DispatchRecords,
    DispatchRequest,
    LogEnd,
    find_log_end,
    record_behind,
    start_index,
)
from store.machine.disk import Disk
from store.machine.errors import CorruptLogError, LogFault
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore
from store.queue.queue_units import QueueGapError
from store.queue.rebuild_order import RebuildOrder
from store.recovery.queue_fronts import lost_front
from store.recovery.walked_blocks import WalkedBlocks
from store.services.dispatch import ConsumeQueueDispatcher
from tandem.wire.delay_level import DelayLevels
from tandem.wire.fingerprint import DIRECTORY as FINGERPRINTS
from tandem.wire.log_end import was_on_disk
from tandem.wire.message import BLANK_MAGIC_CODE
from tandem.wire.record_scan import RecordColumns
from tandem.wire.store_layout import FILLER_SIZE
from tandem.wire.system_topics import LMQ_PREFIX

_log = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS: Final = 5000
UNITS_TRIED_MAX: Final = 1000
"""How far back a damaged queue is searched for a unit that is right, before all of the log is."""

LENGTH_BYTES: Final = 4
"""At the start of each record."""

WRITTEN_BYTES: Final = 1 << 20

PROGRESS_STEP_BYTES: Final = 64 << 20
"""How much is walked between two looks at the clock."""


class StoreRecovery:
    """One recovery of the store in `directory`, whose files are loaded.

    `check_crc` and `force_verify_prop_crc` are the settings `check_crc_on_recover` and
    `force_verify_prop_crc`; `wall_clock_ms` times what is logged about a long walk.
    """

    def __init__(
        self,
        directory: str,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        checkpoint: StoreCheckpoint,
        disk: Disk,
        *,
        levels: DelayLevels = DELAY_LEVELS,
        check_crc: bool = True,
        force_verify_prop_crc: bool = False,
        wall_clock_ms: Callable[[], int] | None = None,
        fingerprints: Fingerprints | None = None,
    ) -> None:
        self._directory = directory
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._disk = disk
        self._dispatcher = ConsumeQueueDispatcher(queues, levels)
        self._order = RebuildOrder(disk, directory)
        self._fingerprints = fingerprints
        self._blocks = self._new_look()
        self._check_crc = check_crc
        self._force_verify_prop_crc = force_verify_prop_crc
        self._wall_clock_ms = wall_clock_ms
        self.damaged_end: str | None = None
        """Why what was cut off may have been a whole record once, in words; empty if it was not.

        A put writes the length of its record last, so a kill in its middle leaves zeros there.
        """

    def run(self, *, clean: bool) -> None:
        """Find the end of the log, cut what follows it, and make queues and log agree.

        Queues are cut before the log, so that an interruption leaves no unit without its record.

        Source: DefaultMessageStore.recover, CommitLog.recoverNormally, recoverAbnormally.
        """
        files = self._log.files.files
        queues_end = self._queues.recover()
        if not files:
            self._expect_on_disk(0, "there are no files", f"{self._directory}/commitlog")
            self._queues.destroy()
            self._confirm_no_more_than(0)
            return
        index = self._start_file(queues_end, clean=clean)
        self._queues.recover_noted(files[index].file_from_offset)
        files_end = files[-1].file_from_offset + files[-1].size
        self._expect_on_disk(files_end, "there are no more files", files[-1].file.path)
        # Units past that would stand in for records that have lost theirs.
        self._queues.truncate_dirty(files_end)
        doubts = self._start_before_doubts(index)
        if doubts < index or (clean and doubts < len(files) - 1):
            self._vouch_for_nothing()
        index = doubts
        end = self._walk(index)
        self._cut(end)
        if not clean:
            self._write_again(files[index:])
        for file in files[index:]:
            file.file.sync()
        self._queues.correct_min_offset(self._log.min_offset)
        self._sync_queues(clean=clean)
        self._order.carried_out()
        self._finish_recovery(end, clean=clean, start=files[0].file_from_offset if files else 0)

    def _start_file(self, queues_end: int, *, clean: bool) -> int:
        return start_index(
            self._log.files.files,
            clean=clean,
            queues_end=queues_end,
            safe_timestamp_ms=self._checkpoint.min_timestamp_ms,
            synced_end=self._checkpoint.confirm_physical_offset,
        )

    def _write_again(self, files: Sequence[MappedFile]) -> None:
        """Write what no sync has vouched for once more, so that the next sync means all of it.

        After a failed sync Linux takes the pages for written: they are in the page cache, where a
        process that is started again finds them, and no later sync brings them to the disk.
        """
        synced_end, log_end = self._checkpoint.confirm_physical_offset, self._log.max_offset
        if not synced_end and self._checkpoint.physic_msg_timestamp_ms:
            return  # RocketMQ's, which does not say up to where, and has no such promise to keep
        for file in files:
            start = max(0, synced_end - file.file_from_offset)
            end = min(file.size, log_end - file.file_from_offset)
            for position in range(start, end, WRITTEN_BYTES):
                piece = bytes(file.buffer[position : min(end, position + WRITTEN_BYTES)])
                file.file.write(position, memoryview(piece))

    def _start_before_doubts(self, index: int) -> int:
        """Return the file to start the walk at, so that it meets what queues may have lost."""
        files = self._log.files.files
        start = before = files[index].file_from_offset
        for key in self._queues.queues():
            queue = self._queues.find(*key)
            if queue is None or queue.is_noted:
                continue
            if not queue.topic.startswith(LMQ_PREFIX):
                before = min(before, self._known_until(queue, start))
        while index and files[index].file_from_offset > before:
            index -= 1
        return index

    def _known_until(self, queue: AnyConsumeQueue, start: int) -> int:
        """Return where the last record below `start` is that is surely the queue's.

        That is `start` itself if nothing seems to be missing between the two.
        """
        units = queue.units_below(start)
        last = next(units, None)
        if last is None:
            return 0 if queue.ends_in_doubt and not queue.next_offset else start
        is_known = self._unit_fault(queue, *last) is None
        # Where no record is at all, the log may be to blame, or has been deleted.
        if not queue.ends_in_doubt and (is_known or self._log.record_fault(*last[:2], None)):
            return start
        known = (u[0] for u in islice(units, UNITS_TRIED_MAX) if not self._unit_fault(queue, *u))
        return last[0] if is_known else next(known, 0)

    def _unit_fault(
        self, queue: AnyConsumeQueue, offset: int, size: int, number: int
    ) -> str | None:
        return self._log.record_fault(offset, size, (queue.topic, queue.queue_id, number))

    def _walk(self, index: int) -> LogEnd:
        files = self._log.files.files
        try:
            self._expect_whole_queues()
            # A queue that starts late has lost its files, unless the log itself starts there.
            enter = partial(self._enter, may_start_late=index == 0)
            end = self._find_log_end(files[index:], enter)
            self._queues.confirm(files[index].file_from_offset, end.offset)
        except QueueGapError as error:
            _log.warning("%s; building all consume queues anew from the commit log", error)
        else:
            self._log.checked_from = files[index].file_from_offset
            return end
        self._expect_known_blocks(files)
        self._vouch_for_nothing()
        numbers = self._queues.numbers_left(self._log.min_offset)
        self._queues.destroy()
        try:
            end = self._find_log_end(files, self._dispatcher.dispatch_columns)
            self._queues.go_on_at(numbers)
            self._queues.broken = None
            return end  # noqa: TRY300 - nothing else can raise
        except QueueGapError as error:
            # A number has changed in one of the records that are sound otherwise; which is unknown.
            promised = self._checkpoint.confirm_physical_offset
            raise CorruptLogError(
                f"{self._directory}: the commit log itself has a gap: {error};"
                " restore it from another node",
                path=self._directory,
                fault=LogFault.LOG_GAP,
                offset=self._log.min_offset,
                damaged_end=promised,
                synced_end=promised,
            ) from error

    def _expect_whole_queues(self) -> None:
        """Refuse to go on with queues that have lost files, or that are ordered to be built anew.

        Raises:
            QueueGapError: there are such.
        """
        reason = self._order.reason or self._queues.broken or lost_front(self._log, self._queues)
        if reason is not None:
            raise QueueGapError(reason)

    def _new_look(self) -> WalkedBlocks:
        synced_end = self._checkpoint.confirm_physical_offset
        return WalkedBlocks(self._log, self._queues, self._fingerprints, synced_end)

    def _enter(
        self, buffer: bytes | memoryview, columns: RecordColumns, *, may_start_late: bool
    ) -> None:
        stranger = self._blocks.stranger(buffer, columns)
        if stranger >= 0:
            self._raise_damaged(stranger)
        if int(columns.physical_offset[-1] + columns.size[-1]) <= self._queues.noted_to:
            return
        self._dispatcher.dispatch_columns(buffer, columns, may_start_late=may_start_late)

    def _expect_known_blocks(self, files: Sequence[MappedFile]) -> None:
        """Refuse to build queues from a log of which a block is not what it was."""
        self._blocks = self._new_look()
        self._blocks.look(files[0].file_from_offset, files[-1].file_from_offset + files[-1].size)
        if self._blocks.bad:
            self._raise_damaged(self._blocks.bad[0][0])

    def _raise_damaged(self, at: int) -> NoReturn:
        start, end = self._blocks.widened(at, at + 1)
        if (start, end) == (at, at + 1):  # the record ends in a bad block
            start, end = next(block for block in self._blocks.bad if block[0] >= at)
        promised = self._checkpoint.confirm_physical_offset
        raise CorruptLogError(
            f"{self._directory}: the log has changed from {start} to {end} since it was written,"
            " and queues would be built from that. It was left as it is. Restore it from another"
            f" node of the group (tandem log repair {self._directory} --from), or remove"
            f" {self._directory}/{FINGERPRINTS} to take it as it is",
            path=self._directory,
            fault=LogFault.CHANGED,
            offset=start,
            damaged_end=end,
            synced_end=max(end, promised),
        )

    def _vouch_for_nothing(self) -> None:
        """Make sure that the next start, if this one is interrupted, walks the whole log too.

        Queues have lost units that were on disk. The next start would take queues that are half
        built for those that were there before, and look at the end of the log only.
        """
        self._disk.replace(f"{self._directory}/abort", b"")
        self._checkpoint.logics_msg_timestamp_ms = 0
        self._checkpoint.flush_blocking()

    def _find_log_end(self, files: Sequence[MappedFile], enter: DispatchRecords) -> LogEnd:
        progress = _Progress(sum(file.size for file in files), self._wall_clock_ms)
        return find_log_end(
            files,
            enter,
            check_crc=self._check_crc,
            force_verify_prop_crc=self._force_verify_prop_crc,
            progress=progress.walked,
            is_known=self._blocks.are_known,
        )

    def _cut(self, end: LogEnd) -> None:
        """Make `end` the end of queues and log. Torn bytes are set aside, corrupt ones an error."""
        queue = self._log.files
        tail = [f for f in queue.files if f.file_from_offset + f.size > end.offset]
        path = tail[0].file.path if tail else queue.directory
        self._expect_on_disk(end.offset, end.reason, path, tail)
        used = _used_ranges(tail, end.offset)
        if used:
            behind = record_behind(tail, end.offset)
            self._expect_undamaged(behind, end, path)
            self._expect_torn(behind, end, path)
        torn = _torn_bytes(used)
        if torn:
            _log.warning(
                "commit log ends at %d (%s); %d torn bytes after it are cut off and kept in torn/",
                end.offset,
                end.reason,
                len(torn),
            )
            if any(torn[:LENGTH_BYTES]):
                self.damaged_end = f"{end.reason} at {end.offset}, where a record had begun"
            self._set_aside(f"{self._directory}/torn/{end.offset:020d}", torn)
        self._queues.truncate_dirty(end.offset)
        queue.truncate_dirty_files(end.offset)

    def _expect_undamaged(self, behind: DispatchRequest | None, end: LogEnd, path: str) -> None:
        """Refuse to take a range that is known to be bad, such as a lost file, for the end."""
        if behind is None or self._log.damage.within(end.offset, behind.offset) is None:
            return
        bad_start, bad_end = self._blocks.widened(end.offset, behind.offset)
        raise CorruptLogError(
            f"{path}: the log is known to be damaged at {end.offset} ({end.reason}), and goes on at"
            f" {behind.offset}. It was left as it is. Restore it from another node of the group",
            path=path,
            fault=LogFault.KNOWN_DAMAGE,
            offset=bad_start,
            damaged_end=bad_end,
            synced_end=max(bad_end, self._checkpoint.confirm_physical_offset),
        )

    def _expect_torn(self, behind: DispatchRequest | None, end: LogEnd, path: str) -> None:
        """Refuse to cut off a record that was on disk before the last stop.

        Its time shows that, unless the clock was put back: then it may be young and say otherwise.
        """
        if behind is None or end.clock_went_back:
            return
        synced_ms = self._checkpoint.physic_msg_timestamp_ms
        if was_on_disk(behind.store_timestamp_ms, synced_ms, end.last_store_timestamp_ms):
            bad_start, bad_end = self._blocks.widened(end.offset, behind.offset)
            raise CorruptLogError(
                f"{path}: no valid record at {end.offset} ({end.reason}), but one at"
                f" {behind.offset} that was on disk before the last stop: the file was damaged."
                " The log was left as it is. Restore it from another node of the group",
                path=path,
                fault=LogFault.NO_RECORD,
                offset=bad_start,
                damaged_end=bad_end,
                synced_end=max(bad_end, self._checkpoint.confirm_physical_offset),
            )

    def _set_aside(self, path: str, torn: bytes) -> None:
        # What is there stays: a recovery that was interrupted kept it before it began to delete.
        kept = self._disk.read(path) or b""
        if not kept.startswith(torn):
            self._disk.replace(f"{path}-{len(torn)}" if kept else path, torn)

    def _expect_on_disk(
        self, end: int, reason: str, path: str, tail: Sequence[MappedFile] = ()
    ) -> None:
        """Refuse to start with less of the log than the checkpoint says was on disk."""
        promised = self._checkpoint.confirm_physical_offset
        if end < promised:
            behind = record_behind(tail, end)
            bad_end = promised if behind is None else min(behind.offset, promised)
            bad_start, bad_end = self._blocks.widened(end, bad_end)
            raise CorruptLogError(
                f"{path}: the log ends at {end} ({reason}), but {promised} bytes of it were on disk"
                " before the last stop: something was damaged or removed. The log was left as it"
                " is. Restore it from another node of the group, or move the whole directory away",
                path=path,
                fault=LogFault.LOST_END,
                offset=bad_start,
                damaged_end=bad_end,
                synced_end=promised,
            )

    def _sync_queues(self, *, clean: bool) -> None:
        # Loaded files count as flushed, but after a crash their pages may be in memory only, and so
        # may their names.
        files = list(self._queues.mapped_files())
        if clean:
            dirty = [file for file in files if file.flushed_position < file.wrote_position]
            sync_tree_or_each(self._disk, self._directory, dirty, [])
        else:
            # An error that the earlier process was told of is told by no `syncfs` again.
            sync_each(self._disk, self._directory, files, self._queues.directories())
        self._queues.sync_all()

    def _finish_recovery(self, end: LogEnd, *, clean: bool, start: int) -> None:
        log = self._log
        log.last_record_offset = end.last_record_offset
        if end.last_record_offset < 0:
            log.last_record_offset = max(
                (self._last_record_of(key) for key in self._queues.queues()), default=-1
            )
        log.last_store_timestamp_ms = end.last_store_timestamp_ms
        if end.last_store_timestamp_ms:
            self._checkpoint.physic_msg_timestamp_ms = end.last_store_timestamp_ms
            self._checkpoint.logics_msg_timestamp_ms = end.last_store_timestamp_ms
        self._checkpoint.confirm_physical_offset = log.max_offset
        self._confirm_no_more_than(log.max_offset)
        _log.info(
            "the store is open after a %s stop: log %d to %d, %d records checked, %d queues",
            "clean" if clean else "hard",
            start,
            log.max_offset,
            end.record_count,
            len(self._queues.queues()),
        )

    def _confirm_no_more_than(self, end: int) -> None:
        """Write the checkpoint. Where bytes were lost others may come, which nobody confirmed."""
        self._checkpoint.replicated_offset = min(self._checkpoint.replicated_offset, end)
        self._checkpoint.flush_blocking()

    def _last_record_of(self, key: tuple[str, int]) -> int:
        queue = self._queues.find(*key)
        if queue is None or queue.next_offset <= queue.min_offset:
            return -1
        offset, size, _ = queue.unit(queue.next_offset - 1)
        return -1 if size == FILLER_SIZE else offset


class _Progress:
    """Logs now and then how far a walk has got. A short one it passes over."""

    def __init__(self, total_bytes: int, wall_clock_ms: Callable[[], int] | None) -> None:
        self._total_bytes = total_bytes
        self._now_ms = wall_clock_ms
        self._look_at_bytes = 0 if total_bytes > PROGRESS_STEP_BYTES else total_bytes + 1
        self._told_bytes = self._told_ms = 0

    def walked(self, walked_bytes: int) -> None:
        """Take note that `walked_bytes` are done; log a line if the last one is seconds old."""
        if walked_bytes < self._look_at_bytes or self._now_ms is None:
            return
        self._look_at_bytes = walked_bytes + PROGRESS_STEP_BYTES
        now_ms = self._now_ms()
        elapsed_ms = now_ms - self._told_ms
        if self._told_ms and 0 <= elapsed_ms < PROGRESS_INTERVAL_MS:
            return
        if self._told_ms and elapsed_ms > 0:
            _log.info(
                "the commit log is checked: %d %% of %.1f GiB at most, %.2f GB/s",
                100 * walked_bytes // self._total_bytes,
                self._total_bytes / (1 << 30),
                (walked_bytes - self._told_bytes) / elapsed_ms / 1e6,
            )
        self._told_bytes, self._told_ms = walked_bytes, now_ms


def _used_ranges(files: list[MappedFile], offset: int) -> list[tuple[MappedFile, int, int]]:
    """Return which bytes of each file, from `offset` on, go up to the last one that is not zero."""
    ranges = []
    for file in files:
        start = max(0, offset - file.file_from_offset)
        end = file.last_used_position(start)
        if end > start:
            ranges.append((file, start, end))
    return ranges


def _torn_bytes(used: list[tuple[MappedFile, int, int]]) -> bytes:
    """Return what is in these ranges.

    The beginning of a blank record alone is not torn: it is written again with the next message.
    """
    torn = b"".join([bytes(file.buffer[start:end]) for file, start, end in used])
    if len(torn) <= BLANK_HEADER.size:
        rest = torn.ljust(BLANK_HEADER.size, b"\0")
        if BLANK_HEADER.unpack(rest)[1] == BLANK_MAGIC_CODE:
            return b""
    return torn
