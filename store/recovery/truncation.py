"""Truncation: a replica's log is cut back, or set aside as a whole, when its store is opened.

A replica that was master may hold records that the group does not have, because it was cut off
before anybody else got them. No producer has an answer that they are safe. They have to go before
the replica can follow the new master, and are kept for people. Never in a running store: the
replica writes down what is to be done, durably, closes the store and opens it again.

    intent written        0   by a running store, or by an operator
    bytes kept            1   truncated/<cut>-<name>, and beside it <...>.json: from where to where
    intent: "saved"       2   from here on the log is not looked at any more
    checkpoint lowered    3   it must not vouch for what goes; the start counts as one after a crash
    log cut               4   first what makes it a log, then all bytes, then the later files; the
                              fingerprints of files that are no longer whole
    queues, index cut     5   by recovery, as after a crash: what names records that are gone goes
    small files replaced  6   such as the list of epochs, which says what is in the log
    intent removed        7

Every step can be interrupted: the next start begins again at 1, or after 2. So the file that was
kept holds exactly the bytes that went, and no later start can find one of them in the log again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.files.store_checkpoint import StoreCheckpoint
from store.log.log_end import (
    CHUNK_BYTES,
    Blank,
    Damage,
    count_records,
    first_store_timestamp_ms,
    next_records,
)
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from store.machine.errors import (
    CorruptLogError,
    FileNameError,
    LogFault,
    NameTakenError,
    NoPlaceError,
    StoreFullError,
)
from tandem.wire.store_layout import LOG_START_FILE, SET_ASIDE_DIRECTORY, SIDE_DIRECTORY
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

_Order = TypeVar("_Order", bound=msgspec.Struct)

TRUNCATION_FILE: Final = "truncation.json"
SET_ASIDE_FILE: Final = "set-aside.json"

STORE_NAMES: Final = (
    "commitlog",
    "consumequeue",
    "batchconsumequeue",
    "consumequeue_ext",
    "index",
    "compaction",
    "timerwheel",
    "timerlog",
    "config/timercheck",
    "checkpoint",
    "epochFileCheckpoint",
    "epochFileCheckpoint.bak",
    "epochIds",
    "epochIds.bak",
    "fingerprints",
    "damage.json",
    "healed.json",
    "scrub.json",
    "queues.json",
    "queue-ends.json",
    "queue-rebuild.json",
    TRUNCATION_FILE,
)
"""The log, and all that only makes sense with it. Tables of topics, groups and offsets stay."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_COPIED_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 8
"""Size and magic of a record: without them none begins there."""


class TruncationIntent(msgspec.Struct, frozen=True):
    """What the next start has to do.

    `cut` is where the log is to end, where a record begins or the log ends now. `files` are small
    files beside the log and their new text. `side_name` is for the names of the kept bytes: other
    cuts have others. With `accept_loss` an operator has said that confirmed messages may go.
    """

    cut: int
    reason: str
    files: dict[str, str]
    side_name: str
    accept_loss: bool = False
    is_saved: bool = False
    """The bytes after the cut have been kept."""


class CutOff(msgspec.Struct, frozen=True):
    """What is in a file of `truncated/`; in the .json beside it."""

    cut: int
    end: int
    records: int
    reason: str


class _SetAside(msgspec.Struct, frozen=True):
    """What the next start has to move to `set-aside/<name>/`."""

    name: str
    names: list[str]


def write_intent(disk: Disk, directory: str, intent: TruncationIntent) -> None:
    """Make the next start of the store in `directory` cut its log. Durable when it returns.

    Raises:
        FileNameError: there is no such file name.
        NoPlaceError: there is no such place in a log.
        StoreFullError: no room; nothing was changed.
        DiskFailedError: anything else; nothing was changed.
    """
    for name in (intent.side_name, *intent.files):
        _expect_name(name)
    if intent.cut < 0:
        text = f"{directory}: no log can be cut at {intent.cut}; give an offset of it"
        raise NoPlaceError(text, offset=intent.cut)
    replace_with_checked_json(disk, f"{directory}/{TRUNCATION_FILE}", intent)


