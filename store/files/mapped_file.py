"""MappedFile: one file of fixed size, written from its start to its end.

The name is its first offset in 20 digits. `wrote_position` says how far it is filled,
`committed_position` how much of that is in the file, `flushed_position` how much of that is known
to be on disk; none is stored, recovery finds them again.

    0 <= flushed_position <= committed_position <= wrote_position <= size

Without a pool what is written is in the file: `write_buffer` is `buffer`, the mapping. A file with
a buffer of the `TransientStorePool` is written to in that buffer; readers see the mapping, up to
`read_position`.

The life of a file:

    available --shutdown--> closing --last hold released, or interval over--> cleaned up
        ^  |
        +--+ hold, release

Closing a file waits for all that `hold` it, which a system call on its descriptor has to do. After
the interval it waits no longer. Mere readers need not hold anything: a memoryview keeps the memory
it shows mapped for as long as it exists, whatever happens to the file, its name and its descriptor.
RocketMQ's forced cleanup unmaps under readers that still read, and with that ends their process;
ours closes the descriptor and deletes the name at once, and the kernel takes back memory and disk
space when the last view is gone.

Source: org.apache.rocketmq.store.logfile.DefaultMappedFile and ReferenceResource of 5.3.3.
"""

from __future__ import annotations

from typing import Final

from store.files.transient_store_pool import TransientStorePool
from store.machine.disk import Buffer, Disk, DiskFile

OS_PAGE_SIZE: Final = 4096

ALLOCATE_STEP_MAX: Final = 1 << 20
"""A file that grows gets as much again as it has, but no more than this."""
_ZEROS: Final = bytes(128 << 10)

_OVERRIDDEN: Final = -1000
"""The reference count of a file whose holders were overruled (ReferenceResource.shutdown)."""


