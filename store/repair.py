"""Repairs a store that nobody has open: cuts what is torn, builds queues and index again.

    lock the store                             1
    what is to be built anew goes aside        2   queues, index; the log from `cut_at` on
    recover, from the first record on          3   as every start does, but over the whole log
    what could not be built anew comes back    4   queues of which the log holds no message
    open and close                             5   builds the index, marks the stop as clean

The rules are those of recovery: corruption before records that were on disk is refused, unless
`cut_at` says where the log has to end. Nothing is deleted: torn bytes are kept in `torn/`, the rest
in the side directory. Interrupted at any step, it can be done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from store.config import StoreConfig
from store.files.store_checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.log.log_start import locked
from store.machine.disk import Disk
from store.message_store import MessageStore
from store.recovery.opening import consume_queues
from store.recovery.store_recovery import StoreRecovery
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL, DelayLevels
from tandem.wire.message import Host

_log = logging.getLogger(__name__)

KEPT_PIECE_BYTES: Final = 64 << 20
"""Of a log file that is cut in the middle, so much is held at a time."""

_NOBODY: Final = Host("127.0.0.1", 0)
"""The host that would be in new records; none are written."""


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do. Sizes are those that the store was written with, see `StoreConfig`.

    `set_aside` names what below the store is to be built anew: queues, such as `consumequeue/T/0`,
    `index`, `checkpoint`. From `cut_at` on the log is cut off; -1: where it is torn.
    """

    directory: str
    side_directory: str
    set_aside: tuple[str, ...] = ()
    cut_at: int = -1
    batch_topics: tuple[str, ...] = ()
    store_path_commit_log: tuple[str, ...] = ()
    mapped_file_size_commit_log_bytes: int
    mapped_file_size_consume_queue_bytes: int
    mapper_file_size_batch_consume_queue_bytes: int
    enable_consume_queue_ext: bool
    mapped_file_size_consume_queue_ext_bytes: int
    message_index_enable: bool
    max_hash_slot_num: int
    max_index_num: int
    message_delay_level: str = MESSAGE_DELAY_LEVEL

    @property
    def config(self) -> StoreConfig:
        """The settings of the store."""
        names = set(StoreConfig.__struct_fields__) & set(self.__struct_fields__)
        return StoreConfig(**{name: getattr(self, name) for name in names})


class RepairResult(msgspec.Struct, frozen=True):
    """What was done. `kept` are paths of what was removed; `restored` were left as they had been.

    `index_end` is the last offset in the index, -1 without one.
    """

    log_start: int
    log_end: int
    index_end: int
    kept: tuple[str, ...]
    rebuilt: tuple[str, ...]
    restored: tuple[str, ...]


class _WholeLog(StoreCheckpoint):
    """A checkpoint that vouches for nothing, so that a recovery starts with the first record.

    What it says was on disk stays: by that, corruption is known from torn bytes.
    """

    @property
    def min_timestamp_ms(self) -> int:
        """Never late enough for any file but the first."""
        return 0


def repair_store(
    request: RepairRequest,
    disk: Disk,
    move: Callable[[str, str], None],
    *,
    wall_clock_ms: Callable[[], int],
) -> RepairResult:
    """Carry out a repair; `move` renames a file or directory and makes the parent it goes to.

    Raises:
        StoreLockedError: a node has the store open; nothing was changed.
        CorruptLogError: the log is corrupt before its end; it was not changed.
        StoreFullError, DiskFailedError: see `MessageStore.open`.
    """
    return _Repair(request, disk, move, wall_clock_ms).run()


