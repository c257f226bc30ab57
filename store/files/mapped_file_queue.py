"""MappedFileQueue: files of one size laid end to end by their first offset.

    00000000000000000000   00000000001073741824   00000000002147483648
    |------- full -------|------- full -------|--- wrote ---|  free  |
                                    ^ flushed_where     ^   ^ max_offset
                                                        committed_where

Only the last file is written to; `NextFile` makes the one after it. Old files go at the front. Gaps
between files do not occur: load refuses them.

The files may be in several directories. From a read-only directory files are read, and that is all:
an old file leaves the queue when its time has come, but stays where it is, and a log that ends in
such a file cannot go on.

Source: org.apache.rocketmq.store.MappedFileQueue and MultiPathMappedFileQueue of 5.3.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.files.mapped_file import MappedFile
from store.files.next_file import NextFile
from store.files.row_faults import (
    length_fault,
    missing_file_fault,
    name_fault,
    read_only_fault,
    same_name_fault,
)
from store.files.touched_pages import TouchedPages
from store.files.whole_end import is_file_name, whole_end
from store.machine.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.files.transient_store_pool import TransientStorePool
    from store.machine.disk import Disk

_log = logging.getLogger(__name__)


class MappedFileQueue:
    """The files of one log. Its owner closes it.

    Args:
        directories: one directory, or several over which the files are spread.
        read_only_directories: some of those or further ones, in which nothing is ever changed.
        is_directory_full: asked for each directory before a file is made.
        pool: where the files that are written borrow their buffers.
        before_delete: called before the first file goes, with where the row begins after that.
        on_first_file: called with where a row begins that has got its first file; must not raise.
        remedy: what to do about a file that is missing or has a wrong length.
        warm: keep the file that is prepared, and so the one being written, locked in memory.
    """

    _grows = False

    def __init__(
        self,
        directories: str | Sequence[str],
        mapped_file_size: int,
        disk: Disk,
        *,
        read_only_directories: Sequence[str] = (),
        is_directory_full: Callable[[str], bool] = lambda _: False,
        pool: TransientStorePool | None = None,
        warm: bool = False,
        remedy: str = "restore it from another node",
        before_delete: Callable[[int], None] = lambda _: None,
        on_first_file: Callable[[int], None] = lambda _: None,
    ) -> None:
        paths = [directories] if isinstance(directories, str) else directories
        directories = [path.rstrip("/") for path in paths]
        self.mapped_file_size = mapped_file_size
        self.files: list[MappedFile] = []
        self.pool = pool
        self._read_only = frozenset(path.rstrip("/") for path in read_only_directories)
        self._writable = tuple(sorted({*directories} - self._read_only))
        if not self._writable:
            raise SettingError(
                f"{', '.join(directories)}: all of these directories are read-only;"
                " name one that is not",
                setting="read_only_commit_log_store_paths",
            )
        self.directory = self._writable[0]
        """That of a store that has only one."""
        self._disk = disk
        self._remedy = remedy
        self._buffered: Sequence[MappedFile] = ()
        self._left_out: Sequence[str] = ()
        self._touched_pages: TouchedPages | None = None
        self._next_file: NextFile | None = None
        self._is_directory_full = is_directory_full
        self._warm = warm
        self._before_delete = before_delete
        self._on_first_file = on_first_file

    @property
    def next_file(self) -> NextFile:
        """What comes after the last file."""
        if self._next_file is None:  # most of many rows never have one
            self._next_file = NextFile(
                *(self.files, self.mapped_file_size, self._writable, self._disk),
                is_directory_full=self._is_directory_full,
                warm=self._warm,
                grows=self._grows,
            )
        return self._next_file

    @property
    def touched_pages(self) -> TouchedPages:
        """Its pages that are in memory."""
        if self._touched_pages is None:
            self._touched_pages = TouchedPages(self.files, self._disk)
        return self._touched_pages

    def load(self) -> None:
        """Open what is there, every file taken as full; recovery finds the real end.

        A last file of no length is what a crash during creation leaves: it is deleted. Files of
        read-only directories before a gap have left the queue earlier: they stay out.

        Raises:
            CorruptLogError: a file has another length or name, or one is missing in between.

        Source: MappedFileQueue.doLoad, MultiPathMappedFileQueue.load.
        """
        found = sorted(
            (name, size, directory)
            for directory in {*self._writable, *self._read_only}
            for name, size in self._disk.list_files(directory)
        )
        for index, (name, size, directory) in enumerate(found):
            path = f"{directory}/{name}"
            read_only = directory in self._read_only
            if size == 0 and index == len(found) - 1:
                if not read_only:
                    self._disk.remove(path)
                continue
            self._check(path, name, size)
            self._load_file(path, read_only=read_only)

    def load_end(self) -> None:
        """Open what is whole at the end of a row that `load` has refused, and is built anew.

        What is left out is deleted with the rest by `destroy`.
        """
        self._close_files()
        whole, self._left_out = whole_end(self._disk, self._writable, self.mapped_file_size)
        for path, _ in whole:
            self._load_file(path)

    def _load_file(self, path: str, *, read_only: bool = False) -> None:
        mapped = self._opened(path, int(path.rpartition("/")[2]), read_only=read_only)
        mapped.set_positions(mapped.size)
        self.files.append(mapped)

    def _opened(self, path: str, offset: int, *, read_only: bool) -> MappedFile:
        return MappedFile(
            self._disk.open(path, read_only=read_only), offset, is_read_only=read_only
        )

    def _check(self, path: str, name: str, size: int) -> None:
        if not is_file_name(name, self.mapped_file_size):
            raise name_fault(path, self.mapped_file_size)
        if size != self.mapped_file_size:
            raise length_fault(path, size, self.mapped_file_size, self._remedy)
        if self.files:
            self._check_neighbour(path, int(name))

    def _check_neighbour(self, path: str, offset: int) -> None:
        before = self.files[-1]
        expected = before.file_from_offset + self.mapped_file_size
        if offset == expected:
            return
        if offset == before.file_from_offset:
            raise same_name_fault(path, before.path)
        if offset > expected and all(file.is_read_only for file in self.files):
            _log.warning(
                "%s: the log begins here; the files in read-only directories end at %d already"
                " and are left out",
                path,
                expected,
            )
            self._close_files()
            return
        raise missing_file_fault(path, expected, self._remedy)

    @property
    def last(self) -> MappedFile | None:
        """The file being written, None if there is none."""
        return self.files[-1] if self.files else None

    @property
    def min_offset(self) -> int:
        """The first offset that can be read, -1 if there is no file.

        That is not in a file which is about to be deleted (CommitLog.getMinOffset).
        """
        if not self.files:
            return -1
        first = self.files[0]
        return first.file_from_offset + (0 if first.is_available else self.mapped_file_size)

    @property
    def max_offset(self) -> int:
        """The first offset not written yet, 0 if there is no file."""
        if not self.files:
            return 0
        last = self.files[-1]
        # `end_offset`, without the call: it is asked for several times a put.
        return last.file_from_offset + last.wrote_position

    @property
    def committed_where(self) -> int:
        """The offset below which everything can be read; `max_offset` without a pool."""
        for file in self._buffered:
            if file.committed_position != file.wrote_position:
                return file.file_from_offset + file.committed_position
        if not self.files:
            return 0
        last = self.files[-1]
        return last.file_from_offset + last.wrote_position

    @property
    def flushed_where(self) -> int:
        """The offset below which everything is known to be on disk."""
        where = self.max_offset
        for file in reversed(self.files):
            if file.flushed_position == file.size:
                break
            where = file.file_from_offset + file.flushed_position
        return where

    def last_or_create(self, start_offset: int) -> MappedFile:
        """Return the file to write to; a new one if there is none or the last one is full.

        The first file ever begins at the file boundary below `start_offset`.

        Raises:
            StoreFullError: no room for a new file.

        Source: MappedFileQueue.getLastMappedFile.
        """
        last = self.last
        if last is None:
            return self._create(start_offset - start_offset % self.mapped_file_size)
        return self.create_next() if last.is_full else last

    def create_next(self) -> MappedFile:
        """Add the file after the last one, which the caller is about to fill up.

        Raises:
            StoreFullError: no room for a new file.
        """
        return self._create(self.next_file.offset)

    def _create(self, offset: int) -> MappedFile:
        mapped = self._made(offset)
        self.files.append(mapped)
        if len(self.files) == 1:
            self._on_first_file(offset)
        return mapped

    def _made(self, offset: int) -> MappedFile:
        path = self.next_file.path_for(offset)
        buffer = self.pool.borrow_buffer(path) if self.pool is not None else None
        try:
            file = self.next_file.take(offset, path)
        except BaseException:
            if self.pool is not None and buffer is not None:
                self.pool.return_buffer(buffer)
            raise
        if buffer is None:
            return MappedFile(file, offset)
        mapped = MappedFile(file, offset, pool=self.pool, write_buffer=buffer)
        self._buffered = [*self._buffered, mapped]
        return mapped

    def find_by_offset(self, offset: int) -> MappedFile | None:
        """Return the file that holds `offset`, None if none does.

        Never another file: 5.3.3 answers reads of a deleted offset 0 from the first file left.
        """
        if not self.files:
            return None
        index = (offset - self.files[0].file_from_offset) // self.mapped_file_size
        return self.files[index] if 0 <= index < len(self.files) else None

    def dirty_files(self, least_pages: int) -> list[MappedFile]:
        """Return the files that a flush with this threshold has to sync, oldest first."""
        dirty: list[MappedFile] = []
        for file in reversed(self.files):
            if file.is_full and file.flushed_position == file.size:
                break
            if file.is_able_to_flush(least_pages):
                dirty.append(file)
        dirty.reverse()
        return dirty

    # -- commit ----------------------------------------------------------------------------------

    def commit(self, least_pages: int) -> bool:
        """Move what was written from the buffers of the pool to the files, oldest first.

        Return whether anything was moved (RocketMQ answers the opposite).

        Raises:
            OSError: the disk failed; what was moved before that can be read.
        """
        if not self._buffered:
            return False
        moved = [file.commit(least_pages) for file in self._buffered]
        self._forget_returned_buffers()
        return any(moved)

    def _forget_returned_buffers(self) -> None:
        self._buffered = [file for file in self._buffered if file.has_pool_buffer]

    # -- cutting the end -------------------------------------------------------------------------

    def truncate_dirty_files(self, offset: int) -> None:
        """Make `offset` the end: later files are deleted, later bytes set to zero and synced.

        Raises:
            CorruptLogError: this would change a file of a read-only directory; nothing was changed.

        Source: MappedFileQueue.truncateDirtyFiles, which leaves the bytes standing.
        """
        self.expect_writable_from(offset)
        self.commit(0)
        while self.files and self.files[-1].file_from_offset >= offset:
            # A first file that starts at the end stays as the file to write to.
            if len(self.files) == 1 and self.files[0].file_from_offset == offset:
                break
            self.drop_last()
        last = self.last
        if last is None or last.file_from_offset + last.size <= offset:
            return
        position = max(0, offset - last.file_from_offset)
        flushed = min(last.flushed_position, position)
        last.set_positions(position)
        if last.zero_from(position):
            last.file.sync()
        else:
            last.flushed_position = flushed

    def expect_writable_from(self, offset: int) -> None:
        """Make sure that the log can be cut at `offset`.

        Raises:
            CorruptLogError: that would change a file of a read-only directory.
        """
        for file in self.files:
            if file.is_read_only and file.file_from_offset + file.size > offset:
                raise read_only_fault(file.path, offset)

    def reset_offset(self, offset: int) -> bool:
        """Make `offset` the end again; False if it is more than two files back, or ahead.

        Later files are deleted. RocketMQ leaves them on disk, where the next start finds them
        again, and takes an offset past the end as well, for bytes that nobody wrote.

        Raises `CorruptLogError` as `truncate_dirty_files`. Source: MappedFileQueue.resetOffset.
        """
        back = self.max_offset - offset
        if not 0 <= back <= 2 * self.mapped_file_size:
            return False
        self.truncate_dirty_files(offset)
        return True

    def drop_last(self) -> None:
        """Close and delete the last file. Nobody can hold it back."""
        self.files.pop().destroy(self._disk, 0, 0)
        self._forget_returned_buffers()

    def destroy(self) -> None:
        """Close and delete every file."""
        while self.files:
            self.drop_last()
        for path in self._left_out:
            self._disk.remove(path)

    # -- deleting at the front -------------------------------------------------------------------

    def delete_expired_file_by_time(
        self,
        *,
        now_ms: int,
        expired_time_ms: int,
        interval_forcibly_ms: int,
        delete_file_batch_max: int = 10,
        clean_immediately: bool = False,
    ) -> list[MappedFile]:
        """Delete the oldest files whose last change is `expired_time_ms` ago; return them.

        Any age will do if `clean_immediately`. Never the last file. It ends at the first file that
        is too young or that somebody holds; such a file is closed by force when it is met again
        `interval_forcibly_ms` later. To pause between files, ask for one at a time.

        Files of read-only directories leave the queue, but not their directory; regardless of their
        age only if there is a file after them whose deletion makes room.

        Source: MappedFileQueue.deleteExpiredFileByTime.
        """
        makes_room = any(not file.is_read_only for file in self.files[:-1])

        def is_due(file: MappedFile) -> bool:
            if clean_immediately and makes_room:
                return True
            return now_ms >= self._disk.modified_ms(file.path) + expired_time_ms

        return self._delete_first(is_due, now_ms, interval_forcibly_ms, delete_file_batch_max)

    def delete_expired_file_by_offset(
        self,
        min_physical_offset: int,
        last_unit_offset_of: Callable[[MappedFile], int],
        *,
        now_ms: int = 0,
        interval_forcibly_ms: int = 60_000,
    ) -> list[MappedFile]:
        """Delete the oldest files whose last unit points below `min_physical_offset`; return them.

        Never the last file. A file that somebody holds ends it, until it is met again.

        Source: MappedFileQueue.deleteExpiredFileByOffset.
        """

        def is_due(file: MappedFile) -> bool:
            return not file.is_available or last_unit_offset_of(file) < min_physical_offset

        return self._delete_first(is_due, now_ms, interval_forcibly_ms, len(self.files))

    def _delete_first(
        self,
        is_due: Callable[[MappedFile], bool],
        now_ms: int,
        interval_forcibly_ms: int,
        batch_max: int,
    ) -> list[MappedFile]:
        deleted: list[MappedFile] = []
        while len(deleted) < batch_max and len(self.files) > 1 and is_due(self.files[0]):
            self._before_delete(self.files[1].file_from_offset)
            if not self.files[0].destroy(self._disk, now_ms, interval_forcibly_ms):
                break
            deleted.append(self.files.pop(0))
        self._forget_returned_buffers()
        return deleted

    def retry_delete_first_file(self, now_ms: int, interval_forcibly_ms: int) -> MappedFile | None:
        """Delete the first file if it was to be deleted before, but was held; return it.

        Source: MappedFileQueue.retryDeleteFirstFile.
        """
        if not self.files or self.files[0].is_available:
            return None
        if not self.files[0].destroy(self._disk, now_ms, interval_forcibly_ms):
            return None
        return self.files.pop(0)

    def check_self(self) -> list[str]:
        """Return what is wrong with the row of files, in words (MappedFileQueue.checkSelf)."""
        pairs = zip(self.files, self.files[1:], strict=False)
        return [
            f"{after.path} does not follow {before.path}"
            for before, after in pairs
            if after.file_from_offset - before.file_from_offset != self.mapped_file_size
        ]

    # -- closing ---------------------------------------------------------------------------------

    def sync_all(self) -> None:
        """Block until every written byte is durable. For recovery and close.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        self.commit(0)
        for file in self.dirty_files(0):
            file.file.sync()
            file.flushed_position = file.wrote_position

    def close(self) -> None:
        """Unmap every file. Bytes that are not synced stay in the page cache.

        Bytes that are not committed are lost: `sync_all` comes first.
        """
        if self._next_file is not None:
            self._next_file.close()
        self._close_files()

    def _close_files(self) -> None:
        for file in self.files:
            file.shutdown(0, 0)
        self.files.clear()
        self._buffered = ()
