"""Walks a commit log from record to record, over damage and across files, in bounded memory.

    FileScan     one file, or a piece of it: windows of sound records, and what is between them
    scan_log     a whole log: the same, and a verdict on each place that holds no sound record

A place without a sound record is a `LogBreak`. What it means shows only after it: with a sound
record somewhere after it the log is *corrupt* there; with none it is *torn*, or simply ends if
there is nothing but zeros. Reading goes on at the next place where a record, by its magic, its
PHYSICALOFFSET and its lengths, starts.

Body CRCs are not checked here: a record that fails its CRC can still be told from its neighbours,
and `tandem.wire.record_scan.body_crcs` says which do.
"""

import os
import struct
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from tandem.data_file import READ_BYTES, DataFile, only_zeros, read_at, read_into
from tandem.log.files import open_file
from tandem.wire.log_end import TailKind, blank_fault
from tandem.wire.message import RECORD_BYTES_MIN
from tandem.wire.record_rule import (
    BLANK_HEADER_BYTES,
    BODY_AT,
    TEXTS_BYTES_MAX,
    RecordParts,
    ScanStop,
    body_at,
    find_record_start,
    look,
    record_fault,
    record_parts,
    record_starts,
)
from tandem.wire.record_scan import Int64s, RecordColumns, RecordWalk, read_columns, walk_records

RECORD_BYTES_MAX: Final = 128 << 20
"""Longer records are taken for damage: RocketMQ's own limit is 4 MiB, and one has to be held."""

_SEARCH_BYTES: Final = 1 << 20
_WINDOW_BYTES_MIN: Final = 64 << 10
"""What is read after a place where the walk had to start over; doubles with every good window."""

_FULL_HEAD_BYTES: Final = BODY_AT + 24  # up to BODYLENGTH with v6 hosts
_INT: Final = struct.Struct(">i")


class LogBreak(msgspec.Struct, frozen=True):
    """No sound record starts at `position` of `file`; `end` is where reading goes on.

    `stop` and `reason` are those of the scan; ZEROS if there is nothing else up to `end`.
    """

    file: DataFile
    position: int
    end: int
    stop: ScanStop
    reason: str

    @property
    def offset(self) -> int:
        """The physical offset of the place."""
        return self.file.offset + self.position


class LogWindow(msgspec.Struct, frozen=True, eq=False):
    """Some bytes of a file from `position` on, the sound records in them, and the breaks.

    Positions in `columns` count from the beginning of `data`, which is reused for the next window.
    """

    file: DataFile
    position: int
    data: memoryview
    columns: RecordColumns
    breaks: tuple[LogBreak, ...]

    @property
    def base_offset(self) -> int:
        """The physical offset of the first byte of `data`."""
        return self.file.offset + self.position


class LogDamage(msgspec.Struct, frozen=True):
    """What is at a break: `corrupt` if a sound record follows it, else `torn`."""

    kind: TailKind
    file: str
    offset: int
    position: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.file}: position {self.position} (offset {self.offset})"
        if self.kind == "torn":
            return f"{where}: torn: {self.reason}; no record follows"
        return f"{where}: corrupt: {self.reason}; going on at the next record"


