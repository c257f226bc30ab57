"""Puts together whole records from pieces of log that are cut anywhere, and checks each.

Only whole records leave: known magic, lengths that add up, their own physical offset, a body that
its CRC fits, room left for the end-of-file record. So the log of the node that
receives them always ends where a record ends, however the frames were cut.

All that is here at one time is checked and handed out in one go: the cost of a check is in the
calls, and a copy that joins the pieces is cheaper.
"""

from __future__ import annotations

import msgspec

from ha.errors import CorruptTransferError
from tandem.wire.record_check import check_records
from tandem.wire.record_rule import BLANK_HEADER_BYTES, ScanStop


class AppendBody(msgspec.Struct, frozen=True):
    """Append `body`, one or more whole checked records, to our commit log at `offset`.

    All of `body` belongs into one file of the log. Its last record starts at `last_record_offset`.
    """

    offset: int
    body: bytes | memoryview
    last_record_offset: int


class WholeRecords:
    """The pieces that have not left yet. They begin where a record begins and end at `end`.

    Memory: the pieces of one round, plus at most one record.
    """

    def __init__(self, *, file_size_bytes: int, record_bytes_max: int, check_crc: bool) -> None:
        assert file_size_bytes > BLANK_HEADER_BYTES
        self._file_size_bytes = file_size_bytes
        self._record_bytes_max = record_bytes_max
        self._check_crc = check_crc
        self.begin(0)

    def begin(self, offset: int) -> None:
        """Forget everything; the next piece begins at physical offset `offset`, with a record."""
        self.end = offset
        """Physical offset after the last piece."""
        self.held_bytes = 0
        self._held: list[bytes | memoryview] = []
        self._needed = BLANK_HEADER_BYTES

    @property
    def is_ready(self) -> bool:
        """True if `take` may have something."""
        return self.held_bytes >= self._needed

    def add(self, piece: bytes | memoryview) -> None:
        """Keep the bytes that follow at `end`."""
        self._held.append(piece)
        self.held_bytes += len(piece)
        self.end += len(piece)

    def take_at_once(self, piece: memoryview) -> AppendBody | None:
        """Take the bytes that follow at `end`, if nothing is held and they are whole sound records.

        That is what a read brings as a rule. None: nothing was taken; `add` them.
        """
        offset, size = self.end, len(piece)
        if self._held or not 0 < size <= self._file_left(offset) - BLANK_HEADER_BYTES:
            return None
        check = check_records(
            piece, offset, check_crc=self._check_crc, record_bytes_max=self._record_bytes_max
        )
        if check.end != size:
            return None
        self.end += size
        return AppendBody(offset, piece, offset + check.last_start)

    def take(self) -> AppendBody | None:
        """Take all whole records that are in one file; None if there are none.

        Raises:
            CorruptTransferError: what comes next is not a sound record. What came before it has
                been handed out.
        """
        while self.held_bytes >= self._needed:
            offset = self.end - self.held_bytes
            held = self._held[0] if len(self._held) == 1 else b"".join(self._held)
            last, end, self._needed = self._find_whole(held, offset, self._file_left(offset))
            # The rest is copied: a view of it would keep all that was received.
            rest = held[end:] if end else held
            self._held = [bytes(rest) if end else rest] if rest else []
            self.held_bytes -= end
            if end:
                return AppendBody(offset, memoryview(held)[:end], offset + last)
        return None

    def _find_whole(
        self, held: bytes | memoryview, offset: int, file_left: int
    ) -> tuple[int, int, int]:
        """Find whole sound records at the beginning of `held`, in one file.

        Returns where the last of them starts and ends, and how many bytes after that end, or
        from 0 on if there are none, are needed to know more.
        """
        _fitting(BLANK_HEADER_BYTES, offset, file_left)
        stop = min(len(held), file_left)
        check = check_records(
            held,
            offset,
            0,
            stop,
            check_crc=self._check_crc,
            record_bytes_max=self._record_bytes_max,
        )
        if check.end:
            _fitting(check.end, offset, file_left - BLANK_HEADER_BYTES)
            return check.last_start, check.end, BLANK_HEADER_BYTES
        needed = check.needed_bytes
        if check.stop is ScanStop.TORN:
            return 0, 0, _fitting(needed, offset, file_left - BLANK_HEADER_BYTES)
        if check.stop is not ScanStop.BLANK:
            reason = check.reason or "zeros where a record should be"
            raise CorruptTransferError(offset=offset, reason=reason)
        if needed != file_left:
            reason = f"end-of-file record of {needed} bytes does not end the file"
            raise CorruptTransferError(offset=offset, reason=reason)
        if stop < needed:
            return 0, 0, needed
        return 0, needed, BLANK_HEADER_BYTES

    def _file_left(self, offset: int) -> int:
        return self._file_size_bytes - offset % self._file_size_bytes


def _fitting(size: int, offset: int, room: int) -> int:
    """Return `size` if the file has room for this many bytes from `offset` on."""
    if size > room:
        reason = f"{size} bytes of records where the file has room for {room}"
        raise CorruptTransferError(offset=offset, reason=reason)
    return size