def pending_intent(disk: Disk, directory: str) -> TruncationIntent | None:
    """Return what the next start will do, None if nothing.

    Raises:
        CorruptLogError: the file is damaged.
    """
    return _read(disk, f"{directory}/{TRUNCATION_FILE}", TruncationIntent)


def pending_truncation(disk: Disk, directory: str, files: MappedFileQueue) -> Truncation | None:
    """Return what has to be done to a log while its store is opened, None if nothing.

    Raises:
        CorruptLogError: the intent is damaged.
    """
    intent = pending_intent(disk, directory)
    return None if intent is None else Truncation(directory, intent, files, disk)


class Truncation:
    """Does what an intent says, while the store of `directory` is opened.

    `files` are those of the commit log, loaded. Order of calls: `cut_log`, recovery, `finish`.
    """

    def __init__(
        self, directory: str, intent: TruncationIntent, files: MappedFileQueue, disk: Disk
    ) -> None:
        self._directory = directory
        self.cut = intent.cut
        """Where the log is to end."""
        self._intent = intent
        self._files = files
        self._disk = disk

    def cut_log(self, checkpoint: StoreCheckpoint) -> None:
        """Keep what follows the cut, then take it away. Recovery has to come next.

        Raises:
            CorruptLogError: the log must not be cut there; nothing was changed.
            StoreFullError: no room for what is to be kept; the log is as it was.
            OSError: the disk failed; start again.
        """
        cut, files = self._intent.cut, self._files.files
        self._files.expect_writable_from(cut)
        if not self._intent.is_saved:
            end = self._expect_cut_allowed(checkpoint)
            self._save(end)
        before = [file for file in files if file.file_from_offset < cut]
        checkpoint.cut_at(cut, first_store_timestamp_ms(before[-1]) if before else 0)
        self._disk.replace(f"{self._directory}/abort", b"")
        self._remove_from_log()

    def finish(self) -> None:
        """Replace the files about the log, and forget the intent: recovery is through."""
        for name, text in self._intent.files.items():
            self._disk.replace(f"{self._directory}/{name}", text.encode())
        self._disk.remove(f"{self._directory}/{TRUNCATION_FILE}")

    # -- keeping ---------------------------------------------------------------------------------

    def _expect_cut_allowed(self, checkpoint: StoreCheckpoint) -> int:
        """Return where the bytes end that go."""
        cut, files = self._intent.cut, self._files.files
        if files and cut < files[0].file_from_offset:
            raise self._not_there(
                LogFault.CUT_BELOW_START, f"the log begins at {files[0].file_from_offset} only"
            )
        tail = self._tail
        end = max([cut, *(_used_end(file, cut) for file in tail)])
        if tail:
            end = max(end, self._end_of_records(tail))
        if end == cut:
            return end
        if cut < checkpoint.replicated_offset and not self._intent.accept_loss:
            raise self._not_there(
                LogFault.CUT_CONFIRMED,
                f"everything below {checkpoint.replicated_offset} was confirmed, and may have been"
                " acknowledged to those who sent it",
            )
        return end

    @property
    def _tail(self) -> list[MappedFile]:
        """The files that hold something at or after the cut, or could."""
        cut = self._intent.cut
        return [file for file in self._files.files if file.file_from_offset + file.size > cut]

    def _end_of_records(self, tail: Sequence[MappedFile]) -> int:
        """Return where the records of these files end. The cut must not be inside of one."""
        cut = self._intent.cut
        end = tail[0].file_from_offset
        for file in tail:
            while end < file.file_from_offset + file.size:
                position = end - file.file_from_offset
                _, found = next_records(
                    file.buffer, position, file.size, end, bytes_max=CHUNK_BYTES
                )
                if isinstance(found, Damage):
                    return end
                start, starts = end, [end]
                if isinstance(found, Blank):
                    end = file.file_from_offset + file.size
                else:
                    starts = found.physical_offset.tolist()
                    end = starts[-1] + int(found.size[-1])
                if start < cut < end and cut not in starts:
                    raise self._not_there(LogFault.CUT_IN_RECORD, "it is inside of a record")
        return end

    def _not_there(self, fault: LogFault, reason: str) -> CorruptLogError:
        intent_path = f"{self._directory}/{TRUNCATION_FILE}"
        return CorruptLogError(
            f"{intent_path}: the log must not be cut at {self._intent.cut}: {reason}. Nothing was"
            " changed. Remove this file and start again, or have the log set aside and copied anew"
            " from the master",
            path=intent_path,
            fault=fault,
            offset=self._intent.cut,
        )

    def _save(self, end: int) -> None:
        intent = self._intent
        try:
            if end > intent.cut:
                self._keep(end)
            saved = msgspec.structs.replace(intent, is_saved=True)
            write_intent(self._disk, self._directory, saved)
        except StoreFullError as error:
            raise StoreFullError(
                f"{self._directory}: the log has to be cut at {intent.cut}, and there is no room to"
                f" keep the {end - intent.cut} bytes after that in {SIDE_DIRECTORY}/ ({error})."
                " Nothing is lost: free space on that disk, or move older files out of"
                f" {SIDE_DIRECTORY}/, then start again",
                path=error.path,
            ) from error

    def _keep(self, end: int) -> None:
        intent, disk = self._intent, self._disk
        path = self._free_path(end)
        if not path:
            return
        records = count_records(self._files.files, intent.cut, end)
        file = disk.create(path, end - intent.cut)
        position = 0
        for piece in self._pieces(end):
            file.buffer[position : position + len(piece)] = piece
            position += len(piece)
        file.sync()
        file.close()
        about = CutOff(intent.cut, end, records, intent.reason)
        disk.replace(f"{path}.json", msgspec.json.format(msgspec.json.encode(about)))
        _log.warning(
            "commit log: %d records, %d bytes from %d on, are cut off (%s) and kept in %s",
            records,
            end - intent.cut,
            intent.cut,
            intent.reason,
            path,
        )

    def _free_path(self, end: int) -> str | None:
        """Return where to keep the bytes, None if they are kept already.

        A file without its .json is that of an attempt that was interrupted.
        """
        first = f"{self._directory}/{SIDE_DIRECTORY}/{self._intent.cut:020d}"
        first = path = f"{first}-{self._intent.side_name}"
        number = 1
        while self._disk.exists(f"{path}.json"):
            if self._is_kept_in(path, end):
                return None
            number += 1
            path = f"{first}-{number}"
        return path

    def _is_kept_in(self, path: str, end: int) -> bool:
        if not self._disk.exists(path):
            return False
        file = self._disk.open(path, read_only=True)
        try:
            position = 0
            for piece in self._pieces(end):
                if file.buffer[position : position + len(piece)] != piece:
                    return False
                position += len(piece)
            return position == file.size
        finally:
            file.close()

    def _pieces(self, end: int) -> Iterator[bytes]:
        """Yield the bytes from the cut to `end`."""
        offset = self._intent.cut
        for file in self._tail:
            while offset < min(end, file.file_from_offset + file.size):
                position = offset - file.file_from_offset
                stop = min(position + _COPIED_BYTES, file.size, end - file.file_from_offset)
                yield bytes(file.buffer[position:stop])
                offset += stop - position

    # -- cutting ---------------------------------------------------------------------------------

    def _remove_from_log(self) -> None:
        """Take everything at and after the cut away. Positions stay those of loaded files.

        The first step ends the log there, whatever becomes of the others.
        """
        cut, files = self._intent.cut, self._files
        file = files.find_by_offset(cut)
        if file is not None:
            position = cut - file.file_from_offset
            header_end = min(position + _HEADER_BYTES, file.size)
            file.buffer[position:header_end] = bytes(header_end - position)
            file.file.sync()
        while len(files.files) > 1 and files.files[-1].file_from_offset >= cut:
            files.drop_last()
        last = files.last
        if file is not None and file is last:
            file.zero_from(cut - file.file_from_offset)
            # Also what a start before this one has set to zero.
            file.file.sync()


