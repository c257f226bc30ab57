"""The files of a commit log: which there are, where the log ends, where they may be cut.

    store root/commitlog/00000000000000000000    every file of one size, filled with zeros
                         00000000000067108864    the name is the physical offset of its first byte

The end of the log is where, in the last file that holds anything, sound records end and nothing but
zeros follows, or a blank record does. If something else follows, the tail is *unclean*: it is read
to the end of the file, and the reader will meet the damage and say what it is. A running node is
writing while we look, so an unclean tail is looked at again for a short while; if records have
become whole by then, the log simply ends, for us, where it ended at first sight.

A file is cut only where a record is known to start: at an entry of a consume queue that the log
confirms, else at the first record found by its magic and physical offset after the wanted place.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from tandem.data_file import DataFile, only_zeros, opened, read_into
from tandem.spark.commitlog.queue_starts import QueueStarts
from tandem.spark.errors import NotAStoreError
from tandem.wire.record_rule import (
    BLANK_HEADER_BYTES,
    CHECKED_HEAD_BYTES,
    ScanStop,
    find_record_start,
)
from tandem.wire.record_scan import RecordScan, scan_records

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""How much of a file is read at a time. Arrow batches of 2 to 4 MB were the fastest."""

_LOOKS_MAX: Final = 10
_LOOK_INTERVAL_SECONDS: Final = 0.02
_OFFSET_MAX: Final = 2**63 - 1
_FILE_NAME_DIGITS: Final = 20
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
    return Path(unquote(urlsplit(text).path)) if text.startswith("file:") else Path(text)


def commit_log_folder(path: Path) -> Path:
    """Return the directory that holds the log's files.

    Raises:
        NotAStoreError: `path` is neither a store root nor a commitlog directory.
    """
    if not path.is_dir():
        raise NotAStoreError(f"{path} is not a directory; give a store root, or its commitlog")
    if (path / "commitlog").is_dir():
        return path / "commitlog"
    if path.name == "commitlog" or any(_is_log_file(entry) for entry in path.iterdir()):
        return path
    raise NotAStoreError(
        f"{path} has neither a directory `commitlog` nor files named by 20 digits in it"
    )


def _is_log_file(entry: Path) -> bool:
    name = entry.name
    is_number = len(name) == _FILE_NAME_DIGITS and name.isascii() and name.isdecimal()
    return is_number and int(name) <= _OFFSET_MAX and entry.is_file()


def list_log_files(folder: Path) -> list[DataFile]:
    """Return the files in order, without the empty ones at the end that wait to be written to."""
    found = (
        DataFile(str(entry), int(entry.name), entry.stat().st_size)
        for entry in folder.iterdir()
        if _is_log_file(entry)
    )
    files = sorted((file for file in found if file.size), key=lambda file: file.offset)
    while files:
        with opened(files[-1].path) as descriptor:
            if not only_zeros(descriptor, 0, files[-1].size):
                break
        files.pop()
    return files


def scan_windows(descriptor: int, file: DataFile, start: int, end: int) -> Iterator[Window]:
    """Scan the records in [start, end) of a file, window by window. Body CRCs are not checked.

    The last window's `scan.check` says why the scan went no further; TORN there means that the
    record runs past `end`.
    """
    data = bytearray(min(WINDOW_BYTES, max(end - start, BLANK_HEADER_BYTES)))
    position = start
    while True:
        size = read_into(descriptor, memoryview(data)[: end - position], position)
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


def log_tail(file: DataFile, start: int = 0) -> LogTail:
    """Find the end of the log in its last file, walking from the record that starts at `start`."""
    with opened(file.path) as descriptor:
        end, clean = _look_at_tail(descriptor, file, start)
        for _ in range(_LOOKS_MAX):
            if clean:
                break
            time.sleep(_LOOK_INTERVAL_SECONDS)  # noqa: TID251 - a Spark driver, not a node
            now, clean = _look_at_tail(descriptor, file, end)
            clean |= now > end
    return LogTail(end, clean)


def _look_at_tail(descriptor: int, file: DataFile, start: int) -> tuple[int, bool]:
    end = start
    stop = ScanStop.END
    for window in scan_windows(descriptor, file, start, file.size):
        end = window.end
        stop = window.scan.check.stop
    if stop is ScanStop.ZEROS:
        return end, only_zeros(descriptor, end, file.size)
    return end, stop in (ScanStop.BLANK, ScanStop.END)


def next_record(descriptor: int, file: DataFile, start: int, end: int) -> int | None:
    """Return the first position in [start, end) where a record seems to begin."""
    data = bytearray(min(WINDOW_BYTES, max(end - start, CHECKED_HEAD_BYTES)))
    position = start
    while position < end:
        size = read_into(descriptor, memoryview(data)[: end - position], position)
        if size < len(data):
            del data[size:]
        found = find_record_start(data, file.offset + position)
        if found >= 0:
            return position + found
        if position + size >= end or size <= CHECKED_HEAD_BYTES:
            return None
        position += size - CHECKED_HEAD_BYTES
    return None


def cut_file(file: DataFile, end: int, split_bytes: int, starts: QueueStarts) -> list[int]:
    """Return record starts that cut [0, end) of a file into pieces of about `split_bytes`.

    The first is 0; `end` is not among them.
    """
    cuts = [0]
    with opened(file.path) as descriptor:
        wanted = split_bytes
        while end - wanted > split_bytes * (_SPLIT_SLOP - 1):
            cut = _known_start(descriptor, file, wanted, starts)
            if cut is None:
                cut = next_record(descriptor, file, wanted, end)
            if cut is None or cut >= end:
                break
            cuts.append(cut)
            wanted = cut + split_bytes
    return cuts


def _known_start(descriptor: int, file: DataFile, wanted: int, starts: QueueStarts) -> int | None:
    """Return the position of a consume queue's next entry, if the log confirms it."""
    offset = starts.first_at(file.offset + wanted)
    if offset is None or offset >= file.end_offset:
        return None
    return offset - file.offset if is_record(descriptor, file, offset - file.offset) else None


def is_record(descriptor: int, file: DataFile, position: int) -> bool:
    """Say whether a record's head, with the right physical offset, is at `position`."""
    head = bytearray(CHECKED_HEAD_BYTES)
    read_into(descriptor, memoryview(head), position)
    return find_record_start(head, file.offset + position) == 0
