"""MappedFileQueue: files of one size laid end to end by their first offset.

    00000000000000000000   00000000001073741824   00000000002147483648
    |------- full -------|------- full -------|--- wrote ---|  free  |
                                    ^ flushed_where          ^ max_offset

Only the last file is written to. Gaps between files do not occur: load refuses them.

Source: org.apache.rocketmq.store.MappedFileQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.errors import CorruptLogError
from store.mapped_file import MappedFile

if TYPE_CHECKING:
    from store.disk import Disk

FILE_NAME_DIGITS: Final = 20


class MappedFileQueue:
    """The files of one directory. Its owner closes it."""

    def __init__(self, directory: str, mapped_file_size: int, disk: Disk) -> None:
        self.directory = directory
        self.mapped_file_size = mapped_file_size
        self.files: list[MappedFile] = []
        self._disk = disk
        self._prepared: MappedFile | None = None

    def load(self) -> None:
        """Open what is there, every file taken as full; recovery finds the real end.

        A last file of no length is what a crash during creation leaves: it is deleted.

        Raises:
            CorruptLogError: a file has another length or name, or one is missing in between.

        Source: MappedFileQueue.doLoad.
        """
        names = self._disk.list_files(self.directory)
        for index, (name, size) in enumerate(names):
            path = f"{self.directory}/{name}"
            if size == 0 and index == len(names) - 1:
                self._disk.remove(path)
                continue
            self._check(path, name, size)
            mapped = MappedFile(self._disk.open(path), int(name))
            mapped.set_positions(mapped.size)
            self.files.append(mapped)

    def _check(self, path: str, name: str, size: int) -> None:
        if len(name) != FILE_NAME_DIGITS or not name.isdecimal():
            raise CorruptLogError(
                f"{path}: not a store file (names are 20 digits); move it out of this directory",
                path=path,
            )
        if size != self.mapped_file_size:
            raise CorruptLogError(
                f"{path}: the file has {size} bytes, but every file here must have"
                f" {self.mapped_file_size}; it was truncated or written with another file size:"
                " restore it from another node, or start with the size it was written with",
                path=path,
            )
        expected = self.files[-1].file_from_offset + self.mapped_file_size if self.files else None
        if expected is not None and int(name) != expected:
            raise CorruptLogError(
                f"{path}: the file before it is missing (expected {expected:020d});"
                " restore it from another node",
                path=path,
            )

    @property
    def last(self) -> MappedFile | None:
        """The file being written, None if there is none."""
        return self.files[-1] if self.files else None

    @property
    def min_offset(self) -> int:
        """The first offset held, -1 if there is no file."""
        return self.files[0].file_from_offset if self.files else -1

    @property
    def max_offset(self) -> int:
        """The first offset not written yet, 0 if there is no file."""
        return self.files[-1].end_offset if self.files else 0

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
        """Add the file behind the last one, which the caller is about to fill up.

        Raises:
            StoreFullError: no room for a new file.
        """
        return self._create(self._next_offset)

    @property
    def _next_offset(self) -> int:
        return self.files[-1].file_from_offset + self.mapped_file_size if self.files else 0

    @property
    def wants_next(self) -> bool:
        """True if a quarter of the last file is used, or there is none, and none is prepared.

        At full speed a file fills about as fast as the next one is allocated and touched; earlier
        than this the work would come on top of what started the file.
        """
        last = self.last
        in_use = last is None or 4 * last.wrote_position > last.size
        return in_use and self._prepared is None

    async def prepare_next(self) -> None:
        """Create the file behind the last one in the background, so that no put waits for it.

        A crash leaves it filled with zeros behind the end of the log, where recovery deletes it.

        Raises:
            StoreFullError: no room.

        Source: AllocateMappedFileService.
        """
        offset = self._next_offset
        path = f"{self.directory}/{offset:020d}"
        file = await self._disk.create_in_background(path, self.mapped_file_size)
        if file is None:
            return
        if self._next_offset == offset:
            self._prepared = MappedFile(file, offset)
            return
        file.close()
        # The log was faster and has its own file of that name, or it began somewhere else.
        if all(mapped.file_from_offset != offset for mapped in self.files):
            self._disk.remove(path)

    def reserve_next(self) -> None:
        """Create the next file now, so that growing into it cannot fail.

        Raises:
            StoreFullError: no room.
        """
        if self._prepared is None:
            path = f"{self.directory}/{self._next_offset:020d}"
            file = self._disk.create(path, self.mapped_file_size)
            self._prepared = MappedFile(file, self._next_offset)

    def discard_prepared(self) -> None:
        """Delete the file that is ready but not in use, if there is one."""
        if self._prepared is not None:
            self._prepared.file.close()
            self._disk.remove(self._prepared.file.path)
            self._prepared = None

    def _create(self, offset: int) -> MappedFile:
        if self._prepared is not None and self._prepared.file_from_offset != offset:
            self.discard_prepared()
        mapped, self._prepared = self._prepared, None
        if mapped is None:
            path = f"{self.directory}/{offset:020d}"
            mapped = MappedFile(self._disk.create(path, self.mapped_file_size), offset)
        self.files.append(mapped)
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

    def truncate_dirty_files(self, offset: int) -> None:
        """Make `offset` the end: later files are deleted, later bytes set to zero and synced.

        Source: MappedFileQueue.truncateDirtyFiles, which leaves the bytes standing.
        """
        while self.files and self.files[-1].file_from_offset >= offset:
            # A first file that starts at the end stays as the file to write to.
            if len(self.files) == 1 and self.files[0].file_from_offset == offset:
                break
            self.drop_last()
        last = self.last
        if last is None or last.file_from_offset + last.size <= offset:
            return
        position = max(0, offset - last.file_from_offset)
        last.set_positions(position)
        if last.zero_from(position):
            last.file.sync()

    def drop_last(self) -> None:
        """Close and delete the last file."""
        file = self.files.pop()
        file.file.close()
        self._disk.remove(file.file.path)

    def destroy(self) -> None:
        """Close and delete every file."""
        while self.files:
            self.drop_last()

    def sync_all(self) -> None:
        """Block until every written byte is durable. For recovery and close."""
        for file in self.dirty_files(0):
            file.file.sync()
            file.flushed_position = file.wrote_position

    def close(self) -> None:
        """Unmap every file. What is not synced stays in the page cache."""
        self.discard_prepared()
        for file in self.files:
            file.file.close()
        self.files.clear()