class MappedFile:
    """One open file. Its `MappedFileQueue` owns and closes it."""

    __slots__ = (
        "_committed_position",
        "_first_shutdown_ms",
        "_pool",
        "_references",
        "allocated_position",
        "buffer",
        "file",
        "file_from_offset",
        "flushed_position",
        "is_available",
        "is_cleanup_over",
        "is_read_only",
        "size",
        "write_buffer",
        "wrote_position",
    )

    def __init__(
        self,
        file: DiskFile,
        file_from_offset: int,
        *,
        pool: TransientStorePool | None = None,
        write_buffer: Buffer | None = None,
        is_read_only: bool = False,
    ) -> None:
        assert (pool is None) == (write_buffer is None)
        self.file = file
        self.buffer = file.buffer
        """What readers see: the mapping."""
        self.write_buffer = file.buffer if write_buffer is None else write_buffer
        """What appends write to: the mapping, or a buffer of the pool."""
        self.allocated_position = file.allocated
        """Up to where it can be written; its size, unless it grows. After that there are zeros."""
        self._begin(file_from_offset, file.size, pool, is_read_only=is_read_only)

    def _begin(
        self,
        file_from_offset: int,
        size: int,
        pool: TransientStorePool | None = None,
        *,
        is_read_only: bool = False,
    ) -> None:
        self.file_from_offset = file_from_offset
        self.size = size
        self.wrote_position = 0
        self.flushed_position = 0
        self.is_read_only = is_read_only
        """True for a file that may be neither changed nor deleted."""
        self.is_available = True
        """False once it was shut down."""
        self.is_cleanup_over = False
        """True once its descriptor is closed."""
        self._pool = pool
        self._committed_position = 0
        self._references = 1
        self._first_shutdown_ms = 0

    def __repr__(self) -> str:
        return f"<MappedFile {self.path} wrote {self.wrote_position} of {self.size}>"

    @property
    def path(self) -> str:
        """Its name."""
        return self.file.path

    @property
    def is_open(self) -> bool:
        """Whether its bytes are at hand; those of most files always are."""
        return True

    def use(self) -> None:
        """Have its bytes at hand for what comes next."""

    @property
    def is_full(self) -> bool:
        """True when not one byte more fits."""
        return self.wrote_position == self.size

    @property
    def end_offset(self) -> int:
        """The offset of the first byte not written yet."""
        return self.file_from_offset + self.wrote_position

    @property
    def has_pool_buffer(self) -> bool:
        """True while what is written goes to a buffer of the pool first."""
        return self._pool is not None

    @property
    def committed_position(self) -> int:
        """How much of what was written is in the file."""
        return self.wrote_position if self._pool is None else self._committed_position

    read_position = committed_position
    """Up to where the file can be read and flushed (DefaultMappedFile.getReadPosition)."""

    def select(self, position: int, size: int) -> memoryview | None:
        """Return `size` readable bytes from `position` on, or None if they are not all there.

        None also once the file was shut down.

        Source: DefaultMappedFile.selectMappedBuffer.
        """
        if position < 0 or size < 0 or position + size > self.read_position:
            return None
        return memoryview(self.buffer)[position : position + size] if self.is_available else None

    def allocate(self, end: int) -> None:
        """Make sure that it can be written up to `end`, at most its size.

        Raises:
            StoreFullError: no room; nothing has changed.
        """
        if end <= self.allocated_position:
            return
        step = min(self.allocated_position, ALLOCATE_STEP_MAX)
        end = max(end, self.allocated_position + step)
        end += -end % OS_PAGE_SIZE
        self.file.allocate(min(end, self.size))
        self.allocated_position = self.file.allocated

    # -- commit and flush ------------------------------------------------------------------------

    def is_able_to_commit(self, least_pages: int) -> bool:
        """True if a commit is due: full, or `least_pages` pages late; 0 means any byte.

        Source: DefaultMappedFile.isAbleToCommit.
        """
        return self._is_due(self.committed_position, self.wrote_position, least_pages)

    def is_able_to_flush(self, least_pages: int) -> bool:
        """True if a flush is due: full, or `least_pages` pages late; 0 means any byte.

        Source: DefaultMappedFile.isAbleToFlush.
        """
        return self._is_due(self.flushed_position, self.read_position, least_pages)

    def _is_due(self, done: int, todo: int, least_pages: int) -> bool:
        if done == todo:
            return False
        if least_pages <= 0 or self.wrote_position == self.size:
            return True
        return todo // OS_PAGE_SIZE - done // OS_PAGE_SIZE >= least_pages

    def commit(self, least_pages: int) -> bool:
        """Move what was written from the pool's buffer to the file, if that is due.

        Return whether anything was moved. The first 4 bytes go last, so that a process that dies in
        between leaves all of it or nothing. A file that is full and all committed returns its
        buffer.

        Raises:
            OSError: the disk failed; nothing counts as committed.

        Source: DefaultMappedFile.commit.
        """
        if not self.is_able_to_commit(least_pages):
            return False
        start, end = self._committed_position, self.wrote_position
        head_end = min(start + 4, end)
        with memoryview(self.write_buffer) as written:
            self.file.write(head_end, written[head_end:end])
            self.file.write(start, written[start:head_end])
        self.write_buffer[start:end] = bytes(end - start)
        self._committed_position = end
        if end == self.size:
            self._return_buffer()
        return True

    def _return_buffer(self) -> None:
        """Give the buffer back. Bytes in it that are not committed are lost."""
        if self._pool is None:
            return
        start, end = self._committed_position, self.wrote_position
        self.write_buffer[start:end] = bytes(end - start)
        self._pool.return_buffer(self.write_buffer)
        self._pool = None
        self.write_buffer = self.buffer

    # -- life ------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Keep the file from being closed until `release`; False if it was shut down.

        Source: ReferenceResource.hold.
        """
        if not self.is_available:
            return False
        self._references += 1
        return True

    def go_on_in(self, file: DiskFile) -> None:
        """Go on in another file of the same name and bytes. Readers keep what they have."""
        assert file.size == self.size
        assert self._pool is None
        before = self.file
        file.read_around(0, file.size, wanted=True)
        self.file = file
        self.buffer = self.write_buffer = file.buffer
        self.allocated_position = file.allocated
        before.close()

    def release(self) -> None:
        """Take one `hold` back; the last one after a shutdown closes the file.

        Source: ReferenceResource.release.
        """
        self._references -= 1
        if self._references <= 0:
            self._clean_up()

    def shutdown(self, now_ms: int, interval_forcibly_ms: int) -> None:
        """Close the file, once nobody holds it or `interval_forcibly_ms` after the first call.

        Call it again to have it closed after that time; an interval of 0 closes it now.

        Source: ReferenceResource.shutdown.
        """
        if self.is_available:
            self.is_available = False
            self._first_shutdown_ms = now_ms
            self.release()
        if self._references > 0 and now_ms - self._first_shutdown_ms >= interval_forcibly_ms:
            self._references = _OVERRIDDEN
            self._clean_up()

    def _clean_up(self) -> None:
        assert not self.is_available
        if not self.is_cleanup_over:
            self._return_buffer()
            self.file.close()
            self.is_cleanup_over = True

    def destroy(self, disk: Disk, now_ms: int, interval_forcibly_ms: int) -> bool:
        """Shut the file down and delete it; False if somebody holds it, then try again later.

        Source: DefaultMappedFile.destroy.
        """
        self.shutdown(now_ms, interval_forcibly_ms)
        if not self.is_cleanup_over:
            return False
        if not self.is_read_only:
            disk.remove(self.path)
        return True

    # -- recovery --------------------------------------------------------------------------------

    def set_positions(self, position: int) -> None:
        """Set all positions, as load and recovery do; all before `position` was committed."""
        assert 0 <= position <= self.size
        assert self.committed_position == self.wrote_position
        self.wrote_position = position
        self.flushed_position = position
        self._committed_position = position

    def last_used_position(self, above: int = 0) -> int:
        """Return the position after the last byte that is not zero, written or not.

        Looks no further down than `above`, and returns that if there is nothing but zeros.
        """
        end = self.allocated_position
        while end > above:
            start = max(above, end - len(_ZEROS))
            part = bytes(self.buffer[start:end])
            # Nearly all of a file that was begun lately; comparing is 20 times as fast as rstrip.
            stripped = 0 if part == _ZEROS else len(part.rstrip(b"\0"))
            if stripped:
                return start + stripped
            end = start
        return above

    def zero_from(self, position: int) -> bool:
        """Overwrite everything from `position` on that is not zero. Return whether there was any.

        Leftovers of a truncated log would otherwise be taken for records by the next recovery, as
        soon as new ones of the same length have been written before them.
        """
        end = self.last_used_position(position)
        if end <= position:
            return False
        self.buffer[position:end] = bytes(end - position)
        return True
