"""The embedded coordinator's memory: a file of changes, synced before anybody is answered.

    record = { size: 4 bytes, crc32 of the payload: 4 bytes, payload: msgpack }, big-endian

The first record is a `StoreImage`; each one after it a list of `Change`, those of one write. A file
that has grown is replaced by one with a new image, atomically.

What can be found after a crash, and what is made of it:

- The end is torn: the last record was being written. Nobody was answered for it; it is cut.
- A record in the middle is damaged: what was answered may be lost. Refused, with words; a group's
  state that goes back would let a node win that does not hold everything.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from tandem.coordinator.interface import CoordinatorError
from tandem.coordinator.kv_records import Change, KeyValueError, StoreImage
from tandem.wire.untrusted import UnreadableError, decode_msgpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tandem.coordinator.kv import KeyValueStore

Record = TypeVar("Record")

REPLACE_BYTES_MIN: Final = 1024 * 1024
"""A smaller journal is not replaced: reading it takes milliseconds."""

_HEAD: Final = struct.Struct(">II")


class JournalError(CoordinatorError):
    """The journal cannot be used; the text says why and what to do."""


class JournalFile(Protocol):
    """Where a journal is kept. Every method blocks until the disk has it."""

    def read(self) -> bytes:
        """Everything; empty if there was no journal."""

    def append(self, data: bytes) -> None:
        """Write at the end, and sync.

        Raises:
            OSError: Nobody knows what is on the disk now; the file must not be used any more.
        """

    def cut(self, size: int) -> None:
        """Forget what is after the first `size` bytes, and sync."""

    def replace(self, data: bytes) -> None:
        """Put `data` in the place of everything, all or nothing, and sync."""

    def close(self) -> None:
        """Let go."""


class DiskFile:
    """A journal in a directory of its own, which one process at a time may have."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "journal"
        _make_directories(directory)
        self._lock_fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_fd)
            raise JournalError(
                f"another process has the coordinator's journal in {directory}; stop it first"
            ) from None
        self._directory_fd = os.open(directory, os.O_RDONLY)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.fsync(self._directory_fd)

    def read(self) -> bytes:
        """See `JournalFile`."""
        return self._path.read_bytes()

    def append(self, data: bytes) -> None:
        """See `JournalFile`."""
        _write(self._fd, data)
        os.fdatasync(self._fd)

    def cut(self, size: int) -> None:
        """See `JournalFile`."""
        os.ftruncate(self._fd, size)
        os.fsync(self._fd)

    def replace(self, data: bytes) -> None:
        """See `JournalFile`."""
        fresh = self._path.with_name("journal.new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write(fd, data)
            os.fsync(fd)
            fresh.rename(self._path)
        except OSError:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd = fd
        os.fsync(self._directory_fd)

    def close(self) -> None:
        """See `JournalFile`."""
        for fd in (self._fd, self._directory_fd, self._lock_fd):
            os.close(fd)


def _make_directories(directory: Path) -> None:
    """Create what is missing of a path, so that a power loss does not take it back."""
    if directory.is_dir():
        return
    _make_directories(directory.parent)
    directory.mkdir(exist_ok=True)
    parent_fd = os.open(directory.parent, os.O_RDONLY)
    try:
        os.fsync(parent_fd)
    finally:
        os.close(parent_fd)


class Journal:
    """Changes on their way to a file.

    `record` takes a change at once; `take` hands all that are waiting to the writer. An
    error of the file is final: after a failed sync nobody knows what the disk holds.

    Invariant: image and records of the file, then `_waiting`, bring the store to where it is.
    """

    def __init__(self, file: JournalFile, *, replace_bytes_min: int = REPLACE_BYTES_MIN) -> None:
        self._file = file
        self._waiting: list[Change] = []
        self._replace_bytes_min = replace_bytes_min
        self._replace_at = replace_bytes_min
        self._size = 0
        self.recorded_count = 0
        """Changes since this journal was opened, those that wait included."""

    def restore(self, store: KeyValueStore, now: float) -> None:
        """Bring a new store to where it was. Every lease runs in full from `now`.

        Raises:
            JournalError: The journal is damaged, or of a newer version.
            OSError: It cannot be read or repaired.
        """
        data = self._file.read()
        records, end = _split(data)
        if end < len(data):
            if not records or _has_record_behind(data, end + 1):
                raise JournalError(
                    f"the coordinator's journal is damaged at byte {end} of {len(data)}, and that"
                    " is not a torn end: bring it back from a copy; or remove it, and have an"
                    " operator recover each fenced group"
                )
            self._file.cut(end)
        self._size = end
        if not records:
            self._start_file(store.image())
            return
        try:
            store.restore(_decode(records[0], StoreImage), now)
            for record in records[1:]:
                for change in _decode(record, list[Change]):
                    store.apply(change, now)
        except (KeyValueError, KeyError) as error:
            raise JournalError(
                f"a change in the coordinator's journal does not fit ({error}): bring it back from"
                " a copy; or remove it, and have an operator recover each fenced group"
            ) from error

    def record(self, change: Change) -> None:
        """Keep a change until it is taken."""
        self._waiting.append(change)
        self.recorded_count += 1

    @property
    def has_waiting(self) -> bool:
        """Whether there is something to write."""
        return bool(self._waiting)

    def take(self, store: KeyValueStore) -> Write:
        """Return the write that brings everything recorded so far to the disk."""
        data = _encode(self._waiting)
        self._waiting = []
        if self._size + len(data) < self._replace_at:
            self._size += len(data)
            return Write(self._file, data, replaces=False)
        image = _encode(store.image())
        self._size = len(image)
        self._replace_at = max(self._replace_bytes_min, 4 * len(image))
        return Write(self._file, image, replaces=True)

    def close(self) -> None:
        """Let go of the file. Waiting changes are lost; none of them was answered."""
        self._file.close()

    def _start_file(self, image: StoreImage) -> None:
        data = _encode(image)
        self._file.replace(data)
        self._size = len(data)


class Write(msgspec.Struct, frozen=True):
    """Bytes for the file, complete in themselves, so that another thread may write them."""

    file: JournalFile
    data: bytes
    replaces: bool

    def to_disk(self) -> None:
        """Block until the disk has it.

        Raises:
            OSError: The journal must not be used any more.
        """
        if self.replaces:
            self.file.replace(self.data)
        else:
            self.file.append(self.data)


def _encode(record: StoreImage | list[Change]) -> bytes:
    payload = msgspec.msgpack.encode(record)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def _decode(payload: bytes, kind: type[Record]) -> Record:
    try:
        return decode_msgpack(payload, kind)
    except UnreadableError as error:
        raise JournalError(
            f"the coordinator's journal was written by another version, or is damaged: {error};"
            " run the version that wrote it; or remove it, and have an operator recover each"
            " fenced group"
        ) from error


def _split(data: bytes) -> tuple[list[bytes], int]:
    """The payloads of the records from the start on, and where they end."""
    payloads: list[bytes] = []
    end = 0
    for payload in _records(data, 0):
        payloads.append(payload)
        end += _HEAD.size + len(payload)
    return payloads, end


def _records(data: bytes, position: int) -> Iterator[bytes]:
    while position + _HEAD.size <= len(data):
        size, crc = _HEAD.unpack_from(data, position)
        end = position + _HEAD.size + size
        # A record is never empty; zeros, which a crash may leave, would look like one.
        if size == 0 or end > len(data):
            return
        payload = data[position + _HEAD.size : end]
        if zlib.crc32(payload) != crc:
            return
        yield payload
        position = end


def _has_record_behind(data: bytes, start: int) -> bool:
    return any(next(_records(data, at), None) for at in range(start, len(data) - _HEAD.size))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
