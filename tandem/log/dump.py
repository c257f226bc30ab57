"""The records of a log, one at a time, decoded, in log order and in constant memory.

A key is looked up in the index files where they cover the log, and scanned for where they do not:
before the first entry and after the last. Only hashes are in an index, so the key in the
record decides.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import msgspec

from tandem.data_file import DataFile
from tandem.log.bodies import DecodedBody, decode_body
from tandem.log.files import open_file
from tandem.log.index_file import IndexFile, IndexSettings, find_settings, read_header
from tandem.log.log_scan import LogDamage, LogWindow, record_at, scan_log
from tandem.log.record_filter import RecordFilter
from tandem.log.store_directory import StoreDirectory
from tandem.wire.crc import crc32
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.record_keys import key_hash
from tandem.wire.store_layout import OFFSET_MAX


class DumpedRecord(msgspec.Struct, frozen=True):
    """A stored message, whether its body is what its CRC says, and the body decoded."""

    message: MessageExt
    crc_ok: bool
    body: DecodedBody


Dumped: TypeAlias = DumpedRecord | LogDamage


def dump_records(
    store: StoreDirectory,
    wanted: RecordFilter,
    *,
    use_index: bool = True,
    index_settings: IndexSettings | None = None,
) -> Iterator[Dumped]:
    """Yield the wanted records in log order, and each damaged place that the walk goes over.

    Raises:
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
        BadRequestError: `index_settings` do not fit the index files.
    """
    if use_index and wanted.key is not None and wanted.topics is not None:
        covered = _Coverage(store.index_files, index_settings)
        if covered.is_known:
            yield from _dump_by_index(store, wanted, covered)
            return
    yield from _dump_by_scan(store.commit_log, wanted)


def _dump_by_scan(files: Sequence[DataFile], wanted: RecordFilter) -> Iterator[Dumped]:
    limits = wanted.physical_offsets
    end = None if limits.end == OFFSET_MAX else limits.end
    for item in scan_log(files, limits.start, end):
        if isinstance(item, LogDamage):
            yield item
        else:
            yield from _decoded(item, wanted)


def _decoded(window: LogWindow, wanted: RecordFilter) -> Iterator[DumpedRecord]:
    for row in wanted.rows(window).tolist():
        message, _ = decode_message(window.data, int(window.columns.start[row]))
        yield _dumped(message)


def _dumped(message: MessageExt) -> DumpedRecord:
    crc_ok = not message.body or crc32(message.body) == message.body_crc
    return DumpedRecord(message, crc_ok, decode_body(message))


class _Coverage:
    """The part of the log, [start, end), all of whose keys are in index files.

    Some keys of the first and of the last message may be in files that are not there.
    """

    def __init__(self, files: Sequence[DataFile], settings: IndexSettings | None) -> None:
        self.files: list[DataFile] = []
        self.start = OFFSET_MAX
        self.end = 0
        self.settings = find_settings(files, settings)
        if self.settings is None:
            return
        for file in files:
            with open_file(file.path) as descriptor:
                header = read_header(descriptor)
            if file.size == self.settings.file_bytes and header and header.index_count > 1:
                self.files.append(file)
                self.start = min(self.start, header.begin_physical_offset + 1)
                self.end = max(self.end, header.end_physical_offset)

    @property
    def is_known(self) -> bool:
        return self.start <= self.end

    def offsets(self, key_hash: int) -> set[int]:
        """Return the offsets that all files have under a hash."""
        found: set[int] = set()
        assert self.settings is not None
        for file in self.files:
            with open_file(file.path) as descriptor:
                header = read_header(descriptor)
                if header is not None:
                    found.update(IndexFile(descriptor, self.settings, header).offsets(key_hash))
        return found


def _dump_by_index(
    store: StoreDirectory, wanted: RecordFilter, covered: _Coverage
) -> Iterator[Dumped]:
    assert wanted.topics is not None
    assert wanted.key is not None
    limits = wanted.physical_offsets
    if limits.start < covered.start:
        end = min(limits.end, covered.start)
        yield from _dump_by_scan(store.commit_log, _within(wanted, limits.start, end))
    key = wanted.key.encode()
    offsets = {at for topic in wanted.topics for at in covered.offsets(key_hash(topic, key))}
    yield from _dump_at(store.commit_log, sorted(offsets), wanted, covered)
    if covered.end < limits.end:
        start = max(limits.start, covered.end)
        yield from _dump_by_scan(store.commit_log, _within(wanted, start, limits.end))


def _within(wanted: RecordFilter, start: int, end: int) -> RecordFilter:
    limits = msgspec.structs.replace(wanted.physical_offsets, start=start, end=end)
    return msgspec.structs.replace(wanted, physical_offsets=limits)


def _dump_at(
    files: Sequence[DataFile], offsets: Sequence[int], wanted: RecordFilter, covered: _Coverage
) -> Iterator[DumpedRecord]:
    """Yield the wanted ones among the records at these offsets."""
    inside = _within(
        wanted,
        max(wanted.physical_offsets.start, covered.start),
        min(wanted.physical_offsets.end, covered.end),
    )
    with ExitStack() as stack:
        descriptors: dict[str, int] = {}
        for offset in offsets:
            file = next((f for f in files if f.offset <= offset < f.end_offset), None)
            if file is None:
                continue
            if file.path not in descriptors:
                stack.close()
                descriptors = {file.path: stack.enter_context(open_file(file.path))}
            window = record_at(descriptors[file.path], file, offset - file.offset)
            if window is not None:
                yield from _decoded(window, inside)
