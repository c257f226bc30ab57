"""Where the valid log ends, decided from bytes alone, for a node that starts.

The rule is in `tandem.wire.log_end`; this is the reader that stops. The log is walked record by
record from a place known to be good, and the walk ends where no valid record starts. What follows
that place says what happened:

    only zeros                                 the normal end of the log
    bytes, but no whole record, or only        a torn tail: node or machine stopped in the middle
    records newer than the checkpoint          of writing; cut off, after a copy was set aside
    a whole record that the checkpoint says    corruption: bytes that were on disk have changed;
    was on disk                                nothing is touched, a person has to look

What a record is, `read_record` says, one at a time, by the rules of `tandem.wire.record_rule`. The
walk itself applies the same rules to columns (`intact_records`), thousands of records at a time,
which is fifty times as fast; where that gets no further, `read_record` has the last word.

Nothing here changes anything, so an interrupted recovery just starts over.

Beyond RocketMQ, a record has to say its own place in the log (PHYSICALOFFSET), and properties
that end in zeros are a page that never reached the disk.
Source: CommitLog.checkMessageAndReturnSize, recoverNormally, recoverAbnormally of 5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import numpy as np

from tandem.wire.column_values import distinct_values
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import (
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_BYTES_MIN,
)
from tandem.wire.message_properties import inner_batch_of
from tandem.wire.property_crc import property_crc_agrees, property_crc_fault
from tandem.wire.record_rule import (
    BLANK_HEADER_BYTES,
    LogBytes,
    RecordParts,
    ScanStop,
    body_fault,
    look,
    record_parts,
    record_starts,
    store_timestamp_ms,
)
from tandem.wire.record_scan import Bools, RecordColumns, read_columns, scan_records

DELAY_LEVELS: Final = DelayLevels()
"""RocketMQ's default table."""

CHUNK_BYTES: Final = 2 << 20
"""How much of the log is looked at, and copied, at once. Larger pieces leave the processor's cache
(benchmarks/recovery.py)."""

BLANK_HEADER: Final = struct.Struct(">II")
_SEARCH_BYTES: Final = 1 << 17
_QUEUE_PLACE: Final = struct.Struct(">12xi4xq8xi16xq")
"""QUEUEID, QUEUEOFFSET, SYSFLAG and, where the born host is a v4 one, STORETIMESTAMP."""

_NUL: Final = 0
_REASONS: Final = {
    ScanStop.END: "nothing is left of the file",
    ScanStop.ZEROS: "zeros",
    ScanStop.BLANK: "blank record of {size} bytes, {left} are left in the file",
}
TORN_BYTES_MIN: Final = 512
"""The least a disk writes at once: what is lost inside a string is at least that long."""
_LOST_SECTOR: Final = bytes(TORN_BYTES_MIN)


class DispatchRequest(msgspec.Struct, frozen=True, gc=False):
    """What the queues need to know of one stored record.

    Source: org.apache.rocketmq.store.DispatchRequest.
    """

    topic: str
    queue_id: int
    offset: int
    size: int
    tags_code: int
    queue_offset: int
    store_timestamp_ms: int
    sys_flag: int
    msg_base_offset: int = -1
    """Queue offset of the first message in the record; -1 means `queue_offset`."""
    batch_size: int = 1
    """How many messages the record holds: more than one only in an inner batch."""


class Blank(msgspec.Struct, frozen=True, gc=False):
    """The filler at the end of a file: go on with the next one."""

    size: int


class Damage(msgspec.Struct, frozen=True, gc=False):
    """No valid record starts here. `reason` is for people."""

    reason: str