class FileScan:
    """The walk over the records that start in [start, stop) of one file.

    `end` is how far the walk is, at last past the last record; `closed` is True once the blank
    record that closes the file was met.
    """

    def __init__(
        self, descriptor: int, file: DataFile, start: int = 0, stop: int | None = None
    ) -> None:
        self.end = start
        self.closed = False
        self._descriptor = descriptor
        self._file = file
        self._stop = file.size if stop is None else min(stop, file.size)
        self._data = bytearray(min(READ_BYTES, max(file.size, BLANK_HEADER_BYTES)))
        self._window_bytes = len(self._data)
        self._starts: list[Int64s] = []
        self._breaks: list[LogBreak] = []

    def windows(self) -> Iterator[LogWindow]:
        """Yield windows in order; those without a record or break are left out."""
        while self.end < self._stop and not self.closed:
            position = self.end
            data = memoryview(self._data)[: self._window_bytes]
            size = read_into(self._descriptor, data, position)
            if size == 0:
                reason = "the file is shorter than when it was looked at first"
                self._break(position, self._file.size, ScanStop.TORN, reason)
            else:
                self._walk(position, size)
            self._window_bytes = max(self._window_bytes, min(2 * size, len(self._data)))
            window = self._window(position, size)
            if len(window.columns) or window.breaks:
                yield window

    def _window(self, position: int, size: int) -> LogWindow:
        data = memoryview(self._data)[:size]
        starts = np.concatenate(self._starts) if self._starts else np.empty(0, np.int64)
        columns = read_columns(data, starts[starts < self._stop - position])
        places = self._file.offset + position + columns.start
        good = columns.sound & (columns.physical_offset == places)
        if not good.all():
            cut = self._break_off_unsound(data, position, columns, np.flatnonzero(~good))
            good[cut:] = False
            columns = columns.take(good)
        breaks = tuple(_merged(sorted(self._breaks, key=lambda found: found.position)))
        self._starts.clear()
        self._breaks.clear()
        return LogWindow(self._file, position, data, columns, breaks)

    def _break_off_unsound(
        self, data: memoryview, position: int, columns: RecordColumns, rows: Int64s
    ) -> int:
        """Turn records that are none into breaks; return the row that the window is cut at.

        Their sizes cannot be trusted either: where a record starts inside of one, the walk has to
        start over there.
        """
        base = self._file.offset + position
        row: int
        for row in rows.tolist():
            start = int(columns.start[row])
            end = start + int(columns.size[row])
            reason = record_fault(data, base, start, check_crc=False) or "its lengths do not fit"
            inside = find_record_start(self._data, base, start + 1)
            if 0 <= inside < end and self._is_record(position + inside):
                known = [found for found in self._breaks if found.position < position + start]
                self._breaks = known
                self.end = 0
                self.closed = False
                self._break(position + start, position + inside, ScanStop.CORRUPT, reason)
                self._window_bytes = min(_WINDOW_BYTES_MIN, len(self._data))
                return row
            self._break(position + start, position + end, ScanStop.CORRUPT, reason)
        return len(columns)

    def _break(self, position: int, end: int, stop: ScanStop, reason: str) -> None:
        self.end = max(self.end, end)
        self._breaks.append(LogBreak(self._file, position, end, stop, reason))

    def _walk(self, position: int, size: int) -> None:
        """Collect the record starts of this window; leave `end` where the next one begins."""
        at = 0
        while at < size and not self.closed:
            walk = walk_records(self._data, at, size, record_bytes_max=RECORD_BYTES_MAX)
            self._starts.append(walk.starts)
            self.end = position + walk.end
            first_past = np.searchsorted(walk.starts, self._stop - position)
            if first_past < len(walk.starts):
                self.end = position + int(walk.starts[first_past])
            if self.end >= self._stop or self._reads_on(walk, position, size):
                return
            at = self._over_break(walk, position, size) - position

    def _reads_on(self, walk: RecordWalk, position: int, size: int) -> bool:
        """Say whether the walk only needs the next window, or a larger one."""
        if walk.stop is ScanStop.END:
            return True
        if walk.stop is not ScanStop.TORN or self.end + walk.needed_bytes > self._file.size:
            return False
        if walk.end > 0:
            return True
        if size < self._window_bytes or not adds_up(self._descriptor, self._file, position):
            return False
        if walk.needed_bytes > len(self._data):
            self._data = bytearray(walk.needed_bytes)
        self._window_bytes = len(self._data)
        return True

    def _over_break(self, walk: RecordWalk, position: int, size: int) -> int:
        """Note why the walk stopped; return the position in the file where it goes on."""
        here = self.end
        left = self._file.size - here
        stop, reason = walk.stop, walk.reason
        if stop is ScanStop.BLANK:
            stop, reason = ScanStop.CORRUPT, blank_fault(walk.needed_bytes, left)
            if not reason:
                self.closed = True
                self.end = self._file.size
                return self.end
        if stop is ScanStop.ZEROS and self._only_zeros(here, position, size):
            resume = self._file.size
            reason = "zeros"
        else:
            resume = self._next_record(here + 1, position, size)
            if stop is ScanStop.ZEROS:
                stop, reason = ScanStop.CORRUPT, "zeros, with other bytes after them"
        self._break(here, resume, stop, reason)
        return resume

    def _only_zeros(self, here: int, position: int, size: int) -> bool:
        """Say whether nothing but zeros follows; looks no further than it must."""
        at = here - position
        step = 64
        while at < size:
            if any(self._data[at : min(at + step, size)]):
                return False
            at += step
            step = min(2 * step, _SEARCH_BYTES)
        return only_zeros(self._descriptor, position + size, self._file.size)

    def _next_record(self, start: int, position: int, size: int) -> int:
        """Return where the next record starts, in this window or after it, else the file's end."""
        at = start - position
        base = self._file.offset + position
        while 0 <= (found := find_record_start(self._data, base, at)) <= size - RECORD_BYTES_MIN:
            if self._is_record(position + found):
                return position + found
            at = found + 1
        start = max(start, position + size - RECORD_BYTES_MIN)
        return next_record(self._descriptor, self._file, start)

    def _is_record(self, position: int) -> bool:
        return adds_up(self._descriptor, self._file, position)


