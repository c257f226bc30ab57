"""What `tandem log ls` shows: the files of a store, how full they are, and from when.

Full files are not read through: their last record is found from their end. Only the last file that
holds anything is walked.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tandem.data_file import DataFile
from tandem.log.files import open_file
from tandem.log.index_file import read_header
from tandem.log.log_scan import FileScan, next_record
from tandem.log.queue_units import QueueReader
from tandem.log.store_directory import Checkpoint, QueueFiles, StoreDirectory, StrayFile

_TAIL_BYTES: Final = 1 << 20
_TAIL_BYTES_MAX: Final = 32 << 20


class LogFileRow(msgspec.Struct, frozen=True):
    """One commit log file. `used_bytes` end after the last record; times are 0 without one."""

    path: str
    offset: int
    size: int = 0
    used_bytes: int = 0
    is_closed: bool = False
    first_store_timestamp_ms: int = 0
    last_store_timestamp_ms: int = 0


class TopicRow(msgspec.Struct, frozen=True):
    """The queues of one topic. `size` counts the bytes of the files, `unit_count` units in use.

    `min_offset` and `max_offset` are the lowest first and the highest next queue offset of them.
    """

    topic: str
    kind: str
    queue_count: int
    file_count: int
    size: int
    unit_count: int
    min_offset: int
    max_offset: int
    has_ext: bool


class IndexRow(msgspec.Struct, frozen=True):
    """One index file; `key_count` is how many keys it holds."""

    path: str
    size: int
    key_count: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int


class Listing(msgspec.Struct, frozen=True):
    """All of it. `checkpoint` is None if there is none."""

    path: str
    is_live: bool
    has_abort: bool
    commit_log: tuple[LogFileRow, ...]
    topics: tuple[TopicRow, ...]
    index_files: tuple[IndexRow, ...]
    checkpoint: Checkpoint | None
    strays: tuple[StrayFile, ...]


def list_store(store: StoreDirectory) -> Listing:
    """Look into every file far enough to say how full it is.

    Raises:
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
    """
    return Listing(
        path=store.path,
        is_live=store.is_live,
        has_abort=store.has_abort,
        commit_log=tuple(_log_rows(store.commit_log)),
        topics=tuple(_topic_rows(store.queues)),
        index_files=tuple(_index_row(file) for file in store.index_files),
        checkpoint=store.checkpoint,
        strays=store.strays,
    )


def _log_rows(files: Sequence[DataFile]) -> Iterator[LogFileRow]:
    for number, file in enumerate(files):
        if not file.size:
            yield LogFileRow(file.path, file.offset)
            continue
        with open_file(file.path) as descriptor:
            is_last = number == len(files) - 1
            row = None if is_last else _row_of_full_file(descriptor, file)
            yield row or _row_by_walk(descriptor, file)


def _row_by_walk(descriptor: int, file: DataFile, start: int = 0) -> LogFileRow:
    first_ms = last_ms = used = 0
    scan = FileScan(descriptor, file, start)
    for window in scan.windows():
        columns = window.columns
        if len(columns):
            first_ms = first_ms or int(columns.store_timestamp_ms[0])
            last_ms = int(columns.store_timestamp_ms[-1])
            used = window.position + int(columns.start[-1] + columns.size[-1])
    used = file.size if scan.closed else used
    return LogFileRow(file.path, file.offset, file.size, used, scan.closed, first_ms, last_ms)


def _row_of_full_file(descriptor: int, file: DataFile) -> LogFileRow | None:
    """Read both ends; None if the end of the file is not that of a closed one."""
    first_ms = 0
    for window in FileScan(descriptor, file, 0, 1).windows():
        if len(window.columns):
            first_ms = int(window.columns.store_timestamp_ms[0])
    tail = _TAIL_BYTES
    while first_ms and tail <= _TAIL_BYTES_MAX:
        start = next_record(descriptor, file, max(0, file.size - tail))
        if start < file.size:
            row = _row_by_walk(descriptor, file, start)
            if row.is_closed:
                return msgspec.structs.replace(row, first_store_timestamp_ms=first_ms)
        tail *= 8
    return None


def _topic_rows(queues: Sequence[QueueFiles]) -> Iterator[TopicRow]:
    groups: dict[tuple[str, str], list[QueueFiles]] = {}
    for queue in queues:
        groups.setdefault((queue.topic, queue.kind), []).append(queue)
    for (topic, kind), members in sorted(groups.items()):
        ranges = [QueueReader(queue).offset_range() for queue in members]
        used = [(low, high) for low, high in ranges if high > low]
        files = [file for queue in members for file in queue.files]
        yield TopicRow(
            topic=topic,
            kind=kind,
            queue_count=len(members),
            file_count=len(files),
            size=sum(file.size for file in files),
            unit_count=sum(high - low for low, high in used),
            min_offset=min((low for low, _ in used), default=0),
            max_offset=max((high for _, high in used), default=0),
            has_ext=any(queue.ext_files for queue in members),
        )


def _index_row(file: DataFile) -> IndexRow:
    with open_file(file.path) as descriptor:
        header = read_header(descriptor)
    if header is None:
        return IndexRow(file.path, file.size, 0, 0, 0, 0, 0)
    return IndexRow(
        path=file.path,
        size=file.size,
        key_count=max(0, header.index_count - 1),
        begin_timestamp_ms=header.begin_timestamp_ms,
        end_timestamp_ms=header.end_timestamp_ms,
        begin_physical_offset=header.begin_physical_offset,
        end_physical_offset=header.end_physical_offset,
    )
