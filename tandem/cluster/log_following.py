"""The log files of several processes, read as one stream of records, in the order of time.

A log is rotated by its process while it is read. The reader reads a file that was opened, so a
rename takes nothing away; the next one is found among the parts by their inodes.
"""

import heapq
import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import IO, Final, Self

import msgspec

from tandem.cluster.log_records import LogRecord, RecordReader
from tandem.process_log import parts_of

READ_BYTES_MAX: Final = 1_048_576


class ProcessFile(msgspec.Struct, frozen=True):
    """Where a process logs."""

    process: str
    file: Path


class _Follower:
    """One process's log: what is there, in all its parts, and then what comes."""

    def __init__(self, source: ProcessFile, since_seconds: float) -> None:
        self._file = source.file
        self._reader = RecordReader(source.process)
        self._since_seconds = since_seconds
        self._rest = b""
        self._part: IO[bytes] | None = None
        self._waiting: deque[IO[bytes]] = deque()

    def open(self) -> None:
        """Open all parts as they are now, but those that ended before the time that is wanted.

        Raises:
            OSError: One cannot be opened.
        """
        for path in parts_of(self._file):
            part = _opened(path)
            if part is None:
                continue
            is_wanted = os.fstat(part.fileno()).st_mtime >= self._since_seconds
            if is_wanted or path == self._file:
                self._waiting.append(part)
            else:
                part.close()

    def close(self) -> None:
        """Close what is open."""
        for part in (*self._waiting, *([self._part] if self._part else [])):
            part.close()

    def there(self) -> Iterator[LogRecord]:
        """Yield the records that are there now, the last one even if it may go on."""
        while True:
            yield from self._rest_of_part()
            if not self._waiting and self._was_emptied():
                continue
            if not self._waiting:
                self._find_newer()
            if not self._waiting:
                yield from self._wanted(self._reader.flush())
                return
            # What came between the last read and the rename.
            yield from self._rest_of_part()
            self._next()

    def _rest_of_part(self) -> Iterator[LogRecord]:
        while self._part is not None and (chunk := self._part.read(READ_BYTES_MAX)):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            yield from self._wanted(self._reader.records(lines))

    def _wanted(self, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        return (record for record in records if record.at_seconds >= self._since_seconds)

    def _next(self) -> None:
        if self._part is not None:
            self._part.close()
        self._part = self._waiting.popleft()
        # A process ends its lines; half of one is that of a process that was killed.
        self._rest = b""

    def _was_emptied(self) -> bool:
        """Whether somebody has made the file shorter; it is then read from its beginning."""
        part = self._part
        if part is None or os.fstat(part.fileno()).st_size >= part.tell():
            return False
        part.seek(0)
        return True

    def _find_newer(self) -> None:
        inode = os.fstat(self._part.fileno()).st_ino if self._part is not None else None
        try:
            if self._file.stat().st_ino == inode:
                return
        except FileNotFoundError:
            return
        parts = [part for path in parts_of(self._file) if (part := _opened(path)) is not None]
        inodes = [os.fstat(part.fileno()).st_ino for part in parts]
        # Not there: later rotations have deleted it, and all of these are newer.
        first = inodes.index(inode) + 1 if inode in inodes else 0
        for part in parts[:first]:
            part.close()
        self._waiting.extend(parts[first:])


class LogFollower:
    """The logs of several processes. A context manager, which closes them.

    Raises:
        OSError: From `__enter__` and `records`: a file cannot be read.
    """

    def __init__(self, sources: list[ProcessFile], *, since_seconds: float = 0.0) -> None:
        self._followers = [_Follower(source, since_seconds) for source in sources]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for follower in self._followers:
            self._stack.callback(follower.close)
            follower.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def records(self) -> Iterator[LogRecord]:
        """Yield what is there and was not yielded yet, merged by time.

        Each process's own order is kept, whatever its clock says.
        """
        streams = [follower.there() for follower in self._followers]
        return heapq.merge(*streams, key=attrgetter("at_seconds"))


def _opened(path: Path) -> IO[bytes] | None:
    try:
        return path.open("rb")
    except FileNotFoundError:  # rotated away meanwhile
        return None