def _merged(breaks: list[LogBreak]) -> Iterator[LogBreak]:
    """Make one of breaks that are side by side, with the reason of the first one."""
    held: LogBreak | None = None
    for found in breaks:
        if held is not None and held.end == found.position and held.stop is found.stop:
            held = msgspec.structs.replace(held, end=found.end)
            continue
        if held is not None:
            yield held
        held = found
    if held is not None:
        yield held


def adds_up(descriptor: int, file: DataFile, position: int) -> bool:
    """Say whether a record with its own place and lengths that add up is at `position`.

    The body is not read, however long it claims to be: the lengths of a record add up if those of
    the same record with an empty body do.
    """
    head = read_at(descriptor, position, _FULL_HEAD_BYTES)
    if look(head, 0, file.size - position, RECORD_BYTES_MAX)[0] is not None:
        return False
    size = int.from_bytes(head[:4], "big")
    body_start = body_at(int.from_bytes(head[36:40], "big"))
    body_bytes = int.from_bytes(head[body_start - 4 : body_start], "big", signed=True)
    texts_bytes = size - body_start - body_bytes
    if body_bytes < 0 or not 0 < texts_bytes <= TEXTS_BYTES_MAX:
        return False
    texts = read_at(descriptor, position + body_start + body_bytes, texts_bytes)
    bare = _INT.pack(body_start + len(texts)) + head[4 : body_start - 4] + _INT.pack(0) + texts
    return len(texts) == texts_bytes and isinstance(
        record_parts(bare, file.offset + position, 0), RecordParts
    )


def next_record(descriptor: int, file: DataFile, start: int) -> int:
    """Return the first position at or after `start` where a record starts, else the file's end."""
    read, skip = partial(read_at, descriptor), partial(_over_hole, descriptor)
    found = record_starts(read, file.offset, start, file.size, _SEARCH_BYTES, skip)
    return next((at for at in found if adds_up(descriptor, file, at)), file.size)


def _over_hole(descriptor: int, position: int) -> int:
    """Return where the next data may be; a length of zeros before it may be in the hole."""
    try:
        return max(position, os.lseek(descriptor, position, os.SEEK_DATA) - 8)
    except OSError:  # ENXIO: only a hole is left
        return sys.maxsize


