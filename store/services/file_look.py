"""FileLook: one look at a closed file of the log, slice after slice, by its records.

    slice --> sound records, to compare queues with them
          --> places where no sound record is, and why

A record may begin in one slice and end in the next. After a bad place the look goes on with the
next record that can be found; after a slice that was not there it goes on no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from store.files.mapped_file import MappedFile
from store.log.log_end import (
    Blank,
    DispatchRequest,
    find_log_end,
    intact_records,
    read_record,
    record_behind,
)
from tandem.wire.fingerprint import Fingerprint
from tandem.wire.message import RECORD_BYTES_MIN
from tandem.wire.record_scan import RecordColumns, read_columns

BadPlace: TypeAlias = "tuple[int, int, str]"
"""From where to where, and why."""


class FileLook:
    """What one look at a closed file knows, slice after slice."""

    def __init__(self, file: MappedFile, known: Fingerprint | None) -> None:
        self.file = file
        self.known = known
        self.crcs = bytearray()
        self.is_sound = True
        self.differing: list[tuple[int, int]] = []
        """What the disk has otherwise than memory, of a file without fingerprint."""
        self._rest = b""
        self._rest_offset = file.file_from_offset
        self._is_over = False
        self._columns: list[tuple[bytes, RecordColumns]] = []

    def forget(self) -> None:
        """Go by records from now on; a fingerprint is made the next time, from the first block."""
        self.known = None
        self.is_sound = False

    def lost(self) -> None:
        """Give up on records and on a fingerprint: a slice of the file is not there."""
        self.is_sound = False
        self._is_over = True

    def take_columns(self) -> list[tuple[bytes, RecordColumns]]:
        """Return the sound records since the last call."""
        taken, self._columns = self._columns, []
        return taken

    def records(self, offset: int, data: bytes, *, check_crc: bool) -> Iterator[BadPlace]:
        """Go on with the next slice; yield where no sound record is, and why."""
        if self._is_over:
            return
        data = self._rest + data
        start = self._rest_offset
        file_end = self.file.file_from_offset + self.file.size
        while data:
            columns = intact_records(data, start, check_crc=check_crc)
            used = int(columns.start[-1] + columns.size[-1]) if len(columns) else 0
            if used:
                self._columns.append((data, columns))
                data, start = data[used:], start + used
            found = read_record(data, 0, len(data), start, check_crc=check_crc) if data else None
            if isinstance(found, Blank):
                self._is_over = True
                break
            if found is None or isinstance(found, DispatchRequest):
                if found is not None:
                    self._columns.append((data, read_columns(data, np.zeros(1, np.int64))))
                    data, start = data[found.size :], start + found.size
                continue
            if start + len(data) < file_end and _may_go_on(data, start, file_end):
                break
            self.is_sound = False
            following = record_behind([self.file], start)
            bad_end = following.offset if following is not None else file_end
            yield start, bad_end, found.reason
            skipped = bad_end - start
            if skipped >= len(data):
                self._is_over = skipped > len(data) or bad_end == file_end
                data = b""
                start = bad_end
            else:
                data, start = data[skipped:], bad_end
        self._rest, self._rest_offset = data, start

    def is_written_anew(self, known: Fingerprint, start: int) -> bool:
        """True if everything from the block at `start` on was written by somebody else since.

        All blocks up to the last one with a record differ, and all records in them are sound.
        """
        file = self.file
        end = find_log_end([file], lambda _buffer, _columns: None)
        if end.reason != "blank record" and end.offset < known.end:
            return False
        last = max(end.last_record_offset, start)
        with memoryview(file.buffer) as view:
            differing = {
                begin
                for _, begin, stop in known.blocks(start, last + 1)
                if known.differing(begin, view[begin - known.start : stop - known.start])
            }
        return len(differing) == len(list(known.blocks(start, last + 1)))


def _may_go_on(data: bytes, start: int, file_end: int) -> bool:
    """True if what begins here may be a record whose end is in the next slice, or a blank."""
    size = int.from_bytes(data[:4], "big")
    return len(data) < RECORD_BYTES_MIN or len(data) < size <= file_end - start
