"""The files of a commit log: which hold data, where the log ends, where they may be cut.

    store root/commitlog/00000000000000000000    every file of one size, filled with zeros
                         00000000000067108864    the name is the physical offset of its first byte

The end of the log is where, in the last file that holds anything, sound records end and nothing but
zeros follows, or a blank record that fills the file. If something else follows, the tail is
*unclean*: it is read to the end of the file, and the reader will meet the damage and say what it
is. A running node is writing while we look, so an unclean tail is looked at again for a short
while; if records have become whole by then, the log simply ends, for us, where it ended at first
sight.

A file is cut only where a record is known to start: at an entry of a consume queue that the log
confirms, else at the first record found by its magic and physical offset after the wanted place.
"""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tandem.data_file import DataFile
from tandem.spark.commitlog.places import StorePlace, list_files, place_of
from tandem.spark.commitlog.queue_starts import QueueStarts
from tandem.spark.commitlog.storage import LocalStorage, OpenedFile, Storage, local_part
from tandem.wire.log_end import blank_fault
from tandem.wire.record_rule import (
    BLANK_HEADER_BYTES,
    CHECKED_HEAD_BYTES,
    ScanStop,
    find_record_start,
    record_starts,
)
from tandem.wire.record_scan import RecordScan, scan_records

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""How much of a file is read at a time. Arrow batches of 2 to 4 MB were the fastest."""

_LOOKS_MAX: Final = 10
_LOOK_INTERVAL_SECONDS: Final = 0.02
_SPLIT_SLOP: Final = 1.1  # as Hadoop: no split is cut for less than a tenth


class LogTail(msgspec.Struct, frozen=True):
    """Where the log ends: `end` is a position in the last file. See the module for `clean`."""

    end: int
    clean: bool


class Window(msgspec.Struct, frozen=True, eq=False):
    """Some bytes of a file from `position` on, and the sound records at their beginning.

    `data` is reused for the next window.
    """

    position: int
    data: bytearray
    scan: RecordScan

    @property
    def end(self) -> int:
        """The position in the file after the last sound record."""
        return self.position + self.scan.check.end


def local_path(text: str) -> Path:
    """Return the path that `text` names, with or without Spark's `file:` in front."""
    return Path(local_part(text))


def commit_log_folder(path: Path) -> Path:
    """Return the directory that holds the log's files, of a store on this machine.

    Raises:
        NotAStoreError: `path` is neither a store root nor a commitlog directory.
    """
    return Path(place_of(str(path)).directories[0])


def list_log_files(folder: Path) -> list[DataFile]:
    """Return the files of one directory of this machine; see `files_with_data`."""
    return files_with_data(StorePlace(str(folder), str(folder), (str(folder),)))


def files_with_data(place: StorePlace) -> list[DataFile]:
    """Return the files in order, without the empty ones at the end that wait to be written to."""
    files = list_files(place)
    while files:
        with place.storage.opened(files[-1].path) as opened:
            if not opened.only_zeros(0, files[-1].size):
                break
        files.pop()
    return files


def scan_windows(opened: OpenedFile, file: DataFile, start: int, end: int) -> Iterator[Window]:
    """Scan the records in [start, end) of a file, window by window. Body CRCs are not checked.

    The last window's `scan.check` says why the scan went no further; TORN there means that the
    record runs past `end`.
    """
    data = bytearray(min(WINDOW_BYTES, max(end - start, BLANK_HEADER_BYTES)))
    position = start
    while True:
        size = opened.read_into(memoryview(data)[: end - position], position)
        scan = scan_records(data, file.offset + position, 0, size, check_crc=False)
        window = Window(position, data, scan)
        yield window
        if scan.check.stop not in (ScanStop.TORN, ScanStop.END) or window.end >= end:
            return
        if window.end + scan.check.needed_bytes > end:
            return
        if not scan.check.count:
            if not _is_begun(window, file, size):
                return
            data = bytearray(scan.check.needed_bytes)
        position = window.end


def _is_begun(window: Window, file: DataFile, size: int) -> bool:
    """Say whether the one record of a window goes on after it, and is not just a mad length."""
    head = window.data[:CHECKED_HEAD_BYTES]
    return size == len(window.data) and find_record_start(head, file.offset + window.position) == 0


def log_tail(
    file: DataFile, start: int = 0, storage: Storage | None = None, bound: int | None = None
) -> LogTail:
    """Find the end of the log in its last file, walking from the record that starts at `start`.

    The file counts up to the position `bound`, if that is given, as if nothing came after it.
    """
    stop = file.size if bound is None else min(bound, file.size)
    with (storage or LocalStorage()).opened(file.path) as opened:
        end, clean = _look_at_tail(opened, file, start, stop)
        for _ in range(_LOOKS_MAX):
            if clean:
                break
            time.sleep(_LOOK_INTERVAL_SECONDS)  # noqa: TID251 - a Spark driver, not a node
            now, clean = _look_at_tail(opened, file, end, stop)
            clean |= now > end
    return LogTail(end, clean)


def _look_at_tail(opened: OpenedFile, file: DataFile, start: int, stop: int) -> tuple[int, bool]:
    (window,) = deque(scan_windows(opened, file, start, stop), maxlen=1)
    end, check = window.end, window.scan.check
    if check.stop is ScanStop.ZEROS:
        return end, opened.only_zeros(end, stop)
    if check.stop is ScanStop.BLANK:
        return end, not blank_fault(check.needed_bytes, file.size - end)
    return end, check.stop is ScanStop.END


def next_record(opened: OpenedFile, file: DataFile, start: int, end: int) -> int | None:
    """Return the first position in [start, end) where a record seems to begin."""

    def read(position: int, size: int) -> bytearray:
        data = bytearray(size)
        del data[opened.read_into(memoryview(data), position) :]
        return data

    return next(record_starts(read, file.offset, start, end, WINDOW_BYTES), None)


def cut_file(
    storage: Storage,
    file: DataFile,
    start: int,
    end: int,
    split_bytes: int,
    starts: QueueStarts,
) -> list[int]:
    """Return record starts that cut [start, end) of a file into pieces of about `split_bytes`.

    The first is `start`; `end` is not among them.
    """
    cuts = [start]
    wanted = start + split_bytes
    if end - wanted <= split_bytes * (_SPLIT_SLOP - 1):
        return cuts
    with storage.opened(file.path) as opened:
        while end - wanted > split_bytes * (_SPLIT_SLOP - 1):
            cut = _known_start(opened, file, wanted, starts, split_bytes)
            if cut is None:
                cut = next_record(opened, file, wanted, end)
            if cut is None or cut >= end:
                break
            cuts.append(cut)
            wanted = cut + split_bytes
    return cuts


def _known_start(
    opened: OpenedFile, file: DataFile, wanted: int, starts: QueueStarts, split_bytes: int
) -> int | None:
    """Return the position of a consume queue's next entry, if the log confirms it."""
    offset = starts.first_at(file.offset + wanted, near_bytes=split_bytes // 8)
    if offset is None or offset >= file.end_offset:
        return None
    return offset - file.offset if is_record(opened, file, offset - file.offset) else None


def is_record(opened: OpenedFile, file: DataFile, position: int) -> bool:
    """Say whether a record's head, with the right physical offset, is at `position`."""
    head = bytearray(CHECKED_HEAD_BYTES)
    opened.read_into(memoryview(head), position)
    return find_record_start(head, file.offset + position) == 0
