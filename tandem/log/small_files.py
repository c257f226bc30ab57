"""Checks the small files of a store: what a node remembers beside its log.

Each has a checksum, in itself or beside it, and is read here as the node reads it: see the table in
docs/store.md. A file that is not there is not missed: most are only in some stores.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from tandem.log.epoch_list import BACKUP_SUFFIX, read_lines
from tandem.log.errors import UnreadableFileError
from tandem.log.findings import FindingList
from tandem.wire.checkpoint_copy import settled
from tandem.wire.checksum_line import checksum_of, decode_checked_json
from tandem.wire.errors import MalformedFrameError
from tandem.wire.route import decode_json_body
from tandem.wire.store_layout import (
    CHECKPOINT_BYTES,
    DAMAGE_FILE,
    EPOCH_FILE,
    EPOCH_IDS_FILE,
    GROUP_JOURNAL_FILE,
    LOG_START_FILE,
    QUEUE_ENDS_FILE,
    QUEUE_KINDS,
    QUEUE_NOTE_FILE,
    REBUILD_ORDER_FILE,
    TABLE_CHANGES_SUFFIX,
    TOPIC_TABLE_FILE,
)
from tandem.wire.untrusted import UnreadableError

BYTES_MAX: Final = 256 << 20
"""A longer one is none of these files."""

CHECKSUM_SUFFIX: Final = ".crc"

_CHECKED: Final = {
    "replica.json": "replica-file",
    f"config/{GROUP_JOURNAL_FILE}": "group-file",
    f"config/{TOPIC_TABLE_FILE}{TABLE_CHANGES_SUFFIX}": "topic-changes",
    "truncation.json": "order-file",
    "set-aside.json": "order-file",
    "damage.json": "damage-file",
    "log-start.json": "start-file",
    "scrub.json": "progress-file",
    "healed.json": "progress-file",
    QUEUE_NOTE_FILE: "queue-note",
    QUEUE_ENDS_FILE: "queue-ends",
    REBUILD_ORDER_FILE: "rebuild-file",
}
_CHECKPOINTS: Final = {"checkpoint": (6, 1), "config/timercheck": (7, 0)}
"""Files with a second copy: how many numbers it has, and how many of them are not RocketMQ's."""


_JSON: Final[Any] = dict[str, Any] | list[Any] | str


class _Checksum(msgspec.Struct, frozen=True):
    crc32: int
    modified_ms: int


class StartNote(msgspec.Struct, frozen=True):
    """Where the log has to begin, and the era of the store: see `store.log.log_start`."""

    start: int
    lock_modified_ms: int
    era: int = 0


class _BadRange(msgspec.Struct, frozen=True):
    start: int
    end: int
    reason: str = ""


class _Checksums(msgspec.Struct, frozen=True):
    table: _Checksum | None = None
    backup: _Checksum | None = None


def check_small_files(root: Path, found: FindingList) -> None:
    """Note what is wrong with the small files of the store in `root`.

    Raises:
        UnreadableFileError: the system refuses one.
    """
    for name, kind in _CHECKED.items():
        _check_json(root / name, kind, found)
    _check_noted_damage(root, found)
    _check_noted_queues(root, found)
    for name, (count, own) in _CHECKPOINTS.items():
        data = _read(root / name)
        if data is not None and len(data) == CHECKPOINT_BYTES:
            trouble = settled(data, count, own).trouble
            if trouble:
                found.add("checkpoint-changed", str(root / name), -1, trouble)
    for name in (EPOCH_FILE, EPOCH_IDS_FILE):
        _check_epochs(root, name, found)
    tables = {
        path.with_name(path.name.removesuffix(suffix))
        for suffix in ("", BACKUP_SUFFIX, CHECKSUM_SUFFIX)
        for path in (root / "config").glob(f"*.json{suffix}")
    }
    for path in sorted(tables):
        if path.name != GROUP_JOURNAL_FILE:
            _check_table(path, found)


def _check_json(path: Path, kind: str, found: FindingList) -> None:
    data = _read(path)
    try:
        if data is not None:
            decode_checked_json(path.name, data, _JSON)
    except UnreadableError as error:
        found.add(kind, str(path), -1, str(error))


