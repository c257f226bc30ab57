"""What makes bytes of a commit log a sound record, one record at a time.

    look               which of six things is at a place, by TOTALSIZE and magic alone
    record_parts       where body, topic and properties are, or which length does not add up
    record_fault       what is wrong with a whole record: its place, its lengths, its body's CRC
    find_record_start  the first record at or after an arbitrary position, for cuts inside a file
    record_starts      all of them in a file, which is read a piece at a time

A sound record has a known magic, lengths that add up to TOTALSIZE (the rule of RocketMQ's
checkMessageAndReturnSize), a PHYSICALOFFSET that is its own place in the log, and a body that its
BODYCRC fits. RocketMQ does not compare PHYSICALOFFSET; every record it writes passes, and the check
is what tells a leftover of an earlier life of the file from a record.

`record_scan` applies the same rule to columns, thousands of records at a time.
"""

import enum
import re
import struct
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

import msgspec

from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_BYTES_MIN,
    STOREHOSTADDRESS_V6_FLAG,
)

Buffer: TypeAlias = bytes | bytearray | memoryview


class LogBytes(Protocol):
    """Bytes of a log that may not all be in memory: a `Buffer`, or a mapping of a file."""

    def __getitem__(self, key: slice, /) -> Buffer:
        """A part."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """The buffer protocol."""


RECORD_BYTES_MAX: Final = 2**31 - 1
"""What the length field can hold; callers pass their own, smaller bound."""

BLANK_HEADER_BYTES: Final = 8
"""TOTALSIZE and magic of the record that closes a file; what follows them is filler."""

CHECKED_HEAD_BYTES: Final = 40
"""TOTALSIZE to SYSFLAG: enough to see whether a record seems to begin."""

BODY_AT: Final = 88
"""Where the body begins in a record with v4 hosts; 12 bytes later for each v6 host."""

TEXTS_BYTES_MAX: Final = 2 + 32_767 + 2 + 32_767
"""What can follow a body: topic and properties, each with its length."""

_SIZE_MAGIC = struct.Struct(">II")
_CHECKED_HEAD = struct.Struct(">III16xqI")
_INT = struct.Struct(">i")
V6_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
_MAGICS: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")

assert _CHECKED_HEAD.size == CHECKED_HEAD_BYTES


class ScanStop(enum.Enum):
    """Why a walk or scan went no further."""

    END = "end"
    """The bytes end where a record ends."""
    BLANK = "blank"
    """The record that closes a file is here: the log goes on in the next file."""
    ZEROS = "zeros"
    """Nothing has been written here: TOTALSIZE and magic are zero."""
    TORN = "torn"
    """A record starts here and runs past the end of the bytes."""
    CORRUPT = "corrupt"
    """These bytes are not a record."""


class RecordParts(msgspec.Struct, frozen=True, gc=False):
    """Where the parts of a record are, as positions in its buffer; ends are not included."""

    body_start: int
    body_end: int
    body_crc: int
    """As the record says."""
    topic_start: int
    topic_end: int
    properties_start: int
    properties_end: int


def look(  # noqa: PLR0911 - one return for each thing that can be here
    buffer: LogBytes, position: int, end: int, record_bytes_max: int = RECORD_BYTES_MAX
) -> tuple[ScanStop | None, str, int]:
    """Return (None, "", TOTALSIZE) if a whole record seems to be here, else why not.

    The third value, from `position` on, completes what is there: the TOTALSIZE of the record when
    TORN (8 if even that is cut), of the blank record when BLANK, else 0.
    """
    left = end - position
    if left <= 0:
        return ScanStop.END, "", 0
    if left < _SIZE_MAGIC.size:
        return ScanStop.TORN, f"{left} bytes of a record header", _SIZE_MAGIC.size
    size, magic = _SIZE_MAGIC.unpack_from(buffer, position)
    if magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        if not RECORD_BYTES_MIN <= size <= record_bytes_max:
            bounds = f"{RECORD_BYTES_MIN} to {record_bytes_max}"
            return ScanStop.CORRUPT, f"total size {size} is not within {bounds} bytes", 0
        if size > left:
            return ScanStop.TORN, f"record of {size} bytes, of which {left} are there", size
        return None, "", size
    if magic == BLANK_MAGIC_CODE:
        return ScanStop.BLANK, "", size
    if size == 0 and magic == 0:
        return ScanStop.ZEROS, "", 0
    return ScanStop.CORRUPT, f"magic 0x{magic:08X} is not a record's", 0


def body_at(sys_flag: int) -> int:
    """Return how far from its start the body of a record begins."""
    hosts = bool(sys_flag & BORNHOST_V6_FLAG) + bool(sys_flag & STOREHOSTADDRESS_V6_FLAG)
    return BODY_AT + 12 * hosts


def store_timestamp_ms(buffer: LogBytes, position: int) -> int:
    """Return when the record at `position` was stored; its head is within the buffer."""
    (sys_flag,) = _INT.unpack_from(buffer, position + 36)
    at = position + 56 + 12 * bool(sys_flag & BORNHOST_V6_FLAG)
    return int(_LONG.unpack_from(buffer, at)[0])


def record_parts(buffer: LogBytes, base_offset: int, position: int) -> RecordParts | str:
    """Return where the parts of the record at `position` are, or what is wrong with it.

    TOTALSIZE and magic have been looked at: the record is within the buffer, whose first byte has
    the physical offset `base_offset`. No CRC is checked.
    """
    size, magic, body_crc, physical_offset, sys_flag = _CHECKED_HEAD.unpack_from(buffer, position)
    if physical_offset != base_offset + position:
        return f"physical offset {physical_offset} in the record at {base_offset + position}"
    end = position + size
    body_start = position + (body_at(sys_flag) if sys_flag & V6_FLAGS else BODY_AT)
    if body_start + 3 > end:
        return f"total size {size} leaves no room for the hosts"
    (body_bytes,) = _INT.unpack_from(buffer, body_start - 4)
    body_end = body_start + body_bytes
    topic_start = body_end + (2 if magic == MESSAGE_MAGIC_CODE_V2 else 1)
    if body_bytes < 0 or topic_start + 2 > end:
        return f"body size {body_bytes} in a record of {size} bytes"
    topic_bytes = int.from_bytes(buffer[body_end:topic_start], signed=True)
    topic_end = topic_start + topic_bytes
    properties_start = topic_end + 2
    if topic_bytes < 0 or properties_start > end:
        return f"topic size {topic_bytes} in a record of {size} bytes"
    (properties_bytes,) = _SHORT.unpack_from(buffer, topic_end)
    properties_end = properties_start + properties_bytes
    if properties_bytes < 0 or properties_end != end:
        return f"parts end at {properties_end - position}, total size is {size}"
    return RecordParts(
        body_start, body_end, body_crc, topic_start, topic_end, properties_start, properties_end
    )


def record_fault(
    buffer: LogBytes, base_offset: int, position: int, *, check_crc: bool = True
) -> str | None:
    """Return what is wrong with the whole record at `position`, None if nothing is.

    TOTALSIZE and magic have been looked at: the record is within the buffer.
    """
    parts = record_parts(buffer, base_offset, position)
    if isinstance(parts, str):
        return parts
    return body_fault(buffer, parts) if check_crc else None


def body_fault(buffer: LogBytes, parts: RecordParts) -> str | None:
    """Return how the CRC of a body differs from BODYCRC; None if it does not, or without a body."""
    if parts.body_start == parts.body_end:
        return None
    with memoryview(buffer) as view:
        crc = raw_crc32(view[parts.body_start : parts.body_end]) & CRC_MASK
    return None if crc == parts.body_crc else f"body CRC is {crc}, the record says {parts.body_crc}"


def find_record_start(buffer: bytes | bytearray, base_offset: int, start: int = 0) -> int:
    """Return the first position at or after `start` where a record seems to begin, -1 if none.

    What counts is the magic together with a PHYSICALOFFSET that names this very place, and, as
    far as the record is within the buffer, lengths that add up. Somebody who can guess where
    his message will be could put such bytes into a body, so cross-check where you can.
    """
    position = start
    while True:
        magic = _MAGICS.search(buffer, position + 4)
        if magic is None:
            return -1
        position = magic.start() - 4
        if _seems_record(buffer, base_offset, position):
            return position
        position += 1


def record_starts(
    read: Callable[[int, int], bytes | bytearray],
    base_offset: int,
    start: int,
    end: int,
    piece_bytes: int,
    skip: Callable[[int], int] = int,
) -> Iterator[int]:
    """Yield the positions in [start, end) of a file where records seem to begin; cross-check them.

    `base_offset` is where in the log the file begins. `read` returns up to as many bytes as it is
    asked for, from a position on, and `skip` the first position from one on with anything to read.
    """
    zeros = bytes(piece_bytes)  # most of what is searched, and sooner compared than searched
    position, searched = skip(start), start
    while position < end:
        data = read(position, min(piece_bytes, end - position))
        at = max(searched - position, 0)
        while data != zeros and (at := find_record_start(data, base_offset + position, at)) >= 0:
            yield position + at
            at += 1
        if position + len(data) >= end or len(data) <= CHECKED_HEAD_BYTES:
            return
        # Pieces overlap, so that a head on the seam is found.
        searched = position + len(data) - CHECKED_HEAD_BYTES + 1
        position = skip(searched - 1)


def _seems_record(buffer: bytes | bytearray, base_offset: int, position: int) -> bool:
    if position + CHECKED_HEAD_BYTES > len(buffer):
        return False
    size, _, _, physical_offset, _ = _CHECKED_HEAD.unpack_from(buffer, position)
    if physical_offset != base_offset + position or size < RECORD_BYTES_MIN:
        return False
    if position + size > len(buffer):
        return True
    return not record_fault(buffer, base_offset, position, check_crc=False)
