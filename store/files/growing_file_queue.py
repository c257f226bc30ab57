"""GrowingFileQueue: a row of files that get their blocks as they are written, as queues have it.

There may be many thousands of such rows, most of one file and idle: see `GrowingFile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.files.growing_file import GrowingFile
from store.files.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.files.mapped_file import MappedFile
    from store.files.next_file import NextFile
    from store.files.open_files import OpenFiles
    from store.files.touched_pages import TouchedPages
    from store.machine.disk import FoundFile


class GrowingFileQueue(MappedFileQueue):
    """The files of one queue in `directory`. `remedy` is what to do about a missing one."""

    _grows = True

    # What few of many thousand rows have is not kept in each.
    pool = None
    _buffered = ()
    _left_out = ()
    _next_file: NextFile | None = None
    _read_only = frozenset()
    _touched_pages: TouchedPages | None = None
    _warm = False

    def __init__(
        self, directory: str, mapped_file_size: int, open_files: OpenFiles, *, remedy: str
    ) -> None:
        # Not all of what a row may have: a thousand of them are made in some milliseconds.
        self.directory = directory
        self._writable = (directory,)
        self.mapped_file_size = mapped_file_size
        self.files = []
        self._disk = open_files.disk
        self._open_files = open_files
        self._remedy = remedy

    @staticmethod
    def _is_directory_full(_: str) -> bool:
        return False

    @staticmethod
    def _before_delete(_: int) -> None: ...

    @staticmethod
    def _on_first_file(_: int) -> None: ...

    def load_found(self, found: Sequence[FoundFile] | None = None) -> int:
        """Do what `load` does; return when the last file was changed last, -1 if it is not known.

        `found` is what is in the directory, where that was listed already. Most rows have one file:
        that one takes no more.
        """
        if found is None:
            found = self._disk.list_files_with_times(self.directory)
        if len(found) != 1 or found[0][1] != self.mapped_file_size:
            self.load()
            return -1
        name, size, modified_ms = found[0]
        self._check(f"{self.directory}/{name}", name, size)
        file = self._file(int(name))
        file.set_positions(size)
        self.files.append(file)
        return modified_ms

    def discard_next_file(self) -> None:
        """Delete the file after the last one if it is there."""
        if self._next_file is not None:
            self._next_file.discard()

    def _opened(self, path: str, offset: int, *, read_only: bool) -> MappedFile:
        """Return it; it is opened when it is needed."""
        del path, read_only
        return self._file(offset)

    def _made(self, offset: int) -> MappedFile:
        path = f"{self.directory}/{offset:020d}"
        if self._next_file is None:
            made = self._disk.create(path, self.mapped_file_size, grows=True)
        else:
            made = self._next_file.take(offset, path)
        file = self._file(offset)
        file.opened(made)
        return file

    def _file(self, offset: int) -> GrowingFile:
        return GrowingFile(self.directory, offset, self.mapped_file_size, self._open_files)
