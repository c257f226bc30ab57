"""The JSON files a broker keeps its tables in, as RocketMQ's `ConfigManager` writes and reads them.

The text is fastjson's pretty form: one tab a level, no space after a colon, and integer keys
without quotes, on one line:

    "offsetTable":{
        "T@g":{0:5,1:6
        }
    }

That is not standard JSON, but readable by `decode_json_body`. Unlike RocketMQ, which overwrites
the file in place, a save writes the old content to `<file>.bak` and then replaces the file as a
whole: a crash leaves the old table or the new one.

RocketMQ, and people, write these files as well, so their checksums are in a file beside them,
`<file>.crc`, each with the time at which the disk says the content was changed last. A content that
does not fit its checksum although nobody has written it since that time has changed by itself: it
is damaged. Whatever was written since is taken, with a line in the log; so is what a stop between
the two files left. Who copies a directory without its times makes everything new: what had changed
before looks as if it had been written.

Source: RocketMQ 5.3.3, ConfigManager, RemotingSerializable, fastjson's PrettyFormat.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from store.machine.checked_file import (
    checked_json,
    read_checked_json,
    replace_kept,
    replace_with_checked_json,
)
from store.machine.errors import StoreFullError, TableFileError
from store.machine.kept_files import KeptFile
from tandem.wire.checksum_line import checksum_of
from tandem.wire.errors import MalformedFrameError
from tandem.wire.request_headers import DataVersion
from tandem.wire.route import decode_json_body
from tandem.wire.untrusted import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from store.machine.disk import Disk

_log = logging.getLogger(__name__)

_Table = TypeVar("_Table", bound=msgspec.Struct)

_OF_ALL_TABLES: Final = {"dataVersion"}

ENTRIES_PER_STEP: Final = 128
"""Of a save in steps: some milliseconds of work."""


class _Piece(NamedTuple):
    """Some entries of a map as they were written down."""

    entries: list[tuple[str, object]]
    lines: list[str]
    text: str
    """All lines."""
    is_frozen: bool
    """Whether the entries are as they were if they are the same objects."""

    def is_of(self, entries: list[tuple[str, object]]) -> bool:
        """Say whether its text is that of these entries."""
        if not self.is_frozen or len(entries) != len(self.entries):
            return False
        return all(
            key == known and entry is before
            for (key, entry), (known, before) in zip(entries, self.entries, strict=True)
        )


_Texts: TypeAlias = dict[tuple[str, int], _Piece]
"""Of a table that was saved, by map and first entry: what has not changed since is not written down
again."""


class TableChecksum(msgspec.Struct, frozen=True):
    """What one of the two files of a table was when it was written here."""

    crc32: int
    modified_ms: int


class TableChecksums(msgspec.Struct, frozen=True):
    """The content of `<file>.crc`: of the table, and of the version before it."""

    table: TableChecksum | None = None
    backup: TableChecksum | None = None


class TableFile:
    """One table on disk, its previous version and its checksums beside it."""

    def __init__(self, disk: Disk, path: str, *, is_needed: bool = True) -> None:
        """Without `is_needed` another file says the same: one that cannot be read is no file."""
        self._disk = disk
        self._is_needed = is_needed
        self._path = path
        self._backup = f"{path}.bak"
        self._noted = f"{path}.crc"
        self._name = path.rpartition("/")[2]
        self._is_damaged = False
        self._checksums = TableChecksums()
        self._texts: _Texts = {}
        self._saves = 0

    @property
    def disk(self) -> Disk:
        """Where it is."""
        return self._disk

    @property
    def path(self) -> str:
        """Its name there."""
        return self._path

    def load(self, kind: type[_Table]) -> _Table | None:
        """Return the table, from the backup if the file is missing, empty or damaged.

        None if neither exists: a new node. A table without a checksum gets one.

        Raises:
            TableFileError: There is a file, but neither it nor its backup can be read.
        """
        self._checksums = self._read_checksums()
        failure: Exception | None = None
        for path in (self._path, self._backup):
            try:
                data = self._disk.read(path)
                table = self._decode(path, data, kind) if data else None
            except (MalformedFrameError, UnreadableError, OSError) as error:
                failure = failure or error
                continue
            if table is not None:
                if path == self._path:
                    self._keep_backup()
                self._is_damaged = failure is not None
                if path != self._path:
                    _log.error(
                        "%s: %s; read from %s, which is the version before: the last change may be"
                        " missing",
                        self._path,
                        failure or "missing",
                        path,
                    )
                return table
        if failure is not None and not self._is_needed:
            _log.error("%s: %s; it is written anew from what else is known", self._path, failure)
            self._is_damaged = True
        elif failure is not None:
            raise TableFileError(
                f"{self._path}: neither it nor its .bak can be read ({failure});"
                " restore one of them, or remove both to start with an empty table",
                path=self._path,
            ) from failure
        return None

    def save(self, table: object) -> None:
        """Replace the file; its old content becomes the backup. Blocks for three small writes.

        Raises:
            StoreFullError: No room. The old file is still there.
            DiskFailedError: Anything else. The old file is still there.
        """
        for _ in self.save_in_steps(table):
            pass

    def save_in_steps(self, table: object) -> Generator[None, None, bool]:
        """Save, in steps between which the caller may let others do something.

        A table of tens of thousands of entries takes a second to write down. A save that begins
        before the last step of this one has what is newer: this one ends without doing anything
        more.

        Returns:
            Whether it was saved.

        Raises:
            StoreFullError: as above.
            DiskFailedError: as above.
        """
        self._saves += 1
        own = self._saves
        for _ in self._saved_in_steps(table):
            yield
            if own != self._saves:
                return False
        return True

    def _saved_in_steps(self, table: object) -> Iterator[None]:
        texts: _Texts = {}
        pieces: list[str] = []
        for piece in _in_steps(table, self._texts, texts):
            pieces.append(piece)
            yield
        self._texts = texts
        text = "".join(pieces)
        yield
        data = text.encode()
        yield
        # The backup of a damaged file is the only good copy until the new one is there.
        old = None if self._is_damaged else self._as_it_was()
        backup = self._checksums.backup
        if old:
            self._disk.will_replace(self._backup, old)
        self._disk.will_replace(self._path, data)
        yield
        # A file, and what is kept of it to compare it with, are never seen apart.
        if old:
            self._disk.replace(self._backup, old)
            backup = self._checksum(self._backup, old)
            self._keep(self._backup, old, backup)
            yield
        self._disk.replace(self._path, data)
        self._is_damaged = False
        checksum = self._checksum(self._path, data)
        self._keep(self._path, data, checksum)
        checksums = TableChecksums(checksum, backup)
        noted = checked_json(self._noted, checksums)
        self._disk.will_replace(self._noted, noted)
        yield
        replace_kept(self._disk, self._noted, noted)
        self._checksums = checksums

    # -- checksums -------------------------------------------------------------------------------

    def _decode(self, path: str, data: bytes, kind: type[_Table]) -> _Table:
        """Return the table in `data`, which is in the file `path`.

        Raises:
            UnreadableError: it has changed since it was written.
            MalformedFrameError: it is no such table.
        """
        now = self._checksum(path, data)
        is_backup = path == self._backup
        noted = self._checksums.backup if is_backup else self._checksums.table
        if noted is not None and now.crc32 != noted.crc32 and not self._was_table(path, now):
            if now.modified_ms == noted.modified_ms:
                raise UnreadableError("it does not fit its checksum, and nobody has written it")
            _log.warning("%s: it was written by somebody else since; taken as it is", path)
        table = decode_json_body(data, kind)
        _expect_fields(data, kind)
        if now != noted:
            try:
                self._note_one(path, now)
            except StoreFullError as error:
                _log.warning("%s: no checksum could be noted: %s", path, error)
        self._keep(path, data, now)
        return table

    # -- what is on the disk while this process runs ---------------------------------------------

    def _keep(self, path: str, data: bytes, checksum: TableChecksum) -> None:
        write_anew = partial(self._write_anew, path, data)
        kept = KeptFile(data, checksum.modified_ms, write_anew)
        self._disk.kept.keep(path, lambda: kept)

    def _keep_backup(self) -> None:
        """Keep the backup as well, if it is what it was; nobody has read it."""
        noted = self._checksums.backup
        try:
            data = self._disk.read(self._backup) if noted is not None else None
        except OSError:
            return
        if data and noted is not None and checksum_of(self._name, data) == noted.crc32:
            self._keep(self._backup, data, self._checksum(self._backup, data))

    def _write_anew(self, path: str, data: bytes) -> None:
        self._disk.replace(path, data)
        checksum = self._checksum(path, data)
        self._note_one(path, checksum)
        self._keep(path, data, checksum)

    def _as_it_was(self) -> bytes | None:
        """Return the table that is on the disk; as it was written, if it has changed by itself."""
        kept = self._disk.kept.of(self._path)
        if kept is None or not self._disk.exists(self._path):
            return self._disk.read(self._path)
        is_ours = self._disk.modified_ms(self._path) == kept.modified_ms
        return kept.content if is_ours else self._disk.read(self._path)

    def _was_table(self, path: str, found: TableChecksum) -> bool:
        """Whether the backup is the table that was noted last: a stop fell into a save."""
        table = self._checksums.table
        return path == self._backup and table is not None and found.crc32 == table.crc32

    def _checksum(self, path: str, data: bytes) -> TableChecksum:
        return TableChecksum(checksum_of(self._name, data), self._disk.modified_ms(path))

    def _note_one(self, path: str, checksum: TableChecksum) -> None:
        new = {"backup" if path == self._backup else "table": checksum}
        self._note(msgspec.structs.replace(self._checksums, **new))

    def _note(self, checksums: TableChecksums) -> None:
        replace_with_checked_json(self._disk, self._noted, checksums)
        self._checksums = checksums

    def _read_checksums(self) -> TableChecksums:
        try:
            found = read_checked_json(self._disk, self._noted, TableChecksums)
        except UnreadableError as error:
            _log.error("%s: %s; the table is taken as it is", self._noted, error)
            found = None
        return found or TableChecksums()


def _expect_fields(data: bytes, kind: type[msgspec.Struct]) -> None:
    """Refuse what holds only what belongs to other tables: it would be read as an empty one."""
    found = set(decode_json_body(data, dict[str, Any])) - _OF_ALL_TABLES
    if found and not found & set(kind.__struct_encode_fields__):
        raise MalformedFrameError(f"it holds {', '.join(sorted(found))}: that is another table")


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """The version of a table after one more change. Source: DataVersion.nextVersion."""
    return DataVersion(version.state_version, now_ms, version.counter + 1)


def encode_table(table: object) -> bytes:
    """The pretty text of a table, byte for byte as fastjson writes it.

    Fields of a record come in alphabetical order, without those that are None or unset; entries of
    a map in the map's own order.
    """
    return "".join(_in_steps(table, {}, {})).encode()


def _in_steps(table: object, known: _Texts, texts: _Texts) -> Iterator[str]:
    """Yield the text in pieces, none of which takes long.

    What is in `known` is not written down again; what may be known next time is put into `texts`.
    """
    fields = _fields(table) if isinstance(table, msgspec.Struct) else table
    if not isinstance(fields, dict) or not fields or isinstance(next(iter(fields)), int):
        yield _pretty(fields, "\n")
        return
    start = "{\n\t"
    for name, value in fields.items():
        yield f"{start}{_json(name)}:"
        start = ",\n\t"
        if isinstance(value, dict) and value and not _has_numbers(value):
            yield from _map_in_steps(name, value, known, texts)
        else:
            yield _pretty(value, "\n\t")
    yield "\n}"


def _map_in_steps(
    name: str, value: dict[str, object], known: _Texts, texts: _Texts
) -> Iterator[str]:
    start, between = "{\n\t\t", ",\n\t\t"
    entries = list(value.items())
    for at in range(0, len(entries), ENTRIES_PER_STEP):
        some = entries[at : at + ENTRIES_PER_STEP]
        piece = known.get((name, at))
        if piece is None or not piece.is_of(some):
            piece = _piece(some, piece, between)
        if piece.is_frozen:
            texts[name, at] = piece
        yield start + piece.text
        start = between
    yield "\n\t}"


def _piece(entries: list[tuple[str, object]], before: _Piece | None, between: str) -> _Piece:
    """Write entries down; those that were in a piece `before` this one have their lines there."""
    is_frozen = all(map(_is_frozen, (entry for _, entry in entries)))
    known: dict[str, tuple[object, str]] = {}
    if is_frozen and before is not None and before.is_frozen:
        pairs = zip(before.entries, before.lines, strict=True)
        known = {key: (entry, line) for (key, entry), line in pairs}
    lines = []
    for key, entry in entries:
        same, line = known.get(key, (entries, ""))  # which is no entry, as None may be
        lines.append(line if same is entry else f"{_json(key)}:{_pretty(entry, between[1:])}")
    return _Piece(entries, lines, between.join(lines), is_frozen)


def _is_frozen(entry: object) -> bool:
    return isinstance(entry, msgspec.Struct) and entry.__struct_config__.frozen


def _fields(record: msgspec.Struct) -> dict[str, object]:
    fields = ((name, getattr(record, attribute)) for name, attribute in _names(type(record)))
    return {name: field for name, field in fields if field is not None and field != msgspec.UNSET}


@cache
def _names(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """The fields of a kind of record as they are sorted: in the text, and in Python."""
    return sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))


def _has_numbers(value: dict[Any, object]) -> bool:
    return all(isinstance(key, int) for key in value)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _pretty(value: object, line_start: str) -> str:
    """`line_start` is a line break and the tabs of the current level."""
    if isinstance(value, msgspec.Struct):
        value = _fields(value)
    if not isinstance(value, dict) or not value:
        return _json(value)
    if _has_numbers(value):
        inside = ",".join([f"{key}:{number}" for key, number in value.items()])
        return f"{{{inside}{line_start}}}"
    deeper = f"{line_start}\t"
    entries = [f"{_json(key)}:{_pretty(entry, deeper)}" for key, entry in value.items()]
    return f"{{{deeper}{f',{deeper}'.join(entries)}{line_start}}}"