def read_record(
    buffer: LogBytes,
    position: int,
    end: int,
    physical_offset: int,
    *,
    check_crc: bool = True,
    force_verify_prop_crc: bool = False,
    levels: DelayLevels = DELAY_LEVELS,
) -> DispatchRequest | Blank | Damage:
    """Check the record at `position`; bytes up to `end` may be read.

    `physical_offset` is where in the log `position` is. With `force_verify_prop_crc` the CRC over
    the whole record takes the place of that over the body, and a record without one is damage;
    neither is looked at without `check_crc`.

    Source: CommitLog.checkMessageAndReturnSize.
    """
    stop, reason, size = look(buffer, position, end)
    if stop is not None:
        if stop is ScanStop.BLANK and BLANK_HEADER_BYTES <= size <= end - position:
            return Blank(size)
        return Damage(reason or _REASONS[stop].format(size=size, left=end - position))
    parts = record_parts(buffer, physical_offset - position, position)
    if isinstance(parts, str):
        return Damage(parts)
    if check_crc and (fault := _crc_fault(buffer, position, parts, force=force_verify_prop_crc)):
        return Damage(fault)
    topic_name = bytes(buffer[parts.topic_start : parts.topic_end])
    properties = bytes(buffer[parts.properties_start : parts.properties_end])
    if looks_torn(properties) or _NUL in topic_name:
        return Damage("topic or properties hold NUL bytes: a page is missing")
    queue_id, queue_offset, sys_flag, stored_ms = _QUEUE_PLACE.unpack_from(buffer, position)
    if sys_flag & BORNHOST_V6_FLAG:
        stored_ms = store_timestamp_ms(buffer, position)
    topic = topic_name.decode("utf-8", "replace")
    base, count = inner_batch_of(properties, queue_offset)
    return DispatchRequest(
        topic=topic,
        queue_id=queue_id,
        offset=physical_offset,
        size=size,
        tags_code=levels.dispatch_code(topic, properties, stored_ms),
        queue_offset=queue_offset,
        store_timestamp_ms=stored_ms,
        sys_flag=sys_flag,
        msg_base_offset=base,
        batch_size=count,
    )


def _crc_fault(buffer: LogBytes, position: int, parts: RecordParts, *, force: bool) -> str | None:
    """Return what is wrong with the checksum that counts: the record's or its body's."""
    if force:
        return property_crc_fault(buffer, position, parts.properties_end)
    return body_fault(buffer, parts)


def intact_records(
    buffer: bytes | memoryview,
    base_offset: int,
    *,
    check_crc: bool = True,
    force_verify_prop_crc: bool = False,
) -> RecordColumns:
    """Return the records at the beginning of `buffer` that `read_record` takes, as columns.

    `base_offset` is where in the log the buffer starts. A record that runs past its end, a blank
    and damage end the columns alike.
    """
    body_crc = check_crc and not force_verify_prop_crc
    columns = scan_records(buffer, base_offset, check_crc=body_crc).columns
    if not len(columns):
        return columns
    good = ~_rows_with_zeros(buffer, columns)
    if check_crc and force_verify_prop_crc:
        good &= property_crc_agrees(buffer, columns)
    return columns if good.all() else columns.take(slice(0, int(np.argmin(good))))


def _rows_with_zeros(buffer: bytes | memoryview, columns: RecordColumns) -> Bools:
    """Say in which rows a page of topic or properties seems to be missing. See `looks_torn`."""
    ends = columns.properties_start + columns.properties_size
    last = np.frombuffer(buffer, np.uint8)[ends - 1]
    torn: Bools = (last == _NUL) & (columns.properties_size > 0)
    for row in np.flatnonzero(columns.properties_size >= TORN_BYTES_MIN).tolist():
        torn[row] |= looks_torn(bytes(buffer[int(columns.properties_start[row]) : int(ends[row])]))
    topics, numbers = distinct_values(buffer, columns.topic_start, columns.topic_size)
    torn |= np.array([_NUL in topic for topic in topics])[numbers]
    return torn


def looks_torn(properties: bytes) -> bool:
    """True if a page of the property string seems never to have reached the disk.

    A lost page leaves zeros to the end of the string, or 512 of them and more inside. No checksum
    covers the string, so the store takes no message whose properties look like that.
    """
    return properties.endswith(b"\0") or (
        len(properties) >= TORN_BYTES_MIN and _LOST_SECTOR in properties
    )


