"""A file in memory that has two contents: what a mapping shows, and what is on the disk."""

import errno
import mmap
import os
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Final

from store.machine.disk import Buffer, check_range
from tandem.wire.store_layout import PAGE_BYTES

NEVER_MS: Final = 1 << 62


class SimulatedFile:
    """A mapped file: `buffer` is the page cache, `durable` what a power loss leaves.

    `modified_ms` moves as the system moves it: when the file is written to, or when what was
    written through the mapping is synced. Set it to make a file look old.
    """

    def __init__(
        self,
        path: str,
        content: bytes,
        sync_fails: Callable[[], bool] = lambda: False,
        now_ms: Callable[[], int] = lambda: NEVER_MS,
        expect_room: Callable[[str, int], None] = lambda _path, _size: None,
    ) -> None:
        self.path = path
        self._sync_fails = sync_fails
        self._now_ms = now_ms
        self._expect_room = expect_room
        self.modified_ms = now_ms()
        self.size = len(content)
        self.allocated = self.size
        self.has_durable_name = True
        self.is_named_by_sync = True
        """Not if an earlier process has made it: this one does not know that its name is not."""
        # The same type as on a real disk, of memory that belongs to nobody else. An empty
        # mapping cannot be had; one byte stands in for it.
        self._pages = mmap.mmap(-1, max(1, self.size))
        self._pages[: self.size] = content
        self.buffer: Buffer = self._pages
        self.durable = content
        self.given_up: dict[int, bytes] = {}
        """Pages by position, as they were when a sync failed, or the disk rotted under them: the
        kernel takes them for clean, and writes them no more."""

    @property
    def content(self) -> bytes:
        """The page cache as it is now."""
        return self._pages[: self.size]

    def allocate(self, end: int) -> None:
        """See `DiskFile.allocate`."""
        check_range(self, end, 0)
        if end > self.allocated:
            self._expect_room(self.path, end - self.allocated)
            self.allocated = end

    def expect_no_bus_error(self) -> None:
        """Make sure that nothing was written where the file has no blocks."""
        assert not any(self._pages[self.allocated : self.size]), f"SIGBUS: {self.path}"

    def write(self, position: int, data: memoryview) -> None:
        """See `DiskFile.write`."""
        check_range(self, position, len(data))
        if self._sync_fails():
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        self.buffer[position : position + len(data)] = bytes(data)
        self.modified_ms = self._now_ms()
        for page in range(position - position % PAGE_BYTES, position + len(data), PAGE_BYTES):
            self.given_up.pop(page, None)

    def sync(self) -> None:
        """Make durable what is in the buffer now."""
        if self._sync_fails():
            self.sync_failed()
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        self.made_durable(self.content)

    def sync_failed(self) -> None:
        """Take note that a sync has failed: the kernel takes the pages for written all the same."""
        content = self.content
        for page in range(0, self.size, PAGE_BYTES):
            self.given_up[page] = content[page : page + PAGE_BYTES]

    def made_durable(self, content: bytes) -> None:
        """Take note that `content` has reached the disk, but for pages the kernel gave up."""
        self.has_durable_name = self.has_durable_name or self.is_named_by_sync
        if self.given_up:
            content = self._without_given_up(content)
        if content != self.durable:
            self.durable = content
            self.modified_ms = self._now_ms()

    def as_on_disk(self) -> bytes:
        """What a read past the page cache finds: pages that the kernel takes for clean are not."""
        return self._without_given_up(self.content)

    def rot(self, after: bytes) -> None:
        """Change what is on the disk under the page cache, which goes on showing what it has."""
        content = self.content
        for page in range(0, self.size, PAGE_BYTES):
            if content[page : page + PAGE_BYTES] != after[page : page + PAGE_BYTES]:
                self.given_up[page] = content[page : page + PAGE_BYTES]
        self.durable = after

    def _without_given_up(self, content: bytes) -> bytes:
        """Return `content` with what is durable in each page that is as it was given up.

        Another page has changed since: the kernel has written it with this sync, and will the next
        time, whatever is in it then.
        """
        kept = bytearray(content)
        for page, before in list(self.given_up.items()):
            end = page + PAGE_BYTES
            if content[page:end] == before:
                kept[page:end] = self.durable[page:end]
            else:
                del self.given_up[page]
        return bytes(kept)

    def read_around(self, start: int, end: int, *, wanted: bool) -> None:
        """Nothing is read: all of it is in memory."""

    def let_go(self) -> None:
        """Nothing to give back, as in `close`."""

    def close(self) -> None:
        """Nothing to give back: the page cache outlives a mapping, and so does this buffer."""


class ReadOnlyFile(SimulatedFile):
    """A file as it was when it was opened; a write to its buffer is a TypeError."""

    def __init__(self, file: SimulatedFile) -> None:
        super().__init__(file.path, b"")
        self.modified_ms = file.modified_ms
        self.size = self.allocated = file.size
        with TemporaryFile() as unnamed:
            unnamed.write(file.content)
            unnamed.flush()
            self._pages = mmap.mmap(unnamed.fileno(), self.size, access=mmap.ACCESS_READ)
        self.buffer = self._pages
        self.durable = file.content
