"""Checks the small files of a store: what a node remembers beside its log.

Each has a checksum, in itself or beside it, and is read here as the node reads it: see the table in
docs/store.md. What is not there is not missed: most files are only in some stores.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from tandem.log.epoch_list import BACKUP_SUFFIX, IDS_NAME, LIST_NAME, read_lines
from tandem.log.errors import UnreadableFileError
from tandem.log.findings import FindingList
from tandem.wire.checkpoint_copy import settled
from tandem.wire.checksum_line import checksum_of, decode_checked_json
from tandem.wire.untrusted import UnreadableError

BYTES_MAX: Final = 256 << 20
"""A longer one is none of these files."""

CHECKSUM_SUFFIX: Final = ".crc"
CHECKPOINT_BYTES: Final = 4096
START_NAME: Final = "log-start.json"

_CHECKED: Final = {
    "replica.json": "replica-file",
    "config/groupJournal.json": "group-file",
    "truncation.json": "order-file",
    "set-aside.json": "order-file",
    "damage.json": "damage-file",
    "log-start.json": "start-file",
}
_CHECKPOINTS: Final = {"checkpoint": 6, "config/timercheck": 7}
"""With a second copy of so many numbers."""


_JSON: Final[Any] = dict[str, Any] | list[Any]


class _Checksum(msgspec.Struct, frozen=True):
    crc32: int
    modified_ms: int


class _Start(msgspec.Struct, frozen=True):
    start: int
    lock_modified_ms: int


class _Checksums(msgspec.Struct, frozen=True):
    table: _Checksum | None = None
    backup: _Checksum | None = None


def check_small_files(root: Path, found: FindingList) -> None:
    """Note what is wrong with the small files of the store in `root`.

    Raises:
        UnreadableFileError: the system refuses one.
    """
    for name, kind in _CHECKED.items():
        data = _read(root / name)
        if data is None:
            continue
        try:
            decode_checked_json(Path(name).name, data, _JSON)
        except UnreadableError as error:
            found.add(kind, str(root / name), -1, str(error))
    for name, count in _CHECKPOINTS.items():
        data = _read(root / name)
        if data is not None and len(data) == CHECKPOINT_BYTES:
            trouble = settled(data, count).trouble
            if trouble:
                found.add("checkpoint-changed", str(root / name), -1, trouble)
    for name in (LIST_NAME, IDS_NAME):
        _check_epochs(root, name, found)
    for path in sorted((root / "config").glob(f"*.json{CHECKSUM_SUFFIX}")):
        _check_table(path, found)


def noted_start(root: Path) -> int:
    """Return where the log of a store has to begin, -1 if nobody has written it down.

    `store.log.log_start` writes it; it does not count where others had the store open since.
    """
    data = _read(root / START_NAME)
    lock = root / "lock"
    if data is None or not lock.is_file():
        return -1
    try:
        note = decode_checked_json(START_NAME, data, _Start)
    except UnreadableError:
        return -1
    is_ours = lock.stat().st_mtime_ns // 1_000_000 == note.lock_modified_ms
    return note.start if is_ours else -1


def _check_epochs(root: Path, name: str, found: FindingList) -> None:
    troubles = {}
    for path in (root / name, root / f"{name}{BACKUP_SUFFIX}"):
        data = _read(path)
        if data is None:
            continue
        try:
            read_lines(data, name)
            troubles[path] = ""
        except ValueError as error:
            troubles[path] = str(error)
    is_lost = bool(troubles) and all(troubles.values())
    for path, trouble in troubles.items():
        if trouble:
            found.add("epoch-files" if is_lost else "epoch-copy", str(path), -1, trouble)


def _check_table(path: Path, found: FindingList) -> None:
    table = path.with_name(path.name.removesuffix(CHECKSUM_SUFFIX))
    try:
        noted = decode_checked_json(path.name, _read(path) or b"", _Checksums)
    except UnreadableError as error:
        found.add("table-checksum", str(path), -1, str(error))
        return
    backup = table.with_name(f"{table.name}.bak")
    for file, checksum in ((table, noted.table), (backup, noted.backup)):
        data = _read(file)
        if data is None or checksum is None or checksum_of(table.name, data) == checksum.crc32:
            continue
        before = noted.table if file == backup else None
        if before is not None and checksum_of(table.name, data) == before.crc32:
            continue
        written_ms = file.stat().st_mtime_ns // 1_000_000
        if written_ms == checksum.modified_ms:
            what = "it does not fit its checksum, and nobody has written it"
            found.add("table-changed", str(file), -1, what)
        else:
            found.add("table-written", str(file), -1, "it is not what the node wrote last")


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file() or path.stat().st_size > BYTES_MAX:
            return None
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFileError(str(path), error) from error
