"""How far some bytes of a commit log hold sound records: what a follower asks of what it is sent.

`record_scan.scan_records` without the columns. What a sound record is, `record_rule` says.
"""

import struct
from typing import Final

from tandem.wire import native
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message import (
    MESSAGE_MAGIC_CODE,
    RECORD_BYTES_MIN,
)
from tandem.wire.record_rule import (
    BODY_AT,
    RECORD_BYTES_MAX,
    V6_FLAGS,
    Buffer,
    ScanStop,
    look,
    record_fault,
)
from tandem.wire.record_scan import RecordCheck, scan_records, stopped

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_USUAL_HEAD = struct.Struct(">IIi16xqI44xI")
"""TOTALSIZE, MAGICCODE, BODYCRC, PHYSICALOFFSET, SYSFLAG and, after v4 hosts, BODYLENGTH."""


FEW_RECORDS_MAX: Final = 6
"""Up to about this many records a plain loop costs less than calling C."""

PLAIN_LOOP_RECORDS_MAX: Final = 96
"""Up to about this many records `check_records` is faster with a plain loop than with columns.

The cost of columns is in the calls: 0.7 us for each record of 1 KB against 50 us and 0.4 us.
"""

assert _USUAL_HEAD.size == BODY_AT


def check_records(
    buffer: Buffer,
    base_offset: int,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> RecordCheck:
    """Return how far `buffer[start:end]` holds sound records, as `scan_records` would.

    Short runs, such as what a follower gets between two acknowledgements, go through a plain loop;
    long ones through columns; more than a few through C where that is. All give the same answer.
    """
    end = len(buffer) if end is None else end
    # A guess, by the first record, at how many there are.
    first_bytes = int.from_bytes(buffer[start : min(start + _INT.size, end)], "big")
    if native.loops is not None and end - start > FEW_RECORDS_MAX * first_bytes:
        checked = native.loops.check(
            buffer, base_offset, start, end, check_crc=check_crc, size_max=record_bytes_max
        )
        return stopped(buffer, base_offset, checked, (end, record_bytes_max), check_crc=check_crc)
    few = end - start <= PLAIN_LOOP_RECORDS_MAX * max(first_bytes, RECORD_BYTES_MIN)
    count = 0
    last_start = -1
    position = start
    while few and count < PLAIN_LOOP_RECORDS_MAX:
        found, last, position = _usual_records(
            buffer, base_offset, position, end, check_crc=check_crc, size_max=record_bytes_max
        )
        if found:
            count += found
            last_start = last
        # What is not usual there is looked at by the rule itself, and so is what is wrong.
        stop, reason, needed_bytes = look(buffer, position, end, record_bytes_max)
        if stop is not None:
            return RecordCheck(count, last_start, position, stop, reason, needed_bytes)
        fault = record_fault(buffer, base_offset, position, check_crc=check_crc)
        if fault is not None:
            return RecordCheck(count, last_start, position, ScanStop.CORRUPT, fault, 0)
        count += 1
        last_start = position
        position += needed_bytes
    rest = scan_records(
        buffer, base_offset, position, end, check_crc=check_crc, record_bytes_max=record_bytes_max
    ).check
    return RecordCheck(
        count + rest.count,
        rest.last_start if rest.count else last_start,
        rest.end,
        rest.stop,
        rest.reason,
        rest.needed_bytes,
    )


def _usual_records(
    buffer: Buffer, base_offset: int, position: int, end: int, *, check_crc: bool, size_max: int
) -> tuple[int, int, int]:
    """Go through sound records from `position` on, as long as they are of the usual kind.

    That is: v4 hosts and a topic of at most 127 bytes. Returns how many they are, where the last
    one starts and where it ends: something else is there, or enough have been found.
    """
    head, short = _USUAL_HEAD.unpack_from, _SHORT.unpack_from
    last_start = -1
    count = 0
    with memoryview(buffer) as view:
        while position + RECORD_BYTES_MIN <= end and count < PLAIN_LOOP_RECORDS_MAX:
            size, magic, body_crc, place, sys_flag, body_bytes = head(view, position)
            stop = position + size
            body_start = position + BODY_AT
            body_end = body_start + body_bytes
            if magic != MESSAGE_MAGIC_CODE or sys_flag & V6_FLAGS or size > size_max:
                break
            if place != base_offset + position or stop > end or body_end + 3 > stop:
                break
            topic_bytes = view[body_end]
            topic_end = body_end + 1 + topic_bytes
            if topic_bytes > 127 or topic_end + 2 > stop:
                break
            if topic_end + 2 + short(view, topic_end)[0] != stop:
                break
            if check_crc and raw_crc32(view[body_start:body_end]) & CRC_MASK != body_crc:
                break
            last_start = position
            position = stop
            count += 1
    return count, last_start, position