def noted_start(root: Path) -> int:
    """Return where the log of a store has to begin, -1 if nobody has written it down."""
    note = noted(root)
    return -1 if note is None else note.start


def noted(root: Path) -> StartNote | None:
    """Return what a store has written down of its log; None where others had it open since.

    `store.log.log_start` writes it.
    """
    data = _read(root / LOG_START_FILE)
    lock = root / "lock"
    if data is None or not lock.is_file():
        return None
    try:
        note = decode_checked_json(LOG_START_FILE, data, StartNote)
    except UnreadableError:
        return None
    is_ours = lock.stat().st_mtime_ns // 1_000_000 == note.lock_modified_ms
    return note if is_ours else None


def _check_noted_damage(root: Path, found: FindingList) -> None:
    data = _read(root / DAMAGE_FILE)
    try:
        ranges = decode_checked_json(DAMAGE_FILE, data or b"[]", tuple[_BadRange, ...])
    except UnreadableError:  # found before
        return
    for bad in ranges:
        what = f"offsets {bad.start} to {bad.end}: {bad.reason}"
        found.add("damage-noted", str(root / DAMAGE_FILE), -1, what, bad.start)


def _check_noted_queues(root: Path, found: FindingList) -> None:
    """Note which queues are to be built anew, and which had files and have none any more.

    After RocketMQ has had the store open the list of queues does not count.
    """
    order = _read(root / REBUILD_ORDER_FILE)
    with suppress(UnreadableError):  # found before
        if order is not None:
            reason = decode_checked_json(REBUILD_ORDER_FILE, order, str)
            found.add("rebuild-noted", str(root / REBUILD_ORDER_FILE), -1, reason)
    note = _read(root / QUEUE_NOTE_FILE)
    if note is None or noted(root) is None:
        return
    there = {
        f"{file.parent.parent.name}/{file.parent.name}"
        for kind in QUEUE_KINDS
        for file in (root / kind).glob("*/*/*")
    }
    with suppress(UnreadableError):
        for topic, ids in decode_checked_json(QUEUE_NOTE_FILE, note, dict[str, list[int]]).items():
            for name in (f"{topic}/{queue_id}" for queue_id in ids):
                if name not in there:
                    found.add("queue-gone", str(root / QUEUE_NOTE_FILE), -1, name)


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
    """Look at a table, at the version before it, and at the checksums beside them.

    Those of RocketMQ, and of an earlier version, have no checksums.
    """
    beside = path.with_name(f"{path.name}{CHECKSUM_SUFFIX}")
    try:
        noted = decode_checked_json(beside.name, _read(beside) or b"{}", _Checksums)
    except UnreadableError as error:
        found.add("table-checksum", str(beside), -1, str(error))
        noted = _Checksums()
    backup = path.with_name(f"{path.name}.bak")
    trouble = _table_trouble(path, path.name, (noted.table,), found)
    before = _table_trouble(backup, path.name, (noted.backup, noted.table), found)
    if (
        trouble
        and (before or not backup.exists())
        and not (path.parent / GROUP_JOURNAL_FILE).exists()
    ):
        found.add("table-lost", str(path), -1, trouble)
    elif trouble:
        found.add("table-changed", str(path), -1, trouble)
    if before:
        found.add("table-changed", str(backup), -1, before)


def _table_trouble(
    path: Path, name: str, noted: tuple[_Checksum | None, ...], found: FindingList
) -> str:
    """Return why a node does not take a file for the table `name`, "" if it does."""
    data = _read(path)
    if not data:
        return ""
    checksums = [each for each in noted[:1] if each is not None]
    is_fitting = checksum_of(name, data) in {each.crc32 for each in noted if each is not None}
    if checksums and not is_fitting:
        if path.stat().st_mtime_ns // 1_000_000 == checksums[0].modified_ms:
            return "it does not fit its checksum, and nobody has written it"
        found.add("table-written", str(path), -1, "it is not what the node wrote last")
    try:
        decode_json_body(data, dict[str, Any])
    except MalformedFrameError as error:
        return f"it cannot be read as a table: {error}"
    return ""


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file() or path.stat().st_size > BYTES_MAX:
            return None
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFileError(str(path), error) from error
