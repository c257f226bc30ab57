"""The embedded coordinator's memory: a file of changes, synced before anybody is answered.

    record = { size: 4 bytes, crc32 of the payload: 4 bytes, payload: msgpack }, big-endian
    file   = record, its copy, record, its copy, ..., zeros: room for more

The first record is a `StoreImage`; each one after it a list of `Change`, those of one write. A file
that has grown is replaced by one with a new image, atomically. The copy of a record is written with
it, in one write and one sync; the top bit of its size is set, and all bits of its crc are the other
way round. An earlier version wrote no copies.

What can be found after a crash, and what is made of it:

- A record is damaged, and its copy is not, or the other way round: nothing is lost. Without copies
  a changed byte in the last record could not be told from a torn end, and would take back what was
  answered.
- The end is torn: the last record was being written. Nobody was answered for it; it is left out.
- A record in the middle is damaged, and its copy as well: what was answered may be lost. Refused,
  with words; a group's state that goes back would let a node win that does not hold everything.

What was read at a start is written again, to another file, and synced before anything is answered:
after a failed sync the system shows bytes that are not on the disk, and will not write them.

A full disk does not stop it. The file has room for what comes before it is replaced, and the file
that takes its place is there beforehand, as large. A file system that writes everything to a new
place, like btrfs, keeps no such promise.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import math
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from tandem.coordinator.interface import CoordinatorError
from tandem.coordinator.journal_records import split, twice
from tandem.coordinator.kv_records import IMAGE_FORMAT, Change, KeyValueError, StoreImage
from tandem.wire.untrusted import UnreadableError, decode_msgpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tandem.coordinator.journal_records import Records
    from tandem.coordinator.kv import KeyValueStore

Record = TypeVar("Record")

REPLACE_BYTES_MIN: Final = 1024 * 1024
"""A smaller journal is not replaced: reading it takes milliseconds."""


_WAY_ON: Final = (
    "bring it back from a copy; or remove it, start the cluster, and recover each fenced group:"
    " `tandem ha recover-group GROUP`"
)


class JournalFault(enum.Enum):
    """Why a journal cannot be used."""

    IN_USE = enum.auto()
    """Another process has it."""
    DAMAGED = enum.auto()
    """Bytes of it are not what they were."""
    GAP = enum.auto()
    """A change in it does not follow the one before."""
    VERSION = enum.auto()
    """Another version wrote it, or it is damaged."""
    DISK = enum.auto()
    """The system does not let us read or write it."""


class JournalError(CoordinatorError):
    """The journal cannot be used; the text says why and what to do.

    Attributes:
        fault: Why not.
        position: The byte where it is damaged, -1 if no place can be named.
    """

    def __init__(self, text: str, fault: JournalFault, *, position: int = -1) -> None:
        super().__init__(text)
        self.fault = fault
        self.position = position


class NotWrittenError(CoordinatorError):
    """The disk did not take a write. Earlier synced writes are safe; it may be tried again.

    The text says why and what to do; `error` is what the system says.
    """

    def __init__(self, text: str, error: OSError) -> None:
        super().__init__(text)
        self.error = error


class JournalFile(Protocol):
    """Where a journal is kept. Every method blocks until the disk has it.

    Raises of `write` and `replace`:
        NotWrittenError: Nothing was changed that a reader would take for a record.
        OSError: Nobody knows what is on the disk now; the file must not be used any more.
    """

    def read(self) -> bytes:
        """Everything, with the zeros at the end; empty if there was no journal."""

    def write(self, position: int, data: bytes) -> None:
        """Put `data` after the first `position` bytes, and sync."""

    def replace(self, data: bytes, room_bytes: int) -> None:
        """Put `data` in the place of everything, all or nothing, and sync.

        If it can be had, there is room for `room_bytes` then, and for as much at the next time.
        """

    def close(self) -> None:
        """Let go."""


class DiskFile:
    """A journal in a directory of its own, which one process at a time may have.

    `journal.new` is the file that takes its place. It was the journal before, so its blocks are
    there already, and nobody else on a full disk can take them.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "journal"
        self._spare = directory / "journal.new"
        self._old = directory / "journal.old"
        self._room_bytes = 0
        self._lacks_spare = True
        _make_directories(directory)
        # The same process tries again after a failure, and must not shut itself out.
        with ExitStack() as opened:
            self._lock_fd = _opened(opened, directory / "lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JournalError(
                    f"another process has the coordinator's journal in {directory}; stop it first",
                    JournalFault.IN_USE,
                ) from None
            self._directory_fd = _opened(opened, directory, os.O_RDONLY)
            self._fd = _opened(opened, self._path, os.O_RDWR | os.O_CREAT)
            # A second name of the journal, or of the one before: see `_put_in_place`.
            self._old.unlink(missing_ok=True)
            os.fsync(self._directory_fd)
            opened.pop_all()

    def read(self) -> bytes:
        """See `JournalFile`."""
        return self._path.read_bytes()

    def write(self, position: int, data: bytes) -> None:
        """See `JournalFile`. A failed write leaves a torn end, or nothing."""
        if self._lacks_spare:
            self._make_spare()
        with self._not_written():
            _write(self._fd, data, position)
        os.fdatasync(self._fd)

    def replace(self, data: bytes, room_bytes: int) -> None:
        """See `JournalFile`."""
        with self._not_written():
            fd = os.open(self._spare, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with self._not_written():
                _fill(fd, data, max(room_bytes, len(data)))
            os.fsync(fd)
            self._put_in_place()
        except BaseException:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd = fd
        os.fsync(self._directory_fd)
        self._keep_spare(room_bytes)

    def close(self) -> None:
        """See `JournalFile`."""
        for fd in (self._fd, self._directory_fd, self._lock_fd):
            os.close(fd)

    def _put_in_place(self) -> None:
        # Its second name keeps the blocks of the old journal for the next time.
        with suppress(OSError):
            os.link(self._path, self._old)
        try:
            self._spare.rename(self._path)
        except OSError as error:
            # Any other error leaves it open which of the two has the name.
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._not_written_error(error) from error
            raise

    def _keep_spare(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        with suppress(OSError):
            self._old.rename(self._spare)
        self._make_spare()

    def _make_spare(self) -> None:
        """Have blocks for the next journal; if there is no room, it is tried at the next write."""
        try:
            fd = os.open(self._spare, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(fd, 0, max(self._room_bytes, 1))
            finally:
                os.close(fd)
        except OSError:
            self._lacks_spare = True
        else:
            self._lacks_spare = False

    @contextmanager
    def _not_written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._not_written_error(error) from error

    def _not_written_error(self, error: OSError) -> NotWrittenError:
        return NotWrittenError(
            f"the coordinator's journal in {self._path.parent} cannot be written: {error.strerror};"
            " it goes on by itself when the disk takes it: free space there, or mend the disk",
            error,
        )


def _opened(stack: ExitStack, path: Path, flags: int) -> int:
    fd = os.open(path, flags, 0o600)
    stack.callback(os.close, fd)
    return fd


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

    `record` takes a change at once; `take` hands all that are waiting to the writer, who says how
    it went: `settle` or `take_back`. An OSError of the file is final: after a failed sync nobody
    knows what the disk holds.

    Invariant: image and records of the file, then the write that was taken, then `_waiting`, bring
    the store to where it is.
    """

    def __init__(self, file: JournalFile, *, replace_bytes_min: int = REPLACE_BYTES_MIN) -> None:
        self._file = file
        self._waiting: list[Change] = []
        self._replace_bytes_min = replace_bytes_min
        self._replace_at: float = replace_bytes_min
        self._size = 0
        self.recorded_count = 0
        """Changes since this journal was opened, those that wait included."""

    def restore(self, store: KeyValueStore, now: float) -> None:
        """Bring a new store to where it was. Every lease runs in full from `now`.

        Raises:
            JournalError: The journal is damaged, or of a newer version.
            NotWrittenError: There is no room for what has to be written at a start.
            OSError: It cannot be read or written.
        """
        records = replay(self._file.read(), store, now).payloads
        content = b"".join(map(twice, records)) if records else _encode(store.image())
        self._file.replace(content, max(self._replace_bytes_min, len(content)))
        self._size = len(content)

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
        changes, self._waiting = self._waiting, []
        data = _encode(changes)
        if self._size + len(data) < self._replace_at:
            return Write(self._file, changes, data, self._size)
        image = _encode(store.image())
        room_bytes = max(self._replace_bytes_min, 4 * len(image))
        return Write(self._file, changes, image, 0, room_bytes)

    def settle(self, write: Write) -> None:
        """Take note that a write is on the disk."""
        self._size = write.position + len(write.data)
        if write.room_bytes:
            self._replace_at = write.room_bytes
        elif self._replace_at == math.inf:
            self._replace_at = max(self._replace_bytes_min, 2 * self._size)

    def take_back(self, write: Write) -> None:
        """Take note that the disk did not take a write. The next one has all that was in it.

        What did not fit where it was to go is tried elsewhere: a change in a new file, an image as
        changes in the old one. There the next write is at least as long, and covers what the failed
        one has left.
        """
        self._waiting = write.changes + self._waiting
        self._replace_at = math.inf if write.room_bytes else 0

    def close(self) -> None:
        """Let go of the file. Waiting changes are lost; none of them was answered."""
        self._file.close()


def replay(data: bytes, store: KeyValueStore, now: float) -> Records:
    """Bring a new store to where a journal, of which this is the content, says that it was.

    Raises:
        JournalError: see `Journal.restore`.
    """
    found = split(data)
    if data and (not found.payloads or found.is_damaged):
        raise JournalError(
            f"the coordinator's journal is damaged at byte {found.end} of {len(data)}, and that"
            f" is not a torn end: {_WAY_ON}",
            JournalFault.DAMAGED,
            position=found.end,
        )
    try:
        for number, record in enumerate(found.payloads):
            if not number:
                store.restore(_known(_decode(record, StoreImage)), now)
                continue
            for change in _decode(record, list[Change]):
                store.apply(change, now)
    except (KeyValueError, KeyError) as error:
        raise JournalError(
            f"a change in the coordinator's journal does not fit ({error}): {_WAY_ON}",
            JournalFault.GAP,
        ) from error
    return found


class Write(msgspec.Struct, frozen=True):
    """Bytes for the file, complete in themselves, so that another thread may write them."""

    file: JournalFile
    changes: list[Change]
    """What is in them that the file did not have."""
    data: bytes
    position: int
    room_bytes: int = 0
    """Of a new file that takes the place of the old one; 0: there is none."""

    def to_disk(self) -> None:
        """Block until the disk has it.

        Raises:
            NotWrittenError: It has not, and may be asked again: `Journal.take_back`.
            OSError: The journal must not be used any more.
        """
        if self.room_bytes:
            self.file.replace(self.data, self.room_bytes)
        else:
            self.file.write(self.position, self.data)


def _encode(record: StoreImage | list[Change]) -> bytes:
    return twice(msgspec.msgpack.encode(record))


def _known(image: StoreImage) -> StoreImage:
    if image.format > IMAGE_FORMAT:
        raise JournalError(
            f"the coordinator's journal is of format {image.format}, and this version knows no"
            f" format above {IMAGE_FORMAT}: run the version that wrote it",
            JournalFault.VERSION,
        )
    return image


def _decode(payload: bytes, kind: type[Record]) -> Record:
    try:
        return decode_msgpack(payload, kind)
    except UnreadableError as error:
        raise JournalError(
            f"the coordinator's journal was written by another version, or is damaged: {error};"
            f" run the version that wrote it; or {_WAY_ON}",
            JournalFault.VERSION,
        ) from error


def _write(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, position)
        position, view = position + count, view[count:]


def _fill(fd: int, data: bytes, room_bytes: int) -> None:
    """Have `data` in a file and zeros after it, up to `room_bytes` if there is that much room."""
    _write(fd, data, 0)
    try:
        _write(fd, bytes(room_bytes - len(data)), len(data))
    except OSError:
        # Written to the end without room kept: what matters is there.
        room_bytes = len(data)
    os.ftruncate(fd, room_bytes)
