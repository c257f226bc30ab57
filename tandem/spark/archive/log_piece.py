"""Which pieces of a store's log can go into an archive, and their rows.

closed file     another file with data follows it: its bytes are final
confirmed       of a node of a fenced group, only what every replica that counts has, as its store
                says (`commitlog.confirmed`); a switch may cut off the rest
open file       the last one; its records go in only if they are asked for, for stores that
                nobody writes to any more
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa

from tandem.data_file import DataFile, opened, read_into
from tandem.spark.archive.errors import (
    ArchiveError,
    LostBeforeArchivedError,
    OldCopyError,
    OtherLogError,
)
from tandem.spark.archive.manifest import Unit
from tandem.spark.commitlog.confirmed import confirmed_end
from tandem.spark.commitlog.log_files import (
    commit_log_folder,
    list_log_files,
    local_path,
    log_tail,
)
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.places import place_of
from tandem.spark.commitlog.read import read_split
from tandem.spark.commitlog.split import LogSplit
from tandem.spark.errors import LossCause
from tandem.spark.record_batches import COLUMNS
from tandem.wire.crc import raw_crc32
from tandem.wire.store_layout import OFFSET_MAX

_READ_BYTES: Final = 4 << 20


class LogPiece(msgspec.Struct, frozen=True):
    """Physical offsets [first, end) of the log of `group`, all in one file of a store."""

    group: str
    store: str
    file: DataFile
    first: int
    end: int
    closes_file: bool


def pieces_to_archive(
    group: str, store: str, units: list[Unit], *, take_open_file: bool = False, lost: bool = False
) -> list[LogPiece]:
    """Return the pieces of a store's log that `units` do not have, in log order.

    Those between units and before them are among them: a unit that was removed is archived again
    as long as a store has its log files. `lost` allows that the log does not go back to where
    `units` end.

    Raises:
        NotAStoreError: `store` is none.
        LostBeforeArchivedError: a piece between is missing, and `lost` is false.
        OtherLogError: the log ends before the archive does, or is another one.
    """
    confirmed = _confirmed(store)  # before the files: see `commitlog.confirmed`
    files = log_files(store)
    have = max((unit.end for unit in units), default=None)
    found: list[LogPiece] = []
    for number, file in enumerate(files):
        is_last = number == len(files) - 1
        is_closed = not is_last and file.end_offset <= confirmed
        if not is_closed and (not take_open_file or confirmed <= file.offset):
            break
        end = file.end_offset if is_closed else _last_end(file, confirmed)
        if have is not None and have < file.offset and not lost:
            if number:
                raise _file_missing(group, store, have, file.offset)
            raise _lost(group, have, file.offset)
        for first, last in _missing(file.offset, end, units):
            closes = is_closed and last == end
            found.append(LogPiece(group, store, file, first, last, closes_file=closes))
        have = max(have or 0, end)
        if not is_closed:
            break
    _check_same_log(group, store, files, units)
    return found


def log_files(store: str) -> list[DataFile]:
    """Return the files of a store's log that hold something, in order.

    Raises:
        NotAStoreError: `store` is none.
    """
    return list_log_files(commit_log_folder(local_path(store)))


def piece_of(unit: Unit, store: str, files: list[DataFile]) -> LogPiece | None:
    """Return the piece of log that a unit was made of; None if no file of the store has it."""
    for file in files:
        if file.offset <= unit.first and unit.end <= file.end_offset:
            return LogPiece(unit.group, store, file, unit.first, unit.end, unit.closes_file)
    return None


def rows_of(piece: LogPiece) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece with all columns of the log, in log order.

    Raises:
        LogDamagedError: a record is torn or corrupt; nothing of it may be archived.
    """
    start = piece.first - piece.file.offset
    end = piece.end - piece.file.offset
    split = LogSplit(
        store=piece.store,
        file=piece.file,
        start=start,
        end=end,
        log_end=end,
        is_last_file=not piece.closes_file,
    )
    # The broker's own records too: the files may be deleted afterwards.
    options = ScanOptions(paths=(piece.store,), with_system_topics=True)
    yield from read_split(split, options, list(COLUMNS))


def log_crc(file: DataFile, first: int, end: int) -> int:
    """Return the CRC-32 of physical offsets [first, end) of a log file."""
    crc = 0
    data = bytearray(_READ_BYTES)
    with opened(file.path) as descriptor, memoryview(data) as view:
        position = first
        while position < end:
            size = read_into(descriptor, view[: end - position], position - file.offset)
            if not size:
                break
            crc = raw_crc32(view[:size], crc)
            position += size
    return crc


def _missing(first: int, end: int, units: list[Unit]) -> Iterator[tuple[int, int]]:
    """Yield what is left of [first, end) without the pieces of `units`, which are sorted."""
    for unit in units:
        if unit.end <= first:
            continue
        if unit.first >= end:
            break
        if first < unit.first:
            yield first, unit.first
        first = unit.end
    if first < end:
        yield first, end


def _last_end(file: DataFile, confirmed: int) -> int:
    """Return where the records of a file end, as far as they are confirmed."""
    tail = log_tail(file, bound=confirmed - file.offset)
    if not tail.clean:
        raise ArchiveError(
            f"{file.path} ends in something that is no record, at {file.offset + tail.end};"
            " `tandem log repair` cuts it off, or leave the open file out"
        )
    return file.offset + tail.end


def _confirmed(store: str) -> int:
    """Return the physical offset below which the log is final."""
    confirmed = confirmed_end(place_of(str(local_path(store))))
    return OFFSET_MAX if confirmed is None else confirmed


def _lost(group: str, have: int, first: int) -> LostBeforeArchivedError:
    return LostBeforeArchivedError(
        f"the log of {group} was archived up to {have}, and the store goes on at {first}:"
        f" {first - have} bytes are lost. Archive from a node that still has them, or go on"
        " without them with on_data_loss: continue",
        LossCause.DELETED,
        have,
    )


def _file_missing(group: str, store: str, have: int, first: int) -> LostBeforeArchivedError:
    return LostBeforeArchivedError(
        f"the log of {group} in {store} goes on at {first}, and a file from {have} on is missing"
        " between two that are there. If this log is in several directories"
        " (store_path_commit_log), name a directory in whose `commitlog` are links to the files of"
        " all of them, and of a fenced group one to the store's `checkpoint` beside it. Else"
        " archive from a node that still has it, or go on without it with on_data_loss: continue",
        LossCause.DELETED,
        have,
    )


def _check_same_log(group: str, store: str, files: list[DataFile], units: list[Unit]) -> None:
    """See whether the last piece that was archived is still what the store has there."""
    if not units or not files:
        return
    last = max(units, key=lambda unit: unit.end)
    if files[-1].end_offset < last.end:
        raise OldCopyError(
            f"the log of {group} in {store} ends at or before {files[-1].end_offset}, and the"
            f" archive has it up to {last.end}: another log, or an old copy; name another store"
        )
    for file in files:
        if file.offset <= last.first and last.end <= file.end_offset:
            if log_crc(file, last.first, last.end) == last.log_crc:
                return
            raise OtherLogError(
                f"{file.path} is not what was archived as {last.name}: another log, or one that"
                " was cut and written anew; name another store or another archive"
            )
