"""The epoch file: which master wrote which part of the log, as RocketMQ's text (see `epochs.py`).

    2               how many entries follow
    132055803       CRC-32 of the lines of the entries, top bit cleared; 0: do not check
    5-0
    7-81920

Where we differ from RocketMQ on purpose:

- every change replaces the file as a whole and is durable when the call returns;
- `.bak` is a second copy of the same list, not the list before it: an older list would let two logs
  be compared by what one of them no longer is;
- an empty list is written like any other;
- an entry that begins where the new one begins, or after it, gives way: nothing was written under
  it. RocketMQ refuses the new one instead and goes on under an epoch that has another writer.

The ids of the epochs have no place in there. They are in a file of the same form beside it,
`epochIds`, with lines `epoch-start-id`, and there is a second copy of that, too. It is written
first, and an id counts for an entry with the same epoch and start. Without the file ids are
unknown: two logs are then compared by numbers, and by the bytes before the place where they are
joined.

Both files have a checksum and a count of their own, so a changed byte is noticed in each; a copy
that is damaged or gone is written anew from the other one.

Source: RocketMQ 5.3.3, EpochFileCache, CheckpointFile.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final, TypeVar

from ha.errors import EpochFileError, EpochOrderError
from ha.fenced.epochs import EpochEntries, EpochEntry, entry_at, expect_rising, trimmed_to_log
from store.machine.disk import Disk
from store.machine.kept_files import keep
from tandem.wire.crc import crc32
from tandem.wire.group_state import EPOCH_MAX
from tandem.wire.store_layout import EPOCH_FILE, EPOCH_IDS_FILE

__all__ = ["EpochEntries", "EpochEntry", "EpochFile", "decode", "encode"]

_log = logging.getLogger(__name__)

_Content = TypeVar("_Content")

BACKUP_NAME: Final = "epochFileCheckpoint.bak"
IDS_BACKUP_NAME: Final = "epochIds.bak"

_ENTRY_LINE: Final = re.compile(r"(\d{1,10})-(\d{1,19})")
_ID_LINE: Final = re.compile(r"(\d{1,10})-(\d{1,19})-([0-9a-f]{1,32})")


def encode(entries: EpochEntries) -> bytes:
    """Return the content of the file."""
    return _checked([f"{entry.epoch}-{entry.start}\n" for entry in entries])


def encode_ids(entries: EpochEntries) -> bytes:
    """Return the content of the file of ids."""
    return _checked([f"{e.epoch}-{e.start}-{e.id}\n" for e in entries if e.id])


def _checked(lines: list[str]) -> bytes:
    content = "".join(lines).encode()
    return b"%d\n%d\n" % (len(lines), crc32(content)) + content


def decode(data: bytes) -> EpochEntries:
    """Read the content of the file.

    Raises:
        ValueError: it is damaged; says how.
    """
    entries = tuple(EpochEntry(int(m[1]), int(m[2])) for m in _read_lines(data, _ENTRY_LINE))
    expect_rising(entries)
    return entries


def decode_ids(data: bytes) -> dict[tuple[int, int], str]:
    """Read the content of the file of ids: by epoch and start.

    Raises:
        ValueError: it is damaged; says how.
    """
    return {(int(m[1]), int(m[2])): m[3] for m in _read_lines(data, _ID_LINE)}


def _read_lines(data: bytes, form: re.Pattern[str]) -> list[re.Match[str]]:
    if data.count(b"\n") < 2 or not data.endswith(b"\n"):
        raise ValueError("it is cut short")
    count, crc, *lines = data.decode("ascii", "replace").split("\n")[:-1]
    if not count.isdecimal() or not crc.isdecimal() or int(count) != len(lines):
        raise ValueError(f"{len(lines)} entries where the file says {count[:20]!r}")
    if int(crc) not in (0, crc32(data.split(b"\n", 2)[2])):
        raise ValueError(f"the entries do not fit their checksum {crc}")
    matches = [form.fullmatch(line) for line in lines]
    if not all(matches):
        raise ValueError("a line is not of the form epoch-offset")
    return [match for match in matches if match]


class EpochFile:
    """The entries of one node, in memory and on disk. Every method is durable when it returns.

    All of them raise `StoreFullError` or `DiskFailedError` when the disk does not take the new
    list; then the list before is still valid, in memory and on disk.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Read the file in `directory`; no file is an empty list.

        Raises:
            EpochFileError: neither the file nor its second copy can be read.
        """
        self._disk = disk
        self._path = f"{directory}/{EPOCH_FILE}"
        self._backup = f"{directory}/{BACKUP_NAME}"
        self._ids = f"{directory}/{EPOCH_IDS_FILE}"
        self._ids_backup = f"{directory}/{IDS_BACKUP_NAME}"
        self.entries: EpochEntries = self._with_ids(self._load())

    @property
    def last_epoch(self) -> int:
        """Return the newest epoch; 0 if there is none."""
        return self.entries[-1].epoch if self.entries else 0

    def append(self, epoch: int, start: int, epoch_id: str = "") -> None:
        """Begin `epoch` at `start`; entries under which nothing was written give way.

        Raises:
            EpochOrderError: the list has this epoch or a newer one. Nothing was changed.
        """
        if not self.last_epoch < epoch <= EPOCH_MAX or start < 0:
            raise EpochOrderError(epoch=epoch, start=start, last_epoch=self.last_epoch)
        kept = tuple(entry for entry in self.entries if entry.start < start)
        self.replace((*kept, EpochEntry(epoch, start, epoch_id)))

    def replace(self, entries: EpochEntries) -> None:
        """Put another list in the place of this one. Blocks for up to four small writes.

        Raises:
            ValueError: epochs and starts do not rise.
        """
        expect_rising(entries)
        if entries == self.entries:
            return
        ids = encode_ids(entries)
        if ids != encode_ids(self.entries):
            self._put(self._ids, ids)
            self._put(self._ids_backup, ids)
        content = encode(entries)
        self._put(self._path, content)
        self.entries = entries
        self._put(self._backup, content)

    def trim_to_log(self, end: int) -> None:
        """Drop entries that begin past the end of the log, which has lost its tail."""
        self.replace(trimmed_to_log(self.entries, end))

    def truncate_prefix(self, offset: int) -> None:
        """Drop entries that end below `offset`, the first byte that the log still holds."""
        ends = [entry.start for entry in self.entries[1:]]
        dropped = sum(end < offset for end in ends)
        self.replace(self.entries[dropped:])

    def entry_at(self, offset: int) -> EpochEntry | None:
        """Return the entry that the byte at `offset` belongs to, None below the first entry."""
        return entry_at(self.entries, offset)

    def _load(self) -> EpochEntries:
        entries, failure = self._first_whole(decode, self._path, self._backup)
        if entries is not None:
            self._mend(encode(entries), self._path, self._backup)
        elif failure:
            raise EpochFileError(path=self._path, reason=failure)
        return entries or ()

    def _with_ids(self, entries: EpochEntries) -> EpochEntries:
        """Return the entries with the ids that are known."""
        ids, failure = self._first_whole(decode_ids, self._ids, self._ids_backup)
        if ids is None:
            if failure:
                _log.warning("%s: %s; whose epochs these are is not known", self._ids, failure)
            return entries
        of_all = [EpochEntry(epoch, start, ids[epoch, start]) for epoch, start in sorted(ids)]
        self._mend(encode_ids(tuple(of_all)), self._ids, self._ids_backup)
        return tuple(EpochEntry(e.epoch, e.start, ids.get((e.epoch, e.start), "")) for e in entries)

    def _first_whole(
        self, read: Callable[[bytes], _Content], path: str, backup: str
    ) -> tuple[_Content | None, str]:
        """Return what a file says, or else its second copy; and what was wrong with the first."""
        failure = ""
        for copy in (path, backup):
            try:
                data = self._disk.read(copy)
                content = read(data) if data else None
            except (ValueError, OSError) as error:
                failure = failure or str(error)
                continue
            if content is not None:
                if copy == backup:
                    _log.warning("%s: %s; read from %s", path, failure or "missing", backup)
                return content, failure
        return None, failure

    def _mend(self, content: bytes, *copies: str) -> None:
        """Make both copies equal: a truncation replaces only one, a crash may part them."""
        for path in copies:
            try:
                if self._disk.read(path) == content:
                    keep(self._disk, path, content)
                    continue
            except OSError as error:
                _log.warning("%s: %s; written anew", path, error)
            self._put(path, content)

    def _put(self, path: str, content: bytes) -> None:
        self._disk.replace(path, content)
        keep(self._disk, path, content)
