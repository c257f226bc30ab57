"""NextFile: the file after the last one of a row, made before it is needed.

    prepare   in the background, so that no put waits for it
    reserve   at once, so that growing into it cannot fail
    take      at once if neither was done; the file then belongs to the row

The files of a row may be in several directories. File k is made in directory k modulo n of those,
sorted, that are neither full nor read-only; if all are full, of those that are not read-only.

Source: org.apache.rocketmq.store.AllocateMappedFileService, MultiPathMappedFileQueue of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from store.files.mapped_file import MappedFile
from store.files.touched_pages import LEAD_BYTES, STEP_BYTES_MIN
from store.machine.disk import Disk, DiskFile
from tandem.wire.store_layout import PAGE_BYTES


class NextFile:
    """What comes after the last of `files`, whose `MappedFileQueue` owns and closes it.

    Args:
        files: the row, as its owner keeps it.
        mapped_file_size: of every file, in bytes.
        directories: over which the files are spread.
        disk: where all of this is.
        is_directory_full: asked for each directory before a file is made.
        warm: keep the file that is prepared, and so the one being written, locked in memory.
        grows: files are not allocated whole; such a file is never prepared.
    """

    def __init__(
        self,
        files: Sequence[MappedFile],
        mapped_file_size: int,
        directories: Sequence[str],
        disk: Disk,
        *,
        is_directory_full: Callable[[str], bool],
        warm: bool,
        grows: bool = False,
    ) -> None:
        self._files = files
        self._mapped_file_size = mapped_file_size
        self._directories = directories
        self._disk = disk
        self._is_directory_full = is_directory_full
        self._warm = warm
        self._grows = grows
        self.prepared: MappedFile | None = None
        """It, where it is there and is no part of the row yet. Only to be looked at."""
        self._preparing = (-1, "")
        self._locked: list[DiskFile] = []

    @property
    def offset(self) -> int:
        """Where it begins; 0 if there is no file yet."""
        return self._files[-1].file_from_offset + self._mapped_file_size if self._files else 0

    @property
    def is_wanted(self) -> bool:
        """True if a quarter of the last file is used, or there is none, and none is prepared.

        Earlier than this the work would come on top of what started the file.
        """
        last = self._files[-1] if self._files else None
        in_use = last is None or 4 * last.wrote_position > last.size
        return in_use and self.prepared is None

    def path_for(self, offset: int) -> str:
        """Return where a file that begins at `offset` goes.

        Source: MultiPathMappedFileQueue.tryCreateMappedFile.
        """
        # One place for one name, even if a disk fills up while the file is prepared.
        if self._preparing[0] == offset:
            return self._preparing[1]
        free = [path for path in self._directories if not self._is_directory_full(path)]
        paths = free or self._directories
        return f"{paths[offset // self._mapped_file_size % len(paths)]}/{offset:020d}"

    async def prepare(self) -> None:
        """Create the file in the background.

        Its first pages are touched; with `warm` all are locked in memory, as long as the file is
        not full. A crash leaves it filled with zeros past the end of the log, where recovery
        deletes it.

        Raises:
            StoreFullError: no room.
        """
        offset = self.offset
        path = self.path_for(offset)
        self._preparing = (offset, path)
        try:
            file = await self._disk.create_in_background(path, self._mapped_file_size)
        finally:
            self._preparing = (-1, "")
        if file is None:
            return
        if self.offset == offset and self.prepared is None:
            self.prepared = MappedFile(file, offset)
            if self._warm:
                await self._lock_in_memory(file)
            lead = min(LEAD_BYTES, file.size)
            for start in range(0, lead, STEP_BYTES_MIN):
                await self._disk.touch(file, start, min(STEP_BYTES_MIN, lead - start))
            return
        file.close()
        # The log was faster and has its own file of that name, or it began somewhere else.
        own = [each for each in (self.prepared, *self._files) if each and each.file.path == path]
        if not own or self._has_lost_its_name(own[0]):
            self._disk.remove(path)

    def _has_lost_its_name(self, own: MappedFile) -> bool:
        """Say whether the name of a file leads to another one now, the one that was just prepared.

        It was deleted under this process. Without a name the scrub gives it one again; under this
        one, whatever were written to the file later would go nowhere.
        """
        if not self._disk.exists(own.file.path):
            return False
        named = self._disk.open(own.file.path, read_only=True)
        try:
            return bytes(named.buffer[:PAGE_BYTES]) != bytes(own.file.buffer[:PAGE_BYTES])
        finally:
            named.close()

    async def _lock_in_memory(self, file: DiskFile) -> None:
        """Lock the file that comes next; those before the last one need it no longer.

        RocketMQ keeps every file locked until it is deleted.
        """
        self._locked.append(file)
        await self._disk.lock_in_memory(file)
        done = {mapped.file for mapped in self._files[:-1]}
        for locked in [locked for locked in self._locked if locked in done]:
            self._locked.remove(locked)
            await self._disk.unlock_memory(locked)

    def reserve(self, size: int) -> None:
        """Create the file now, if it is not prepared, with room for `size` bytes.

        Raises:
            StoreFullError: no room.
        """
        if self.prepared is None:
            file = self._create(self.path_for(self.offset))
            self.prepared = MappedFile(file, self.offset)
        self.prepared.allocate(size)

    def _create(self, path: str) -> DiskFile:
        return self._disk.create(path, self._mapped_file_size, grows=self._grows)

    def take(self, offset: int, path: str) -> DiskFile:
        """Return the file that was prepared for `offset`, or make one.

        Raises:
            StoreFullError: no room.
        """
        if self.prepared is not None and self.prepared.file_from_offset != offset:
            self.discard()
        if self._files and not self._grows:
            # From now on it is read and not written.
            self._files[-1].file.read_around(0, self._mapped_file_size, wanted=True)
        prepared, self.prepared = self.prepared, None
        if prepared is not None:
            return prepared.file
        return self._create(path)

    def discard(self) -> None:
        """Delete the file if it is there and nobody has taken it."""
        if self.prepared is not None:
            self.prepared.destroy(self._disk, 0, 0)
            self.prepared = None

    def close(self) -> None:
        """Discard it, and forget which files are locked: the row is closed."""
        self.discard()
        self._locked.clear()
