"""Reads whole runs of commit-log records at once: where they start, what they hold, where they end.

A record says its own length, so the starts have to be walked one after the other; that loop does
nothing else. Everything after it works on columns: numpy views over the raw bytes, one gather a
field, no Python object a record.

    walk_records      positions of the records, and why the walk stopped
    read_columns      the header fields and the places of body, topic and properties as columns
    body_crcs         the checksum of each body
    scan_records      all of the above: the columns of the sound records, and what ends them

What a sound record is, `record_rule` says, one record at a time; the columns follow the same rule.

Nothing returned from here refers to the buffer that was read: it may be unmapped or reused.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.wire import native
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message import (
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_BYTES_MIN,
    STOREHOSTADDRESS_V6_FLAG,
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

Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

_INT = struct.Struct(">i")

# With v4 hosts; after v6 ones the fields from STORETIMESTAMP on are further back.
_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp_ms", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp_ms", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_size", ">i4"),
    ]
)
_NUMBERS = tuple(name for name in _HEAD.names or () if not name.endswith("host"))
_TAIL = np.dtype(
    [("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_size", ">i4")]
)
_BORN_HOST_AT = 48
_STORE_HOST_AT = 64
_TAIL_AT = 72

assert _HEAD.itemsize == BODY_AT == _TAIL_AT + _TAIL.itemsize

PROBED_RECORDS: Final = 64
"""From this many records on it is asked whether they are small."""

SMALL_RECORD_BYTES: Final = 640
"""Records of less than this on average are looked for by their magic (benchmarks/spark_scan.py)."""

COPIED_BODY_BYTES_MAX: Final = 512
"""Bodies of up to this many bytes are copied for their CRC, all of one size at once."""

EQUAL_BODIES_MIN: Final = 32
"""Of fewer bodies of one size each is cut out of the buffer by itself."""

EQUAL_SIZES_MAX: Final = 8
"""At most this many sizes of bodies are gathered, one after the other."""


class RecordWalk(msgspec.Struct, frozen=True, eq=False):
    """Where records start. `end` is the position after the last one, where the walk stopped.

    `needed_bytes`, from `end` on, complete what is there: the TOTALSIZE of the record when
    TORN (8 if even that is cut), of the blank record when BLANK, else 0.
    """

    starts: Int64s
    end: int
    stop: ScanStop
    reason: str
    needed_bytes: int


class RecordColumns(msgspec.Struct, frozen=True, eq=False):
    """Records as columns of equal length, in log order.

    Positions (`*_start`) count from the beginning of the buffer, sizes are in bytes. `sound` is
    False where the lengths inside a record do not add up to its `size`; the fields from
    `body_start` on mean nothing there.
    """

    start: Int64s
    size: Int64s
    magic: Int64s
    body_crc: Int64s
    queue_id: Int64s
    flag: Int64s
    queue_offset: Int64s
    physical_offset: Int64s
    sys_flag: Int64s
    born_timestamp_ms: Int64s
    store_timestamp_ms: Int64s
    store_host_start: Int64s
    reconsume_times: Int64s
    prepared_transaction_offset: Int64s
    body_start: Int64s
    body_size: Int64s
    topic_start: Int64s
    topic_size: Int64s
    properties_start: Int64s
    properties_size: Int64s
    sound: Bools

    def __len__(self) -> int:
        return len(self.start)

    @property
    def born_host_start(self) -> Int64s:
        """Where BORNHOST is: the same place in every record."""
        return self.start + _BORN_HOST_AT

    def take(self, chosen: Bools | Int64s | slice) -> "RecordColumns":
        """Return the rows that a mask, an index array or a slice chooses."""
        return RecordColumns(*(getattr(self, name)[chosen] for name in self.__struct_fields__))


class RecordCheck(msgspec.Struct, frozen=True):
    """How far a run of bytes holds sound records.

    `end` is the position after the last sound record; `last_start` is its start, -1 if there is
    none. `stop`, `reason` and `needed_bytes` are those of `RecordWalk`, or CORRUPT with the check
    that failed.
    """

    count: int
    last_start: int
    end: int
    stop: ScanStop
    reason: str
    needed_bytes: int


class RecordScan(msgspec.Struct, frozen=True, eq=False):
    """The columns of the sound records at the beginning of a buffer, and what stopped the scan."""

    columns: RecordColumns
    check: RecordCheck


def walk_records(
    buffer: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> RecordWalk:
    """Walk from record to record in `buffer[start:end]`, looking at TOTALSIZE and magic only.

    Record after record is taken until something else is met; see `ScanStop`. A record of less
    than 91 bytes or more than `record_bytes_max` is CORRUPT.
    """
    end = len(buffer) if end is None else end
    first, position = _add_sizes_up(buffer, start, end, PROBED_RECORDS)
    found = np.array(first, np.int64)
    if len(first) == PROBED_RECORDS:
        more = None
        if position - start < PROBED_RECORDS * SMALL_RECORD_BYTES:
            more = _by_magic(buffer, position, end)
        if more is None:
            rest, position = _add_sizes_up(buffer, position, end, end - start)
            more = np.array(rest, np.int64)
        else:
            position = int(more[-1]) + _INT.unpack_from(buffer, int(more[-1]))[0]
        found = np.concatenate((found, more))
    good = _seem_records(buffer, found, np.append(found[1:], position), end, record_bytes_max)
    if not good.all():
        count = int(np.argmin(good))
        position = int(found[count])
        found = found[:count]
    stop, reason, needed_bytes = look(buffer, position, end, record_bytes_max)
    assert stop is not None
    return RecordWalk(found, position, stop, reason, needed_bytes)


def _add_sizes_up(buffer: Buffer, position: int, end: int, count: int) -> tuple[list[int], int]:
    """Return up to `count` positions that follow from each other's sizes, and the next one."""
    unpack = _INT.unpack_from
    starts: list[int] = []
    append = starts.append
    last = end - RECORD_BYTES_MIN
    # This loop is the floor under every scan of larger records: it only adds sizes up. What it
    # went through is looked at afterwards, all at once.
    while position <= last and len(starts) < count:
        (size,) = unpack(buffer, position)
        if size < RECORD_BYTES_MIN:
            break
        append(position)
        position += size
    return starts, position


