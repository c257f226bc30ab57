"""What a store needs of a file system, as protocols: a `Disk` and the `DiskFile`s on it.

Everything above talks to these. `RealDisk` is the disk of this machine; the simulation has its own
with the same protocols, and both pass the same tests (tests/support/contracts.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from tandem.wire.store_layout import PAGE_BYTES

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store.machine.kept_files import KeptFiles

Buffer: TypeAlias = "mmap.mmap | bytearray"
"""Memory that can be sliced and written to, of a file or of nobody."""

FoundFile: TypeAlias = tuple[str, int, int]
"""Name, size, and when its content changed last, in ms since 1970."""


TEMPORARY_SUFFIX: Final = ".tmp"
"""Of a file that is not finished. `create` and `replace` overwrite what a crash left of one."""


def all_of_them(_outer: str, _name: str) -> bool:
    """Return True: of `list_trees`."""
    return True


class DiskSpace(msgspec.Struct, frozen=True):
    """How full a file system is. Space reserved for root is part of neither number."""

    used_bytes: int
    usable_bytes: int


def check_range(file: DiskFile, start: int, size: int) -> None:
    """Refuse a range of bytes that is not within a file. An empty one may begin at its end.

    Raises:
        ValueError: it is not. The caller has a bug, and the system would do what it asks for: make
            the file longer than its mapping, or touch what comes after it.
    """
    if not 0 <= start <= start + size <= file.size:
        raise ValueError(
            f"{file.path}: {size} bytes from {start} on are not within its {file.size}"
        )


def check_pages(file: DiskFile, start: int, size: int) -> None:
    """Refuse a range that is not within a file, or does not begin with a page.

    Raises:
        ValueError: it does not; the system would take the call for another one, or refuse it
            without a word.
    """
    check_range(file, start, size)
    if start % PAGE_BYTES:
        raise ValueError(f"{file.path}: {start} is not where a page of {PAGE_BYTES} bytes begins")


def check_size(path: str, size: int) -> None:
    """Refuse to make a file, or memory, of no bytes: no system maps it.

    Raises:
        ValueError: there is not one byte.
    """
    if size < 1:
        raise ValueError(f"{path}: a file of {size} bytes cannot be mapped")


class DiskFile(Protocol):
    """One file of fixed size, mapped for reading and writing.

    A range that begins or ends outside of it is a ValueError; an empty one within it, which may
    begin at the end, is nothing to do.

    `buffer` supports slicing, `struct.pack_into` and the buffer protocol. A live memoryview of it
    delays the unmapping, never the deletion.
    """

    @property
    def path(self) -> str:
        """The name it was created or opened with."""

    @property
    def size(self) -> int:
        """Its length in bytes, all of it mapped."""

    @property
    def allocated(self) -> int:
        """Up to where it has blocks on the disk; what comes after reads as zeros.

        Of a file that grows that is less than its length; elsewhere a write can end in SIGBUS.
        """

    def allocate(self, end: int) -> None:
        """Give it blocks up to `end`, at most its length. Nothing happens if it has them.

        Raises:
            ValueError: `end` is after its last byte.
            StoreFullError: no room; what it has stays.
            DiskFailedError: anything else.
        """

    @property
    def buffer(self) -> Buffer:
        """The bytes; a write is in the page cache when it returns."""

    def write(self, position: int, data: memoryview) -> None:
        """Put `data` into the page cache without touching the mapping, which shows it at once.

        Raises:
            ValueError: not all of it is within the file; nothing was written.
            OSError: the disk failed; some of it may be there.
        """

    def sync(self) -> None:
        """Block until all bytes are durable, and its name. For recovery and close only.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """

    def read_around(self, start: int, end: int, *, wanted: bool) -> None:
        """Say whether the system is to read pages around one of this part that is asked for.

        It does so in a file that was opened, for who reads from the disk. Around a page of a new
        file there are only zeros, up to 8 MiB of them on some disks, and whoever touches it first
        waits for all of them: so one that was made here has it nowhere until that is said.
        """

    def let_go(self) -> None:
        """Close it for good. Who has its buffer goes on reading; it is unmapped after the last."""

    def close(self) -> None:
        """Unmap and close. Harmless when repeated."""


class Disk(Protocol):
    """What the store needs of a file system. Paths are absolute or relative to the process.

    What it creates, removes, replaces or renames, `kept` forgets.
    """

    @property
    def kept(self) -> KeptFiles:
        """What small files have to hold, as their owners say."""

    @property
    def open_files_max(self) -> int:
        """How many files may be open without others being short of descriptors."""

    @property
    def many_files(self) -> int:
        """How many files have to be synced before `sync_tree` costs less than one by one."""

    def create(self, path: str, size: int, *, grows: bool = False) -> DiskFile:
        """Create a zero-filled file whose blocks are allocated, and its parent directories.

        If it `grows`, it has its length, and blocks for its first page only: see
        `DiskFile.allocate`. Its name, and those of directories made for it, are durable with the
        first sync of the file; of any other file they are when this returns.

        Raises:
            ValueError: `size` is less than 1.
            StoreFullError: no room; no file is left behind.
            DiskFailedError: anything else; no file is left behind.
        """

    def open(self, path: str, *, read_only: bool = False, grows: bool = False) -> DiskFile:
        """Map an existing file. Its modification time stays as it is.

        It has blocks for all of its length then; if it `grows`, up to the end of what is in it.

        If `read_only`, the file is not touched in any way, and writing to its buffer is a
        TypeError.

        Raises:
            CorruptLogError: it is empty.
        """

    def list_files(self, directory: str) -> list[tuple[str, int]]:
        """Return (name, size) of the files in `directory`, by name; empty if it is missing.

        What an interrupted `create` or `replace` left behind is not shown.
        """

    def list_files_with_times(self, directory: str) -> list[FoundFile]:
        """The same with when the content of each changed last, as `modified_ms` says it."""

    def list_directories(self, directory: str) -> list[str]:
        """Return the names of the directories in `directory`, sorted; empty if it is missing."""

    def list_trees(
        self, directory: str, is_wanted: Callable[[str, str], bool] = all_of_them
    ) -> Iterator[tuple[str, str, list[FoundFile]]]:
        """Yield each directory two levels below: both names, and its files as above, all in order.

        Nobody looks into one whose names are not wanted: it may not be ours to read. There may be
        many thousands: some are read at the same time, before they are asked for.
        """

    def exists(self, path: str) -> bool:
        """True if a file of that name exists."""

    def remove(self, path: str) -> None:
        """Delete a file, so that a power loss does not bring it back. A missing one is fine.

        Raises:
            OSError: the disk failed; whether it is gone is unknown.
        """

    def remove_directory(self, path: str) -> None:
        """Delete a directory if it is empty; otherwise, and if it is missing, do nothing."""

    def read(self, path: str) -> bytes | None:
        """Return a small file whole, or None if it does not exist.

        Raises:
            OSError: it cannot be read, is no ordinary file, or is larger than 1 GiB.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file so that a crash leaves the old content or the new, durable.

        Raises:
            StoreFullError: no room; the old content is still there.
            DiskFailedError: anything else; the old content is still there.
            OSError: the new content is there, and a power loss may bring the old one back.
        """

    def will_replace(self, path: str, data: bytes) -> None:
        """Say what `replace` is about to put there, so that `write_ahead` can do most of it.

        Advice: whether it is followed, and whatever is put there instead, `replace` does the same.
        """

    async def write_ahead(self) -> None:
        """Write what is about to replace small files, without stopping other tasks.

        Nothing of it shows before it is put there. Returns at once if there is nothing to write.
        """

    def rename(self, path: str, new_path: str) -> bool:
        """Give a file or a directory another name on the same file system, durably.

        Directories of the new name are created. Return False if nothing has the old name.

        Raises:
            DiskFailedError: the new name is taken, or on another file system; nothing was changed.
            OSError: it has the new name, and a power loss may bring the old one back.
        """

    def lock(self, path: str) -> Callable[[], None]:
        """Take the exclusive lock RocketMQ takes (`lock` file); return the release.

        Raises:
            StoreLockedError: another process holds it.
            DiskFailedError: this file system has no locks.
        """

    def free_bytes(self, directory: str) -> int:
        """Return the free space of the file system that holds `directory`."""

    def space(self, directory: str) -> DiskSpace:
        """Return how full the file system of `directory` is; 0 and 0 if it does not exist."""

    def modified_ms(self, path: str) -> int:
        """Return when the content of an existing file changed last, in ms since 1970."""

    def allocate_buffer(self, size: int) -> Buffer:
        """Return memory of zeros that belongs to no file, locked into memory where allowed.

        Raises:
            ValueError: `size` is less than 1.
            StoreFullError: there is not that much memory.
        """

    async def lock_in_memory(self, file: DiskFile) -> None:
        """Keep the pages of a file from being paged out until it is unlocked or unmapped.

        Best effort: where the system forbids it (RLIMIT_MEMLOCK) this is logged, once. A file that
        was closed is left alone.

        Source: DefaultMappedFile.mlock.
        """

    async def unlock_memory(self, file: DiskFile) -> None:
        """Take `lock_in_memory` back. Harmless for a file that is not locked, or closed."""

    async def create_in_background(self, path: str, size: int) -> DiskFile | None:
        """The same as `create`, without stopping other tasks.

        None if a file of that name exists by the time this one is ready; that one is left alone.

        Raises:
            ValueError: `size` is less than 1.
            StoreFullError: no room; no file is left behind.
            DiskFailedError: anything else; no file is left behind.
        """

    async def touch(self, file: DiskFile, start: int, size: int, *, clean: bool = False) -> None:
        """Have pages in memory that are about to be written, without stopping other tasks.

        They are as if written to, or only there and `clean`, so that nothing has to go to the disk.
        Advice: where the system does not take it, or the file is closed, nothing happens.

        Raises:
            ValueError: `start` is no multiple of 4,096, or the range is not within the file.
        """

    async def read_from_disk(self, path: str, start: int, size: int) -> bytes:
        """Return what the disk has, past the page cache where the system can do that.

        `start` is a multiple of 4,096. Less where the file ends before that.

        Raises:
            OSError: the disk does not give it, or there is no such file.
        """

    def sync_names(self, directories: Iterable[str]) -> None:
        """Block until the names of what is in these directories are durable.

        For what an earlier process has made, and may not have synced. Missing ones are fine.
        """

    def sync_tree_now(self, directory: str) -> bool:
        """Block until all in a directory that is locked and below is durable, and its names.

        What was written since it was locked counts, by whatever file, closed or not, and so does an
        error of the disk since then. It costs what there is to write on its whole file system, and
        not how many files there are.

        Return False if that is not so surely: each file is to be synced, which has the error.
        """

    async def sync_tree(self, directory: str) -> bool:
        """The same, without stopping other tasks. What is written meanwhile may not be durable."""

    def sync_now(self, files: Sequence[DiskFile]) -> None:
        """Block until these are durable, and their names. For recovery and close only.

        The same as `DiskFile.sync` of each, at a fraction of the time. Closed ones are left alone.

        Raises:
            OSError: the disk failed; what is durable of any of them is unknown.
        """

    def sync_closed_now(self, paths: Sequence[str]) -> None:
        """The same for files that nobody has open: each is opened for that alone, and not mapped.

        Raises:
            OSError: the disk failed, or there is no such file; what is durable is unknown.
        """

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Have the first pages of many files on their way to memory, for who is about to read them.

        One after the other would wait for each. Advice: what cannot be read is passed over.
        """

    async def sync_together(self, files: Sequence[DiskFile]) -> None:
        """The same as `sync` for many files, at a fraction of what one by one would cost.

        Raises:
            OSError: the disk failed; what is durable of any of them is unknown.
        """

    async def sync(self, file: DiskFile) -> None:
        """Make durable what is in the file now, without stopping other tasks.

        Not cancellable while the system call runs. A file that was closed is left alone: it has
        been deleted while its turn was to come.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