def scan_log(
    files: Sequence[DataFile], start_offset: int = 0, end_offset: int | None = None
) -> Iterator[LogWindow | LogDamage]:
    """Walk a log in order: windows of sound records, and what is damaged before or after them.

    Whole files before `start_offset` are left out, records at or after `end_offset` too. Zeros
    after the last record are the normal end and no damage. Breaks in a window come as `LogDamage`
    as soon as a sound record after them is met; `LogWindow.breaks` need not be looked at.
    """
    pending: list[LogBreak] = []
    for item in _windows(files, start_offset, end_offset):
        if isinstance(item, LogBreak):
            pending.append(item)
            continue
        starts = item.columns.start
        last = item.position + int(starts[-1]) if len(starts) else -1
        after = [found for found in item.breaks if found.position > last]
        if len(starts):
            before = [found for found in item.breaks if found.position < last]
            yield from (_damage(found, "corrupt") for found in (*pending, *before))
            pending = []
            yield item
        pending += after
    if any(found.stop is not ScanStop.ZEROS for found in pending):
        yield _damage(pending[0], "torn")


def _windows(
    files: Sequence[DataFile], start_offset: int, end_offset: int | None
) -> Iterator[LogWindow | LogBreak]:
    before: DataFile | None = None
    for file in files:
        stop = file.size if end_offset is None else end_offset - file.offset
        if file.end_offset <= start_offset or stop <= 0 or not file.size:
            continue
        if before is not None and before.end_offset != file.offset:
            yield missing_file(before, file)
        before = file
        with open_file(file.path) as descriptor:
            yield from FileScan(descriptor, file, 0, stop).windows()


def missing_file(before: DataFile, after: DataFile) -> LogBreak:
    """Return the break between two files that are not neighbours."""
    gap = after.offset - before.end_offset
    what = f"{gap} bytes between are missing" if gap > 0 else "the files overlap"
    reason = f"the log goes on at {after.offset} in {after.path}: {what}"
    return LogBreak(before, before.size, before.size, ScanStop.CORRUPT, reason)


def _damage(found: LogBreak, kind: TailKind) -> LogDamage:
    return LogDamage(kind, found.file.path, found.offset, found.position, found.reason)


class LogExtent(msgspec.Struct, frozen=True):
    """Where a log begins and ends, in physical offsets; the end is after the last sound record.

    `last_record_offset` is -1, and the times 0, if there is no record in the file that ends it.
    """

    start: int
    end: int
    last_record_offset: int = -1
    last_store_timestamp_ms: int = 0


def log_extent(files: Sequence[DataFile]) -> LogExtent:
    """Find the end of a log: walks the last file that holds a sound record.

    A blank record that closes the file counts as part of the log.
    """
    start = files[0].offset if files else 0
    for file in reversed(files):
        end, last, stored_ms = -1, -1, 0
        with open_file(file.path) as descriptor:
            scan = FileScan(descriptor, file)
            for window in scan.windows():
                if len(window.columns):
                    row = len(window.columns) - 1
                    last = window.base_offset + int(window.columns.start[row])
                    end = last + int(window.columns.size[row])
                    stored_ms = int(window.columns.store_timestamp_ms[row])
        if end >= 0:
            return LogExtent(start, file.end_offset if scan.closed else end, last, stored_ms)
    return LogExtent(start, start)


def record_at(descriptor: int, file: DataFile, position: int) -> LogWindow | None:
    """Return the one record at `position` as a window, None if no sound record is there."""
    if not adds_up(descriptor, file, position):
        return None
    size = int.from_bytes(read_at(descriptor, position, 4), "big")
    data = memoryview(bytearray(size))
    if read_into(descriptor, data, position) < size:
        return None
    columns = read_columns(data, np.zeros(1, np.int64))
    return LogWindow(file, position, data, columns, ()) if columns.sound[0] else None