class _Repair:
    def __init__(
        self,
        request: RepairRequest,
        disk: Disk,
        move: Callable[[str, str], None],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._request = request
        self._config = request.config
        self._disk = disk
        self._move = move
        self._now_ms = wall_clock_ms
        self._kept: list[str] = []

    def run(self) -> RepairResult:
        release, _ = locked(self._disk, self._request.directory)
        try:
            torn = self._torn_files()
            for name in self._request.set_aside:
                self._set_aside(name)
            if self._request.cut_at >= 0:
                self._cut_log(self._request.cut_at)
            self._recover()
            restored = self._bring_back()
            self._kept += sorted(self._torn_files() - torn)
        finally:
            release()
        return self._finish(restored)

    def _torn_files(self) -> set[str]:
        folder = f"{self._request.directory}/torn"
        return {f"{folder}/{name}" for name, _ in self._disk.list_files(folder)}

    # -- aside and back --------------------------------------------------------------------------

    def _set_aside(self, name: str) -> None:
        self._keep(f"{self._request.directory}/{name}", name)

    def _keep(self, path: str, name: str) -> None:
        kept = f"{self._request.side_directory}/{name}"
        self._move(path, kept)
        self._kept.append(kept)

    def _bring_back(self) -> tuple[str, ...]:
        """Take back queues that were not built anew: the log holds no message of them any more.

        Without its files such a queue would begin again at 0, before what its consumers have read.
        One with a file of the wrong length would keep the store from opening, and stays aside.
        """
        names = [name for name in self._request.set_aside if name.count("/") == 2]
        lost = [name for name in names if not self._has_files(_queue_of(name))]
        restored = [name for name in lost if self._can_be_opened(_queue_of(name))]
        for name in restored:
            kept = f"{self._request.side_directory}/{name}"
            self._move(kept, f"{self._request.directory}/{name}")
            self._kept.remove(kept)
        return tuple(restored)

    def _has_files(self, queue: str) -> bool:
        return bool(self._disk.list_files(f"{self._request.directory}/{queue}"))

    def _can_be_opened(self, queue: str) -> bool:
        config = self._config
        is_batch = queue.startswith("batch")
        expected = (
            config.mapper_file_size_batch_consume_queue_bytes
            if is_batch
            else config.mapped_file_size_consume_queue_bytes
        )
        files = self._disk.list_files(f"{self._request.side_directory}/{queue}")
        return all(size == expected for _, size in files)

    # -- the log ---------------------------------------------------------------------------------

    def _cut_log(self, offset: int) -> None:
        """Make `offset` the end of the log, whatever comes after it; keep that.

        The checkpoint gives way first: interrupted, the next repair may cut at the same place.
        """
        checkpoint = StoreCheckpoint(f"{self._request.directory}/checkpoint", self._disk)
        confirmed = min(checkpoint.confirm_physical_offset, offset)
        checkpoint.confirm_physical_offset = confirmed
        checkpoint.flush_blocking()
        checkpoint.close()
        files = sorted(
            (int(name), f"{directory}/{name}")
            for directory in self._config.commit_log_directories
            for name, _ in self._disk.list_files(directory)
            if name.isdecimal()
        )
        # The first file stays, if empty: without any, the log would begin at 0 again.
        for start, path in files[1:]:
            if start >= offset:
                self._keep(path, f"commitlog/{start:020d}")
        log = self._commit_log()
        try:
            log.files.load()
            self._keep_tail(log, offset)
            log.files.truncate_dirty_files(offset)
        finally:
            log.files.close()

    def _keep_tail(self, log: CommitLog, offset: int) -> None:
        file = log.files.find_by_offset(offset)
        if file is None:
            return
        start = offset - file.file_from_offset
        end = file.last_used_position(start)
        for position in range(start, end, KEPT_PIECE_BYTES):
            piece = bytes(file.buffer[position : min(position + KEPT_PIECE_BYTES, end)])
            name = f"{file.file_from_offset + position:020d}"
            path = f"{self._request.side_directory}/cut/{name}"
            self._disk.replace(path, piece)
            self._kept.append(path)

    def _commit_log(self) -> CommitLog:
        config = self._config
        return CommitLog(
            config.commit_log_directories,
            config.mapped_file_size_commit_log_bytes,
            self._disk,
            _NOBODY,
        )

    def _recover(self) -> None:
        log = self._commit_log()
        is_batch_topic = self._request.batch_topics.__contains__
        queues = consume_queues(self._config, self._disk, is_batch_topic)
        checkpoint: StoreCheckpoint | None = None
        try:
            log.files.load()
            queues.load()
            checkpoint = _WholeLog(f"{self._request.directory}/checkpoint", self._disk)
            recovery = StoreRecovery(
                self._request.directory,
                log,
                queues,
                checkpoint,
                self._disk,
                levels=DelayLevels(self._config.message_delay_level),
                wall_clock_ms=self._now_ms,
            )
            recovery.run(clean=False)
        finally:
            log.files.close()
            queues.close()
            if checkpoint is not None:
                checkpoint.close()

    def _finish(self, restored: tuple[str, ...]) -> RepairResult:
        """Open the store as a node would, let the index catch up, and close it cleanly."""
        with MessageStore.open(
            self._config,
            disk=self._disk,
            wall_clock_ms=self._now_ms,
            store_host=_NOBODY,
            is_slave=False,
            is_batch_topic=self._request.batch_topics.__contains__,
        ) as store:
            while store.reput_service.is_index_behind:
                store.reput_service.index_some()
            index = store.index_service
            last = index.files[-1] if index is not None and index.files else None
            return RepairResult(
                log_start=store.min_physical_offset,
                log_end=store.max_physical_offset,
                index_end=last.end_physical_offset if last is not None else -1,
                kept=tuple(self._kept),
                rebuilt=tuple(n for n in self._request.set_aside if n not in restored),
                restored=restored,
            )


def _queue_of(name: str) -> str:
    """Return the queue that `name` is, or is the extension of."""
    kind, queue = name.split("/", 1)
    return f"consumequeue/{queue}" if kind == "consumequeue_ext" else name
