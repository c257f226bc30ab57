"""Where two logs first differ, in words.

The bytes that both logs hold are compared; what is past the last record of either does not
count, so zeros that wait to be written, and file sizes, make no difference by themselves. At the
first byte that differs the records are decoded and compared field by field.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from tandem.data_file import DataFile, read_at
from tandem.log.files import open_file
from tandem.log.log_scan import FileScan, LogExtent, LogWindow, adds_up, log_extent
from tandem.log.store_directory import StoreDirectory
from tandem.wire.message import BLANK_MAGIC_CODE, MessageExt, decode_message

CHUNK_BYTES: Final = 4 << 20
_SHOWN_CHARACTERS_MAX: Final = 60


class LogDiff(msgspec.Struct, frozen=True):
    """How two logs compare.

    `offset` is the first physical offset at which they differ, -1 if they are equal; `text` says
    it in words, `fields` name what differs in the record there.
    """

    is_equal: bool
    offset: int
    text: str
    fields: tuple[str, ...] = ()


def diff_logs(a: StoreDirectory, b: StoreDirectory) -> LogDiff:
    """Compare the logs of two stores, called A and B in the words.

    Raises:
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
    """
    ends = log_extent(a.commit_log), log_extent(b.commit_log)
    if empty := _empty(*ends):
        return empty
    start = max(ends[0].start, ends[1].start)
    end = min(ends[0].end, ends[1].end)
    if start >= end:
        text = f"nothing to compare: {_span('A', ends[0])}, {_span('B', ends[1])}"
        return LogDiff(is_equal=False, offset=min(ends[0].start, ends[1].start), text=text)
    at = first_difference(a.commit_log, b.commit_log, start, end)
    if at is not None:
        return _difference(a, b, start, at)
    return _same_as_far_as_it_goes(a, b, ends, start, end)


def _span(name: str, extent: LogExtent) -> str:
    return f"{name} holds offsets {extent.start} to {extent.end}"


def _empty(a: LogExtent, b: LogExtent) -> LogDiff | None:
    if a.end > a.start and b.end > b.start:
        return None
    if a.end <= a.start and b.end <= b.start:
        return LogDiff(is_equal=True, offset=-1, text="equal: neither log holds a record")
    name, other, extent = ("A", "B", b) if a.end <= a.start else ("B", "A", a)
    text = f"{name} holds no record; {_span(other, extent)}"
    return LogDiff(is_equal=False, offset=extent.start, text=text)


def _same_as_far_as_it_goes(
    a: StoreDirectory,
    b: StoreDirectory,
    ends: tuple[LogExtent, LogExtent],
    start: int,
    end: int,
) -> LogDiff:
    words = []
    offset = -1
    if ends[0].end != ends[1].end:
        name, other, longer = ("A", "B", b) if ends[0].end < ends[1].end else ("B", "A", a)
        far = max(ends[0].end, ends[1].end)
        lacking = sum(len(window.columns) for window in _windows(longer.commit_log, end, far))
        records = "1 record" if lacking == 1 else f"{lacking} records"
        words.append(
            f"{name} is a prefix of {other}: {records} behind"
            f" ({name} ends at {end}, {other} at {far})"
        )
        offset = end
    if ends[0].start != ends[1].start:
        name, first = (
            ("A", ends[0].start) if ends[0].start < ends[1].start else ("B", ends[1].start)
        )
        words.append(f"{name} also holds offsets {first} to {start}, which the other has deleted")
        offset = first
    if not words:
        count = sum(len(window.columns) for window in _windows(a.commit_log, start, end))
        text = f"equal: {count} records, offsets {start} to {end}"
        return LogDiff(is_equal=True, offset=-1, text=text)
    if len(words) == 1 and offset != end:
        words.insert(0, f"equal from {start} to {end}")
    return LogDiff(is_equal=False, offset=offset, text="; ".join(words))


def first_difference(
    a: Sequence[DataFile], b: Sequence[DataFile], start: int, end: int
) -> int | None:
    """Return the first offset in [start, end) whose byte is not the same in both, None if none."""
    for at in range(start, end, CHUNK_BYTES):
        ours = read_log(a, at, min(at + CHUNK_BYTES, end))
        theirs = read_log(b, at, min(at + CHUNK_BYTES, end))
        if ours != theirs:
            size = min(len(ours), len(theirs))
            same = np.frombuffer(ours, np.uint8, size) == np.frombuffer(theirs, np.uint8, size)
            return at + (size if same.all() else int(np.argmin(same)))
        if len(ours) < min(CHUNK_BYTES, end - at):  # a file is missing, in both
            return at + len(ours)
    return None


def read_log(files: Sequence[DataFile], start: int, end: int) -> bytes:
    """Return the bytes of [start, end) of a log, up to the first that is missing."""
    parts = []
    for file in files:
        if file.offset <= start < min(end, file.end_offset):
            with open_file(file.path) as descriptor:
                part = read_at(descriptor, start - file.offset, min(end, file.end_offset) - start)
            parts.append(part)
            start += len(part)
    return b"".join(parts)


def _windows(files: Sequence[DataFile], start: int, end: int) -> Iterator[LogWindow]:
    """The records that start in [start, end), without a word on damage."""
    for file in files:
        if file.offset < end and file.end_offset > start:
            with open_file(file.path) as descriptor:
                begin = max(0, start - file.offset)
                begin = begin if adds_up(descriptor, file, begin) else 0
                for window in FileScan(descriptor, file, begin, end - file.offset).windows():
                    inside = window.columns.physical_offset >= start
                    yield msgspec.structs.replace(window, columns=window.columns.take(inside))


class _Place(msgspec.Struct, frozen=True):
    """What is around an offset: the record or blank it is in, and how many records before it."""

    record_offset: int
    number: int
    message: MessageExt | None
    what: str


def _difference(a: StoreDirectory, b: StoreDirectory, start: int, at: int) -> LogDiff:
    ours, theirs = _place(a.commit_log, start, at), _place(b.commit_log, start, at)
    number = min(ours.number, theirs.number)
    place = min(ours.record_offset, theirs.record_offset)
    before = f"equal before it: {number} records, offsets {start} to {place}"
    if ours.message is None or theirs.message is None:
        text = (
            f"first difference at offset {at}: A has {ours.what} at {ours.record_offset},"
            f" B has {theirs.what} at {theirs.record_offset}; {before}"
        )
        return LogDiff(is_equal=False, offset=at, text=text)
    fields = tuple(_different_fields(ours.message, theirs.message))
    names = ", ".join(field.split(":")[0] for field in fields) or "bytes that no field shows"
    message = ours.message
    text = (
        f"first difference at offset {at}, in the record at {ours.record_offset}"
        f" (topic {message.topic}, queue {message.queue_id}, queue offset"
        f" {message.queue_offset}): {names}; {before}"
    )
    return LogDiff(is_equal=False, offset=at, text=text, fields=fields)


def _place(files: Sequence[DataFile], start: int, at: int) -> _Place:
    number = 0
    end = start
    for window in _windows(files, start, at + 1):
        columns = window.columns
        inside = np.flatnonzero(columns.physical_offset + columns.size > at)
        if len(inside):
            row = int(inside[0])
            message, _ = decode_message(window.data, int(columns.start[row]))
            return _Place(message.physical_offset, number + row, message, "a record")
        if len(columns):
            number += len(columns)
            end = int(columns.physical_offset[-1] + columns.size[-1])
    return _Place(*_not_a_record(files, end, at, number))


def _not_a_record(
    files: Sequence[DataFile], end: int, at: int, number: int
) -> tuple[int, int, None, str]:
    file = next((f for f in files if f.offset <= at < f.end_offset), None)
    if file is None:
        return at, number, None, "no file"
    place = max(end, file.offset)
    head = read_log([file], place, place + 8)
    if int.from_bytes(head[4:], "big") == BLANK_MAGIC_CODE:
        return place, number, None, "the blank record that closes a file"
    return place, number, None, "bytes that are no record" if any(head) else "zeros"


def _different_fields(a: MessageExt, b: MessageExt) -> Iterator[str]:
    for name in MessageExt.__struct_fields__:
        ours, theirs = getattr(a, name), getattr(b, name)
        if ours == theirs:
            continue
        if isinstance(ours, dict):
            for key in sorted({*ours, *theirs}):
                if ours.get(key) != theirs.get(key):
                    values = f"{_shown(ours.get(key))} in A, {_shown(theirs.get(key))} in B"
                    yield f"property {key}: {values}"
        elif name == "body":
            yield f"body: {_different_bytes(ours, theirs)}"
        else:
            yield f"{name}: {_shown(ours)} in A, {_shown(theirs)} in B"


def _different_bytes(a: bytes, b: bytes) -> str:
    size = min(len(a), len(b))
    same = np.frombuffer(a, np.uint8, size) == np.frombuffer(b, np.uint8, size)
    first = size if same.all() else int(np.argmin(same))
    sizes = f"{len(a)} bytes" if len(a) == len(b) else f"{len(a)} bytes in A, {len(b)} in B"
    return (
        f"{sizes}, different from byte {first}: {_shown(a[first:])} in A, {_shown(b[first:])} in B"
    )


def _shown(value: object) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bytes):
        value = value[:_SHOWN_CHARACTERS_MAX].decode("utf-8", "backslashreplace")
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