def _by_magic(buffer: Buffer, start: int, end: int) -> Int64s | None:
    """Return all places with a record's magic, if each begins where the one before ends.

    Then they are the records. None if there is a magic elsewhere, say within a body: then only
    adding sizes up finds them. Of small records the search is twice as fast
    (benchmarks/spark_scan.py). The last one may run past `end`.
    """
    raw = np.frombuffer(buffer, np.uint8, end - start, start)
    at = np.flatnonzero(raw == MESSAGE_MAGIC_CODE >> 24)
    at = at[
        np.searchsorted(at, 4) : np.searchsorted(at, end - start - RECORD_BYTES_MIN + 4, "right")
    ]
    magic = gather(buffer, ">u4", at + start)
    at = at[(magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)]
    found: Int64s = at + (start - 4)
    if not len(found) or found[0] != start:
        return None
    sizes = gather(buffer, ">i4", found)
    follow = np.array_equal(found[1:], (found + sizes)[:-1])
    return found if follow and sizes.min() >= RECORD_BYTES_MIN else None


def _seem_records(
    buffer: Buffer, starts: Int64s, ends: Int64s, end: int, record_bytes_max: int
) -> Bools:
    """Say where the magic is a record's, and the record not too large. See `look`."""
    if not len(starts):
        return np.empty(0, np.bool_)
    magic = gather(buffer, ">u4", starts + 4)
    good: Bools = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    # Only the last one can run past the end.
    good[-1] &= ends[-1] <= end
    if record_bytes_max < RECORD_BYTES_MAX:
        good &= ends - starts <= record_bytes_max
    return good