class LogFile(Protocol):
    """What the walk needs of a MappedFile."""

    @property
    def buffer(self) -> LogBytes:
        """All of the file."""

    @property
    def file_from_offset(self) -> int:
        """Where in the log the file starts."""

    @property
    def size(self) -> int:
        """Its length in bytes."""


class DispatchRecords(Protocol):
    """Takes records in the order of the log."""

    def __call__(self, buffer: bytes | memoryview, columns: RecordColumns, /) -> object:
        """`columns` are those of sound records in `buffer`, which lives only during the call."""


class LogEnd(msgspec.Struct, frozen=True):
    """Where the valid log ends, and why there.

    `last_record_offset` is where the last record starts, -1 if the walk met none;
    `last_store_timestamp_ms` when that one was stored. `clock_went_back` if one of the records was
    stored earlier than the one before it: then times say nothing about the order of writing.
    """

    offset: int
    reason: str
    last_record_offset: int = -1
    last_store_timestamp_ms: int = 0
    record_count: int = 0
    clock_went_back: bool = False


def find_log_end(
    files: Sequence[LogFile],
    dispatch: DispatchRecords,
    *,
    check_crc: bool = True,
    force_verify_prop_crc: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Callable[[int], object] = lambda _: None,
    is_known: Callable[[int, int], bool] = lambda _start, _end: False,
) -> LogEnd:
    """Walk `files`, which follow each other; hand all good records to `dispatch` in order.

    They come as a piece of the log, of about `chunk_bytes`, and the columns of the records in it.
    `progress` is called after each with the number of bytes walked. `is_known` says of a part of
    the log whether all of its bytes are right: then no CRC of its records is checked.

    A blank closes its file. RocketMQ goes back to the start of a blank that no file follows and
    writes something else over it, which a slave may hold already: here the log ends after it.

    Source: CommitLog.recoverNormally.
    """
    start = files[0].file_from_offset if files else 0
    end = LogEnd(offset=start, reason="there are no files")
    for file in files:
        position = 0
        while True:
            offset = file.file_from_offset + position
            until = offset + min(chunk_bytes, file.size - position)
            known = not force_verify_prop_crc and is_known(offset, until)
            read = partial(
                next_records,
                *(file.buffer, position, file.size, offset),
                bytes_max=chunk_bytes,
                force_verify_prop_crc=force_verify_prop_crc,
            )
            data, columns = read(check_crc=check_crc and not known)
            if known and len(data) > chunk_bytes:  # one record, which is known in part only
                data, columns = read(check_crc=check_crc)
            if isinstance(columns, Blank):
                break
            if isinstance(columns, Damage):
                return msgspec.structs.replace(end, offset=offset, reason=columns.reason)
            dispatch(data, columns)
            end = _behind(end, offset, columns)
            position = end.offset - file.file_from_offset
            progress(end.offset - start)
        file_end = file.file_from_offset + file.size
        end = msgspec.structs.replace(end, offset=file_end, reason="blank record")
    return end


def next_records(
    buffer: LogBytes,
    position: int,
    end: int,
    offset: int,
    *,
    bytes_max: int,
    check_crc: bool = True,
    force_verify_prop_crc: bool = False,
) -> tuple[bytes | memoryview, RecordColumns | Blank | Damage]:
    """Return records from `position` on and the bytes they are in, or why there are none.

    Bytes up to `end` may be read; `offset` is where in the log `position` is. Of at most
    `bytes_max` bytes, unless the first record alone is larger. There is at least one record.
    """
    # A copy: several passes over it cost less than over the mapping.
    data = bytes(buffer[position : min(end, position + bytes_max)])
    columns = intact_records(
        data, offset, check_crc=check_crc, force_verify_prop_crc=force_verify_prop_crc
    )
    if len(columns):
        return data, columns
    found = read_record(
        buffer,
        position,
        end,
        offset,
        check_crc=check_crc,
        force_verify_prop_crc=force_verify_prop_crc,
    )
    if not isinstance(found, DispatchRequest):
        return b"", found
    view = memoryview(buffer)[position : position + found.size]
    return view, read_columns(view, np.zeros(1, np.int64))