def _used_end(file: MappedFile, cut: int) -> int:
    """Return where the last byte ends that is not zero, from the cut on."""
    return file.file_from_offset + file.last_used_position(max(0, cut - file.file_from_offset))


# -- setting a whole store aside -----------------------------------------------------------------


def want_set_aside(
    disk: Disk, directory: str, name: str, names: Sequence[str] = STORE_NAMES
) -> None:
    """Make the next start move the store to `<directory>/set-aside/<name>/` and begin empty.

    `names` are files and directories below `directory`, where the log has to be, too; what does not
    exist is left out. Durable when it returns, so this may be called while the store is open.

    Raises:
        StoreError: there is no such file name, or something has been set aside under it.
        StoreFullError: no room for a small file.
    """
    _expect_name(name)
    for moved in names:
        for part in moved.split("/"):
            _expect_name(part)
    target = f"{directory}/{SET_ASIDE_DIRECTORY}/{name}"
    marker = f"{directory}/{SET_ASIDE_FILE}"
    if not disk.exists(marker) and (disk.list_files(target) or disk.list_directories(target)):
        raise NameTakenError(f"{target}: there is something already; use another name", path=target)
    replace_with_checked_json(disk, marker, _SetAside(name, list(names)))


def set_aside(disk: Disk, directory: str, name: str, names: Sequence[str] = STORE_NAMES) -> None:
    """Do now what `want_set_aside` makes the next start do. The store must be closed.

    Raises:
        StoreLockedError: another process has it open.
        StoreError: see `want_set_aside`.
        DiskFailedError: something cannot be moved; the next start, or call, goes on there.
    """
    want_set_aside(disk, directory, name, names)
    release = disk.lock(f"{directory}/lock")
    try:
        finish_set_aside(disk, directory)
    finally:
        release()