def read_columns(buffer: Buffer, starts: Int64s) -> RecordColumns:
    """Gather the fields of the records at `starts` (from `walk_records`) as columns."""
    if not len(starts):
        return _no_columns()
    # As plain bytes: numpy copies values of a structured type one field at a time.
    head = _strided(buffer, f"V{_HEAD.itemsize}")[starts].view(_HEAD)
    fixed = {name: head[name].astype(np.int64) for name in _NUMBERS}
    ends = starts + fixed["size"]
    after_hosts = starts
    fixed["store_host_start"] = starts + _STORE_HOST_AT
    if (fixed["sys_flag"] & V6_FLAGS).any():
        after_hosts = _read_after_hosts(buffer, starts, fixed)
    body_size = fixed.pop("body_size")
    body_start = after_hosts + (BODY_AT)
    topic_start = body_start + body_size + 1
    v2 = fixed["magic"] == MESSAGE_MAGIC_CODE_V2
    any_v2 = v2.any()
    if any_v2:
        topic_start += v2
    sound = (body_size >= 0) & (topic_start + 2 <= ends)
    topic_size = gather(buffer, ">i1", np.where(sound, topic_start - 1, starts))
    if any_v2:
        long_size = gather(buffer, ">i2", np.where(sound, topic_start - 2, starts))
        topic_size = np.where(v2, long_size, topic_size)
    properties_start = topic_start + topic_size + 2
    sound &= (topic_size >= 0) & (properties_start <= ends)
    properties_size = gather(buffer, ">i2", np.where(sound, properties_start - 2, starts))
    sound &= (properties_size >= 0) & (properties_start + properties_size == ends)
    return RecordColumns(
        start=starts,
        **fixed,
        body_start=body_start,
        body_size=body_size,
        topic_start=topic_start,
        topic_size=topic_size,
        properties_start=properties_start,
        properties_size=properties_size,
        sound=sound,
    )


def _read_after_hosts(buffer: Buffer, starts: Int64s, fixed: dict[str, Int64s]) -> Int64s:
    """Put the fields in `fixed` right that follow v6 hosts; return by how much they are shifted.

    Where a record has no room for its hosts, its body size becomes -1.
    """
    born_shift = 12 * ((fixed["sys_flag"] & BORNHOST_V6_FLAG) != 0)
    shift = born_shift + 12 * ((fixed["sys_flag"] & STOREHOSTADDRESS_V6_FLAG) != 0)
    fits = fixed["size"] >= RECORD_BYTES_MIN + shift
    stored_at = starts + np.where(fits, 56 + born_shift, 56)
    after_hosts = starts + np.where(fits, shift, 0)
    fixed["store_timestamp_ms"] = gather(buffer, ">i8", stored_at)
    fixed["store_host_start"] = stored_at + 8
    tail = _strided(buffer, _TAIL)[after_hosts + _TAIL_AT]
    for name in _TAIL.names or ():
        fixed[name] = tail[name].astype(np.int64)
    fixed["body_size"][~fits] = -1
    return after_hosts


def _no_columns() -> RecordColumns:
    none: dict[str, Any] = dict.fromkeys(RecordColumns.__struct_fields__, np.empty(0, np.int64))
    none["sound"] = np.empty(0, np.bool_)
    return RecordColumns(**none)


def _strided(buffer: Buffer, dtype: np.dtype[np.void] | str) -> NDArray[np.void]:
    """View `buffer` as one `dtype` value at every byte position."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(buffer) - width + 1,), dtype, buffer, strides=(1,))


def gather(buffer: Buffer, dtype: str, positions: Int64s) -> Int64s:
    """Return the numbers of numpy's `dtype` at `positions`, which need not be aligned."""
    return _strided(buffer, dtype)[positions].astype(np.int64)