def _behind(end: LogEnd, offset: int, columns: RecordColumns) -> LogEnd:
    """Return `end` moved past these records, which are in a piece that starts at `offset`."""
    last_start, last_size = int(columns.start[-1]), int(columns.size[-1])
    times_ms = columns.store_timestamp_ms
    fell = times_ms[0] < end.last_store_timestamp_ms or (times_ms[1:] < times_ms[:-1]).any()
    return LogEnd(
        offset=offset + last_start + last_size,
        reason="",
        last_record_offset=offset + last_start,
        last_store_timestamp_ms=int(times_ms[-1]),
        record_count=end.record_count + len(columns),
        clock_went_back=end.clock_went_back or bool(fell),
    )


def record_behind(files: Sequence[LogFile], offset: int) -> DispatchRequest | None:
    """Return the first whole record that starts after `offset`, None if there is none.

    Searches for the magic and believes a place only if the record there is valid and says so of
    itself; a record that a body happens to carry is believed too if it names the right offset.
    """
    for file in files:
        base = file.file_from_offset
        start = max(0, offset + 1 - base)
        for at in record_starts(partial(_copy, file), base, start, file.size, _SEARCH_BYTES):
            record = read_record(file.buffer, at, file.size, base + at)
            if isinstance(record, DispatchRequest):
                return record
    return None


def _copy(file: LogFile, position: int, size: int) -> bytes:
    """Return bytes to search.

    Not `mmap.find`: before Python 3.11.5 it reads past the end of the mapping, which kills the
    process (CPython issue 105235).
    """
    return bytes(file.buffer[position : position + size])


def count_records(files: Sequence[LogFile], start: int, end: int) -> int:
    """Return how many records start from `start` on, where one does, and below `end`.

    Damage is passed over; records that can be found after it count.
    """
    count = 0
    for file in files:
        file_end = file.file_from_offset + file.size
        offset = max(start, file.file_from_offset)
        while offset < min(end, file_end):
            _, columns = next_records(
                file.buffer,
                offset - file.file_from_offset,
                file.size,
                offset,
                bytes_max=CHUNK_BYTES,
                check_crc=False,
            )
            if isinstance(columns, RecordColumns):
                count += int(np.count_nonzero(columns.physical_offset < end))
                offset = int(columns.physical_offset[-1] + columns.size[-1])
                continue
            following = record_behind([file], offset) if isinstance(columns, Damage) else None
            offset = following.offset if following else file_end
    return count


def first_store_timestamp_ms(file: LogFile) -> int:
    """Return when the first record of `file` was stored, 0 if none starts there.

    Source: CommitLog.isMappedFileMatchedRecover.
    """
    if file.size < RECORD_BYTES_MIN:
        return 0
    _, magic = BLANK_HEADER.unpack_from(file.buffer, 0)
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        return 0
    return store_timestamp_ms(file.buffer, 0)


def start_index(
    files: Sequence[LogFile],
    *,
    clean: bool,
    queues_end: int,
    safe_timestamp_ms: int,
    synced_end: int = 0,
) -> int:
    """Return the file to start the walk at.

    After a clean stop: the newest file that starts at or before `queues_end`, the end of the last
    record the queues know. After a crash: the newest file whose first record was stored no later
    than `safe_timestamp_ms`, up to which the checkpoint vouches for log and queues, and that does
    not start after `synced_end`, up to where it says that the log is on disk; times alone mislead
    when the clock was put back. Else file 0.

    Source: CommitLog.recoverNormally, recoverAbnormally.
    """
    for index in range(len(files) - 1, 0, -1):
        if clean and files[index].file_from_offset <= queues_end:
            return index
        if clean or 0 < synced_end < files[index].file_from_offset:
            continue
        if 0 < first_store_timestamp_ms(files[index]) <= safe_timestamp_ms:
            return index
    return 0
