"""Reading files of a store that a node may be writing, cutting or deleting: for `log` and `spark`.

Read with `pread` in bounded pieces and not through a mapping: a file that shrinks under a mapping
kills the process, and nothing here may be killed by what it reads. Nothing is ever opened for
writing.
"""

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from tandem.wire.errors import MalformedFrameError
from tandem.wire.route import decode_json_body
from tandem.wire.store_layout import OFFSET_MAX, offset_named

READ_BYTES: Final = 4 << 20
"""How much is read at a time. Larger pieces were not faster."""

TOPIC_TABLE_BYTES_MAX: Final = 64 << 20
"""A larger table is left unread."""

_LOCKS: Final = Path("/proc/locks")
_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux


class NotAStoreError(Exception):
    """A path holds neither a store root nor files of a commit log.

    The log tools and the Spark sources raise it as a kind of their own errors as well; catching
    this one catches both.
    """


class DataFile(msgspec.Struct, frozen=True):
    """One file of a row of files; `offset` is the number in its name: that of its first byte."""

    path: str
    offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """The offset after the file."""
        return self.offset + self.size


class Entry(msgspec.Struct, frozen=True):
    """One name in a directory; `size` in bytes, 0 of a directory."""

    name: str
    is_directory: bool
    size: int


def entries_in(directory: str) -> list[Entry]:
    """Return the files and directories in a directory, in no order."""
    found = []
    with os.scandir(directory) as listed:
        for entry in listed:
            is_directory = entry.is_dir()
            if not is_directory and not entry.is_file():
                continue
            try:
                size = 0 if is_directory else entry.stat().st_size
            except FileNotFoundError:  # deleted between the two
                continue
            found.append(Entry(entry.name, is_directory, size))
    return found


def data_files(directory: str, entries: Iterable[Entry]) -> list[DataFile]:
    """Return, in order, the files of a row among `entries`, which are those of `directory`."""
    named = [(offset_named(entry.name), entry) for entry in entries if not entry.is_directory]
    files = [
        DataFile(f"{directory}/{entry.name}", offset, entry.size)
        for offset, entry in named
        if offset is not None and offset <= OFFSET_MAX
    ]
    return sorted(files, key=lambda file: file.offset)


class _TopicTable(msgspec.Struct, frozen=True, rename="camel"):
    topic_config_table: dict[str, Any] = {}


def topics_in_table(data: bytes) -> frozenset[str] | None:
    """Return the topics of a broker's table, a `config/topics.json`; None if it is none."""
    try:
        return frozenset(decode_json_body(data, _TopicTable).topic_config_table)
    except MalformedFrameError:
        return None


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a file for reading; give its descriptor. A refusal of the system is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_into(descriptor: int, buffer: memoryview, position: int) -> int:
    """Fill `buffer` from `position` on; return how many bytes there were."""
    got = 0
    while got < len(buffer):
        more = os.preadv(descriptor, [buffer[got:]], position + got)
        if not more:
            break
        got += more
    return got


def read_at(descriptor: int, position: int, size: int) -> bytes:
    """Return up to `size` bytes from `position` on; fewer if the file ends before."""
    data = os.pread(descriptor, size, position)
    while len(data) < size and (
        more := os.pread(descriptor, size - len(data), position + len(data))
    ):
        data += more
    return data


def data_end(descriptor: int, start: int, end: int) -> int:
    """Return the position after the last byte of [start, end) that is not zero; `start` if none.

    Reads backwards, so that a long run of data costs nothing; a hole at the end is not read.
    """
    end = _last_data_end(descriptor, start, end)
    while start < end:
        at = max(start, end - READ_BYTES)
        used = len(read_at(descriptor, at, end - at).rstrip(b"\0"))
        if used:
            return at + used
        end = at
    return start


def _last_data_end(descriptor: int, start: int, end: int) -> int:
    """Return where the last stretch of [start, end) that was ever written ends."""
    written = start
    try:
        while written < end:
            data = os.lseek(descriptor, written, os.SEEK_DATA)
            written = os.lseek(descriptor, data, os.SEEK_HOLE)
    except OSError:  # ENXIO: only a hole is left
        return min(written, end)
    return min(written, end)


def is_hole(descriptor: int, position: int, size: int) -> bool:
    """Say whether nothing was ever written to these bytes, as far as the file system knows."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA) >= position + size
    except OSError:  # ENXIO: only a hole is left
        return True


def only_zeros(descriptor: int, start: int, end: int) -> bool:
    """Say whether the file holds nothing but zeros in [start, end). Holes are not read."""
    data = bytearray(min(READ_BYTES, max(end - start, 1)))
    zeros = bytes(len(data))
    position = start
    while position < end:
        try:
            position = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            return True
        with memoryview(data) as view:
            size = read_into(descriptor, view[: max(end - position, 0)], position)
        if not size:
            return True
        if data != zeros if size == len(data) else any(data[:size]):
            return False
        position += size
    return True


def is_locked(path: Path) -> bool:
    """Say whether a process holds the lock that a store takes while it is open."""
    return lock_holder(path) is not None


def lock_holder(path: Path) -> int | None:
    """Return the id of the process that holds the lock of a store; None if nobody does.

    0 is a process that cannot be named from here, as one of another container.

    Source: DefaultMessageStore.start, which locks the first byte of the file.
    """
    if not path.is_file():
        return None
    ours = _locked_by_us()
    try:
        if path.stat().st_ino in ours:
            return os.getpid()
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # removed meanwhile: no store is there
        return None
    except PermissionError:  # another user's: nothing is known, and reading may still work
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer: bytes = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    finally:
        os.close(descriptor)
    kind, _, _, _, holder = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else max(holder, 0)


def _locked_by_us() -> set[int]:
    """The inodes that this very process has locked, which F_GETLK does not report."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return set()
    ours = (line.split() for line in lines if "POSIX" in line)
    return {int(part[5].split(":")[2]) for part in ours if part[4] == str(os.getpid())}
