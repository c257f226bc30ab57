"""LogStart: where the log begins, written down; and whether others had the store since.

Retention deletes the first files of the log. So does a damaged file system, or somebody by mistake;
then messages are missing. What tells them apart is `log-start.json`: it is moved up, durably,
before retention deletes a file. It is written for the first time in the step in which the log gets
its first file, and again once a second while the disk has no room for it.

RocketMQ and earlier versions know nothing of it, and delete and cut without a word. But every
process that opens a store writes to its `lock` file. The note has that file's time of modification
as we left it: if it differs, another process was here, or the directory is a copy. Then the log
begins where it does, and a new *era* begins: see `fingerprints.py`.

RocketMQ has no such file, and leaves it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from store.files.mapped_file_queue import MappedFileQueue
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from store.machine.errors import DiskFailedError, StoreFullError
from tandem.wire.store_layout import LOG_START_FILE
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

UNKNOWN: Final = -1


class _Note(msgspec.Struct, frozen=True):
    start: int
    lock_modified_ms: int
    era: int


class LogStart:
    """The note of the store in `directory`, which is locked with `locked`."""

    def __init__(self, disk: Disk, directory: str, lock_modified_ms: int) -> None:
        """Read it. `lock_modified_ms` is that of the lock before it was taken, -1 for none.

        It is written anew at once: an opening that fails further on was no stranger's.

        Raises:
            StoreFullError, DiskFailedError: it cannot be written.
        """
        self._disk = disk
        self.path = f"{directory}/{LOG_START_FILE}"
        self.lock_before_ms = lock_modified_ms
        """As the run before this one has left the lock."""
        self.lock_modified_ms = _modified_ms(disk, f"{directory}/lock")
        """As this one has it."""
        self.start = UNKNOWN
        """Where the log is to begin, as far as that is known."""
        self.era = self.lock_modified_ms
        self._is_saved = False
        note = self._read()
        if note is not None and note.lock_modified_ms == lock_modified_ms:
            self.start, self.era = note.start, note.era
        elif note is not None:
            self.era = max(self.era, note.era + 1)
            _log.info("%s: others had this store open; its log begins where it does", directory)
        self._save()

    def _read(self) -> _Note | None:
        try:
            return read_checked_json(self._disk, self.path, _Note)
        except UnreadableError as error:
            _log.warning("%s: %s; where the log has to begin is not known", self.path, error)
            return None

    def move_to(self, start: int) -> None:
        """Write down that the log begins at `start` from now on, before it does.

        Where the disk does not take it, the note is deleted instead: room is made by what comes
        next, and no note is better than one that is wrong.

        Raises:
            OSError: the disk refuses both.
        """
        if start != self.start:
            self.start = start
            self._save_or_remove()

    def begins_at(self, start: int) -> None:
        """Write down where a log begins that has got its first file just now.

        Where the disk refuses, `follow` tries again.
        """
        try:
            self.move_to(start)
        except OSError as error:
            _log.warning("%s cannot be written: %s; trying again", self.path, error)

    def follow(self, files: MappedFileQueue) -> None:
        """Write down where the log begins, if that has not been possible yet.

        Raises:
            OSError: the disk refuses.
        """
        if self.start == UNKNOWN and files.files:
            self.move_to(files.min_offset)
        elif not self._is_saved:
            self._save_or_remove()

    def _save_or_remove(self) -> None:
        self._is_saved = False
        try:
            self._save()
        except (StoreFullError, DiskFailedError):
            self._disk.remove(self.path)

    def _save(self) -> None:
        note = _Note(self.start, self.lock_modified_ms, self.era)
        replace_with_checked_json(self._disk, self.path, note)
        self._is_saved = True


def noted_start(disk: Disk, directory: str) -> int:
    """Return where the log of a closed store began, even if others opened it since; or UNKNOWN."""
    try:
        note = read_checked_json(disk, f"{directory}/{LOG_START_FILE}", _Note)
    except UnreadableError:
        return UNKNOWN
    return UNKNOWN if note is None else note.start


def locked(disk: Disk, directory: str) -> tuple[Callable[[], None], LogStart]:
    """Take the lock of a store; return its release, and where the log begins.

    Raises:
        StoreLockedError: another process has the store open.
        StoreFullError, DiskFailedError: see `LogStart`; it is not locked then.
    """
    before_ms = _modified_ms(disk, f"{directory}/lock")
    release = disk.lock(f"{directory}/lock")
    try:
        return release, LogStart(disk, directory, before_ms)
    except BaseException:
        release()
        raise


def _modified_ms(disk: Disk, path: str) -> int:
    return disk.modified_ms(path) if disk.exists(path) else -1
