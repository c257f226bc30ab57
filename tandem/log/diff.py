"""Where two logs first differ, in words.

The bytes that both logs hold are compared; what is past the last record of either does not
count, so zeros that wait to be written, and file sizes, make no difference by themselves. At the
first byte that differs the records are decoded and compared field by field.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from tandem.data_file import DataFile, read_at
from tandem.log.files import open_file
from tandem.log.log_scan import FileScan, LogExtent, LogWindow, adds_up, log_extent
from tandem.log.store_directory import StoreDirectory
from tandem.wire.message import BLANK_MAGIC_CODE, MessageExt, decode_message

CHUNK_BYTES: Final = 4 << 20
_SHOWN_CHARACTERS_MAX: Final = 60


class Content(enum.Enum):
    """What a log has at a place."""

    RECORD = "record"
    BLANK = "blank"
    """The record that closes a file."""
    ZEROS = "zeros"
    OTHER = "other"
    """Bytes that are not a record."""
    NO_FILE = "no-file"


_WORDS: Final = {
    Content.RECORD: "a record",
    Content.BLANK: "the blank record that closes a file",
    Content.ZEROS: "zeros",
    Content.OTHER: "bytes that are not a record",
    Content.NO_FILE: "no file",
}


class LogDiff(msgspec.Struct, frozen=True, kw_only=True):
    """How two logs compare.

    `offset` is the first physical offset at which they differ, -1 if they are equal; `text` says
    it in words, `fields` name what differs in the record there. `start` and `end` are where the
    logs are, A's first, without what is past the last record. Where bytes differ that both hold,
    `contents` is what each has there, and `equal_count` how many records are equal before it;
    where one ends before the other, `lacking_count` is how many records it lacks.
    """

    is_equal: bool
    offset: int
    text: str
    start: tuple[int, int]
    end: tuple[int, int]
    fields: tuple[str, ...] = ()
    contents: tuple[Content, Content] | None = None
    equal_count: int = 0
    lacking_count: int = 0


class _Span(NamedTuple):
    """Where two logs are, and what both hold."""

    a: LogExtent
    b: LogExtent

    def diff(self, offset: int, text: str, *, is_equal: bool = False) -> LogDiff:
        return LogDiff(
            is_equal=is_equal,
            offset=offset,
            text=text,
            start=(self.a.start, self.b.start),
            end=(self.a.end, self.b.end),
        )


def diff_logs(a: StoreDirectory, b: StoreDirectory) -> LogDiff:
    """Compare the logs of two stores, called A and B in the words.

    Raises:
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
    """
    span = _Span(log_extent(a.commit_log), log_extent(b.commit_log))
    if empty := _empty(span):
        return empty
    start = max(span.a.start, span.b.start)
    end = min(span.a.end, span.b.end)
    if start >= end:
        text = f"nothing to compare: {_held('A', span.a)}, {_held('B', span.b)}"
        return span.diff(min(span.a.start, span.b.start), text)
    at = first_difference(a.commit_log, b.commit_log, start, end)
    if at is not None:
        return _difference(a, b, span, at)
    return _same_as_far_as_it_goes(a, b, span)


def _held(name: str, extent: LogExtent) -> str:
    return f"{name} holds offsets {extent.start} to {extent.end}"


def _empty(span: _Span) -> LogDiff | None:
    a, b = span
    if a.end > a.start and b.end > b.start:
        return None
    if a.end <= a.start and b.end <= b.start:
        return span.diff(-1, "equal: neither log holds a record", is_equal=True)
    name, other, extent = ("A", "B", b) if a.end <= a.start else ("B", "A", a)
    return span.diff(extent.start, f"{name} holds no record; {_held(other, extent)}")


def _same_as_far_as_it_goes(a: StoreDirectory, b: StoreDirectory, span: _Span) -> LogDiff:
    start, end = max(span.a.start, span.b.start), min(span.a.end, span.b.end)
    words = []
    offset = -1
    lacking = 0
    if span.a.end != span.b.end:
        name, other, longer = ("A", "B", b) if span.a.end < span.b.end else ("B", "A", a)
        far = max(span.a.end, span.b.end)
        lacking = sum(len(window.columns) for window in _windows(longer.commit_log, end, far))
        records = "1 record" if lacking == 1 else f"{lacking} records"
        words.append(
            f"{name} is a prefix of {other}: {records} behind"
            f" ({name} ends at {end}, {other} at {far})"
        )
        offset = end
    if span.a.start != span.b.start:
        name, first = ("A", span.a.start) if span.a.start < start else ("B", span.b.start)
        words.append(f"{name} also holds offsets {first} to {start}, which the other has deleted")
        offset = first
    if not words:
        count = sum(len(window.columns) for window in _windows(a.commit_log, start, end))
        text = f"equal: {count} records, offsets {start} to {end}"
        return replace(span.diff(-1, text, is_equal=True), equal_count=count)
    if len(words) == 1 and offset != end:
        words.insert(0, f"equal from {start} to {end}")
    return replace(span.diff(offset, "; ".join(words)), lacking_count=lacking)


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
                    yield replace(window, columns=window.columns.take(inside))


class _Place(msgspec.Struct, frozen=True):
    """What is around an offset: the record or blank it is in, and how many records before it."""

    record_offset: int
    number: int
    message: MessageExt | None
    content: Content


def _difference(a: StoreDirectory, b: StoreDirectory, span: _Span, at: int) -> LogDiff:
    start = max(span.a.start, span.b.start)
    ours, theirs = _place(a.commit_log, start, at), _place(b.commit_log, start, at)
    number = min(ours.number, theirs.number)
    place = min(ours.record_offset, theirs.record_offset)
    before = f"equal before it: {number} records, offsets {start} to {place}"
    contents = ours.content, theirs.content
    if ours.message is None or theirs.message is None:
        text = (
            f"first difference at offset {at}: A has {_WORDS[ours.content]} at"
            f" {ours.record_offset}, B has {_WORDS[theirs.content]} at {theirs.record_offset};"
            f" {before}"
        )
        return replace(span.diff(at, text), contents=contents, equal_count=number)
    fields = tuple(_different_fields(ours.message, theirs.message))
    names = ", ".join(field.split(":")[0] for field in fields) or "bytes that no field shows"
    message = ours.message
    text = (
        f"first difference at offset {at}, in the record at {ours.record_offset}"
        f" (topic {message.topic}, queue {message.queue_id}, queue offset"
        f" {message.queue_offset}): {names}; {before}"
    )
    return replace(span.diff(at, text), fields=fields, contents=contents, equal_count=number)


def _place(files: Sequence[DataFile], start: int, at: int) -> _Place:
    number = 0
    end = start
    for window in _windows(files, start, at + 1):
        columns = window.columns
        inside = np.flatnonzero(columns.physical_offset + columns.size > at)
        if len(inside):
            row = int(inside[0])
            message, _ = decode_message(window.data, int(columns.start[row]))
            return _Place(message.physical_offset, number + row, message, Content.RECORD)
        if len(columns):
            number += len(columns)
            end = int(columns.physical_offset[-1] + columns.size[-1])
    return _Place(*_not_a_record(files, end, at, number))


def _not_a_record(
    files: Sequence[DataFile], end: int, at: int, number: int
) -> tuple[int, int, None, Content]:
    file = next((f for f in files if f.offset <= at < f.end_offset), None)
    if file is None:
        return at, number, None, Content.NO_FILE
    place = max(end, file.offset)
    head = read_log([file], place, place + 8)
    if int.from_bytes(head[4:], "big") == BLANK_MAGIC_CODE:
        return place, number, None, Content.BLANK
    return place, number, None, Content.OTHER if any(head) else Content.ZEROS


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
