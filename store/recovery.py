"""Where the valid log ends, decided from bytes alone.

The log is walked record by record from a place known to be good. The walk ends where no valid
record starts, and what lies behind that place says what happened:

    only zeros                                 the normal end of the log
    bytes, but no whole record, or only        a torn tail: node or machine stopped in the middle
    records newer than the checkpoint          of writing; cut off, after a copy was set aside
    a whole record that the checkpoint says    corruption: bytes that were on disk have changed;
    was on disk                                nothing is touched, a person has to look

Nothing here changes anything, so an interrupted recovery just starts over.

Beyond RocketMQ, a record has to say its own place in the log (PHYSICALOFFSET), and properties
that end in zeros are a page that never reached the disk.
Source: CommitLog.checkMessageAndReturnSize, recoverNormally, recoverAbnormally of 5.3.3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tandem.wire.crc import crc32
from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    BORNHOST_V6_FLAG,
    FIXED_HEADER,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_BYTES_MIN,
    STOREHOSTADDRESS_V6_FLAG,
)
from tandem.wire.message_properties import tags_code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLANK_HEADER: Final = struct.Struct(">II")
_SEARCH_BYTES: Final = 1 << 20
_STORE_TIMESTAMP: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iqi")
_SHORT: Final = struct.Struct(">h")
_MAGIC_BYTES: Final = (
    MESSAGE_MAGIC_CODE.to_bytes(4, "big"),
    MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big"),
)
_NUL: Final = 0
TORN_BYTES_MIN: Final = 512
"""The least a disk writes at once: what is lost inside a string is at least that long."""
_LOST_SECTOR: Final = bytes(TORN_BYTES_MIN)


class Buffer(Protocol):
    """The bytes of a file: an mmap, or a bytearray in simulated runs."""

    def __getitem__(self, key: slice, /) -> bytes | bytearray:
        """A copy of a part."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """The buffer protocol."""


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


def read_record(  # noqa: C901, PLR0911 - one rule after the other, one return for each
    buffer: Buffer, position: int, end: int, physical_offset: int, *, check_crc: bool = True
) -> DispatchRequest | Blank | Damage:
    """Check the record at `position`; bytes up to `end` may be read.

    `physical_offset` is where in the log `position` is.

    Source: CommitLog.checkMessageAndReturnSize.
    """
    if end - position < BLANK_HEADER.size:
        return Damage(f"{end - position} bytes are left, too few for a record")
    size, magic = BLANK_HEADER.unpack_from(buffer, position)
    record_end = position + size
    if magic == BLANK_MAGIC_CODE and BLANK_HEADER.size <= size and record_end <= end:
        return Blank(size)
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        return Damage(f"magic 0x{magic:08X} is not a message")
    if size < RECORD_BYTES_MIN or record_end > end:
        return Damage(f"total size {size} does not fit")
    (_, _, body_crc, queue_id, _, queue_offset, own_offset, sys_flag, _) = FIXED_HEADER.unpack_from(
        buffer, position
    )
    if own_offset != physical_offset:
        return Damage(f"the record says it lies at {own_offset}")
    at = position + 56 + 12 * bool(sys_flag & BORNHOST_V6_FLAG)
    (stored_ms,) = _STORE_TIMESTAMP.unpack_from(buffer, at)
    at += 16 + 12 * bool(sys_flag & STOREHOSTADDRESS_V6_FLAG)
    _, _, body_bytes = _TAIL.unpack_from(buffer, at)
    at += _TAIL.size
    body_end = at + body_bytes
    if body_bytes < 0 or body_end + 3 > record_end:
        return Damage(f"body length {body_bytes} does not fit")
    if check_crc and body_bytes and crc32(memoryview(buffer)[at:body_end]) != body_crc:
        return Damage("the body does not match its CRC")
    topic_at = body_end + (1 if magic == MESSAGE_MAGIC_CODE else 2)
    topic_end = topic_at + int.from_bytes(buffer[body_end:topic_at], "big")
    if topic_end + 2 > record_end:
        return Damage("topic length does not fit")
    if topic_end + 2 + _SHORT.unpack_from(buffer, topic_end)[0] != record_end:
        return Damage("the parts do not add up to the total size")
    properties = bytes(buffer[topic_end + 2 : record_end])
    topic = bytes(buffer[topic_at:topic_end])
    if looks_torn(properties) or _NUL in topic:
        return Damage("topic or properties hold NUL bytes: a page is missing")
    return DispatchRequest(
        topic=topic.decode("utf-8", "replace"),
        queue_id=queue_id,
        offset=physical_offset,
        size=size,
        tags_code=tags_code_of(properties),
        queue_offset=queue_offset,
        store_timestamp_ms=stored_ms,
        sys_flag=sys_flag,
    )


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
    def buffer(self) -> Buffer:
        """All of the file."""

    @property
    def file_from_offset(self) -> int:
        """Where in the log the file starts."""

    @property
    def size(self) -> int:
        """Its length in bytes."""


class LogEnd(msgspec.Struct, frozen=True):
    """Where the valid log ends, and why there.

    `last_record_offset` is where the last record starts, -1 if the walk met none;
    `last_store_timestamp_ms` when that one was stored.
    """

    offset: int
    reason: str
    last_record_offset: int = -1
    last_store_timestamp_ms: int = 0
    record_count: int = 0


def find_log_end(
    files: Sequence[LogFile],
    dispatch: Callable[[DispatchRequest], object],
    *,
    check_crc: bool = True,
) -> LogEnd:
    """Walk `files`, which lie end to end; hand every good record to `dispatch` in order.

    A blank closes its file. RocketMQ goes back to the start of a blank that no file follows and
    writes something else over it, which a slave may hold already: here the log ends behind it.

    Source: CommitLog.recoverNormally.
    """
    end = LogEnd(offset=files[0].file_from_offset if files else 0, reason="there are no files")
    for file in files:
        end, closed = _walk_file(file, end, dispatch, check_crc=check_crc)
        if not closed:
            return end
        end = msgspec.structs.replace(end, offset=file.file_from_offset + file.size)
    return end


def _walk_file(
    file: LogFile, end: LogEnd, dispatch: Callable[[DispatchRequest], object], *, check_crc: bool
) -> tuple[LogEnd, bool]:
    """Walk one file; return the end so far and whether a blank closes the file."""
    position = 0
    count = end.record_count
    last_offset, last_ms = end.last_record_offset, end.last_store_timestamp_ms
    while True:
        offset = file.file_from_offset + position
        record = read_record(file.buffer, position, file.size, offset, check_crc=check_crc)
        if isinstance(record, DispatchRequest):
            dispatch(record)
            last_offset, last_ms = offset, record.store_timestamp_ms
            count += 1
            position += record.size
            continue
        reason = record.reason if isinstance(record, Damage) else "blank record"
        return LogEnd(offset, reason, last_offset, last_ms, count), isinstance(record, Blank)


def record_behind(files: Sequence[LogFile], offset: int) -> DispatchRequest | None:
    """Return the first whole record that starts behind `offset`, None if there is none.

    Searches for the magic and believes a place only if the record there is valid and says so of
    itself; a record that a body happens to carry is believed too if it names the right offset.
    """
    for file in files:
        start = max(0, offset + 1 - file.file_from_offset)
        if start >= file.size:
            continue
        hits = [_first_record(file, start, magic) for magic in _MAGIC_BYTES]
        found = [hit for hit in hits if hit is not None]
        if found:
            return min(found, key=lambda record: record.offset)
    return None


def _first_record(file: LogFile, start: int, magic: bytes) -> DispatchRequest | None:
    hit = _find(file, magic, start + 4)
    while hit >= 0:
        record = read_record(file.buffer, hit - 4, file.size, file.file_from_offset + hit - 4)
        if isinstance(record, DispatchRequest):
            return record
        hit = _find(file, magic, hit + 1)
    return None


def _find(file: LogFile, needle: bytes, start: int) -> int:
    """Return where `needle` is at or behind `start`, -1 if it is not there.

    Not `mmap.find`: before Python 3.11.5 it reads past the end of the mapping, which kills the
    process (CPython issue 105235).
    """
    for position in range(start, file.size, _SEARCH_BYTES):
        # Parts overlap, so that a needle on the seam is found.
        part = bytes(file.buffer[position : position + _SEARCH_BYTES + len(needle) - 1])
        found = part.find(needle)
        if found >= 0:
            return position + found
    return -1


def first_store_timestamp_ms(file: LogFile) -> int:
    """Return when the first record of `file` was stored, 0 if none starts there.

    Source: CommitLog.isMappedFileMatchedRecover.
    """
    _, magic = BLANK_HEADER.unpack_from(file.buffer, 0)
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        return 0
    (sys_flag,) = struct.unpack_from(">i", file.buffer, 36)
    at = 56 + 12 * bool(sys_flag & BORNHOST_V6_FLAG)
    return int(_STORE_TIMESTAMP.unpack_from(file.buffer, at)[0])


def start_index(
    files: Sequence[LogFile], *, clean: bool, queues_end: int, safe_timestamp_ms: int
) -> int:
    """Return the file to start the walk at.

    After a clean stop: the newest file that starts at or before `queues_end`, the end of the last
    record the queues know. After a crash: the newest file whose first record was stored no later
    than `safe_timestamp_ms`, up to which the checkpoint vouches for log and queues. Else file 0.

    Source: CommitLog.recoverNormally, recoverAbnormally.
    """
    for index in range(len(files) - 1, 0, -1):
        if clean and files[index].file_from_offset <= queues_end:
            return index
        if not clean and 0 < first_store_timestamp_ms(files[index]) <= safe_timestamp_ms:
            return index
    return 0