def body_crcs(buffer: Buffer, columns: RecordColumns) -> Int64s:
    """Return the CRC-32 of each body, top bit cleared; 0 where a body is empty or not sound."""
    sizes = np.where(columns.sound, columns.body_size, 0)
    crcs = np.zeros(len(sizes), np.int64)
    left = np.flatnonzero(sizes)
    for _ in range(EQUAL_SIZES_MAX):
        if not left.size:
            break
        size = sizes[left[0]]
        if size > COPIED_BODY_BYTES_MAX:
            break
        same = sizes[left] == size
        rows = left[same]
        if rows.size < EQUAL_BODIES_MIN:
            break
        # Copies, made without a step in Python for each: cheaper than slices, if bodies are small.
        bodies = _strided(buffer, f"V{size}")[columns.body_start[rows]].tolist()
        crcs[rows] = np.fromiter(map(raw_crc32, bodies), np.int64, rows.size)
        left = left[~same]
    starts = columns.body_start[left]
    ends = starts + sizes[left]
    with memoryview(buffer) as view:
        crcs[left] = [
            raw_crc32(view[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
    return crcs & CRC_MASK


def crc_agrees(columns: RecordColumns, crcs: Int64s) -> Bools:
    """Say which records' BODYCRC fits `crcs`. An empty body always passes, as in RocketMQ."""
    agrees: Bools = (crcs == columns.body_crc) | (columns.body_size == 0)
    return agrees


def scan_records(
    buffer: Buffer,
    base_offset: int,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> RecordScan:
    """Return the columns of the sound records from `start` on, up to the first that is not.

    `base_offset` is the physical offset of the buffer's first byte.
    """
    if native.loops is not None:
        end = len(buffer) if end is None else end
        table, *found = native.loops.scan(
            buffer, base_offset, start, end, check_crc=check_crc, size_max=record_bytes_max
        )
        limits = end, record_bytes_max
        check = stopped(buffer, base_offset, found, limits, check_crc=check_crc)
        columns = RecordColumns(*[*table, np.ones(table.shape[1], np.bool_)])
        return RecordScan(columns, check)
    walk = walk_records(buffer, start, end, record_bytes_max=record_bytes_max)
    columns = read_columns(buffer, walk.starts)
    good = columns.sound & (columns.physical_offset == base_offset + columns.start)
    if check_crc:
        good &= crc_agrees(columns, body_crcs(buffer, columns))
    if good.all():
        last_start = int(walk.starts[-1]) if len(walk.starts) else -1
        stop = walk.stop, walk.reason, walk.needed_bytes
        return RecordScan(columns, RecordCheck(len(good), last_start, walk.end, *stop))
    count = int(np.argmin(good))
    reason = record_fault(buffer, base_offset, int(walk.starts[count]), check_crc=check_crc)
    assert reason is not None, "the rule finds nothing wrong with a record that was left out"
    last_start = int(walk.starts[count - 1]) if count else -1
    check = RecordCheck(count, last_start, int(walk.starts[count]), ScanStop.CORRUPT, reason, 0)
    return RecordScan(columns.take(slice(0, count)), check)


def stopped(
    buffer: Buffer,
    base_offset: int,
    found: Sequence[int],
    limits: tuple[int, int],
    *,
    check_crc: bool,
) -> RecordCheck:
    """Return the check of sound records after which none follows.

    `found` says how many they are, where the last one starts and where it ends; `limits` are the
    end of the bytes and the largest record.
    """
    count, last_start, position = found
    stop, reason, needed_bytes = look(buffer, position, *limits)
    if stop is None:
        stop, needed_bytes = ScanStop.CORRUPT, 0
        fault = record_fault(buffer, base_offset, position, check_crc=check_crc)
        assert fault is not None, "the rule finds nothing wrong with a record that was left out"
        reason = fault
    return RecordCheck(count, last_start, position, stop, reason, needed_bytes)
