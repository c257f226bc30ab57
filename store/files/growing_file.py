"""GrowingFile: a file of a queue, which is open only while somebody needs its bytes.

There may be many thousands of them, most of them idle. Positions are kept while it is closed, so
whoever asks where it ends opens nothing. Its bytes are opened where they are asked for: `file`,
`buffer` and `allocated_position` are not there until then, and Python asks `__getattr__` for
them. That makes every attribute of a class dearer, so only `ClosedFile` has it, and a file is of
that class while it is closed.

Readers need not hold it: the buffer that they have stays mapped, whatever happens to the file.
"""

from __future__ import annotations

from typing import Any, Final

from store.files.mapped_file import MappedFile
from store.files.open_files import OpenFiles
from store.machine.disk import DiskFile
from store.machine.errors import CorruptLogError, DiskFailedError

_OF_OPEN_FILES: Final = frozenset({"file", "buffer", "write_buffer", "allocated_position"})


class GrowingFile(MappedFile):
    """A file of `directory` that is closed at first, and closed again when `open_files` says so."""

    __slots__ = ("_directory", "_open_files")

    def __init__(
        self, directory: str, file_from_offset: int, size: int, open_files: OpenFiles
    ) -> None:
        self._directory = directory
        self._open_files = open_files
        self._begin(file_from_offset, size)
        self.__class__ = ClosedFile

    @property
    def path(self) -> str:
        """Its name."""
        return f"{self._directory}/{self.file_from_offset:020d}"

    @property
    def is_open(self) -> bool:
        """Whether it costs descriptors now."""
        return type(self) is not ClosedFile

    def _open(self) -> None:
        """Open it.

        Raises:
            DiskFailedError: it is gone, or not as long as it was.
        """
        path = self.path
        try:
            file = self._open_files.disk.open(path, grows=True)
        except FileNotFoundError as error:
            raise self._changed(error.strerror or str(error)) from error
        except CorruptLogError as error:
            raise self._changed(f"it has 0 of {self.size} bytes") from error
        except OSError as error:
            raise DiskFailedError(
                f"{path}: {error.strerror}; check the disk, and how many files this process may"
                " have open (ulimit -n, LimitNOFILE=)",
                path=path,
            ) from error
        if file.size != self.size:
            file.close()
            raise self._changed(f"it has {file.size} of {self.size} bytes")
        self.opened(file)

    def _changed(self, why: str) -> DiskFailedError:
        return DiskFailedError(
            f"{self.path}: {why}; somebody has changed this file under the running node. Order a"
            " scrub, which has its queue built anew (tandem ha scrub), or start the node again",
            path=self.path,
        )

    def opened(self, file: DiskFile) -> None:
        """Take it as it was just made or opened.

        Raises:
            StoreFullError, DiskFailedError: it has lost blocks, and gets none; it is closed.
        """
        try:
            allocated = object.__getattribute__(self, "allocated_position")
        except AttributeError:
            allocated = 0
        if file.allocated < allocated:
            try:
                file.allocate(allocated)
            except BaseException:
                file.close()
                raise
        self.file = file
        self.buffer = self.write_buffer = file.buffer
        self.allocated_position = file.allocated
        self.__class__ = GrowingFile
        self._open_files.used(self)

    def use(self) -> None:
        """Have it open, and let it be the last one that is closed."""
        if self.is_open:
            self._open_files.used(self)
        else:
            self._open()

    def let_go(self, *, unsynced: bool = False) -> bool:
        """Close it if nobody holds it and all of it is synced; return whether it is closed.

        One that is `unsynced` is closed as well if that is said; it is opened for its sync.
        """
        is_synced = self.flushed_position == self.wrote_position
        if self._references > 1 or not (is_synced or unsynced):
            return False
        if self.is_open:
            file = self.file
            del self.file, self.buffer, self.write_buffer
            self.__class__ = ClosedFile
            file.let_go()
        return True

    def go_on_in(self, file: DiskFile) -> None:
        """See `MappedFile.go_on_in`."""
        if self.is_open:
            super().go_on_in(file)
        else:
            self.opened(file)

    def _clean_up(self) -> None:
        self._open_files.closed(self)
        if self.is_open:
            super()._clean_up()
        self.is_cleanup_over = True


class ClosedFile(GrowingFile):
    """A `GrowingFile` that is closed: whoever asks for its bytes opens it."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name not in _OF_OPEN_FILES:
            raise AttributeError(name, name=name, obj=self)
        self._open()
        return object.__getattribute__(self, name)
