"""MappedFile: one file of fixed size, written from its start to its end.

The name is its first offset in 20 digits. `wrote_position` says how far it is filled,
`flushed_position` how much of that is known to be on disk; neither is stored, recovery finds them
again.

    0 <= flushed_position <= wrote_position <= size

Source: org.apache.rocketmq.store.logfile.DefaultMappedFile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store.disk import DiskFile

OS_PAGE_SIZE: Final = 4096


class MappedFile:
    """One open file. Its `MappedFileQueue` owns and closes it."""

    __slots__ = ("buffer", "file", "file_from_offset", "flushed_position", "size", "wrote_position")

    def __init__(self, file: DiskFile, file_from_offset: int) -> None:
        self.file = file
        self.file_from_offset = file_from_offset
        self.size = file.size
        self.buffer = file.buffer
        self.wrote_position = 0
        self.flushed_position = 0

    def __repr__(self) -> str:
        return f"<MappedFile {self.file.path} wrote {self.wrote_position} of {self.size}>"

    @property
    def is_full(self) -> bool:
        """True when not one byte more fits."""
        return self.wrote_position == self.size

    @property
    def end_offset(self) -> int:
        """The offset of the first byte not written yet."""
        return self.file_from_offset + self.wrote_position

    def select(self, position: int, size: int) -> memoryview | None:
        """Return `size` written bytes from `position` on, or None if they are not all there."""
        if position < 0 or size < 0 or position + size > self.wrote_position:
            return None
        return memoryview(self.buffer)[position : position + size]

    def is_able_to_flush(self, least_pages: int) -> bool:
        """True if a flush is due: full, or `least_pages` pages behind; 0 means any byte.

        Source: DefaultMappedFile.isAbleToFlush.
        """
        if self.flushed_position == self.wrote_position:
            return False
        if self.is_full or least_pages <= 0:
            return True
        return (
            self.wrote_position // OS_PAGE_SIZE - self.flushed_position // OS_PAGE_SIZE
            >= least_pages
        )

    def set_positions(self, position: int) -> None:
        """Set both positions, as load and recovery do."""
        assert 0 <= position <= self.size
        self.wrote_position = position
        self.flushed_position = position

    def last_used_position(self) -> int:
        """Return the position behind the last byte that is not zero, written or not."""
        buffer = self.buffer
        end = self.size
        chunk = 1 << 20
        while end > 0:
            start = max(0, end - chunk)
            stripped = len(bytes(buffer[start:end]).rstrip(b"\0"))
            if stripped:
                return start + stripped
            end = start
        return 0

    def zero_from(self, position: int) -> bool:
        """Overwrite everything behind `position` that is not zero. Return whether there was any.

        Leftovers of a truncated log would otherwise be taken for records by the next recovery, as
        soon as new ones of the same length have been written in front of them.
        """
        end = self.last_used_position()
        if end <= position:
            return False
        self.buffer[position:end] = bytes(end - position)
        return True