def finish_set_aside(disk: Disk, directory: str) -> str | None:
    """Move what is to be set aside; return under which name, None if nothing is.

    Nothing is copied. Interrupted anywhere, the next call goes on there; the store counts as empty
    only when the order is gone, with the last of it.

    Raises:
        CorruptLogError: the order is damaged.
        DiskFailedError: something cannot be moved; call again.
    """
    order = _read(disk, f"{directory}/{SET_ASIDE_FILE}", _SetAside)
    if order is None:
        return None
    target = f"{directory}/{SET_ASIDE_DIRECTORY}/{order.name}"
    moved = [name for name in order.names if disk.rename(f"{directory}/{name}", f"{target}/{name}")]
    disk.remove(f"{directory}/{LOG_START_FILE}")  # the next log may begin anywhere
    disk.remove(f"{directory}/{SET_ASIDE_FILE}")
    _log.warning("%s is set aside in %s: %s", directory, target, ", ".join(moved) or "nothing more")
    return order.name


def _expect_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise FileNameError(
            f"{name!r} cannot be the name of a file here: up to 200 letters, digits, dots, dashes"
            " and underscores, not beginning with a dot",
            name=name,
        )


def _read(disk: Disk, path: str, kind: type[_Order]) -> _Order | None:
    try:
        return read_checked_json(disk, path, kind)
    except UnreadableError as error:
        raise CorruptLogError(
            f"{path}: damaged ({error}). It says what is to be done to the log, and nothing was"
            " changed; move it away and start again: the node finds out anew",
            path=path,
            fault=LogFault.ORDER,
        ) from error
